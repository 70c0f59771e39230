"""Events by the wall clock."""

from local.upstreams.behaviours import DEMOS
from local.upstreams.clockwork import KEPT_MS, first_number, oldest_number


def test_the_same_moment_offers_the_same_events_to_everyone() -> None:
    """Event n is a function of n alone."""
    cursors = (None, "9990", "1", "99999999", "no number")
    assert [first_number(DEMOS["demo"], cursor, 1_000_050) for cursor in cursors] == [10_001, 9_991, 2, 10_001, 10_001]
    assert oldest_number(DEMOS["demo"], 1_000_050) == (1_000_050 - KEPT_MS) // 100 + 1
