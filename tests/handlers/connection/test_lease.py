"""The lease's counters say holder, claimed or taken over, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.lease import Lease, Standing, may_open, standing, superseded

counters = st.integers(0, 6)


@given(counters, counters, st.integers(1, 6))
def test_a_connection_stands_in_exactly_one_way(fence: int, connected: int, mine: int) -> None:
    """Where connected <= fence, a connection is holder, claimed or taken over as the counters say."""
    fence, connected = max(fence, connected, mine), min(fence, connected)
    expected = {
        (False, False): Standing.HOLDER,
        (True, False): Standing.CLAIMED,
        (True, True): Standing.TAKEN_OVER,
    }[fence > mine, connected > mine]
    assert standing(Lease(fence=fence, connected=connected), mine) is expected


def test_nobody_waits_for_a_successor_that_is_closed_again() -> None:
    """Released, it is no reason to let go; one that has claimed since may be."""
    assert standing(Lease(fence=2, connected=2, released=2), 1) is Standing.HOLDER
    assert standing(Lease(fence=3, connected=2, released=2), 1) is Standing.CLAIMED
    assert standing(Lease(fence=3, connected=3, released=2), 1) is Standing.TAKEN_OVER


@given(counters, counters, st.integers(1, 6))
def test_the_stop_wish_outranks_everything(fence: int, connected: int, mine: int) -> None:
    """While the stop wish stands every connection reads it, taken over or not."""
    assert standing(Lease(fence=fence, connected=connected, stop=True), mine) is Standing.STOPPED


def test_only_another_execution_supersedes() -> None:
    """An execution is superseded by another's claim, never by its own, by none, or where it names none itself."""
    assert superseded(Lease(execution="other"), "mine")
    assert not superseded(Lease(execution="mine"), "mine")
    assert not superseded(Lease(execution=""), "mine")
    assert not superseded(Lease(execution="other"), "")


def test_a_forbidding_upstream_is_opened_after_the_release_or_the_expiry() -> None:
    """The successor may open once the older connection is marked released, or has stopped renewing."""
    older_is_open = Lease(fence=2, connected=1, released=0, expires_at_ms=500)
    assert not may_open(older_is_open, fence=2, now_ms=499)
    assert may_open(older_is_open, fence=2, now_ms=500)
    assert may_open(Lease(fence=2, connected=1, released=1, expires_at_ms=500), fence=2, now_ms=0)
    assert may_open(Lease(fence=1), fence=1, now_ms=0)
