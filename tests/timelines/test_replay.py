"""Replays of whole machines in virtual time: the recorded run, the machines compared, and generated upstreams."""

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from local.replay.command import ExecutionRun, ReplayResult, replay, replay_text
from local.simulation.scenario import read
from tests.statemachines import bounds
from timeline import spans

HERE = Path(__file__).parent
SELDOM = 115  # cycles: no renewal within a scenario of minutes


def run(name: str) -> ReplayResult:
    return replay(read(HERE / name, "local"))


def run_table(table: dict[str, Any], folder: Path | None = None) -> ReplayResult:
    """Replays a scenario, which lies in `folder` if its machine does."""
    with tempfile.TemporaryDirectory() as made:
        path = (folder or Path(made)) / "scenario.yml"
        path.write_text(json.dumps(table))
        return replay(read(path, "local"))


def short(policy: str, renew_after: int = 3, **rest: Any) -> dict[str, Any]:
    """Returns a scenario of the deployed machine with executions of some minutes; `settings` override its own."""
    settings = {"wait_s": 35, "function_timeout_s": 45, "renew_after": renew_after}
    return {
        "machine": "statemachines/connections.asl.yml",
        "run_for_s": 1200,
        "latencies_ms": {"start": 25, "wait_overshoot": 60, "wait_to_task": 80, "connect": [0, 900]},
        "upstream": {"policy": policy},
        **rest,
        "settings": settings | rest.get("settings", {}),
    }


def recorded() -> list[tuple[int, str, str]]:
    """Returns the rows that were measured on AWS, as (at_ms, lane, what), in the words of a replay."""
    rows = json.loads((HERE / "recorded.json").read_text())["rows"]
    return [
        (row["at_ms"], lane, said.split(" (")[0].lower().replace(" ", "_"))
        for row in rows
        for lane in "AB"
        if lane in row
        for said in row[lane].split(", ")
    ]


def test_the_recorded_run_replays_to_the_millisecond() -> None:
    """Every row that was measured on AWS follows from its latencies, at its millisecond, and there is no other."""
    result = run("recorded.yml")
    # The record stops in the middle of its last row: the lane that was taken over at 144.974 s goes back to its Wait.
    expected = [*recorded(), (144_974, "A", "wait_started")]
    assert sorted((row.at_ms, row.lane, row.what) for row in result.rows) == sorted(expected)
    assert len({row.at_ms for row in result.rows}) == 13


@pytest.mark.parametrize("name", ["recorded.yml", "connections.yml", "day.yml"])
def test_staggered_lanes_leave_no_gap(name: str) -> None:
    """Without faults the stream stays connected from the first opening to the end, and no event is lost."""
    result = run(name)
    assert (result.gaps, result.deliveries.lost, result.status) == ([], 0, "RUNNING")


def test_a_retrier_alone_leaves_a_gap_in_every_cycle() -> None:
    """Each end of the only Task is followed by the back-off and a connect, every time."""
    result = run("retry.yml")
    ends = [row.at_ms for row in result.rows if row.what == "task_ended"]
    assert [gap.from_ms for gap in result.gaps] == ends
    assert [gap.to_ms - gap.from_ms for gap in result.gaps] == [2_582, 1_946, 1_912] + [1_925] * (len(ends) - 3)


def test_a_join_leaves_a_gap_in_every_iteration() -> None:
    """With a looped Parallel of Task and Wait-then-Task, no connection is open between a pair and the next connect."""
    result = run("staggered-join.yml")
    assert [gap.from_ms for gap in result.gaps] == [75_136, 150_263, 225_488]
    assert [gap.to_ms - gap.from_ms for gap in result.gaps] == [946, 925, 925]


def test_a_drop_costs_one_reconnection_not_a_wait() -> None:
    """After a drop the deployed machine is back after jitter and connect; the plain one waits for the other lane."""
    ours, plain = run("connections-drop.yml"), run("staggered-drop.yml")
    assert [(gap.from_ms, gap.cause) for gap in ours.gaps + plain.gaps] == [(60_000, "reset"), (60_000, "reset")]
    assert ours.gaps[0].to_ms - 60_000 <= 1_000 + 946
    assert plain.gaps[0].to_ms == 72_791


def test_an_outage_ends_no_execution_and_the_end_of_the_stream_does() -> None:
    """A drop, a stall and 90 s of 503 end no execution; the stream's end ends both lanes at that instant."""
    result = run("outage.yml")
    assert [(gap.from_ms, gap.cause) for gap in result.gaps][:2] == [(50_000, "reset"), (100_000, "stalled")]
    assert result.status == "SUCCEEDED"
    assert result.rows[-1].at_ms == result.until_ms == 500_000
    assert result.gaps[-1].to_ms < 290_000 + 5_000 + 900 + 1_000


def test_a_replay_is_the_same_to_the_byte() -> None:
    """Two replays of one scenario print the same, jitter included; another seed changes the jitter."""
    first, second = (run("connections-drop.yml") for _ in range(2))
    assert json.dumps(first.as_json()) == json.dumps(second.as_json())
    assert replay_text(first, 96) == replay_text(second, 96)


def test_each_lane_has_a_column(tmp_path: Path) -> None:
    """A Parallel of three branches has three lanes, in the table as in the picture."""
    branches = [{"StartAt": name, "States": {name: {"Type": "Wait", "Seconds": 5, "End": True}}} for name in "XYZ"]
    machine = {"StartAt": "All", "States": {"All": {"Type": "Parallel", "Branches": branches, "End": True}}}
    (tmp_path / "three.asl.yml").write_text(json.dumps(machine))
    lines = replay_text(run_table({"machine": "three.asl.yml", "run_for_s": 60}, tmp_path), 96).splitlines()
    assert ([lines[0].count(f"lane {name}") for name in "ABC"], lines[1].count("wait started")) == ([1, 1, 1], 3)


@pytest.mark.long
def test_sixty_days_cross_renewals_without_a_gap() -> None:
    """Functions of 15 minutes renew 26 times in sixty days: no gap, no lost event, no history near its limit."""
    result = run("sixty-days.yml")
    assert (result.gaps, result.deliveries.lost, result.status) == ([], 0, "RUNNING")
    assert len(result.runs) == 27
    assert [run.output for run in result.runs[:-1]] == [{"status": "superseded"}] * 26
    assert result.history_events == max(run.history_events for run in result.runs) <= bounds.ALLOWED


@pytest.mark.parametrize("policy", ["tolerates", "evicts"])
def test_a_renewal_overlaps(policy: str) -> None:
    """The successor begins while its predecessor runs; the stream stays connected from one to the next."""
    result = run_table(short(policy))
    assert (result.gaps, result.deliveries.lost, result.status) == ([], 0, "RUNNING")
    assert len(result.runs) >= 4
    for older, newer in itertools.pairwise(result.runs):
        assert older.to_ms is not None
        assert newer.from_ms < older.to_ms <= newer.from_ms + 6_000
        assert older.output == {"status": "superseded"}


def test_a_renewal_opens_no_second_connection_if_two_are_forbidden() -> None:
    """The predecessor closes when it sees the successor's claim; the gap is that of any handover."""
    result = run_table(short("forbids"))
    assert (result.overlap_ms, result.status) == (0, "RUNNING")
    assert len(result.runs) >= 4
    assert max(gap.to_ms - gap.from_ms for gap in result.gaps) <= 200 + 900


def test_an_outage_renews_and_ends_no_stream() -> None:
    """Five minutes of 503 use up executions; afterwards the stream is connected."""
    refusals = [{"from_ms": 60_000, "to_ms": 360_000, "status": 503}]
    upstream = {"policy": "tolerates", "refusals": refusals}
    result = run_table(short("tolerates", 2, run_for_s=480, upstream=upstream))
    assert result.status == "RUNNING"
    assert len(result.runs) > 2
    assert result.connections[-1].ended_by == "still open"
    (gap,) = [one for one in result.gaps if one.to_ms > 300_000]
    assert gap.to_ms - 360_000 <= 5_000 + 1_000 + 900


def test_the_end_of_the_stream_ends_a_renewal_with_it() -> None:
    """Whenever the stream ends around a renewal, both executions end cleanly within a minute, and nothing begins."""
    renewed_ms = run_table(short("tolerates")).runs[1].from_ms
    for late_ms in (0, 25, 26, 1_000):
        table = short("tolerates", upstream={"policy": "tolerates", "ends_at_ms": renewed_ms + late_ms})
        result = run_table(table)
        assert {run.status for run in result.runs} == {"SUCCEEDED"}
        assert len(result.runs) <= 2
        assert max(run.to_ms or 0 for run in result.runs) <= renewed_ms + 60_000


def test_lanes_that_began_together_get_out_of_step() -> None:
    """Jitter, which a seed fixes, shortens each wait by up to `jitter_s`, and no overlap becomes shorter."""
    waits: list[list[int]] = []
    for seed in (1, 2):
        result = run_table(short("tolerates", 100, run_for_s=1_800, seed=seed, settings={"wait_s": 30, "jitter_s": 8}))
        assert result.gaps == []
        waits.append([span.to_ms - span.from_ms for span in result.spans if span.kind == "wait" and span.to_ms])
    assert waits[0] != waits[1]
    assert {wait_ms - 60 for wait_ms in waits[0] + waits[1]} == set(range(22_000, 30_001, 1_000))


def test_a_changed_definition_takes_effect_at_a_renewal(tmp_path: Path) -> None:
    """The running execution keeps its definition; its successor runs the new one, and the stream stays connected."""
    text = Path("statemachines/connections.asl.yml").read_text()
    (tmp_path / "changed.asl.yml").write_text(text.replace("${self:custom.settings.wait_s}", "20"))
    table = short("tolerates", redeployments=[{"at_ms": 100_000, "machine": "changed.asl.yml"}])
    result = run_table(table, tmp_path)
    assert (result.gaps, result.status) == ([], "RUNNING")

    def waits_ms(run: ExecutionRun) -> set[int]:
        return {
            span.to_ms - span.from_ms
            for span in spans.spans(run.rows)
            if span.kind == "wait" and span.to_ms is not None
        }

    assert max(waits_ms(result.runs[0])) == 35_060
    assert max(waits_ms(result.runs[1])) == 20_060


def test_a_successor_that_is_slow_to_start_is_the_only_one() -> None:
    """The other lane requests the successor meanwhile by the same name: no second one starts, and there is no gap."""
    table = short("tolerates", 1, run_for_s=100, latencies_ms={"start": [25, 45_000, 25], "connect": 300})
    result = run_table(table)
    first, second = result.runs
    came_by_ms = [row.at_ms for row in first.rows if row.error == "RenewalDue"]
    assert came_by_ms[0] == second.from_ms < came_by_ms[1] < second.rows[0].at_ms < (first.to_ms or 0)
    assert (first.output, second.status, result.gaps) == ({"status": "superseded"}, "RUNNING", [])


@given(st.integers(0, 300), st.sampled_from([(35, 45, 5), (840, 900, 20)]))
def test_no_overlap_that_a_profile_may_request_leaves_a_gap(overlap_s: int, limits: tuple[int, int, int]) -> None:
    """A lane that reads on too long would be late for its next turn, so the settings limit the overlap."""
    settings = dict(zip(("wait_s", "function_timeout_s", "margin_s"), limits, strict=True))
    latencies = {"start": 25, "wait_overshoot": 60, "wait_to_task": 80, "connect": [0, 950]}
    upstream = {"policy": "tolerates", "overlap_s": overlap_s}
    run_for_s = 10 * settings["function_timeout_s"]
    result = run_table(
        short("tolerates", SELDOM, settings=settings, run_for_s=run_for_s, latencies_ms=latencies, upstream=upstream)
    )
    assert (result.gaps, result.deliveries.lost) == ([], 0)


policies = st.sampled_from(["evicts", "tolerates", "forbids"])
connects = st.lists(st.integers(0, 1_000), min_size=1, max_size=6)


@given(policies, connects, st.integers(0, 900), st.integers(0, 2**32))
def test_without_faults_no_policy_loses_more_than_its_handover(
    policy: str, connect: list[int], overshoot: int, seed: int
) -> None:
    """For any latencies, evicting and tolerating upstreams leave no gap, and a forbidding one never sees two."""
    latencies = {"connect": connect, "wait_overshoot": overshoot}
    result = run_table(short(policy, SELDOM, run_for_s=400, latencies_ms=latencies, seed=seed))
    assert result.status == "RUNNING"
    if policy == "forbids":
        assert result.overlap_ms == 0
        # The older sees the claim at its next reading of the lease (1 s); the successor polls for the release.
        assert all(gap.to_ms - gap.from_ms <= 200 + max(connect) for gap in result.gaps)
    else:
        assert result.gaps == []
    if policy == "evicts":
        assert result.overlap_ms == 0


def test_a_name_is_one_execution_for_ever(tmp_path: Path) -> None:
    """As on AWS, a start with the name and input of a running execution returns it; otherwise the name is taken."""
    start: dict[str, Any] = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution",
        "Parameters": {"StateMachineArn.$": "$$.StateMachine.Id", "Name": "one", "Input": {"child": 1}},
        "ResultPath": "$.answer",
    }
    other = {**start, "Parameters": {**start["Parameters"], "Input": {"child": 2}}}
    taken = {"ErrorEquals": ["StepFunctions.ExecutionAlreadyExistsException"], "ResultPath": "$.refused"}
    states: dict[str, Any] = {
        "Which": {"Type": "Choice", "Choices": [{"Variable": "$.child", "IsPresent": True, "Next": "Live"}]},
        "Live": {"Type": "Wait", "Seconds": 10, "Next": "Done"},
        "First": {**start, "Next": "Again"},
        "Again": {**start, "Next": "Other"},
        "Other": {**other, "Catch": [{**taken, "Next": "Rest"}], "Next": "Done"},
        "Rest": {"Type": "Wait", "Seconds": 20, "Next": "Late"},
        "Late": {**start, "Catch": [{**taken, "Next": "Good"}], "Next": "Done"},
        "Good": {"Type": "Pass", "Result": "taken", "End": True},
        "Done": {"Type": "Succeed"},
    }
    states["Which"]["Default"] = "First"
    (tmp_path / "names.asl.yml").write_text(yaml.safe_dump({"StartAt": "Which", "States": states}))
    upstream = {"policy": "tolerates"}
    result = run_table({"machine": "names.asl.yml", "run_for_s": 60, "upstream": upstream}, tmp_path)
    assert [run.output for run in result.runs] == ["taken", {"child": 1}]
