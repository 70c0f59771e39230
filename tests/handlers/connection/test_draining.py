"""Why a connection leaves and how it ends, also where two hot connections stay open."""

from dataclasses import replace

import pytest

from handlers.connection.draining import WATCH_MS
from handlers.connection.effects import (
    CloseUpstream,
    Finish,
    Heartbeat,
    ReadLease,
    RecordGaps,
    Release,
    SaveRecord,
    Write,
)
from handlers.connection.inputs import Chunk, Closed, LeaseRead, Opened, Resumption, StoreFailed, Woken, Written
from handlers.connection.lease import LEASE_TTL_READS, Lease
from handlers.connection.liveness import BROKEN
from handlers.connection.phases import Phase
from handlers.connection.record import SEARCH_EVERY
from tests.handlers.connection.managers import (
    DEADLINE_MS,
    FENCE,
    MARGIN_MS,
    TURN,
    claimed,
    connected,
    drain,
    event,
    kinds,
    outcome,
)


def test_a_connection_that_closes_after_its_successor_connected_is_taken_over() -> None:
    """A connection that closes while a newer one is marked connected raises StreamTakenOver."""
    manager = connected()
    assert kinds(manager.handle(40, Closed("ended_by_upstream"))) == [CloseUpstream, SaveRecord, Release]
    assert manager.lease_due_ms is None  # the answer to the release is the lease
    effects = manager.handle(40, LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="mine")))
    assert outcome(effects).error == "StreamTakenOver"
    assert isinstance(effects[0], SaveRecord)
    assert effects[0].progress.ended_by == "taken_over"


def test_a_connection_that_closes_while_it_holds_the_lease_is_dropped() -> None:
    """A connection that closes as the holder was dropped: no successor has come, and the lane must not wait."""
    manager = connected()
    manager.handle(40, Closed("reset"))
    assert outcome(manager.handle(40, LeaseRead(Lease(fence=FENCE)))).error == "StreamDropped"


def test_a_successor_that_is_closed_again_is_not_waited_for() -> None:
    """If the successor is closed again, perhaps no connection is open, so the lane must not wait."""
    manager = connected()
    manager.handle(40, Closed("reset"))
    gone = Lease(fence=FENCE + 1, connected_token=FENCE + 1, released_token=FENCE + 1, execution="mine")
    assert outcome(manager.handle(40, LeaseRead(gone))).error == "StreamDropped"


def test_a_connection_that_closes_while_its_successor_connects_awaits_the_mark() -> None:
    """At a close a successor's claim is no takeover yet: its mark within the watch makes it one, else it is a drop."""
    claimed = Lease(fence=FENCE + 1, connected_token=FENCE)
    manager = connected()
    manager.handle(40, Closed("ended_by_upstream"))
    assert (manager.handle(40, LeaseRead(claimed)), manager.lease_due_ms) == ([], 140)
    effects = manager.handle(140, LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE + 1)))
    assert outcome(effects).error == "StreamTakenOver"

    manager = connected()
    manager.handle(40, Closed("ended_by_upstream"))
    manager.handle(40, LeaseRead(claimed))
    assert manager.wake_at_ms == 40 + WATCH_MS
    assert manager.handle(40 + WATCH_MS - 1, Woken()) == []
    assert outcome(manager.handle(40 + WATCH_MS, Woken())).error == "StreamDropped"


@pytest.mark.parametrize("overlap", ["evicts", "tolerates"])
def test_a_connection_that_is_taken_over_reads_on_for_the_overlap(overlap: str) -> None:
    """The older connection reads on for `overlap_s`, reads the lease once more, drains and ends."""
    manager = connected(overlap, overlap_s=1.5)
    newer = LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE + 1))
    assert manager.handle(1_030, newer) == []
    assert (manager.phase, manager.lease_due_ms, manager.wake_at_ms) == (Phase.OVERLAPPING, 2_030, 2_530)
    assert kinds(manager.handle(2_000, Chunk(event(8)))) == [Write]
    manager.handle(2_000, Written(1, 0))
    assert manager.handle(2_030, newer) == []
    assert manager.handle(2_530, Woken()) == [ReadLease()]
    effects = drain(manager, 2_530, manager.handle(2_530, newer))
    assert kinds(effects) == [SaveRecord, RecordGaps, Release, Finish]
    assert outcome(effects).error == "StreamTakenOver"


def test_a_connection_whose_successor_is_closed_again_stays() -> None:
    """The connection reads the lease before it leaves; if the successor is closed, it stays until the next one."""
    manager = connected("tolerates", overlap_s=0.5)
    newer = Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="mine")
    assert manager.handle(1_030, LeaseRead(newer)) == []
    assert manager.handle(1_530, Woken()) == [ReadLease()]
    assert manager.handle(1_530, LeaseRead(replace(newer, released_token=FENCE + 1))) == []
    assert (manager.phase, manager.lease_due_ms, manager.wake_at_ms) == (
        Phase.CONNECTED,
        2_530,
        DEADLINE_MS - MARGIN_MS,
    )
    assert manager.handle(2_530, LeaseRead(replace(newer, fence=FENCE + 2, released_token=FENCE + 1))) == []
    again = LeaseRead(replace(newer, fence=FENCE + 2, connected_token=FENCE + 2, released_token=FENCE + 1))
    assert manager.handle(3_530, again) == []
    assert (manager.phase, manager.wake_at_ms) == (Phase.OVERLAPPING, 4_030)
    assert outcome(drain(manager, 4_030, manager.handle(4_030, again))).error == "StreamTakenOver"


def test_a_connection_whose_successor_is_closed_again_reads_on_into_its_margin() -> None:
    """While the next successor connects, the connection reads on for half its margin, as if never taken over."""
    manager = connected("tolerates", overlap_s=60)
    newer = Lease(fence=FENCE + 1, connected_token=FENCE + 1)
    gone = LeaseRead(replace(newer, fence=FENCE + 2, released_token=FENCE + 1))
    margin_ms = DEADLINE_MS - MARGIN_MS
    manager.handle(margin_ms - 1_000, LeaseRead(newer))
    assert manager.handle(margin_ms, Woken()) == [ReadLease()]
    assert CloseUpstream not in kinds(manager.handle(margin_ms, gone))
    assert manager.handle(margin_ms, Woken()) == []
    assert CloseUpstream not in kinds(manager.handle(margin_ms, gone))
    assert (manager.phase, manager.wake_at_ms) == (Phase.CONNECTED, DEADLINE_MS - MARGIN_MS // 2)
    assert kinds(manager.handle(DEADLINE_MS - MARGIN_MS // 2, Woken())) == [CloseUpstream]


def test_a_connection_does_not_stay_if_the_stream_ended_for_its_successor() -> None:
    """If the successor ended with StreamEnded, the older connection drains; after any other end it stays."""
    for ending, phase in (("StreamEnded", Phase.DRAINING), ("RenewalFailed", Phase.CONNECTED)):
        manager = connected("tolerates", overlap_s=2)
        newer = Lease(fence=FENCE + 1, connected_token=FENCE + 1)
        manager.handle(1_030, LeaseRead(newer))
        manager.handle(2_030, LeaseRead(replace(newer, released_token=FENCE + 1, ending=ending)))
        assert manager.phase is phase


def test_a_connection_that_is_taken_over_does_not_overlap_under_forbids() -> None:
    """Under `forbids` a connection whose turn was taken closes at once, whatever `overlap_s` is."""
    manager = connected("forbids", overlap_s=2)
    newer = LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE + 1))
    assert outcome(drain(manager, 1_030, manager.handle(1_030, newer))).error == "StreamTakenOver"


def test_a_takeover_that_is_seen_only_at_the_margin_is_a_takeover() -> None:
    """A connection that sees its successor at its margin reads on, and ends as taken over with little time left."""
    manager = connected("tolerates", overlap_s=60)
    manager.handle(DEADLINE_MS - MARGIN_MS, Woken())
    newer = LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE + 1))
    manager.handle(DEADLINE_MS - MARGIN_MS, newer)
    end_ms = DEADLINE_MS - MARGIN_MS // 2
    drain(manager, end_ms, manager.handle(end_ms, Woken()))
    assert outcome(manager.handle(end_ms, newer)).error == "StreamTakenOver"


def test_an_overlap_is_bounded_by_the_settings() -> None:
    """A longer `overlap_s` is cut, so that the overlap ends early enough for the lane's next turn."""
    manager = connected("tolerates", overlap_s=60, overlap_max_ms=2_000)
    manager.handle(1_030, LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE + 1)))
    assert manager.wake_at_ms == 3_030


def test_a_connection_leaves_a_margin_before_its_deadline() -> None:
    """The connection leaves before its deadline; without a successor it raises ConnectionExpired."""
    manager = connected()
    assert manager.wake_at_ms == DEADLINE_MS - MARGIN_MS
    assert manager.handle(DEADLINE_MS - MARGIN_MS - 1, Woken()) == []
    assert manager.handle(DEADLINE_MS - MARGIN_MS, Woken()) == []
    assert manager.lease_due_ms == DEADLINE_MS - MARGIN_MS
    effects = manager.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(Lease(fence=FENCE)))
    assert kinds(drain(manager, DEADLINE_MS - MARGIN_MS, effects)) == [SaveRecord, Release]
    effects = manager.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(Lease(fence=FENCE)))
    assert outcome(effects).error == "ConnectionExpired"


@pytest.mark.parametrize(
    ("standby", "lease"),
    [
        ("cold", Lease(fence=FENCE + 1, connected_token=FENCE)),
        ("cold", RENEWED := Lease(fence=FENCE, connected_token=FENCE, execution="next", expires_at_ms=DEADLINE_MS)),
        ("hot", RENEWED),
    ],
)
def test_a_connection_reads_on_into_its_margin_while_a_successor_is_on_its_way(standby: str, lease: Lease) -> None:
    """A successor may be a newer claim, or the first function of an execution that has claimed the stream.

    While one is on its way, the connection reads on for half the margin, so that a slow connect leaves no gap.
    """
    manager = connected("tolerates", standby=standby)
    assert manager.handle(DEADLINE_MS - MARGIN_MS, Woken()) == []
    assert CloseUpstream not in kinds(manager.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(lease)))
    assert (manager.phase, manager.wake_at_ms) == (Phase.CONNECTED, DEADLINE_MS - MARGIN_MS // 2)
    assert CloseUpstream in kinds(manager.handle(DEADLINE_MS - MARGIN_MS // 2, Woken()))


def test_a_takeover_by_another_execution_ends_the_lane() -> None:
    """After a takeover by another execution the function returns `superseded`: its lane must not come back."""
    manager = connected()
    manager.handle(40, Closed("ended_by_upstream"))
    effects = manager.handle(40, LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="other")))
    assert (outcome(effects).error, outcome(effects).status) == ("", "superseded")


def test_a_connection_that_leaves_at_half_its_margin_has_time_to_drain() -> None:
    """A connection that leaves late still stores its events and its cursor, although its alarm precedes the close."""
    late_ms = DEADLINE_MS - MARGIN_MS // 2
    manager = connected("tolerates", standby="hot")
    manager.handle(DEADLINE_MS - MARGIN_MS, Woken())
    assert kinds(manager.handle(late_ms - 1, Chunk(event(8)))) == [Write]
    assert manager.handle(late_ms, Woken()) == [CloseUpstream()]
    assert manager.wake_at_ms == DEADLINE_MS - MARGIN_MS // 4
    assert manager.handle(late_ms + 1, Closed("closed_here")) == []
    assert kinds(manager.handle(late_ms + 2, Written(1, 0))) == [SaveRecord, Release]
    assert outcome(manager.handle(late_ms + 2, Woken())).error == "ConnectionExpired"


def test_a_requested_stop_drains_and_returns() -> None:
    """A holder that reads a requested stop closes, drains and returns stopped."""
    manager = connected()
    effects = drain(manager, 1_030, manager.handle(1_030, LeaseRead(Lease(fence=FENCE, stop=True))))
    assert kinds(effects) == [SaveRecord, RecordGaps, Release, Finish]
    assert outcome(effects).status == "stopped"


def test_a_store_that_refuses_ends_the_connection() -> None:
    """The cursor must not pass an unstored event, so the function raises StoreUnavailable without saving it."""
    manager = connected()
    manager.handle(40, Chunk(event(8)))
    effects = manager.handle(50, StoreFailed("throttled"))
    assert kinds(effects) == [CloseUpstream, Finish]
    assert outcome(effects).error == "StoreUnavailable"


@pytest.mark.parametrize(
    ("reason", "closed_ms"), [*((reason, 40) for reason in sorted(BROKEN)), ("ended_by_upstream", 9_000)]
)
def test_the_ledger_covers_nothing_after_the_last_byte_of_a_broken_connection(reason: str, closed_ms: int) -> None:
    """After a break the ledger covers the time until the last byte, after a clean end the time until that end."""
    manager = connected()
    manager.handle(40, Chunk(event(8)))
    manager.handle(41, Written(1, 0))
    effects = manager.handle(9_000, Closed(reason))
    assert [e.progress.closed_ms for e in effects if isinstance(e, SaveRecord)] == [closed_ms]


def test_a_close_that_came_with_the_answer_is_not_before_the_opening() -> None:
    """Answer and close are handled after they arrived, but the ledger's record never ends before it begins."""
    manager = claimed()
    manager.handle(30, Opened(200), arrived_ms=22)
    effects = manager.handle(40, Closed("ended_by_upstream"), arrived_ms=28)
    saved = [effect.progress for effect in effects if isinstance(effect, SaveRecord)]
    assert [(progress.opened_ms, progress.closed_ms) for progress in saved] == [(30, 30)]


def test_chunks_read_before_leaving_are_stored_before_the_cursor_is_saved() -> None:
    """The end of a connection waits until the events of its queued chunks are stored."""
    manager = connected()
    assert kinds(manager.handle(1_030, LeaseRead(Lease(fence=FENCE, stop=True)))) == [CloseUpstream]
    assert kinds(manager.handle(1_031, Chunk(event(8)))) == [Write]
    assert manager.handle(1_032, Closed("closed_here")) == []
    effects = manager.handle(1_033, Written(1, 0))
    assert isinstance(effects[-2], Release)
    assert (effects[-2].cursor, effects[-2].progress.stored) == ("8", 1)
    assert outcome(effects).status == "stopped"


def test_gaps_are_recorded_once_a_silent_predecessor_must_be_dead() -> None:
    """A connection searches for gaps once, when a silent predecessor must be dead."""
    holder = LeaseRead(Lease(fence=FENCE))
    manager = connected()
    ttl_ms = LEASE_TTL_READS * 5_000
    assert kinds(manager.handle(30 + ttl_ms, holder)) == [Heartbeat]
    assert kinds(manager.handle(31 + ttl_ms + 5_000, holder)) == [Heartbeat, RecordGaps]
    assert kinds(manager.handle(31 + ttl_ms + 10_000, holder)) == [Heartbeat]
    assert RecordGaps not in kinds(manager.handle(31 + ttl_ms + 15_000, Closed("ended_by_upstream")))


def test_a_drain_that_takes_too_long_is_cut_at_half_the_margin() -> None:
    """If draining takes too long, the function ends with StoreUnavailable, and saves no cursor and no record."""
    manager = connected()
    manager.handle(1_030, LeaseRead(Lease(fence=FENCE, stop=True)))
    assert manager.wake_at_ms == DEADLINE_MS - MARGIN_MS // 2
    effects = manager.handle(DEADLINE_MS - MARGIN_MS // 2, Woken())
    assert kinds(effects) == [Finish]
    assert outcome(effects).error == "StoreUnavailable"


@pytest.mark.parametrize(("looked", "is_dropped", "looks"), [(0, True, True), (1, True, False), (1, False, True)])
def test_only_one_in_eight_dropped_connections_searches_for_gaps(looked: int, is_dropped: bool, looks: bool) -> None:
    """A dropped connection leaves the search to a later one, which reads further back; a stopped one searches."""
    manager = claimed(at=Resumption("7", last_searched=looked), lease=Lease(fence=SEARCH_EVERY, execution="mine"))
    manager.handle(30, Opened(200))
    if is_dropped:
        effects = manager.handle(40, Closed("reset"))
    else:
        stop = LeaseRead(Lease(fence=SEARCH_EVERY, stop=True))
        effects = drain(manager, 40, manager.handle(40, stop))
    assert (RecordGaps in kinds(effects)) == looks


@pytest.mark.parametrize(
    ("again", "status", "is_released"), [(False, 502, False), (False, 503, True), (True, 502, True)]
)
def test_a_request_that_must_be_made_once_keeps_its_turn_if_it_may_have_begun(
    again: bool, status: int, is_released: bool
) -> None:
    """After a 502 the turn is kept: the other lane would repeat the request before the machine knows of the end."""
    manager = claimed("forbids", again=again)
    manager.handle(20, LeaseRead(TURN, Resumption("7")))
    assert (Release in kinds(drain(manager, 60, manager.handle(50, Opened(status))))) == is_released


def test_a_hot_standby_stays_when_it_is_taken_over() -> None:
    """For a hot connection a newer one is no reason to leave, a close is a drop, and the deadline is an expiry."""
    newer = Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="mine", expires_at_ms=DEADLINE_MS)
    manager = connected("tolerates", standby="hot")
    assert CloseUpstream not in kinds(manager.handle(1_030, LeaseRead(newer)))
    assert manager.phase is Phase.CONNECTED
    manager.handle(2_000, Closed("reset"))
    assert outcome(manager.handle(2_000, LeaseRead(newer))).error == "StreamDropped"

    expiring = connected("tolerates", standby="hot")
    expiring.handle(DEADLINE_MS // 2, LeaseRead(newer))
    assert expiring.handle(DEADLINE_MS - MARGIN_MS, Woken()) == []
    effects = expiring.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(newer))
    drain(expiring, DEADLINE_MS - MARGIN_MS, effects)
    assert outcome(expiring.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(newer))).error == "ConnectionExpired"


def test_a_hot_standby_goes_when_another_execution_has_taken_over() -> None:
    """A hot connection overlaps with one of another execution, then releases and returns `superseded`."""
    manager = connected("tolerates", standby="hot", overlap_s=2)
    superseding = LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="other"))
    manager.handle(1_030, superseding)
    assert manager.phase is Phase.OVERLAPPING
    assert outcome(drain(manager, 3_030, manager.handle(3_030, superseding))).status == "superseded"


def test_the_older_of_two_hot_connections_that_began_together_leaves_half_way() -> None:
    """Two hot connections with one deadline would end together, so the older leaves half-way and the newer stays."""
    newer = Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="mine", expires_at_ms=DEADLINE_MS)
    older = connected("tolerates", standby="hot")
    half_ms = 1_030 + (DEADLINE_MS - MARGIN_MS) // 2
    older.handle(1_030, LeaseRead(newer))
    assert CloseUpstream not in kinds(older.handle(half_ms - 1, LeaseRead(newer)))
    drain(older, half_ms, older.handle(half_ms, LeaseRead(newer)))
    assert outcome(older.handle(half_ms, LeaseRead(newer))).error == "ConnectionExpired"

    holder = connected("tolerates", standby="hot")
    for now_ms in (1_030, half_ms, half_ms + 1_000):
        own = Lease(fence=FENCE, connected_token=FENCE, execution="mine", expires_at_ms=DEADLINE_MS)
        assert CloseUpstream not in kinds(holder.handle(now_ms, LeaseRead(own)))


def test_the_older_hot_connection_waits_for_a_newer_one_that_is_about_to_go() -> None:
    """A newer hot connection's lease ends with its stay, so the older stays until that lane is connected again."""
    leave_ms = DEADLINE_MS - MARGIN_MS
    going = Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="mine", expires_at_ms=leave_ms + 1_000)
    manager = connected("tolerates", standby="hot")
    manager.handle(50_000, LeaseRead(replace(going, expires_at_ms=70_000)))
    manager.handle(leave_ms, Woken())
    assert CloseUpstream not in kinds(manager.handle(leave_ms, LeaseRead(going)))
    back = Lease(fence=FENCE + 2, connected_token=FENCE + 2, execution="mine", expires_at_ms=leave_ms + 20_000)
    assert CloseUpstream in kinds(manager.handle(leave_ms + 1_500, LeaseRead(back)))
