"""Which gap belongs to which cause."""

from bench.gaps import DROP, HANDOVER, KILL, Gauge, Summary, summary


def test_an_opening_beside_the_older_connection_is_a_handover_without_a_gap() -> None:
    """The successor is answered while the older is open; the first opening of all is no handover."""
    gauge = Gauge()
    for at_ms, connected in ((0, 1), (5000, 2), (5100, 1), (9000, 2), (9100, 1)):
        gauge.changed(at_ms, connected)
    assert gauge.gaps_ms == {HANDOVER: [0.0, 0.0], DROP: [], KILL: []}
    assert (gauge.openings, gauge.unconnected_ms) == (3, 0.0)


def test_a_gap_belongs_to_the_fault_that_it_began_with() -> None:
    """From the last close to the next opening; the opening after that is a handover again."""
    gauge = Gauge()
    gauge.changed(0, 1)
    gauge.fault(DROP)
    gauge.changed(1000, 0)
    gauge.changed(1400, 1)
    gauge.changed(5000, 0)
    gauge.changed(5080, 1)
    gauge.changed(7000, 2)
    gauge.fault(KILL)
    gauge.changed(7500, 1)
    gauge.changed(7501, 0)
    gauge.changed(9501, 1)
    assert gauge.gaps_ms == {HANDOVER: [80.0, 0.0], DROP: [400.0], KILL: [2000.0]}
    assert gauge.unconnected_ms == 2480.0


def test_a_percentile_is_a_gap_that_was_measured() -> None:
    """Nearest rank: of 200 gaps the 198th is the 99th percentile, of few the greatest."""
    assert summary([float(gap) for gap in range(200, 0, -1)]) == Summary(200, 100.0, 198.0, 200.0)
    assert summary([3.0, 1.0]) == Summary(2, 1.0, 3.0, 3.0)
    assert summary([]) == Summary(0, None, None, None)
