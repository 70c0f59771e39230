"""Overlaps, gaps and deliveries agree with a count of each millisecond."""

from hypothesis import example, given
from hypothesis import strategies as st

from timeline.coverage import Connection, Deliveries, Gap, connected_percent, deliveries, gaps, overlap_ms
from timeline.picture import CONNECTED, LABEL, NOTHING, OVERLAP, draw

UNTIL_MS = 60
connections = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 12)).map(lambda at: Connection("A", at[0], at[0] + at[1], "dropped")),
    max_size=6,
)


def depth(opened: list[Connection], at_ms: int) -> int:
    return sum(c.from_ms <= at_ms < c.to_ms for c in opened)


@given(connections)
@example([Connection("A", *at, "dropped") for at in ((0, 12), (1, 2), (3, 4))])
def test_overlap_is_the_number_of_milliseconds_with_two_connections(opened: list[Connection]) -> None:
    """Overlap counts each millisecond in which two or more connections were open, once; the picture shows each."""
    assert overlap_ms(opened) == sum(depth(opened, at) >= 2 for at in range(UNTIL_MS + 10))
    *_, stream, _ = draw([], opened, [], UNTIL_MS, UNTIL_MS)
    marks = [NOTHING, CONNECTED, OVERLAP]
    assert stream[LABEL:] == "".join(marks[min(2, depth(opened, at))] for at in range(UNTIL_MS)).rstrip()


@given(connections)
def test_gaps_are_the_milliseconds_without_a_connection(opened: list[Connection]) -> None:
    """The gaps are exactly the milliseconds without a connection between the first opening and the end."""
    first = min((c.from_ms for c in opened), default=UNTIL_MS)
    missed = [at for at in range(first, UNTIL_MS) if depth(opened, at) == 0]
    assert [at for gap in gaps(opened, UNTIL_MS) for at in range(gap.from_ms, gap.to_ms)] == missed


@given(connections, st.integers(1, 7), st.booleans())
def test_every_event_is_stored_once_or_lost(opened: list[Connection], every_ms: int, resumes: bool) -> None:
    """Stored and lost events add up to those sent, and every further delivery is a duplicate."""
    first = min((c.from_ms for c in opened), default=UNTIL_MS)
    sent = [at for at in range(0, UNTIL_MS, every_ms) if at >= first]
    covered = [at for at in sent if depth(opened, at)]
    last_end = max((c.to_ms for c in opened), default=0)
    reached = [at for at in sent if depth(opened, at) or (resumes and at < last_end)]
    again = sum(depth(opened, at) - 1 for at in covered)
    found = deliveries(opened, every_ms, UNTIL_MS, resumes=resumes)
    assert found == Deliveries(len(reached), again, len(sent) - len(reached))


def test_a_gap_is_named_after_the_connection_that_ended_last() -> None:
    """The last of the connections before a gap is its cause; silence before a close is part of the gap."""
    opened = [
        Connection("A", 0, 40, "dropped"),
        Connection("B", 10, 50, "stalled", covers_to_ms=45),
        Connection("A", 55, 58, "expired"),
    ]
    assert gaps(opened, 60) == [Gap(45, 55, "stalled"), Gap(58, 60, "expired")]


def test_a_deliberate_stop_is_no_gap() -> None:
    """The time after a stop or the stream's end is no gap; the time after a drop is, also after the next start."""
    opened = [
        Connection("A", 0, 10, "stopped"),
        Connection("B", 20, 25, "reset"),
        Connection("A", 27, 30, "ended"),
        Connection("B", 40, 45, "taken_over"),
    ]
    missed = gaps(opened, UNTIL_MS)
    assert missed == [Gap(25, 27, "reset"), Gap(45, UNTIL_MS, "taken_over")]
    # What was not wanted counts neither as connected nor as missed: 23 of 40 ms.
    assert connected_percent(opened, missed) == 57.5
    assert gaps(opened[:1], UNTIL_MS) == []


def test_a_connection_that_was_open_at_the_stop_begins_no_gap() -> None:
    """The other lane's connection was open at the stop, and ended with an error, which begins no gap."""
    assert gaps([Connection("A", 0, 10, "stopped"), Connection("B", 8, 12, "reset")], UNTIL_MS) == []
    assert gaps([Connection("A", 0, 10, "stopped"), Connection("B", 11, 12, "reset")], UNTIL_MS) == [
        Gap(12, UNTIL_MS, "reset")
    ]
