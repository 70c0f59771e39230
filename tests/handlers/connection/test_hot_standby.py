"""Two lanes that both stay connected: who leaves when, and how they move apart."""

from dataclasses import replace

from handlers.connection.effects import CloseUpstream
from handlers.connection.inputs import Closed, LeaseRead, Woken
from handlers.connection.lease import Lease
from handlers.connection.phases import Phase
from tests.handlers.connection.managers import (
    DEADLINE_MS,
    FENCE,
    MARGIN_MS,
    connected,
    drained,
    kinds,
    outcome,
)


def test_a_hot_standby_stays_when_it_is_taken_over() -> None:
    """A takeover is no reason to leave, an end is retried at once, the deadline is an expiry."""
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
    drained(expiring, DEADLINE_MS - MARGIN_MS, effects)
    assert outcome(expiring.handle(DEADLINE_MS - MARGIN_MS, LeaseRead(newer))).error == "ConnectionExpired"


def test_a_hot_standby_goes_when_another_execution_has_taken_over() -> None:
    """The execution that renews it supersedes it; it releases like any other and returns."""
    manager = connected("tolerates", standby="hot", overlap_s=2)
    superseding = LeaseRead(Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="other"))
    manager.handle(1_030, superseding)
    assert manager.phase is Phase.OVERLAPPING
    effects = drained(manager, 3_030, manager.handle(3_030, superseding))
    assert outcome(effects).status == "superseded"


def test_of_two_hot_connections_that_began_together_the_older_leaves_half_way() -> None:
    """They would reach their deadlines together, so the older ends half-way and the newer stays."""
    newer = Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="mine", expires_at_ms=DEADLINE_MS)
    older = connected("tolerates", standby="hot")
    half_ms = 1_030 + (DEADLINE_MS - MARGIN_MS) // 2
    older.handle(1_030, LeaseRead(newer))
    assert CloseUpstream not in kinds(older.handle(half_ms - 1, LeaseRead(newer)))
    drained(older, half_ms, older.handle(half_ms, LeaseRead(newer)))
    assert outcome(older.handle(half_ms, LeaseRead(newer))).error == "ConnectionExpired"

    holder = connected("tolerates", standby="hot")
    for now_ms in (1_030, half_ms, half_ms + 1_000):
        own = Lease(fence=FENCE, connected_token=FENCE, execution="mine", expires_at_ms=DEADLINE_MS)
        assert CloseUpstream not in kinds(holder.handle(now_ms, LeaseRead(own)))


def test_the_older_hot_connection_waits_for_a_newer_one_that_is_about_to_go() -> None:
    """The newer one's lease ends with its stay; until it is back, or half the margin is over, the older stays."""
    leave_ms = DEADLINE_MS - MARGIN_MS
    going = Lease(fence=FENCE + 1, connected_token=FENCE + 1, execution="mine", expires_at_ms=leave_ms + 1_000)
    manager = connected("tolerates", standby="hot")
    manager.handle(50_000, LeaseRead(replace(going, expires_at_ms=70_000)))
    manager.handle(leave_ms, Woken())
    assert CloseUpstream not in kinds(manager.handle(leave_ms, LeaseRead(going)))
    back = Lease(fence=FENCE + 2, connected_token=FENCE + 2, execution="mine", expires_at_ms=leave_ms + 20_000)
    assert CloseUpstream in kinds(manager.handle(leave_ms + 1_500, LeaseRead(back)))
