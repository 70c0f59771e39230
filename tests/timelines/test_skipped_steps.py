"""A replay leaves out steps that its timeline does not need: the timeline is the same if it performs all of them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.simulation.skipping import SkippingSlot
from tests.examples import examples
from tests.timelines.test_replay import SELDOM, run_table, short

RUN_MS = 150_000
# Nothing is begun at the last instant, whose Task nobody would wait for.
INSTANTS = st.integers(0, RUN_MS - 10_000)
FAULTS = st.fixed_dictionaries(
    {
        "drops": st.lists(INSTANTS.map(lambda at_ms: {"at_ms": at_ms}), max_size=3),
        "refusals": st.lists(
            st.builds(
                lambda at_ms, for_ms, status: {"from_ms": at_ms, "to_ms": at_ms + for_ms, "status": status},
                INSTANTS, st.integers(1, 20_000), st.sampled_from([429, 503]),
            ),
            max_size=2,
        ),
        "ends_at_ms": st.none() | INSTANTS,
        "resumes": st.booleans(),
    }
)  # fmt: skip


@pytest.mark.cpu(5)
@settings(max_examples=examples(40), deadline=None)
@given(
    st.sampled_from([("tolerates", "cold"), ("tolerates", "hot"), ("evicts", "cold"), ("forbids", "cold")]),
    FAULTS,
    st.lists(INSTANTS.map(lambda at_ms: {"at_ms": at_ms}), max_size=2),
    st.sampled_from(["kills", "freezes"]),
)
def test_skipped_steps_do_not_change_the_timeline(
    way: tuple[str, str], faults: dict[str, Any], deaths: list[dict[str, int]], kind: str
) -> None:
    """Whatever fails, each row, gap and connection is the same to the millisecond."""
    upstream = {"policy": way[0], "standby": way[1], **faults, "stall_after_s": 10}
    table = short(way[0], SELDOM, run_for_s=RUN_MS // 1000, upstream=upstream, **{kind: deaths})
    quick = run_table(table).as_json()
    skips = SkippingSlot._skipped_answer
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SkippingSlot, "_waits_for_changes", lambda _slot: False)
        patched.setattr(SkippingSlot, "_skipped_answer", lambda slot, step: skips(slot, step) and None)
        assert run_table(table).as_json() == quick
