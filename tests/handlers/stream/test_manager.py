"""The connection manager's decisions, without a socket, a table or a clock."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.handover.lease import Lease
from handlers.stream.closing import SETTLE_MS
from handlers.stream.intake import MOST_EVENTS
from handlers.stream.manager import LEASE_TTL_READS, Manager
from handlers.stream.phases import Phase, ProtocolMisuse
from handlers.stream.profiles import Profile, parse
from handlers.stream.signals import (
    Chunk,
    Claim,
    Claimed,
    ClaimRefused,
    Closed,
    CloseUpstream,
    CursorRead,
    Effect,
    Finish,
    LeaseRead,
    MarkConnected,
    MarkReleased,
    Open,
    Opened,
    Outcome,
    ReadCursor,
    RecordGaps,
    SaveProgress,
    StoreFailed,
    TakeTurn,
    Woken,
    Write,
    Written,
)

DEADLINE_MS = 100_000
MARGIN_MS = 5_000
FENCE = 3


def profile(overlap: str = "evicts", **more: Any) -> Profile:
    table = {"address": "https://example.org/s", "framing": "sse", "overlap": overlap, **more}
    if table["framing"] == "sse":
        table["end"] = {"event": "end"}
    return parse("example", table, {})


def fresh(overlap: str = "evicts", **more: Any) -> Manager:
    return Manager(
        profile(overlap, **more),
        deadline_ms=DEADLINE_MS,
        margin_ms=MARGIN_MS,
        lease_every_ms=1_000,
        progress_every_ms=5_000,
        execution="mine",
    )


def connected(overlap: str = "evicts", **more: Any) -> Manager:
    """A manager that was answered at 30 ms."""
    manager = fresh(overlap, **more)
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE, execution="mine")))
    if overlap == "forbids":
        manager.handle(15, LeaseRead(Lease(fence=FENCE, connected=FENCE, execution="mine")))
    manager.handle(20, CursorRead("7"))
    manager.handle(30, Opened(200))
    return manager


def outcome(effects: list[Effect]) -> Outcome:
    assert isinstance(effects[-1], Finish)
    return effects[-1].outcome


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def drained(manager: Manager, now_ms: int, effects: list[Effect]) -> list[Effect]:
    """What follows once the driver has closed the upstream; it closes it only where it is told to, and first of all."""
    assert kinds(effects) == [CloseUpstream]
    return manager.handle(now_ms, Closed("closed_here"))


def event(number: int) -> bytes:
    return b"id: %d\ndata: x\n\n" % number


def test_it_claims_before_it_connects_and_marks_after() -> None:
    """The order is claim, cursor, open, mark: an evicted connection can tell a takeover from a drop only so."""
    manager = fresh()
    assert manager.start(0) == [Claim()]
    assert manager.handle(10, Claimed(Lease(fence=FENCE))) == [ReadCursor()]
    assert manager.handle(20, CursorRead("7")) == [Open("7")]
    effects = manager.handle(30, Opened(200))
    assert effects[0] == MarkConnected(FENCE, 30 + LEASE_TTL_READS * 5_000)
    assert kinds(effects) == [MarkConnected, SaveProgress]
    assert manager.phase is Phase.CONNECTED


@pytest.mark.parametrize(("lease", "status"), [(Lease(stop=True), "stopped"), (Lease(execution="other"), "superseded")])
def test_a_refused_claim_opens_nothing(lease: Lease, status: str) -> None:
    """Where the stop wish stands or another execution holds the stream, the function returns and says so."""
    manager = fresh()
    manager.start(0)
    effects = manager.handle(1, ClaimRefused(lease))
    assert kinds(effects) == [Finish]
    assert (outcome(effects).error, outcome(effects).status) == ("", status)


INSTANT = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("status", "headers", "error", "retry_after_s"),
    [
        (429, {"retry-after": "30"}, "StreamThrottled", 30.0),
        (420, {}, "StreamThrottled", None),
        (429, {"retry-after": "9" * 400}, "StreamThrottled", 86_400.0),
        (429, {"retry-after": "-1"}, "StreamThrottled", None),
        (429, {"retry-after": INSTANT}, "StreamThrottled", None),
        (429, {"retry-after": INSTANT, "date": "Wed, 21 Oct 2026 07:27:20 GMT"}, "StreamThrottled", 40.0),
        (429, {"retry-after": INSTANT, "date": "Wed, 21 Oct 2026 07:28:20 GMT"}, "StreamThrottled", 0.0),
        (503, {"retry-after": INSTANT, "date": "Wed, 14 Oct 2026 07:28:20 GMT"}, "StreamDropped", 86_400.0),
        (429, {"retry-after": "Wed, 21 Oct 99999 07:28:00 GMT", "date": INSTANT}, "StreamThrottled", None),
        (500, {}, "StreamDropped", None),
        (503, {}, "StreamDropped", None),
        (408, {}, "StreamDropped", None),
        (401, {}, "StreamRejected", None),
        (404, {}, "StreamRejected", None),
        (302, {}, "StreamRejected", None),
        (204, {}, "", None),
    ],
)
def test_the_answer_decides(status: int, headers: dict[str, str], error: str, retry_after_s: float | None) -> None:
    """Each status that is no stream ends the connection with the error of the design's table; 204 ends the stream."""
    manager = fresh()
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE)))
    manager.handle(20, CursorRead(None))
    effects = drained(manager, 30, manager.handle(30, Opened(status, headers)))
    assert kinds(effects) == [SaveProgress, Finish]
    assert (outcome(effects).error, outcome(effects).retry_after_s) == (error, retry_after_s)


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        ("text/event-stream", ""),
        ("Text/Event-Stream; charset=utf-8", ""),
        ("text/html", "StreamRejected"),
        ("", "StreamRejected"),
    ],
)
def test_a_page_is_no_event_stream(content_type: str, error: str) -> None:
    """A 200 of another Content-Type is rejected where server-sent events are promised."""
    manager = fresh()
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE)))
    manager.handle(20, CursorRead(None))
    effects = manager.handle(30, Opened(200, {"content-type": content_type}))
    assert (kinds(effects) == [CloseUpstream]) is bool(error)
    assert not error or outcome(drained(manager, 30, effects)).error == error


def test_a_page_in_place_of_json_lines_is_rejected() -> None:
    """An answer of 200 that says text/html is no stream, whatever the framing."""
    manager = fresh(framing="ndjson")
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE)))
    manager.handle(20, CursorRead(None))
    effects = manager.handle(30, Opened(200, {"content-type": "text/html; charset=utf-8"}))
    ended = outcome(drained(manager, 30, effects))
    assert (ended.error, ended.message) == (
        "StreamRejected",
        "the upstream answered with a page (HTML) in place of a stream",
    )


def test_bytes_that_cannot_be_framed_end_it_after_the_events_before_them() -> None:
    """What was whole is stored; then it is a drop that says what is wrong."""
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
        "a line in place of a length is no decimal number of at most 12 digits",
    )


def test_closed_by_its_successor_is_taken_over() -> None:
    """A connection that closes while a newer one is marked connected raises StreamTakenOver."""
    manager = connected()
    assert kinds(manager.handle(40, Closed("ended_by_upstream"))) == [
        CloseUpstream,
        SaveProgress,
        MarkReleased,
        RecordGaps,
    ]
    assert manager.lease_due_ms == 40
    effects = manager.handle(40, LeaseRead(Lease(fence=FENCE + 1, connected=FENCE + 1, execution="mine")))
    assert outcome(effects).error == "StreamTakenOver"
    assert isinstance(effects[0], SaveProgress)
    assert effects[0].progress.ended_by == "taken_over"


def test_closed_while_it_holds_the_lease_is_dropped() -> None:
    """Nobody came after: the stream was dropped, and the lane must not wait."""
    manager = connected()
    manager.handle(40, Closed("reset"))
    assert outcome(manager.handle(40, LeaseRead(Lease(fence=FENCE)))).error == "StreamDropped"


def test_closed_while_the_successor_connects_watches_for_its_mark() -> None:
    """Claimed but not connected is not taken over yet: the mark within the watch decides, its absence means dropped."""
    claimed = Lease(fence=FENCE + 1, connected=FENCE)
    manager = connected()
    manager.handle(40, Closed("ended_by_upstream"))
    assert manager.handle(40, LeaseRead(claimed)) == []
    assert manager.lease_due_ms == 140
    effects = manager.handle(140, LeaseRead(Lease(fence=FENCE + 1, connected=FENCE + 1)))
    assert outcome(effects).error == "StreamTakenOver"

    manager = connected()
    manager.handle(40, Closed("ended_by_upstream"))
    manager.handle(40, LeaseRead(claimed))
    assert manager.wake_at_ms == 40 + SETTLE_MS
    assert manager.handle(40 + SETTLE_MS - 1, Woken()) == []
    assert outcome(manager.handle(40 + SETTLE_MS, Woken())).error == "StreamDropped"


@pytest.mark.parametrize("overlap", ["evicts", "tolerates"])
def test_taken_over_reads_on_for_the_overlap(overlap: str) -> None:
    """Where the upstream leaves the older open, it reads for overlap_s more, then drains, saves, releases and goes."""
    manager = connected(overlap, overlap_s=2)
    assert manager.handle(1_030, LeaseRead(Lease(fence=FENCE + 1, connected=FENCE + 1))) == []
    assert (manager.phase, manager.wake_at_ms) == (Phase.OVERLAPPING, 3_030)
    assert kinds(manager.handle(2_000, Chunk(event(8)))) == [Write]
    manager.handle(2_000, Written(1, 0))
    effects = drained(manager, 3_030, manager.handle(3_030, Woken()))
    assert kinds(effects) == [SaveProgress, MarkReleased, RecordGaps, Finish]
    assert outcome(effects).error == "StreamTakenOver"


def test_an_overlap_is_bounded_by_the_settings() -> None:
    """A profile that asks for more gets what leaves its lane in time for its next turn."""
    manager = Manager(
        profile("tolerates", overlap_s=60),
        deadline_ms=DEADLINE_MS,
        margin_ms=MARGIN_MS,
        lease_every_ms=1_000,
        progress_every_ms=5_000,
        overlap_max_ms=2_000,
    )
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE)))
    manager.handle(20, CursorRead(None))
    manager.handle(30, Opened(200))
    manager.handle(1_030, LeaseRead(Lease(fence=FENCE + 1, connected=FENCE + 1)))
    assert manager.wake_at_ms == 3_030


def test_a_claim_alone_moves_only_where_two_are_forbidden() -> None:
    """On a claim without a connection a tolerated connection stays; a forbidden one closes and releases at once."""
    claimed = Lease(fence=FENCE + 1, connected=FENCE)
    assert connected("tolerates").handle(1_030, LeaseRead(claimed)) == []
    manager = connected("forbids")
    effects = drained(manager, 1_030, manager.handle(1_030, LeaseRead(claimed)))
    assert kinds(effects) == [SaveProgress, MarkReleased, RecordGaps]


def test_a_forbidding_upstream_is_opened_when_the_older_is_released() -> None:
    """The successor waits for the release (or the lease's end), takes its turn, and only then reads the cursor."""
    manager = fresh("forbids")
    manager.start(0)
    waiting = Lease(fence=FENCE, connected=FENCE - 1, released=FENCE - 2, expires_at_ms=9_000)
    assert manager.handle(10, Claimed(waiting)) == []
    assert (manager.phase, manager.lease_due_ms) == (Phase.AWAITING_RELEASE, 210)
    assert manager.handle(210, LeaseRead(waiting)) == []
    released = Lease(fence=FENCE, connected=FENCE - 1, released=FENCE - 1, expires_at_ms=9_000)
    assert kinds(manager.handle(410, LeaseRead(released))) == [TakeTurn]
    taken = Lease(fence=FENCE, connected=FENCE, released=FENCE - 1, expires_at_ms=99_000)
    assert manager.handle(420, LeaseRead(taken)) == [ReadCursor()]
    late = fresh("forbids")
    late.start(0)
    late.handle(10, Claimed(waiting))
    assert kinds(late.handle(9_000, LeaseRead(waiting))) == [TakeTurn]


def test_a_turn_that_was_taken_is_given_back_though_nobody_answered() -> None:
    """One that had its turn and was not answered releases it: the next must not wait until it expires."""
    manager = fresh("forbids")
    manager.start(0)
    assert kinds(manager.handle(10, Claimed(Lease(fence=FENCE)))) == [TakeTurn]
    manager.handle(20, LeaseRead(Lease(fence=FENCE, connected=FENCE)))
    manager.handle(30, CursorRead(None))
    effects = manager.handle(40, Closed("refused"))
    assert kinds(effects) == [CloseUpstream, SaveProgress, MarkReleased, RecordGaps]


def test_taken_over_at_the_deadline_is_taken_over() -> None:
    """One that learns of its successor only at its margin and reads on ends as taken over, with little time left."""
    manager = connected("tolerates", overlap_s=60)
    manager.handle(DEADLINE_MS - MARGIN_MS, Woken())
    newer = LeaseRead(Lease(fence=FENCE + 1, connected=FENCE + 1))
    manager.handle(DEADLINE_MS - MARGIN_MS, newer)
    end_ms = DEADLINE_MS - MARGIN_MS // 2
    assert outcome(drained(manager, end_ms, manager.handle(end_ms, Woken()))).error == "StreamTakenOver"


def test_one_that_never_connected_releases_nothing() -> None:
    """A connection that was not answered must not vouch that an older one is closed."""
    manager = fresh("forbids")
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE, connected=FENCE - 1, expires_at_ms=9_000)))
    effects = manager.handle(20, LeaseRead(Lease(fence=FENCE + 1, connected=FENCE - 1)))
    assert MarkReleased not in kinds(effects)
    assert CloseUpstream not in kinds(effects)


def test_the_deadline_is_left_before() -> None:
    """It leaves a margin before its deadline; nobody took over, so it raises ConnectionExpired."""
    manager = connected()
    assert manager.wake_at_ms == DEADLINE_MS - MARGIN_MS
    assert manager.handle(DEADLINE_MS - MARGIN_MS - 1, Woken()) == []
    assert manager.handle(DEADLINE_MS - MARGIN_MS, Woken()) == []
    assert manager.lease_due_ms == DEADLINE_MS - MARGIN_MS
    effects = manager.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(Lease(fence=FENCE)))
    assert kinds(drained(manager, DEADLINE_MS - MARGIN_MS, effects)) == [SaveProgress, MarkReleased, RecordGaps]
    effects = manager.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(Lease(fence=FENCE)))
    assert outcome(effects).error == "ConnectionExpired"


def test_the_deadline_is_put_off_while_a_successor_connects() -> None:
    """Claimed by a successor at the margin, it reads on for half the margin, so that a slow connect leaves no gap."""
    claimed = Lease(fence=FENCE + 1, connected=FENCE)
    manager = connected()
    assert manager.handle(DEADLINE_MS - MARGIN_MS, Woken()) == []
    assert CloseUpstream not in kinds(manager.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(claimed)))
    assert (manager.phase, manager.wake_at_ms) == (Phase.CONNECTED, DEADLINE_MS - MARGIN_MS // 2)
    assert CloseUpstream in kinds(manager.handle(DEADLINE_MS - MARGIN_MS // 2, Woken()))


def test_the_end_of_the_stream_is_stored_and_returned() -> None:
    """The event that ends the stream is stored like any other; then the function returns."""
    manager = connected()
    effects = manager.handle(40, Chunk(event(8) + b"event: end\ndata: y\n\n" + event(9)))
    assert kinds(effects) == [Write, CloseUpstream]
    assert isinstance(effects[0], Write)
    assert [e.data for e in effects[0].events] == ["x", "y"]
    assert manager.handle(45, Closed("closed_here")) == []
    effects = manager.handle(50, Written(2, 0))
    assert kinds(effects) == [SaveProgress, MarkReleased, RecordGaps, Finish]
    assert outcome(effects) == Outcome("", "ended", "the upstream ended the stream")


def test_another_execution_that_took_over_makes_it_return() -> None:
    """Taken over by another execution's connection, a lane must not come back: the function returns superseded."""
    manager = connected()
    manager.handle(40, Closed("ended_by_upstream"))
    effects = manager.handle(40, LeaseRead(Lease(fence=FENCE + 1, connected=FENCE + 1, execution="other")))
    assert (outcome(effects).error, outcome(effects).status) == ("", "superseded")


def test_a_hot_standby_stays_when_it_is_taken_over() -> None:
    """Taken over is no reason to go, an end is retried at once, the deadline is an expiry: both stay connected."""
    newer = Lease(fence=FENCE + 1, connected=FENCE + 1, execution="mine", expires_at_ms=DEADLINE_MS)
    manager = connected("tolerates", standby="hot")
    assert CloseUpstream not in kinds(manager.handle(1_030, LeaseRead(newer)))
    assert manager.phase is Phase.CONNECTED
    manager.handle(2_000, Closed("reset"))
    assert outcome(manager.handle(2_000, LeaseRead(newer))).error == "StreamDropped"

    expiring = connected("tolerates", standby="hot")
    expiring.handle(DEADLINE_MS // 2, LeaseRead(newer))
    assert expiring.handle(DEADLINE_MS - MARGIN_MS, Woken()) == []
    effects = expiring.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(newer))
    drained(expiring, DEADLINE_MS - MARGIN_MS, effects)
    assert outcome(expiring.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(newer))).error == "ConnectionExpired"


def test_a_hot_standby_goes_when_another_execution_has_taken_over() -> None:
    """Superseded by the execution that renews it, it lets go like any other and returns."""
    manager = connected("tolerates", standby="hot", overlap_s=2)
    manager.handle(1_030, LeaseRead(Lease(fence=FENCE + 1, connected=FENCE + 1, execution="other")))
    assert manager.phase is Phase.OVERLAPPING
    effects = drained(manager, 3_030, manager.handle(3_030, Woken()))
    assert outcome(effects).status == "superseded"


def test_of_two_hot_connections_that_began_together_the_older_leaves_half_way() -> None:
    """In phase, they would reach their deadlines together: the older ends half-way, the newer stays."""
    newer = Lease(fence=FENCE + 1, connected=FENCE + 1, execution="mine", expires_at_ms=DEADLINE_MS)
    older = connected("tolerates", standby="hot")
    half_ms = 1_030 + (DEADLINE_MS - MARGIN_MS) // 2
    older.handle(1_030, LeaseRead(newer))
    assert CloseUpstream not in kinds(older.handle(half_ms - 1, LeaseRead(newer)))
    drained(older, half_ms, older.handle(half_ms, LeaseRead(newer)))
    assert outcome(older.handle(half_ms, LeaseRead(newer))).error == "ConnectionExpired"

    holder = connected("tolerates", standby="hot")
    for now_ms in (1_030, half_ms, half_ms + 1_000):
        own = Lease(fence=FENCE, connected=FENCE, execution="mine", expires_at_ms=DEADLINE_MS)
        assert CloseUpstream not in kinds(holder.handle(now_ms, LeaseRead(own)))


def test_hot_connections_that_are_apart_live_to_their_deadlines() -> None:
    """One whose newer came, or came again, after a quarter of its life has no reason to leave before the margin."""
    newer = Lease(fence=FENCE + 1, connected=FENCE + 1, execution="mine", expires_at_ms=DEADLINE_MS)
    manager = connected("tolerates", standby="hot")
    manager.handle(1_030, LeaseRead(newer))
    manager.handle(40_000, LeaseRead(replace(newer, fence=FENCE + 2, connected=FENCE + 2)))
    for now_ms in range(41_000, DEADLINE_MS - MARGIN_MS, 1_000):
        lease = replace(newer, fence=FENCE + 2, connected=FENCE + 2)
        assert CloseUpstream not in kinds(manager.handle(now_ms, LeaseRead(lease)))


def test_the_older_hot_connection_waits_for_a_newer_one_that_is_about_to_go() -> None:
    """The newer one's lease ends where its stay does; until it is back, or half the margin is over, the older stays."""
    leave_ms = DEADLINE_MS - MARGIN_MS
    going = Lease(fence=FENCE + 1, connected=FENCE + 1, execution="mine", expires_at_ms=leave_ms + 1_000)
    manager = connected("tolerates", standby="hot")
    manager.handle(50_000, LeaseRead(replace(going, expires_at_ms=70_000)))
    manager.handle(leave_ms, Woken())
    assert CloseUpstream not in kinds(manager.handle(leave_ms, LeaseRead(going)))
    back = Lease(fence=FENCE + 2, connected=FENCE + 2, execution="mine", expires_at_ms=leave_ms + 20_000)
    assert CloseUpstream in kinds(manager.handle(leave_ms + 1_500, LeaseRead(back)))

    saved = [e.expires_at_ms for e in fresh_saves("hot")]
    assert saved[0] == 30 + LEASE_TTL_READS * 5_000
    assert saved[-1] == DEADLINE_MS - MARGIN_MS // 2
    assert [e.expires_at_ms for e in fresh_saves("cold")][-1] > DEADLINE_MS


def fresh_saves(standby: str) -> list[SaveProgress]:
    """What the holder saves from its opening to its margin."""
    manager = fresh("tolerates", standby=standby)
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE, execution="mine")))
    manager.handle(20, CursorRead("7"))
    effects = manager.handle(30, Opened(200))
    for now_ms in range(5_000, DEADLINE_MS - MARGIN_MS, 5_000):
        effects += manager.handle(now_ms, LeaseRead(Lease(fence=FENCE, connected=FENCE, execution="mine")))
    return [effect for effect in effects if isinstance(effect, SaveProgress)]


@pytest.mark.parametrize("standby", ["cold", "hot"])
def test_the_holder_waits_at_its_margin_for_the_execution_that_has_claimed_the_stream(standby: str) -> None:
    """Its first function is on the way: there would be nobody until it is connected."""
    manager = connected("tolerates", standby=standby)
    renewed = Lease(fence=FENCE, connected=FENCE, execution="next", expires_at_ms=DEADLINE_MS)
    manager.handle(DEADLINE_MS - MARGIN_MS, Woken())
    assert CloseUpstream not in kinds(manager.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(renewed)))
    assert CloseUpstream in kinds(manager.handle(DEADLINE_MS - MARGIN_MS // 2, Woken()))


def test_one_that_leaves_at_half_its_margin_has_time_to_drain() -> None:
    """What it has read is stored and its cursor saved, though the driver's alarm comes before the close."""
    late_ms = DEADLINE_MS - MARGIN_MS // 2
    manager = connected("tolerates", standby="hot")
    manager.handle(DEADLINE_MS - MARGIN_MS, Woken())
    assert kinds(manager.handle(late_ms - 1, Chunk(event(8)))) == [Write]
    assert manager.handle(late_ms, Woken()) == [CloseUpstream()]
    assert manager.wake_at_ms == DEADLINE_MS - MARGIN_MS // 4
    assert manager.handle(late_ms + 1, Closed("closed_here")) == []
    effects = manager.handle(late_ms + 2, Written(1, 0))
    assert kinds(effects) == [SaveProgress, MarkReleased, RecordGaps]
    assert outcome(manager.handle(late_ms + 2, Woken())).error == "ConnectionExpired"


def test_the_stop_wish_drains_and_returns() -> None:
    """A holder that reads the stop wish closes, drains and returns stopped."""
    manager = connected()
    effects = drained(manager, 1_030, manager.handle(1_030, LeaseRead(Lease(fence=FENCE, stop=True))))
    assert kinds(effects) == [SaveProgress, MarkReleased, RecordGaps, Finish]
    assert outcome(effects).status == "stopped"


def test_a_store_that_refuses_ends_the_connection() -> None:
    """What cannot be stored is not passed by the cursor: the function raises StoreUnavailable without saving it."""
    manager = connected()
    manager.handle(40, Chunk(event(8)))
    effects = manager.handle(50, StoreFailed("throttled"))
    assert kinds(effects) == [CloseUpstream, Finish]
    assert outcome(effects).error == "StoreUnavailable"


@pytest.mark.parametrize(("reason", "closed_ms"), [("reset", 40), ("stalled", 40), ("ended_by_upstream", 9_000)])
def test_the_ledger_vouches_for_nothing_after_the_last_byte_of_a_broken_connection(reason: str, closed_ms: int) -> None:
    """When the peer died is not known, only when it was last heard; a proper end is an end."""
    manager = connected()
    manager.handle(40, Chunk(event(8)))
    manager.handle(41, Written(1, 0))
    effects = manager.handle(9_000, Closed(reason))
    assert [e.progress.closed_ms for e in effects if isinstance(e, SaveProgress)] == [closed_ms]


def test_a_close_that_came_with_the_answer_is_not_before_the_opening() -> None:
    """Both are handled later than they came; the ledger's record never ends before it begins."""
    manager = fresh()
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE, execution="mine")))
    manager.handle(20, CursorRead("7"))
    manager.handle(30, Opened(200), arrived_ms=22)
    manager.handle(40, Closed("ended_by_upstream"), arrived_ms=28)
    assert (manager.progress.opened_ms, manager.progress.closed_ms) == (30, 30)


def test_an_unterminated_tail_is_noted_not_stored() -> None:
    """Bytes behind the last delimiter are no event; the ledger counts them."""
    manager = connected()
    manager.handle(40, Chunk(b"data: half"))
    effects = manager.handle(50, Closed("truncated"))
    assert isinstance(effects[1], SaveProgress)
    assert effects[1].progress.unterminated_bytes == len(b"data: half")


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
def test_a_block_with_an_id_alone_sets_where_to_resume(wire: bytes, cursor: str | None) -> None:
    """WHATWG sets the last event ID though nothing is dispatched; what stands behind the end does not count."""
    manager = connected()
    effects = manager.handle(40, Chunk(wire))
    for write in [effect for effect in effects if isinstance(effect, Write)]:
        effects += manager.handle(50, Written(len(write.events), 0, 0))
    effects += manager.handle(60, Closed("ended_by_upstream"))
    assert [effect.cursor for effect in effects if isinstance(effect, SaveProgress)] == [cursor]


def test_many_events_of_one_chunk_are_several_writes_each_with_its_cursor() -> None:
    """The cursor moves on with each that is stored, and stands behind none that is not."""
    manager = connected()
    wire = b"".join(event(number) for number in range(8, 8 + 2 * MOST_EVENTS + 1)) + b"id: 9999\n\n"
    writes = [effect for effect in manager.handle(40, Chunk(wire)) if isinstance(effect, Write)]
    assert [(write.first, len(write.events)) for write in writes] == [(0, 250), (250, 250), (500, 1)]
    cursors = []
    for number, write in enumerate(writes, 1):
        effects = manager.handle(10_000 * number, Written(len(write.events), 0, 0))
        cursors += [effect.cursor for effect in effects if isinstance(effect, SaveProgress)]
    assert cursors == [str(7 + MOST_EVENTS), str(7 + 2 * MOST_EVENTS), "9999"]


def test_an_id_alone_waits_for_the_events_before_it() -> None:
    """A place to resume at is saved only when all that came before it is stored."""
    manager = connected()
    assert kinds(manager.handle(6_000, Chunk(event(8)))) == [Write]
    assert manager.handle(6_010, Chunk(b"id: 9\n\n")) == []
    (saved,) = manager.handle(6_020, Written(1, 0, 0))
    assert isinstance(saved, SaveProgress)
    assert saved.cursor == "9"


def test_what_was_read_before_leaving_is_stored_before_the_cursor_is_saved() -> None:
    """Chunks that were queued when it began to leave are events like any other; the end waits until they are stored."""
    manager = connected()
    assert kinds(manager.handle(1_030, LeaseRead(Lease(fence=FENCE, stop=True)))) == [CloseUpstream]
    assert kinds(manager.handle(1_031, Chunk(event(8)))) == [Write]
    assert manager.handle(1_032, Closed("closed_here")) == []
    effects = manager.handle(1_033, Written(1, 0))
    assert isinstance(effects[0], SaveProgress)
    assert (effects[0].cursor, effects[0].progress.stored) == ("8", 1)
    assert outcome(effects).status == "stopped"


def test_gaps_are_written_down_once_the_predecessors_fate_is_known() -> None:
    """A connection looks for gaps once, when whoever was silent before it must be dead, or when it ends."""
    holder = LeaseRead(Lease(fence=FENCE))
    manager = connected()
    ttl_ms = manager.lease_ttl_ms
    assert kinds(manager.handle(30 + ttl_ms, holder)) == [SaveProgress]
    assert kinds(manager.handle(31 + ttl_ms + 5_000, holder)) == [SaveProgress, RecordGaps]
    assert kinds(manager.handle(31 + ttl_ms + 10_000, holder)) == [SaveProgress]
    assert RecordGaps not in kinds(manager.handle(31 + ttl_ms + 15_000, Closed("reset")))


def test_a_drain_that_takes_too_long_is_cut_at_half_the_margin() -> None:
    """Where the queue is not empty in time, the function ends all the same and vouches for nothing unstored."""
    manager = connected()
    manager.handle(1_030, LeaseRead(Lease(fence=FENCE, stop=True)))
    assert manager.wake_at_ms == DEADLINE_MS - MARGIN_MS // 2
    effects = manager.handle(DEADLINE_MS - MARGIN_MS // 2, Woken())
    assert kinds(effects) == [Finish]
    assert outcome(effects).error == "StoreUnavailable"


def test_nothing_behind_the_end_is_an_event() -> None:
    """What follows the event that ends the stream, in the same chunk or a later one, is not stored."""
    manager = connected()
    manager.handle(40, Chunk(b"event: end\ndata: y\n\n" + event(9)))
    assert manager.handle(41, Chunk(event(10))) == []


def test_an_input_that_the_phase_does_not_know_is_the_drivers_fault() -> None:
    """A chunk before the answer is a defect of the driver and raises; an answer that comes late is ignored."""
    manager = fresh()
    manager.start(0)
    with pytest.raises(ProtocolMisuse, match="Chunk in the phase claiming"):
        manager.handle(1, Chunk(b"x"))
    closed = connected()
    closed.handle(40, Closed("reset"))
    assert closed.handle(41, Opened(200)) == []


@given(st.lists(st.sampled_from(["chunk", "written", "lease", "woken", "closed"]), max_size=40))
def test_the_saved_cursor_never_passes_an_unstored_event(steps: list[str]) -> None:
    """Whatever comes in whatever order, a saved cursor names an event that is stored, as is every event before it."""
    manager = connected("tolerates")
    sent, stored, now_ms = 7, 7, 30
    finished = False
    for step in steps:
        now_ms += 3_000
        effects: list[Effect] = []
        if step == "chunk":
            sent += manager.phase is not Phase.FINISHED
            effects = manager.handle(now_ms, Chunk(event(sent)))
        elif step == "written" and stored < sent and manager.phase is not Phase.FINISHED:
            stored += 1
            effects = manager.handle(now_ms, Written(1, 0))
        elif step == "lease":
            effects = manager.handle(now_ms, LeaseRead(Lease(fence=FENCE)))
        elif step == "woken" and manager.wake_at_ms is not None and now_ms >= manager.wake_at_ms:
            effects = manager.handle(now_ms, Woken())
        elif step == "closed":
            effects = manager.handle(now_ms, Closed("reset"))
        saved = [int(e.cursor) for e in effects if isinstance(e, SaveProgress) and e.cursor is not None]
        assert all(cursor <= stored for cursor in saved)
        assert not (finished and effects)
        finished = finished or Finish in kinds(effects)
        assert Finish not in kinds(effects[:-1])
