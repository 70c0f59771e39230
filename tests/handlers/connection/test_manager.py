"""The connection manager's decisions until the upstream has answered, and while it waits for its turn."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.effects import (
    Claim,
    CloseUpstream,
    Effect,
    Finish,
    Heartbeat,
    MarkConnected,
    Open,
    ReadLease,
    RecordLoss,
    Release,
    RenewTurn,
    ReplaceCursor,
    SaveRecord,
    TakeTurn,
)
from handlers.connection.evidence import Record as LedgerRecord
from handlers.connection.evidence import records
from handlers.connection.gap_record import LOST
from handlers.connection.inputs import (
    Chunk,
    Claimed,
    ClaimRefused,
    Closed,
    LeaseRead,
    Opened,
    Resumption,
    Woken,
    Written,
)
from handlers.connection.lease import LEASE_TTL_READS, Lease
from handlers.connection.ledger import find_gaps
from handlers.connection.manager import Manager
from handlers.connection.phases import Phase, ProtocolMisuse
from tests.handlers.connection.managers import (
    DEADLINE_MS,
    FENCE,
    MARGIN_MS,
    MINE,
    SAVES,
    TURN,
    claimed,
    connected,
    drain,
    event,
    fresh,
    kinds,
    outcome,
)


def test_a_connection_claims_before_it_opens_and_marks_after() -> None:
    """A connection claims, opens, then marks: only so can an evicted one tell a takeover from a drop."""
    manager = fresh()
    assert manager.start(0) == [Claim()]
    assert manager.handle(20, Claimed(Lease(fence=FENCE), Resumption("7"))) == [Open("7")]
    effects = manager.handle(30, Opened(200))
    assert effects[0] == MarkConnected(FENCE, 30 + LEASE_TTL_READS * 5_000, manager.progress)
    assert kinds(effects) == [MarkConnected]
    assert manager.phase is Phase.CONNECTED


@pytest.mark.parametrize(("lease", "status"), [(Lease(stop=True), "stopped"), (Lease(execution="other"), "superseded")])
def test_a_refused_claim_opens_nothing(lease: Lease, status: str) -> None:
    """If a stop is requested or another execution holds the stream, the function returns with that status."""
    manager = fresh()
    manager.start(0)
    effects = manager.handle(1, ClaimRefused(lease))
    assert kinds(effects) == [Finish]
    assert (outcome(effects).error, outcome(effects).status) == ("", status)


def test_a_successors_claim_alone_ends_a_connection_only_under_forbids() -> None:
    """At a successor's claim the older connection stays under `tolerates`, but closes and releases under `forbids`."""
    claimed = Lease(fence=FENCE + 1, connected_token=FENCE)
    assert connected("tolerates").handle(1_030, LeaseRead(claimed)) == []
    manager = connected("forbids")
    effects = drain(manager, 1_030, manager.handle(1_030, LeaseRead(claimed)))
    assert kinds(effects) == [SaveRecord, Release]


def test_under_forbids_the_upstream_is_opened_when_the_older_connection_is_released() -> None:
    """The successor awaits the release or the lease's end, takes its turn and resumes from the newest cursor."""
    manager = fresh("forbids")
    manager.start(0)
    waiting = Lease(fence=FENCE, connected_token=FENCE - 1, released_token=FENCE - 2, expires_at_ms=9_000)
    assert manager.handle(10, Claimed(waiting, Resumption(None))) == []
    assert (manager.phase, manager.lease_due_ms) == (Phase.AWAITING_RELEASE, 210)
    assert manager.handle(210, LeaseRead(waiting)) == []
    released = Lease(fence=FENCE, connected_token=FENCE - 1, released_token=FENCE - 1, expires_at_ms=9_000)
    assert kinds(manager.handle(410, LeaseRead(released))) == [TakeTurn]
    taken = Lease(fence=FENCE, connected_token=FENCE, released_token=FENCE - 1, expires_at_ms=99_000)
    assert manager.handle(420, LeaseRead(taken, Resumption("7"))) == [Open("7")]
    late = fresh("forbids")
    late.start(0)
    late.handle(10, Claimed(waiting, Resumption(None)))
    assert kinds(late.handle(9_000, LeaseRead(waiting))) == [TakeTurn]


def test_a_turn_is_taken_only_from_a_connection_that_is_over() -> None:
    """Lambda's error names the request that is over; it proves nothing about a connection of another request."""
    manager = fresh("forbids", died="RequestId: r1 Error: Runtime exited\nRequestId: r2 Error: Task timed out")
    manager.start(0)
    living = Lease(fence=FENCE, connected_token=FENCE - 1, expires_at_ms=9_000, connected_by="r3")
    assert manager.handle(10, Claimed(living, Resumption(None))) == []
    dead = Lease(fence=FENCE, connected_token=FENCE - 1, expires_at_ms=9_000, connected_by="r2")
    (turn,) = manager.handle(210, LeaseRead(dead))
    assert (type(turn), turn.over) == (TakeTurn, FENCE - 1)  # type: ignore[union-attr]


def test_an_older_turn_of_the_function_itself_is_over() -> None:
    """A turn of the same function is of a claim whose answer was lost; a group's heartbeats would keep it alive."""
    manager = fresh("forbids")
    manager.start(0)
    own = Lease(fence=FENCE, connected_token=FENCE - 1, expires_at_ms=9_000, connected_by="r1")
    turns = [turn.over for turn in manager.handle(10, Claimed(own, Resumption(None))) if isinstance(turn, TakeTurn)]
    assert turns == [FENCE - 1]


def test_a_function_that_reconnects_takes_its_turn_with_the_claim() -> None:
    """If the claim brings the turn, the upstream is opened at once; else the connection requests the turn."""
    manager = fresh("forbids")
    assert manager.start(0, FENCE - 1) == [Claim(FENCE - 1, 0, LEASE_TTL_READS * 5_000)]
    taken = Lease(fence=FENCE, connected_token=FENCE, released_token=FENCE - 1, expires_at_ms=20_000)
    assert manager.handle(10, Claimed(taken, Resumption("7"))) == [Open("7")]
    other = fresh("forbids")
    other.start(0, FENCE - 1)
    assert kinds(other.handle(10, Claimed(Lease(fence=FENCE), Resumption(None)))) == [TakeTurn]
    assert fresh("evicts").start(0, FENCE - 1) == [Claim(FENCE - 1)]


def test_a_turn_is_released_although_the_upstream_did_not_answer() -> None:
    """A connection with a turn but no answer releases it, so the next one need not wait until it expires."""
    manager = fresh("forbids")
    manager.start(0)
    assert kinds(manager.handle(10, Claimed(Lease(fence=FENCE), Resumption(None)))) == [TakeTurn]
    manager.handle(30, LeaseRead(TURN, Resumption(None)))
    assert kinds(manager.handle(40, Closed("refused"))) == [CloseUpstream, SaveRecord, Release]


def test_under_forbids_a_connection_closes_half_a_lease_before_another_may_open() -> None:
    """Half a lease before its end a connection reads its lease, and closes unless it was renewed.

    Other connections stay whatever their lease says: a second one harms nobody, or is never opened.
    """
    manager, half_ms = connected("forbids"), TURN.expires_at_ms - 10_000
    assert manager.wake_at_ms == half_ms
    manager.handle(half_ms, Woken())
    assert manager.lease_due_ms == half_ms
    assert kinds(manager.ask_lease(half_ms)) == [Heartbeat]
    renewed = replace(TURN, expires_at_ms=half_ms + 20_000)
    assert manager.handle(half_ms + 100, LeaseRead(renewed)) == []
    assert manager.wake_at_ms == half_ms + 10_000
    manager.handle(half_ms + 10_000, Woken())
    effects = drain(manager, half_ms + 10_001, manager.handle(half_ms + 10_001, LeaseRead(renewed)))
    assert kinds(effects) == [SaveRecord, Release]
    assert manager.outcome_so_far.message == "its lease was not renewed: closed before another connection opens"
    for other in (connected("evicts"), connected("forbids", again=False)):
        assert kinds(other.handle(half_ms + 10_001, LeaseRead(TURN))) == [Heartbeat]


def test_a_turn_is_renewed_once_while_the_upstream_has_not_answered() -> None:
    """The turn is renewed half a lease before its end, once: an instant that stayed due would take all of the CPU."""
    manager, half_ms = claimed("forbids"), TURN.expires_at_ms - 10_000
    manager.handle(20, LeaseRead(TURN, Resumption(None)))
    assert (manager.phase, manager.wake_at_ms) == (Phase.OPENING, half_ms)
    assert manager.handle(half_ms, Woken()) == []
    assert (manager.lease_due_ms, manager.wake_at_ms) == (half_ms, DEADLINE_MS - MARGIN_MS)
    assert kinds(manager.ask_lease(half_ms)) == [RenewTurn]


def test_a_stop_is_noticed_while_the_upstream_has_not_answered() -> None:
    """The upstream may hang for `stall_after_s`, so the lease is read meanwhile; only a stop ends the opening."""
    manager = claimed()
    for now_ms, lease in ((1_020, MINE), (2_020, replace(MINE, fence=FENCE + 1, execution="theirs"))):
        assert (manager.phase, manager.lease_due_ms) == (Phase.OPENING, now_ms)
        assert kinds(manager.ask_lease(now_ms)) == [ReadLease]
        assert manager.handle(now_ms, LeaseRead(lease)) == []
    effects = drain(manager, 3_020, manager.handle(3_020, LeaseRead(replace(MINE, stop=True))))
    assert (kinds(effects), outcome(effects).status) == ([SaveRecord, Finish], "stopped")


def test_a_lease_that_lasts_to_the_deadline_need_not_be_renewed() -> None:
    """In a group a lease lasts as long as the function, so its connections stay until they would leave anyway."""
    manager, leaves_ms = connected("forbids"), DEADLINE_MS - MARGIN_MS
    manager.handle(leaves_ms - 1, LeaseRead(replace(TURN, expires_at_ms=DEADLINE_MS)))
    assert (manager.phase, manager.wake_at_ms) == (Phase.CONNECTED, leaves_ms)


def test_a_turn_that_came_too_late_is_not_used() -> None:
    """If the turn may run out before the upstream answers, nothing is opened, or the opening is closed."""
    manager = fresh("forbids")
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE), Resumption(None)))
    assert Open not in kinds(manager.handle(10_020, LeaseRead(TURN, Resumption(None))))
    opening = claimed("forbids")
    assert kinds(opening.handle(20, LeaseRead(TURN, Resumption(None)))) == [Open]
    assert opening.handle(10_019, LeaseRead(TURN)) == []
    assert kinds(opening.handle(10_020, LeaseRead(TURN))) == [CloseUpstream]


def test_a_connection_that_never_had_its_turn_releases_nothing() -> None:
    """A connection that never had its turn must not record an older one as closed."""
    manager = fresh("forbids")
    manager.start(0)
    manager.handle(10, Claimed(Lease(fence=FENCE, connected_token=FENCE - 1, expires_at_ms=9_000), Resumption(None)))
    effects = manager.handle(20, LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE - 1)))
    assert Release not in kinds(effects)
    assert CloseUpstream not in kinds(effects)


def test_an_input_that_is_illegal_in_the_phase_raises() -> None:
    """A chunk before the answer is a defect of the driver, so it raises; a late answer is ignored."""
    manager = fresh()
    manager.start(0)
    with pytest.raises(ProtocolMisuse, match="Chunk in the phase claiming"):
        manager.handle(1, Chunk(b"x"))
    closed = connected()
    closed.handle(40, Closed("reset"))
    assert closed.handle(41, Opened(200)) == []


@given(st.lists(st.sampled_from(["chunk", "written", "lease", "woken", "closed"]), max_size=40))
def test_the_saved_cursor_never_passes_an_unstored_event(steps: list[str]) -> None:
    """In any order of inputs, a saved cursor names a stored event, and every event before it is stored."""
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
        saved = [int(e.cursor) for e in effects if isinstance(e, SAVES) and e.cursor is not None]
        assert all(cursor <= stored for cursor in saved)
        assert not (finished and effects)
        finished = finished or Finish in kinds(effects)
        assert Finish not in kinds(effects[:-1])


def refused_cursor(lease: Lease, **more: Any) -> tuple[Manager, list[Effect]]:
    """Return a manager that resumed from a cursor, and its effects after a 410, which refuses that cursor."""
    manager = fresh("tolerates", resume={"header": "Last-Event-ID"}, **more)
    manager.start(0)
    manager.handle(20, Claimed(lease, Resumption("7", saved_ms=5, known_ms=10)))
    return manager, manager.handle(40, Opened(410))


def test_a_refused_cursor_is_left_out_at_once_while_another_connection_is_open() -> None:
    """The other connection reads on, so this one begins afresh; its record says so before any cursor is saved."""
    manager, effects = refused_cursor(Lease(fence=FENCE, connected_token=FENCE - 1, expires_at_ms=9_000))
    assert (effects, manager.phase) == ([Open("")], Phase.OPENING)
    (mark,) = manager.handle(60, Opened(200))
    assert isinstance(mark, MarkConnected)
    progress = mark.progress
    assert (progress.resumed, progress.opened_ms, progress.forgot_ms, progress.live_ms) == (False, 60, 40, 60)
    told, since = [LedgerRecord(FENCE - 1, 0, 50, None, "", False)], 10
    for last_ms, missed in ((70, []), (50, [(50, 60)])):
        older = replace(told[0], seen_ms=last_ms, closed_ms=last_ms, ended_by="taken_over")
        newer = LedgerRecord(FENCE, 60, 90, 90, "expired", progress.resumed, since_ms=since, live_ms=progress.live_ms)
        shown = find_gaps([older, *records(newer, progress.opened_ms, progress.forgot_ms)], 100, 1)
        assert [(gap.from_ms, gap.to_ms, gap.state) for gap in shown] == [(*one, LOST) for one in missed]


def test_the_request_without_the_refused_cursor_is_made_once() -> None:
    """If the upstream refuses the request without a cursor too, the connection ends: the cursor was not the reason."""
    manager, _ = refused_cursor(Lease(fence=FENCE, connected_token=FENCE - 1, expires_at_ms=9_000))
    effects = drain(manager, 61, manager.handle(60, Opened(410)))
    assert outcome(effects).message == "the upstream answered 410: final if it goes on for 300 s"


@pytest.mark.parametrize(
    "lease",
    [
        Lease(fence=FENCE),
        Lease(fence=FENCE, connected_token=FENCE - 1, released_token=FENCE - 1, expires_at_ms=9_000),
        Lease(fence=FENCE, connected_token=FENCE - 1, expires_at_ms=40),
    ],
    ids=["nobody ever", "released", "expired"],
)
def test_a_refused_cursor_is_replaced_if_no_other_connection_is_open(lease: Lease) -> None:
    """The record reports the missed events before a refused cursor is replaced; then the next one begins afresh."""
    manager, effects = refused_cursor(lease)
    assert kinds(drain(manager, 41, effects))[0] is ReplaceCursor
    assert manager.progress.ended_by == "cursor_expired"


@pytest.mark.parametrize(
    ("numbers", "proved", "unasked"),
    [
        ((8, 9), (True, None), True),
        ((7, 8), (True, None), False),
        ((9,), (True, 4_000), False),
        ((1, 2), (False, None), False),
        ((6,), (False, None), False),
    ],
)
def test_numbers_that_continue_after_the_cursor_prove_that_nothing_is_missing(
    numbers: tuple[int, ...], proved: tuple[bool, int | None], unasked: bool
) -> None:
    """Numbers that continue prove it whatever the pause or the promised reach; a hole or a restart proves nothing.

    If the upstream was not asked to resume, they prove that nothing came in between, and a hole is no loss. The
    cursor's own number may then be that of a feed which numbers each connection anew.
    """
    chunk = Chunk("".join(f'data: {{"n": {number}}}\n\n' for number in numbers).encode())
    for resume, expected in (({"header": "Last-Event-ID", "reach_s": 4}, proved), ("none", (unasked, None))):
        manager = claimed(key="$.n", cursor="$.n", sequence="$.n", resume=resume)
        manager.handle(40, Opened(200, {"content-type": "text/event-stream"}))
        before = manager.progress
        assert (before.resumed, before.reach_ms) == ((False, None) if resume == "none" else (True, 4_000))
        effects = manager.handle(100, chunk)
        assert (manager.progress.resumed, manager.progress.reach_ms) == expected
        assert resume != "none" or RecordLoss not in map(type, effects)
