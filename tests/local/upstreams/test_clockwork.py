"""Events by the wall clock."""

from local.upstreams.clockwork import KEPT_MS, Clockwork


def test_the_same_moment_offers_the_same_events_to_everyone() -> None:
    """Event n is a function of n alone."""
    clockwork = Clockwork(interval_ms=100)
    assert clockwork.first_after(None, 1_000_050) == 10_001
    assert clockwork.first_after("9990", 1_000_050) == 9_991
    assert clockwork.first_after("1", 1_000_050) == (1_000_050 - KEPT_MS) // 100 + 1
    assert clockwork.first_after("99999999", 1_000_050) == 10_001
    assert clockwork.first_after("no number", 1_000_050) == 10_001
