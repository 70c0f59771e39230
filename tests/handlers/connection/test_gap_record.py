"""Which gaps count as repaired, by the repaired intervals, whichever records hold them."""

from handlers.connection import gap_record


def gap(from_ms: int, to_ms: int, state: str = gap_record.OPEN, fence: int = 2) -> gap_record.Gap:
    """Return a gap that a connection ended."""
    return gap_record.Gap(fence, from_ms, to_ms, "reset", state)


def state(one: gap_record.Gap, *repairs: tuple[gap_record.Gap, gap_record.Repair]) -> str:
    """Return the gap's state after these repairs."""
    return gap_record.apply_repairs([one], repairs)[0].state


def test_a_gap_is_repaired_if_the_repairs_cover_all_of_it() -> None:
    """Two adjacent repairs cover a gap that spans both; a gap that begins earlier or ends later stays open."""
    first, second = gap(10, 20), gap(20, 30, fence=3)
    repairs = [(one, gap_record.Repair(one.from_ms, one.to_ms, gap_record.REPAIRED)) for one in (first, second)]
    assert [state(one, *repairs) for one in (first, second, gap(10, 30), gap(12, 28))] == [gap_record.REPAIRED] * 4
    assert [state(one, *repairs) for one in (gap(9, 30), gap(10, 31), gap(30, 40), gap(0, 5))] == [gap_record.OPEN] * 4
    assert state(gap(10, 30), (first, gap_record.Repair(10, 19, gap_record.REPAIRED)), repairs[1]) == gap_record.OPEN
    assert not gap_record.covers([], (1, 1))
    assert gap_record.covers([(1, 1)], (1, 1))


def test_a_gap_that_was_delivered_later_stays_delivered() -> None:
    """A failed repair does not change the state of a delivered gap."""
    one = gap(10, 20, gap_record.DELIVERED)
    assert state(one, (one, gap_record.Repair(10, 20, gap_record.FAILED))) == gap_record.DELIVERED


def test_a_repair_of_another_interval_does_not_change_the_gap() -> None:
    """A repair counts only if the gap still has the interval for which the repair was tried."""
    one = gap(10, 20, gap_record.LOST)
    assert state(one, (one, gap_record.Repair(10, 20, gap_record.PARTLY))) == gap_record.PARTLY
    assert state(one, (one, gap_record.Repair(11, 20, gap_record.PARTLY))) == gap_record.LOST
    assert state(one, (one, gap_record.Repair(10, 20))) == gap_record.LOST


def test_the_open_part_of_a_gap_lies_inside_it() -> None:
    """The open part of a partly repaired gap is the one that the repair reports, or else the whole gap."""
    one = gap(10, 20, gap_record.LOST)
    (partly,) = gap_record.apply_repairs([one], [(one, gap_record.Repair(10, 20, gap_record.PARTLY, open_to_ms=14))])
    assert gap_record.open_part(partly) == (10, 14)
    (later,) = gap_record.apply_repairs([one], [(one, gap_record.Repair(10, 20, gap_record.PARTLY, open_from_ms=18))])
    assert gap_record.open_part(later) == (18, 20)
    (outside,) = gap_record.apply_repairs([one], [(one, gap_record.Repair(10, 20, gap_record.PARTLY, open_from_ms=20))])
    assert gap_record.open_part(outside) == (10, 20)
    assert gap_record.open_part(one) == (10, 20)
