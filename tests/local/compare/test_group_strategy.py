"""A stream of a group is compared with the same stream alone: the same machine, and its share of the functions."""

from dataclasses import replace
from pathlib import Path

import pytest

from handlers.run.group_function import YOUNG_MS
from local.compare import strategies_page as page
from local.compare.strategies import MACHINES, run_group, run_machine
from local.compare.strategy_world import StrategyResult
from local.simulation.skipping import SkippingSlot

LONG = pytest.mark.long
MACHINE = MACHINES / "connections.asl.yml"
SHORT = ["--hours", "0.05", "--limit", "45", "--wait", "35"]


def result_of(streams: int, *options: str) -> StrategyResult:
    """Returns the result of one stream of a group of this size."""
    return run_group("group", MACHINE, page.scenario_of([*SHORT, *options]), streams)


def test_a_group_of_one_stream_equals_the_lone_stream() -> None:
    """A group of one has as many functions, transitions and connections as the lone stream, and no gap."""
    alone, group = run_machine("alone", MACHINE, page.scenario_of(SHORT)), result_of(1)
    for one in (alone, group):
        assert one.gaps == []
    assert (group.transitions, group.invocations) == (alone.transitions, alone.invocations)
    assert len(group.connections) == len(alone.connections)


def test_a_stream_pays_its_share() -> None:
    """Each of four streams pays a quarter of the functions; all lanes are drawn, with the stream's connections."""
    one, four = result_of(1), result_of(4)
    assert four.transitions * 4 == one.transitions
    assert four.invocations * 4 == one.invocations
    assert [span.lane for span in four.spans] == [span.lane for span in one.spans]
    assert len(four.connections) == len(one.connections)


def test_the_streams_of_a_killed_function_are_opened_eight_at_a_time(tmp_path: Path) -> None:
    """A killed function disconnects all of its streams. Eight open at a time, so a stream of a large group is back
    later than one of a small group.

    The machine calls another function at once. A stream's second connect takes 1,582 ms, and delays no other stream for
    longer than a second.
    """
    faults = tmp_path / "kills.yml"
    faults.write_text("kills: [{at_ms: 20000}]")
    few, many = (result_of(streams, "--faults", str(faults)).gaps for streams in (4, 40))
    assert [(gap.from_ms, gap.cause) for gap in few] == [(20_000, "killed")]
    assert many[0].to_ms - few[0].to_ms == 2 * YOUNG_MS  # the 21st of 40 is in the third eight


@pytest.mark.parametrize("policy", ["evicts", *(pytest.param(one, marks=LONG) for one in ("tolerates", "forbids"))])
def test_skipped_reads_of_the_lease_do_not_change_the_result(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If each connection reads its lease as often as on AWS, the result is the same, to the millisecond."""
    options = ["--upstream", policy, "--faults", "rough", "--hours", "0.1"]
    quiet = result_of(3, *options)
    monkeypatch.setattr(SkippingSlot, "_waits_for_changes", lambda _slot: False)
    assert replace(result_of(3, *options), strategy=quiet.strategy) == quiet
