"""What is recorded of a connection, and until when it is known to be good."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.effects import Outcome, RecordGaps, RecordLoss
from handlers.connection.failures import was_accepted
from handlers.connection.inputs import GapsRecorded, Opened, Resumption, Written
from handlers.connection.liveness import Liveness
from handlers.connection.pending import Pending
from handlers.connection.record import Record
from handlers.framing.events import StreamEvent
from tests.handlers.connection.managers import set_arrival

LEFT = Outcome("ConnectionExpired", "", "its time is over")
DEADLINE_MS = 900_000


def event(cursor: str | None) -> StreamEvent:
    """Return an event with this cursor."""
    return StreamEvent(f"key-{cursor}", "data", None, None, cursor, 0)


def opened(
    saved_ms: int | None = 700, known_ms: int | None = None, behind_ms: int | None = None, reach_ms: int | None = None
) -> Record:
    """Return the record of a connection that claimed at 1,000 ms, resumed, and was answered at 1,500 ms."""
    record = Record(DEADLINE_MS)
    record.begin(1_000)
    record.fence = 3
    at = Resumption("7", saved_ms, known_ms, None if behind_ms is None else 1_100 - behind_ms)
    record.record_resumption(1_100, at, is_asked=True, reach_ms=reach_ms)
    set_arrival(record.liveness, 1_500, 1_400, None)
    record.record_opened(1_500)
    return record


def test_an_end_is_recorded_together_with_everything_stored_until_then() -> None:
    """Before it is saved, the record has no reason for the end; then it has that and all that was stored."""
    record = opened()
    record.pending.record_sent([event("8"), event("9")], record.liveness.arrived_ms)
    set_arrival(record.liveness, 4_000, None, None)
    record.set_end("expired", LEFT)
    record.end_reading()
    assert (record.progress.ended_by, record.progress.closed_ms) == ("", 4_000)
    record.record_stored(Written(1, 1))
    saved = record.save(4_100, is_open=False)
    assert record.pending.take_cursor() == "9"
    assert (saved.ended_by, saved.stored, saved.duplicates) == ("expired", 1, 1)
    assert (record.saved_at_ms, saved.seen_ms) == (4_100, 1_500)


@pytest.mark.parametrize("ended_by", ["let_go", "reset", "ended_by_upstream"])
def test_a_connection_that_ends_inside_a_frame_was_good_until_before_that_frame(ended_by: str) -> None:
    """Whichever side ends the connection, bytes that had arrived by then may bring the rest of the frame."""
    record = opened()
    for at_ms, ended_some in ((2_000, True), (4_000, False)):
        set_arrival(record.liveness, at_ms, None, None)
        record.liveness.record_framing(record.liveness.record_input(), ended_some=ended_some, is_inside=not ended_some)
    set_arrival(record.liveness, 4_100, None, None)
    record.set_end(ended_by, LEFT)
    record.end_reading()
    progress = record.save(4_100, is_open=False)
    heard_ms = 4_100 if ended_by == "ended_by_upstream" else 4_000  # the upstream's end is a sign of life
    assert (progress.closed_ms, progress.heard_ms, progress.seen_ms) == (2_000, heard_ms, 1_500)
    assert was_accepted(replace(progress, opened_ms=2_500))
    set_arrival(record.liveness, 4_200, 4_050, None)
    record.liveness.record_framing(record.liveness.record_input(), ended_some=True, is_inside=False)
    record.record_upstream_close("closed_here")
    assert record.closed_ms == (4_000 if ended_by == "reset" else 4_050)


@pytest.mark.parametrize(
    ("headers", "ended_by", "stuck_cursor"),
    [
        ({"content-type": "application/json; charset=utf-8", "content-length": "30"}, "ended_by_upstream", None),
        ({"content-type": "Application/JSON", "transfer-encoding": "chunked"}, "ended_by_upstream", None),
        ({"content-type": "application/json", "content-length": "30"}, "truncated", "7"),
        ({"content-type": "application/json"}, "ended_by_upstream", "7"),
        ({"content-type": "application/x-ndjson", "transfer-encoding": "chunked"}, "ended_by_upstream", "7"),
    ],
)
def test_a_quiet_long_poll_is_not_stuck_at_its_cursor(
    headers: dict[str, str], ended_by: str, stuck_cursor: str | None
) -> None:
    """A whole JSON answer without news is no failure; a broken one, or one without a length, may be."""
    record = opened()
    record.record_opened(1_500, is_one_json=Opened(200, headers).is_one_json)
    assert record.stuck_cursor == "7"
    record.set_end(ended_by, LEFT)
    assert record.stuck_cursor == stuck_cursor


def test_a_connection_that_was_never_answered_has_no_close() -> None:
    """The record of an unanswered connection has its claim, but neither an opening nor a close."""
    record = Record(DEADLINE_MS)
    record.begin(1_000)
    set_arrival(record.liveness, 2_000, None, None)
    record.set_end("refused", LEFT)
    record.end_reading()
    record.record_upstream_close("refused")
    assert (record.progress.opened_ms, record.progress.closed_ms, record.progress.seen_ms) == (None, None, 1_000)


def test_the_record_has_when_the_upstream_was_last_heard() -> None:
    """`heard_ms` is when the last bytes arrived; a connection without an answer has none."""
    record = opened()
    assert record.progress.heard_ms == 1_400
    set_arrival(record.liveness, 2_000, 1_900, None)
    record.liveness.record_input()
    set_arrival(record.liveness, 4_000, None, None)
    record.set_end("let_go", LEFT)
    record.end_reading()
    assert (record.progress.closed_ms, record.progress.heard_ms) == (4_000, 1_900)
    assert Record(DEADLINE_MS).progress.heard_ms is None


def test_a_connection_has_caught_up_once_it_lasted_for_as_long_as_it_was_behind() -> None:
    """The ledger, or else the cursor, says how far it was behind; twice the upstream's reach is the most."""
    spans = [
        (progress.since_ms, progress.live_ms)
        for progress in (
            opened().progress,
            opened(known_ms=900).progress,
            opened(known_ms=900, behind_ms=50).progress,
            opened(known_ms=900, reach_ms=100).progress,
            opened(saved_ms=None).progress,
        )
    ]
    # 400 ms passed from the request to the answer, and 400 ms or 200 ms before the request.
    assert spans == [(700, 2_300), (900, 2_100), (900, 1_950), (900, 1_700), (None, 1_900)]


def test_the_record_of_an_expired_cursor_ends_where_the_connection_was_last_good() -> None:
    """If its cursor expires, a connection has brought nothing without an event, else all until it was last heard."""
    record = opened()
    record.record_expired_cursor(1_600, "start", 1_400)
    record.set_end("cursor_expired", LEFT)
    record.end_reading()
    assert (record.progress.resumed, record.closed_ms, record.progress.forgot_ms) == (False, 1_500, 1_600)
    record = opened()
    record.pending.record_sent([event("8")], record.liveness.arrived_ms)
    set_arrival(record.liveness, 3_100, None, None)
    record.record_expired_cursor(3_100, "start", 2_500)
    record.set_end("cursor_expired", LEFT)
    record.end_reading()
    assert (record.progress.resumed, record.closed_ms, record.progress.forgot_ms) == (True, 2_500, 3_100)
    record.record_stored(Written(1, 0))
    assert record.pending.take_cursor() == "start"


def test_other_bodies_under_known_keys_in_a_row_are_one_loss_that_grows() -> None:
    """Dropped events in a row are one loss that grows, until a new event ends the row. Without `drops` none is lost.

    An event that comes while the connection catches up may have happened at any time since the cursor. The row may
    have begun on an earlier connection.
    """
    record = opened()

    def lost(at_ms: int, written: Written, *, drops: bool = True) -> list[RecordLoss]:
        set_arrival(record.liveness, at_ms, None, None)
        record.pending.record_sent([event(None)], record.liveness.arrived_ms)
        return [one for one in record.record_stored(written, drops=drops) if isinstance(one, RecordLoss)]

    dropped, cause = Written(0, 1, conflicts=1), "ids_restarted"
    assert [lost(at_ms, dropped) for at_ms in (1_600, 1_700)] == [[], []]
    assert record.progress.dropped_from_ms == 700
    assert lost(1_800, Written(0, 2, 0, 2, lost=4, lost_from_ms=1_600)) == [RecordLoss(3, 1, 700, 1_800, cause, 4)]
    assert lost(1_900, Written(0, 1)) == []
    assert lost(2_000, replace(dropped, lost=1, lost_from_ms=2_000)) == [RecordLoss(3, 1, 700, 2_000, cause, 5)]
    assert lost(2_100, Written(1, 0)) == lost(2_800, dropped) == []
    assert lost(2_900, replace(dropped, lost=7, lost_from_ms=100)) == [RecordLoss(3, 2, 100, 2_900, cause, 7)]
    assert lost(2_950, replace(dropped, lost=1, lost_from_ms=2_950)) == [RecordLoss(3, 2, 100, 2_950, cause, 8)]
    assert (lost(3_000, Written(0, 9, conflicts=9), drops=False), record.progress.missing) == ([], 2)
    assert (lost(3_100, Written(1, 0)), record.progress.dropped_from_ms) == ([], 0)


@pytest.mark.parametrize(
    ("cursors", "writes", "resumes"),
    [
        # Ids that cannot be compared with the cursor, which is 7: known keys with other bodies.
        (["a", "b"], [Written(1, 0, conflicts=1), Written(0, 2, conflicts=2)], False),
        (["a"], [Written(25, 0, conflicts=3)], False),
        (["a", "b", "c"], [*[Written(1, 0, conflicts=1)] * 2, Written(1, 0)], True),
        (["a", "b"], [Written(1, 0), Written(9, 0, conflicts=9)], True),
        (["a", "b"], [Written(0, 1), Written(9, 0, conflicts=9)], True),
        (["a"], [Written(9, 0, conflicts=9, is_beside=True)], True),
        # New events with ids before the cursor. A single one may also be late, until another follows the cursor.
        (["1"], [Written(1, 0)], False),
        (["1", "2", "8"], [Written(1, 0)] * 3, True),
        (["1", "2", "3", "8"], [Written(1, 0)] * 4, False),
        (["3", "2", "3", "8"], [Written(1, 0), Written(1, 0), Written(0, 1), Written(1, 0)], True),
        # Known events show nothing: the upstream repeats them, or another connection has brought them.
        (["6", "7", "8"], [Written(0, 1), Written(0, 1), Written(1, 0)], True),
        (["1", "2"], [Written(1, 0), Written(0, 1)], False),
        # The restart was long before: the cursor is of the new count, and the keys are still taken.
        (["8", "9", "10"], [Written(0, 1, conflicts=1)] * 3, True),
        (["0", "1", "2"], [Written(0, 1, conflicts=1)] * 3, False),
    ],
)
def test_a_connection_that_begins_with_ids_that_start_over_has_not_resumed(
    cursors: list[str], writes: list[Written], resumes: bool
) -> None:
    """The cursor is from before the restart, so the events of the gap are unknown, and the gap is recorded again."""
    record = opened(behind_ms=200)
    feed_frames(record, 2_300, 1)
    assert [len(record.search_gaps(10)), record.has_caught_up] == [1, True]
    for cursor, written in zip(cursors, writes, strict=True):
        record.pending.record_sent([event(cursor)], record.liveness.arrived_ms)
        record.record_stored(written, drops=True)
    progress = record.save(2_400, is_open=True)
    # The connection may still be as far behind: a restarted upstream may send all that it has.
    assert (progress.resumed, progress.live_ms) == (resumes, 2_100)
    assert resumes or len(record.search_gaps(10)) == 1


def test_events_that_wait_for_a_log_show_together_that_ids_start_over() -> None:
    """Waiting events are one write; if the last of them follow the cursor, those before may have been late.

    A repeated event is stored once and hides nothing, but a repeated correction conflicts each time.
    """
    for cursors, written, resumes in (
        (("1", "2"), Written(2, 0), False),
        (("1", "2", "1", "2"), Written(2, 2), False),
        (("1", "2", "8"), Written(3, 0), True),
        (("1", "2", "3", "8"), Written(4, 0), False),
        (("1", "1", "1", "8"), Written(1, 3, conflicts=3), True),
    ):
        record = opened()
        for place, cursor in enumerate(cursors):
            record.pending.record_sent([event(cursor)], record.liveness.arrived_ms, joins=place > 0)
        record.record_stored(written, drops=True)
        assert record.progress.resumed is resumes


def test_a_connection_that_recorded_an_open_gap_searches_again_at_its_end() -> None:
    """A connection that recorded an open gap searches once more at its end; one that recorded none does not."""
    for is_open, looks in ((True, [RecordGaps(9, again=True)]), (False, [])):
        record = opened()
        feed_frames(record, 9_000, 1)
        assert record.search_gaps(9) == [RecordGaps(9)]
        record.record_missing(GapsRecorded(1, is_open))
        assert record.search_gaps(9) == []
        record.set_end("taken_over", LEFT)
        record.end_reading()
        record.save(9_100, is_open=False)
        # It is relieved, and a connection before it has searched, which did not know of this gap.
        assert [record.search_gaps(9, leaves_some=True), record.search_gaps(9)] == [looks, []]


def test_a_connection_that_has_caught_up_searches_for_the_open_gap_it_recorded() -> None:
    """Once caught up, a connection searches again for its open gap: the one before may only have stood still."""
    for is_open in (True, False):
        record = opened()
        assert record.search_gaps(10) == [RecordGaps(10)]
        record.record_missing(GapsRecorded(0, is_open))
        feed_frames(record, 2_300, 1)
        assert record.search_gaps(10) == [RecordGaps(10, again=is_open)]


def feed_frames(record: Record, at_ms: int, frames: int, *, is_idle: bool = True) -> None:
    """Whole frames arrive and are stored at once."""
    set_arrival(record.liveness, at_ms, None, None)
    record.record_bytes(10, frames, ended_some=True, is_inside=False, is_idle=is_idle)
    record.save(at_ms, is_open=True)


def test_gaps_are_recorded_again_by_a_connection_that_proves_more() -> None:
    """Gaps are recorded again once an open connection has caught up, or else at its end, and then never again."""
    record = opened()
    assert [len(record.search_gaps(10)), len(record.search_gaps(10))] == [1, 0]
    feed_frames(record, 2_299, 1)
    assert record.search_gaps(10) == []
    feed_frames(record, 2_300, 1)
    assert [len(record.search_gaps(10)), len(record.search_gaps(10))] == [1, 0]
    for closed_ms, looks in ((2_299, 1), (2_300, 1)):
        record = opened()
        assert len(record.search_gaps(10)) == 1
        set_arrival(record.liveness, closed_ms, None, None)
        record.set_end("ended_by_upstream", LEFT)
        record.end_reading()
        record.save(closed_ms, is_open=False)
        assert [len(record.search_gaps(10)), len(record.search_gaps(10))] == [looks, 0]


@pytest.mark.parametrize(
    ("heard", "live_ms"),
    [
        ([(2_000, False), (6_999, True)], 101_500),
        ([(2_000, False), (7_000, True)], 7_000),
        ([(2_000, False), (7_000, False)], 101_500),  # the event may be one of the backlog
        ([(2_000, False), (7_000, True), (7_010, False)], 7_000),
        ([(6_499, True)], 101_500),
        ([(6_500, True)], 6_500),  # nothing came at all
        ([(2_000, False), (4_000, True), (6_999, False), (11_998, True)], 101_500),
        ([(2_000, False), (4_000, True), (6_000, True), (7_100, True), (7_200, False)], 7_000),
    ],
)
def test_a_connection_whose_upstream_was_idle_has_caught_up(heard: list[tuple[int, bool]], live_ms: int) -> None:
    """After 5 s without an event, a sign of life shows that a connection has caught up once all is stored."""
    record = opened(behind_ms=99_600)
    for at_ms, is_idle in heard:
        feed_frames(record, at_ms, 1, is_idle=is_idle)
    assert record.progress.live_ms == live_ms
    assert record.has_caught_up is (live_ms < 100_000)
    waits = opened(behind_ms=99_600)
    waits.pending.record_sent([event("8")], waits.liveness.arrived_ms)
    for at_ms, is_idle in heard:
        feed_frames(waits, at_ms, 1, is_idle=is_idle)
    assert waits.progress.live_ms == 101_500
    waits.record_stored(Written(1, 0))
    assert waits.save(heard[-1][0], is_open=True).live_ms == live_ms


@pytest.mark.parametrize(
    ("ended_by", "closed_ms", "live_ms"),
    [
        ("ended_by_upstream", 6_999, 101_500),
        ("ended_by_upstream", 7_000, 7_000),
        ("taken_over", 7_000, 101_500),
        ("stopped", 7_000, 101_500),
        ("stalled", 7_000, 101_500),
    ],
)
def test_an_end_after_a_silence_is_a_sign_of_life_only_if_the_upstream_sends_it(
    ended_by: str, closed_ms: int, live_ms: int
) -> None:
    """A clean end after 5 s of silence is a sign of life; leaving a silent connection, or a break, proves nothing."""
    record = opened(behind_ms=99_600)
    feed_frames(record, 2_000, 1, is_idle=False)
    set_arrival(record.liveness, closed_ms, None, None)
    record.set_end(ended_by, LEFT)
    record.end_reading()
    assert record.save(closed_ms, is_open=False).live_ms == live_ms
    assert record.has_caught_up is (live_ms < 100_000)


@given(st.lists(st.tuples(st.sampled_from(["sent", "stored", "unread", "quiet"]), st.integers(0, 50)), max_size=40))
def test_a_connection_is_never_known_good_after_the_arrival_of_an_unstored_event(steps: list[tuple[str, int]]) -> None:
    """Events that wait to be stored or read bound `seen_ms`, which never falls; a quiet connection stays good."""
    liveness, pending = Liveness(), Pending()
    now_ms, seen_ms, waiting = 1_000, 1_000, []
    for step, ms in steps:
        now_ms += 10
        unread_ms = max(seen_ms, now_ms - ms) if step == "unread" else None
        arrived_ms = max(seen_ms, now_ms - ms)
        set_arrival(liveness, now_ms, arrived_ms, unread_ms)
        if step == "sent":
            pending.record_sent([event("8")], arrived_ms)
            waiting.append(arrived_ms)
        elif step == "stored" and waiting:
            pending.record_stored(Written(1, 0))
            waiting.pop(0)
        before_ms, seen_ms = seen_ms, liveness.seen_ms(now_ms, seen_ms, pending.arrivals)
        unstored = [*waiting, *([] if unread_ms is None else [unread_ms])]
        assert seen_ms == max(before_ms, min([now_ms, *unstored]))
        assert all(seen_ms <= at_ms for at_ms in unstored)
