"""Which states lie on a cycle."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.model_cycles import on_cycles

SIZE = 8


@given(st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=24).map(sorted))
def test_a_state_is_on_a_cycle_where_it_can_be_reached_from_itself(steps: list[tuple[int, int]]) -> None:
    """The answer is the closure's: from the state's own successors it is among what they reach."""
    found = on_cycles(SIZE, array("l", [source for source, _ in steps]), array("l", [target for _, target in steps]))
    for state in range(SIZE):
        reached = {target for source, target in steps if source == state}
        while more := {target for source, target in steps if source in reached} - reached:
            reached |= more
        assert bool(found[state]) == (state in reached)
