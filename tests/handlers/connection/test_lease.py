"""The lease's counters say holder, claimed or taken over, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.lease import Lease, LeaseView, lease_view, may_open, superseded

counters = st.integers(0, 6)


@given(counters, counters, st.integers(1, 6))
def test_a_connection_stands_in_exactly_one_way(fence: int, connected: int, mine: int) -> None:
    """If connected <= fence, the counters make it holder, claimed or taken over."""
    fence, connected = max(fence, connected, mine), min(fence, connected)
    expected = {
        (False, False): LeaseView.HOLDER,
        (True, False): LeaseView.CLAIMED,
        (True, True): LeaseView.TAKEN_OVER,
    }[fence > mine, connected > mine]
    assert lease_view(Lease(fence=fence, connected_token=connected), mine) is expected


def test_nobody_waits_for_a_successor_that_is_closed_again() -> None:
    """A released successor is no reason to leave; one that has claimed since may be."""
    assert lease_view(Lease(fence=2, connected_token=2, released_token=2), 1) is LeaseView.HOLDER
    assert lease_view(Lease(fence=3, connected_token=2, released_token=2), 1) is LeaseView.CLAIMED
    assert lease_view(Lease(fence=3, connected_token=3, released_token=2), 1) is LeaseView.TAKEN_OVER


@given(counters, counters, st.integers(1, 6))
def test_a_requested_stop_outranks_everything(fence: int, connected: int, mine: int) -> None:
    """While a stop is requested every connection reads it, taken over or not."""
    assert lease_view(Lease(fence=fence, connected_token=connected, stop=True), mine) is LeaseView.STOPPED


def test_only_another_execution_supersedes() -> None:
    """Another execution's claim supersedes it; its own, none, or one without a name does not."""
    assert superseded(Lease(execution="other"), "mine")
    assert not superseded(Lease(execution="mine"), "mine")
    assert not superseded(Lease(execution=""), "mine")
    assert not superseded(Lease(execution="other"), "")


def test_a_forbidding_upstream_is_opened_after_the_release_or_the_expiry() -> None:
    """The successor may open once the older connection is marked released, or has stopped renewing."""
    older_is_open = Lease(fence=2, connected_token=1, released_token=0, expires_at_ms=500)
    assert not may_open(older_is_open, fence=2, now_ms=499)
    assert may_open(older_is_open, fence=2, now_ms=500)
    assert may_open(Lease(fence=2, connected_token=1, released_token=1, expires_at_ms=500), fence=2, now_ms=0)
    assert may_open(Lease(fence=1), fence=1, now_ms=0)
