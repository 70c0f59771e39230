"""The manager's effects for the upstream's answer and its bytes."""

import pytest

from handlers.connection.effects import (
    CloseUpstream,
    Finish,
    Heartbeat,
    MarkConnected,
    Outcome,
    RecordGaps,
    RecordLoss,
    Release,
    SaveRecord,
    Write,
)
from handlers.connection.inputs import Chunk, Claimed, Closed, LeaseRead, Opened, Resumption, Written
from handlers.connection.intake import MOST_EVENTS, Intake
from handlers.connection.lease import Lease
from handlers.connection.record import Record
from tests.handlers.connection.managers import (
    FENCE,
    RECORDS,
    SAVES,
    claimed,
    connected,
    drain,
    event,
    fresh,
    kinds,
    outcome,
    profile,
    set_arrival,
)

INSTANT = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("status", "headers", "error", "retry_after_s"),
    [
        (429, {"retry-after": "30"}, "StreamThrottled", 30.0),
        (420, {}, "StreamThrottled", None),
        (429, {"retry-after": "9" * 400}, "StreamThrottled", 86_400.0),
        (429, {"retry-after": "-1"}, "StreamThrottled", None),
        (429, {"retry-after": "Thu, 01 Jan 1970 00:00:09 GMT"}, "StreamThrottled", 8.97),  # no Date: by our clock
        (429, {"retry-after": INSTANT, "date": "Wed, 21 Oct 2026 07:27:20 GMT"}, "StreamThrottled", 40.0),
        (429, {"retry-after": INSTANT, "date": "Wed, 21 Oct 2026 07:28:20 GMT"}, "StreamThrottled", 0.0),
        (503, {"retry-after": INSTANT, "date": "Wed, 14 Oct 2026 07:28:20 GMT"}, "StreamDropped", 86_400.0),
        (
            429,
            {"retry-after": "Wednesday, 21-Oct-26 07:28:00 GMT", "date": "Wed Oct 21 07:27:00 2026"},
            "StreamThrottled",
            60.0,
        ),
        (429, {"retry-after": "Wed, 21 Oct 99999 07:28:00 GMT", "date": INSTANT}, "StreamThrottled", None),
        (500, {}, "StreamDropped", None),
        (503, {}, "StreamDropped", None),
        (408, {}, "StreamDropped", None),
        (401, {}, "StreamDropped", None),
        (403, {"retry-after": "9"}, "StreamDropped", 9.0),
        (404, {}, "StreamDropped", None),
        *((status, {}, "StreamDropped", None) for status in (101, 302, 400, 402, 405, 406, 410, 451)),
        (204, {}, "", None),
    ],
)
def test_the_status_of_an_answer_decides_how_the_connection_ends(
    status: int, headers: dict[str, str], error: str, retry_after_s: float | None
) -> None:
    """An answer that is not a stream ends the connection with the error for its status; 204 ends the stream."""
    manager = claimed(at=Resumption(None))
    effects = drain(manager, 30, manager.handle(30, Opened(status, headers)))
    assert kinds(effects) == [SaveRecord, Finish]
    assert (outcome(effects).error, outcome(effects).retry_after_s) == (error, retry_after_s)


@pytest.mark.parametrize(
    ("framing", "content_type", "message"),
    [
        ("sse", "text/event-stream", ""),
        ("sse", "text/html", "the upstream answered with a content type other than text/event-stream"),
        ("ndjson", "text/html; charset=utf-8", "the upstream answered with an HTML page instead of a stream"),
    ],
)
def test_a_page_is_no_stream(framing: str, content_type: str, message: str) -> None:
    """If server-sent events are promised, a 200 with another Content-Type is refused; HTML always is."""
    manager = claimed(at=Resumption(None), framing=framing)
    effects = manager.handle(30, Opened(200, {"content-type": content_type}))
    assert (kinds(effects) == [CloseUpstream]) is bool(message)
    if message:
        ended = outcome(drain(manager, 30, effects))
        assert (ended.error, ended.message) == ("StreamDropped", f"{message}: final if it goes on for 300 s")
        assert (ended.detail, manager.progress.ended_by) == (message, "unreadable")


def test_bytes_that_cannot_be_framed_drop_the_connection_after_storing_earlier_events() -> None:
    """Whole events before unreadable bytes are stored; then the connection is dropped with a message about them."""
    manager = connected(framing="length")
    effects = manager.handle(40, Chunk(b"1\na<html>\n"))
    assert kinds(effects) == [Write, CloseUpstream]
    assert manager.handle(50, Chunk(b"1\nb")) == []
    assert kinds(manager.handle(50, Written(1, 0))) == []
    effects = manager.handle(60, Closed("closed_here"))
    assert manager.progress.ended_by == "bad_frame"
    ended = outcome(effects)
    assert (ended.error, ended.message) == (
        "StreamDropped",
        "a line in place of a length is not a decimal number of at most 12 digits",
    )


def test_the_end_of_the_stream_is_stored_and_returned() -> None:
    """The event that ends the stream is stored like any other, and nothing after it; then the function returns."""
    manager = connected()
    effects = manager.handle(40, Chunk(event(8) + b"event: end\ndata: y\n\n" + event(9)))
    assert kinds(effects) == [Write, CloseUpstream]
    assert isinstance(effects[0], Write)
    assert [e.data for e in effects[0].events] == ["x", "y"]
    assert manager.handle(41, Chunk(event(10))) == []
    assert manager.handle(45, Closed("closed_here")) == []
    effects = manager.handle(50, Written(2, 0))
    assert kinds(effects) == [SaveRecord, RecordGaps, Release, Finish]
    assert outcome(effects) == Outcome("", "ended", "the upstream ended the stream")


def test_an_unterminated_tail_is_noted_not_stored() -> None:
    """Bytes after the last delimiter are no event; the ledger counts them."""
    manager = connected()
    manager.handle(40, Chunk(b"data: half"))
    effects = manager.handle(50, Closed("truncated"))
    assert isinstance(effects[1], SaveRecord)
    assert effects[1].progress.unterminated_bytes == len(b"data: half")


def test_half_an_event_at_a_handover_is_in_the_gap() -> None:
    """A connection that is let go inside an event was good only until the last whole event, here at 1,000 ms."""
    manager = connected("forbids")
    manager.handle(1_000, Chunk(event(8)))
    manager.handle(1_005, Written(1, 0))
    manager.handle(3_000, Chunk(event(9)[:-1]))
    successor = Lease(fence=FENCE + 1, connected_token=FENCE, execution="mine")
    assert kinds(manager.handle(3_010, LeaseRead(successor))) == [CloseUpstream]
    manager.handle(3_020, Closed("closed_here"))
    assert (manager.progress.closed_ms, manager.progress.ended_by) == (1_000, "let_go")


def test_no_event_is_missing_after_the_end_of_the_stream() -> None:
    """Half an event after the end of the stream does not move the connection's end back."""
    manager = connected()
    manager.handle(1_000, Chunk(b"event: end\ndata: y\n\ndata: half"))
    manager.handle(1_010, Closed("closed_here"))
    assert manager.progress.closed_ms == 1_000


@pytest.mark.parametrize(
    ("wire", "cursor"),
    [
        (b"id: 9\n\n", "9"),
        (b"id\n\n", ""),
        (b"id: 9", None),
        (b": hi\n\n", None),
        (b"id: 8\nevent: end\ndata: x\n\nid: 9\n\n", "8"),
    ],
)
def test_a_block_with_only_an_id_sets_the_cursor(wire: bytes, cursor: str | None) -> None:
    """WHATWG sets the last event ID although no event is dispatched; a block after the end does not count."""
    manager = connected()
    effects = manager.handle(40, Chunk(wire))
    for write in [effect for effect in effects if isinstance(effect, Write)]:
        effects += manager.handle(50, Written(len(write.events), 0, 0))
    effects += manager.handle(60, Closed("ended_by_upstream"))
    assert [effect.cursor for effect in effects if isinstance(effect, SAVES)] == [cursor]


def test_many_events_of_one_chunk_are_several_writes_each_with_its_cursor() -> None:
    """The cursor moves on with each stored event and never passes an unstored one."""
    manager = connected()
    wire = b"".join(event(number) for number in range(8, 8 + 2 * MOST_EVENTS + 1)) + b"id: 9999\n\n"
    writes = [effect for effect in manager.handle(40, Chunk(wire)) if isinstance(effect, Write)]
    assert [(write.first, len(write.events)) for write in writes] == [(0, 250), (250, 250), (500, 1)]
    cursors = []
    for number, write in enumerate(writes, 1):
        effects = manager.handle(10_000 * number, Written(len(write.events), 0, 0))
        cursors += [effect.cursor for effect in effects if isinstance(effect, SAVES)]
    assert cursors == [str(7 + MOST_EVENTS), str(7 + 2 * MOST_EVENTS), "9999"]


def test_the_numbers_of_events_continue_from_chunk_to_chunk() -> None:
    """Events are numbered on in the next chunk: for two chunks of one millisecond only the number tells the order."""
    manager = connected()
    writes = [write for at in (8, 10) for write in manager.handle(40, Chunk(event(at) + event(at + 1)))]
    assert [write.first for write in writes if isinstance(write, Write)] == [0, 2]


def test_the_cursor_of_a_block_with_only_an_id_waits_for_the_events_before_it() -> None:
    """The cursor of a block with only an id is saved once all earlier events are stored."""
    manager = connected()
    assert kinds(manager.handle(6_000, Chunk(event(8)))) == [Write]
    assert manager.handle(6_010, Chunk(b"id: 9\n\n")) == []
    (saved,) = manager.handle(6_020, Written(1, 0, 0))
    assert isinstance(saved, Heartbeat)
    assert saved.cursor == "9"


def test_the_ledger_covers_up_to_the_oldest_arrival_that_is_not_stored() -> None:
    """The ledger covers nothing after the oldest unread or unstored arrival, because a kill would lose it."""
    holder = LeaseRead(Lease(fence=FENCE))
    manager = connected()
    effects = manager.handle(6_000, holder, unread_ms=4_000)
    manager.handle(6_001, Chunk(event(8)), arrived_ms=4_000)
    effects += manager.handle(12_000, holder)
    manager.handle(12_001, Written(1, 0))
    effects += manager.handle(18_000, holder)
    assert [e.progress.seen_ms for e in effects if isinstance(e, RECORDS)] == [4_000, 4_000, 18_000]


def test_a_heartbeat_does_not_cover_bytes_that_wait_to_be_read() -> None:
    """A heartbeat covers only the time until the oldest unread bytes arrived: a kill would lose those."""
    manager = connected()
    assert manager.lease_due_ms is not None
    (heartbeat,) = manager.ask_lease(6_000, 4_000)
    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.progress.seen_ms == 4_000


def test_an_arrival_never_counts_as_later_than_now() -> None:
    """An arrival that another clock dates a millisecond ahead counts as having come now."""
    manager = connected()
    manager.handle(1_000, Chunk(event(8)), arrived_ms=1_001)
    assert manager.progress.heard_ms == 1_000


def test_a_cursor_that_expires_on_an_open_connection_loses_the_time_since_its_last_event() -> None:
    """A cursor that expires loses the time since the connection's last event; the fallback is saved in its place."""
    resume = {"header": "Last-Event-ID", "fallback": "start", "expired": {"event": "gone"}}
    manager = connected(resume=resume)
    manager.handle(2_000, Chunk(event(8)))
    manager.handle(2_001, Written(1, 0))
    effects = manager.handle(5_000, Chunk(b"event: gone\ndata: x\n\n"))
    effects += manager.handle(5_001, Closed("closed_here"))
    (save,) = [effect for effect in effects if isinstance(effect, Release)]
    assert (save.cursor, save.progress.closed_ms, save.progress.forgot_ms) == ("start", 2_000, 5_000)


@pytest.mark.parametrize(
    ("data", "is_idle"),
    [
        (b": still here\n\n", True),
        (b"event: beat\ndata: x\n\n", True),
        (event(8), False),
        (event(8)[:9], False),
        (b"event: lost\ndata: x\n\n", False),
    ],
)
def test_only_whole_signs_of_life_show_that_the_upstream_is_idle(data: bytes, is_idle: bool) -> None:
    """A resumed connection has caught up after 5 s with only whole signs of life and one more of them."""
    manager = connected(at=Resumption("7", saved_ms=-60_000), heartbeat={"event": "beat"}, loss={"event": "lost"})
    effects = manager.handle(3_000, Chunk(data)) + manager.handle(5_030, Chunk(b": still here\n\n"))
    for _ in [effect for effect in effects if isinstance(effect, Write)]:
        manager.handle(5_031, Written(1, 0))
    manager.handle(20_000, LeaseRead(Lease(fence=FENCE)))
    assert manager.progress.live_ms == (5_030 if is_idle else 60_060)


def test_an_event_after_a_silence_is_stored() -> None:
    """A quiet stream is still connected, and its next event is like any other."""
    manager = connected()
    assert kinds(manager.handle(40, Chunk(event(8)))) == [Write]
    assert kinds(manager.handle(50_000, Chunk(event(9)))) == [Write]


def test_a_loss_is_recorded_before_the_cursor_passes_it() -> None:
    """Any event of the chunk may move the cursor past the loss, so its record goes first: no kill forgets a loss."""
    manager = connected(loss={"event": "lost"})
    effects = manager.handle(5_040, Chunk(event(8) + b"id: 9\nevent: lost\ndata: y\n\n" + event(10)))
    assert kinds(effects) == [RecordLoss, Write]
    assert effects[0] == RecordLoss(FENCE, 1, 30, 5_040, "announced_by_upstream")
    saves = manager.handle(5_050, Written(3, 0))
    assert [save.cursor for save in saves if isinstance(save, SAVES)] == ["10"]


@pytest.mark.parametrize(
    ("data", "count"),
    [('{"missed": 12}', 12), ('{"missed": 0}', 0), ('{"missed": -1}', None), ('{"missed": true}', None), ("12", None)],
)
def test_a_loss_has_the_number_of_events_that_the_upstream_reports(data: str, count: int | None) -> None:
    """The number of lost events is at the mark's `count`; a value that is no possible number leaves it unknown."""
    manager = connected(loss={"event": "lost", "count": "$.missed"})
    (loss,) = [
        one
        for one in manager.handle(50, Chunk(f"event: lost\ndata: {data}\n\n".encode()))
        if isinstance(one, RecordLoss)
    ]
    assert loss.count == count


def test_a_loss_announced_before_a_connection_has_caught_up_begins_where_all_was_known() -> None:
    """While it catches up, a resumed connection may receive notices of losses from the time without a connection.

    The connection before it was last heard 1,020 ms before the instant until which it counted as good.
    """
    manager = fresh(resume={"header": "Last-Event-ID"}, loss={"event": "lost"})
    manager.start(90_000)
    manager.handle(90_020, Claimed(Lease(fence=FENCE), Resumption("7", 5, known_ms=89_000, backlog_from_ms=87_980)))
    manager.handle(90_030, Opened(200))
    spans = []
    for at_ms in (90_040, 92_000, 92_090, 93_000):
        effects = manager.handle(at_ms, Chunk(b"id: 9\nevent: lost\ndata: y\n\n"))
        spans += [(loss.from_ms, loss.to_ms) for loss in effects if isinstance(loss, RecordLoss)]
    # It has caught up at 90,030 + 2,040 + 20 ms.
    assert spans == [(87_980, 90_040), (87_980, 92_000), (87_980, 92_090), (92_090, 93_000)]


def test_an_answer_that_does_not_begin_after_the_cursor_is_recorded_with_the_mark() -> None:
    """If the answer does not begin after the cursor, the mark's record says that the events between are gone."""
    manager = claimed(at=Resumption("7", 5), resume={"header": "Last-Event-ID", "confirmed_by": "x-from"})
    effects = manager.handle(30, Opened(200, {"x-from": "1"}))
    assert kinds(effects) == [MarkConnected]
    assert isinstance(effects[0], MarkConnected)
    progress = effects[0].progress
    assert (progress.resumed, progress.forgot_ms, progress.since_ms, progress.live_ms) == (False, 30, 5, 30)


@pytest.mark.parametrize(
    ("date", "own", "live_ms"),
    [
        (INSTANT, "07:28:02", 2_400),  # everything until the answer has come, 700 ms ago
        (INSTANT, "07:28:02.700", 1_700),
        (INSTANT, "07:28:02.701", 64_200),  # the event has not happened yet
        (INSTANT, "07:27:30", 34_400),  # 32.7 s behind, with 1 s that a Date leaves out and 1 s of slack
        (INSTANT, "late", 64_200),
        ("", "07:29:00", 100_000),
        ("soon", "07:29:00", 100_000),
    ],
)
def test_an_event_shows_by_its_own_time_how_far_the_connection_is_behind(date: str, own: str, live_ms: int) -> None:
    """An event's own time, by the upstream's clock, counts once it is stored; later, older times change nothing."""
    record = Record(900_000)
    record.fence = 3
    record.record_resumption(1_000, Resumption("7", 700, backlog_from_ms=-98_000), is_asked=True)
    intake = Intake(profile(time="$.at", time_unit="iso"))
    set_arrival(record.liveness, 1_000, None, None)
    intake.take_answer(1_000, Opened(200, {"date": date}), record)
    for at_ms, text in ((1_600, "07:27:00"), (1_700, own), (1_800, "07:26:00")):
        set_arrival(record.liveness, at_ms, None, None)
        intake.take_chunk(at_ms, f'id: 8\ndata: {{"at":"2026-10-21T{text}Z"}}\n\n'.encode(), record)
    assert record.save(1_900, is_open=True).live_ms == 100_000
    for _ in range(3):
        record.record_stored(Written(1, 0))
    assert record.save(1_900, is_open=True).live_ms == live_ms
