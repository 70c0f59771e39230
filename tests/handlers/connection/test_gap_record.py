"""Which gaps count as repaired, by the repaired intervals, whichever records hold them."""

from handlers.connection.gap_record import (
    DELIVERED,
    FAILED,
    LOST,
    OPEN,
    PARTLY,
    REPAIRED,
    Gap,
    Repair,
    apply_repairs,
    covers,
    open_part,
)


def gap(from_ms: int, to_ms: int, state: str = OPEN, fence: int = 2) -> Gap:
    """Return a gap that a connection ended."""
    return Gap(fence, from_ms, to_ms, "reset", state)


def state(one: Gap, *repairs: tuple[Gap, Repair]) -> str:
    """Return the gap's state after these repairs."""
    return apply_repairs([one], repairs)[0].state


def test_a_gap_is_repaired_if_the_repairs_cover_all_of_it() -> None:
    """Two adjacent repairs cover a gap that spans both; a gap that begins earlier or ends later stays open."""
    first, second = gap(10, 20), gap(20, 30, fence=3)
    repairs = [(one, Repair(one.from_ms, one.to_ms, REPAIRED)) for one in (first, second)]
    assert [state(one, *repairs) for one in (first, second, gap(10, 30), gap(12, 28))] == [REPAIRED] * 4
    assert [state(one, *repairs) for one in (gap(9, 30), gap(10, 31), gap(30, 40), gap(0, 5))] == [OPEN] * 4
    assert state(gap(10, 30), (first, Repair(10, 19, REPAIRED)), repairs[1]) == OPEN
    assert not covers([], (1, 1))
    assert covers([(1, 1)], (1, 1))


def test_a_gap_that_was_delivered_later_stays_delivered() -> None:
    """A failed repair does not change the state of a delivered gap."""
    one = gap(10, 20, DELIVERED)
    assert state(one, (one, Repair(10, 20, FAILED))) == DELIVERED


def test_a_repair_of_another_interval_does_not_change_the_gap() -> None:
    """A repair counts only if the gap still has the interval for which the repair was tried."""
    one = gap(10, 20, LOST)
    assert state(one, (one, Repair(10, 20, PARTLY))) == PARTLY
    assert state(one, (one, Repair(11, 20, PARTLY))) == LOST
    assert state(one, (one, Repair(10, 20))) == LOST


def test_the_open_part_of_a_gap_lies_inside_it() -> None:
    """The open part of a partly repaired gap is the one that the repair reports, or else the whole gap."""
    one = gap(10, 20, LOST)
    (partly,) = apply_repairs([one], [(one, Repair(10, 20, PARTLY, open_to_ms=14))])
    assert open_part(partly) == (10, 14)
    (later,) = apply_repairs([one], [(one, Repair(10, 20, PARTLY, open_from_ms=18))])
    assert open_part(later) == (18, 20)
    (outside,) = apply_repairs([one], [(one, Repair(10, 20, PARTLY, open_from_ms=20))])
    assert open_part(outside) == (10, 20)
    assert open_part(one) == (10, 20)
