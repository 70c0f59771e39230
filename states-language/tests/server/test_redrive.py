"""RedriveExecution continues an unsuccessful execution from where it ended, and its history too."""

import json
from pathlib import Path
from typing import Any

import pytest

from endpoint import await_end, create_machine, distributed_map, line_of, refusal, service, states_client
from patience import in_thread, until
from states_language.server import journals as redrives
from states_language.server.known_executions import KnownExecution

DONE = "Execution is SUCCEEDED and cannot be redriven"
Shape = list[tuple[str, int]]


@pytest.fixture(scope="module")
def worker(states: Any) -> str:
    """The ARN of an activity. The tests answer its tasks, so each test decides which task fails."""
    return str(states.create_activity(name="redriven")["activityArn"])


def activity_task(activity: str, **more: Any) -> dict[str, Any]:
    return {"Type": "Task", "Resource": activity, **({"End": True} if "Next" not in more else {}), **more}


def map_run_arn(states: Any, execution: str) -> str:
    (run,) = states.list_map_runs(executionArn=execution)["mapRuns"]
    return str(run["mapRunArn"])


def executions_of(states: Any, run: str, **wanted: str) -> list[dict[str, Any]]:
    """Return the executions of a Map Run as DescribeExecution returns them, oldest first."""
    listed = states.list_executions(mapRunArn=run, **wanted)["executions"]
    return [states.describe_execution(executionArn=one["executionArn"]) for one in reversed(listed)]


def answer_work(states: Any, activity: str, *, failing: str | None = None) -> Any:
    """Take the next task, and return its input after sending it as the result, or failing if it equals `failing`."""
    task = states.get_activity_task(activityArn=activity)
    data = json.loads(task["input"])
    if data == failing:
        states.send_task_failure(taskToken=task["taskToken"], error="Broken", cause="by the test")
    else:
        states.send_task_success(taskToken=task["taskToken"], output=task["input"])
    return data


def history(states: Any, execution: str) -> list[dict[str, Any]]:
    return list(states.get_execution_history(executionArn=execution, maxResults=1000)["events"])


def event_shapes(events: list[dict[str, Any]]) -> Shape:
    """Return the type and the predecessor of each event."""
    return [(event["type"], event["previousEventId"]) for event in events]


def start_machine(states: Any, machine: str, data: Any = None) -> str:
    return str(states.start_execution(stateMachineArn=machine, input=json.dumps(data or {}))["executionArn"])


def test_the_failed_task_is_scheduled_again_with_its_input_and_variables(states: Any, worker: str) -> None:
    """States that succeeded are not repeated, the history continues, and each redrive is counted until success."""
    first = {"Type": "Pass", "Result": "kept", "Assign": {"seen": "a variable"}, "Next": "B"}
    last = {"Type": "Pass", "Parameters": {"data.$": "$", "seen.$": "$seen", "now.$": "$$.Execution"}}
    definition = line_of(A=first, B=activity_task(worker, Next="C"), C={**last, "End": True})
    execution = start_machine(states, create_machine(states, "redrive-task", definition))
    assert answer_work(states, worker, failing="kept") == "kept"
    failed = await_end(states, execution)
    assert (failed["status"], failed["error"], failed["cause"]) == ("FAILED", "Broken", "by the test")
    assert (failed["redriveStatus"], failed["redriveCount"], "redriveDate" in failed) == ("REDRIVABLE", 0, False)
    for count in (1, 2):
        answered = states.redrive_execution(executionArn=execution)
        running = states.describe_execution(executionArn=execution)
        assert (running["status"], running["redriveCount"]) == ("RUNNING", count)
        assert running["redriveDate"] == answered["redriveDate"]
        assert running["redriveStatusReason"] == "Execution is RUNNING and cannot be redriven"
        assert not {"stopDate", "error", "cause"} & running.keys()
        answer_work(states, worker, failing="kept" if count == 1 else None)
        ended = await_end(states, execution)
    output = json.loads(ended["output"])
    execution_then = output.pop("now")
    assert output == {"data": "kept", "seen": "a variable"}
    assert execution_then["RedriveCount"] == 2
    assert execution_then["StartTime"] < execution_then["RedriveTime"]
    assert (ended["startDate"], ended["redriveStatusReason"]) == (failed["startDate"], DONE)
    events = history(states, execution)
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    attempt = [("ActivityScheduled", 4), ("ActivityStarted", 0), ("ActivityFailed", 0), ("ExecutionFailed", 0)]
    assert [kind for kind, _ in event_shapes(events)] == [
        "ExecutionStarted", "PassStateEntered", "PassStateExited", "TaskStateEntered",
        *(kind for kind, _ in attempt), "ExecutionRedriven", *(kind for kind, _ in attempt), "ExecutionRedriven",
        "ActivityScheduled", "ActivityStarted", "ActivitySucceeded", "TaskStateExited",
        "PassStateEntered", "PassStateExited", "ExecutionSucceeded",
    ]  # fmt: skip
    assert [one["previousEventId"] for one in events if one["type"] == "ActivityScheduled"] == [4, 4, 4]
    redriven = [one for one in events if one["type"] == "ExecutionRedriven"]
    assert [one["executionRedrivenEventDetails"] for one in redriven] == [{"redriveCount": 1}, {"redriveCount": 2}]
    assert [one["previousEventId"] for one in redriven] == [8, 13]


def test_only_the_unsuccessful_executions_of_a_map_run_run_again(states: Any, worker: str) -> None:
    """ARNs stay the same. The failed child execution continues where it stood, and the unstarted one begins."""
    mapped = distributed_map(at_once=1, A={"Type": "Pass", "Next": "T"}, T=activity_task(worker))
    execution = start_machine(states, create_machine(states, "redrive-run", line_of(M=mapped)), ["a", "b", "c"])
    assert [answer_work(states, worker, failing="b") for _ in range(2)] == ["a", "b"]
    assert await_end(states, execution)["redriveStatus"] == "REDRIVABLE"
    run, before = map_run_arn(states, execution), len(history(states, execution))
    done, failed = executions_of(states, run)
    assert (done["redriveStatus"], done["redriveStatusReason"]) == ("NOT_REDRIVABLE", DONE)
    assert (failed["status"], failed["redriveStatus"], failed["redriveCount"]) == ("FAILED", "REDRIVABLE_BY_MAP_RUN", 0)
    former = history(states, failed["executionArn"])
    states.redrive_execution(executionArn=execution)
    assert [answer_work(states, worker) for _ in range(2)] == ["b", "c"]
    assert json.loads(await_end(states, execution)["output"]) == ["a", "b", "c"]
    assert map_run_arn(states, execution) == run
    assert [(one["type"], one.get("mapRunRedrivenEventDetails")) for one in history(states, execution)[before:]] == [
        ("ExecutionRedriven", None),
        ("MapRunRedriven", {"mapRunArn": run, "redriveCount": 1}),
        *((kind, None) for kind in ("MapRunSucceeded", "MapStateSucceeded", "MapStateExited", "ExecutionSucceeded")),
    ]
    described = states.describe_map_run(mapRunArn=run)
    assert (described["status"], described["redriveCount"], "redriveDate" in described) == ("SUCCEEDED", 1, True)
    assert described["executionCounts"] == described["itemCounts"]
    counts = {name: count for name, count in described["itemCounts"].items() if count}
    assert counts == {"succeeded": 3, "total": 3, "resultsWritten": 3}
    (again,) = executions_of(states, run, redriveFilter="REDRIVEN")
    assert (again["executionArn"], again["redriveCount"]) == (failed["executionArn"], 1)
    events = history(states, again["executionArn"])
    assert (events[: len(former)], [one["id"] for one in events]) == (former, list(range(1, len(events) + 1)))
    assert [one["type"] for one in events[len(former) :]] == [
        "ExecutionRedriven", "ActivityScheduled", "ActivityStarted", "ActivitySucceeded", "TaskStateExited",
        "ExecutionSucceeded",
    ]  # fmt: skip


def test_an_express_execution_of_a_map_run_starts_afresh(states: Any, worker: str) -> None:
    """An Express child keeps its ARN and begins at its first state. While it waits it is PENDING_REDRIVE."""
    mapped = distributed_map("EXPRESS", 1, T=activity_task(worker, Next="U"), U=activity_task(worker)) | {
        "ToleratedFailureCount": 1
    }
    execution = start_machine(states, create_machine(states, "redrive-express", line_of(M=mapped)), ["a", "b"])
    assert [answer_work(states, worker, failing="b"), answer_work(states, worker, failing="a")] == ["a", "a"]
    assert answer_work(states, worker, failing="b") == "b"
    assert await_end(states, execution)["status"] == "FAILED"
    run = map_run_arn(states, execution)
    failed = executions_of(states, run)
    assert [one["redriveStatus"] for one in failed] == ["REDRIVABLE_BY_MAP_RUN"] * 2
    states.redrive_execution(executionArn=execution)
    assert answer_work(states, worker) == "a"
    assert [one["status"] for one in executions_of(states, run)] == ["RUNNING", "PENDING_REDRIVE"]
    assert states.describe_map_run(mapRunArn=run)["executionCounts"]["pendingRedrive"] == 1
    assert [answer_work(states, worker) for _ in range(3)] == ["a", "b", "b"]
    assert json.loads(await_end(states, execution)["output"]) == ["a", "b"]
    again = executions_of(states, run)
    assert [(one["executionArn"], one["redriveCount"]) for one in again] == [(one["executionArn"], 0) for one in failed]
    task = ["TaskStateEntered", "ActivityScheduled", "ActivityStarted", "ActivitySucceeded", "TaskStateExited"]
    for one in again:
        kinds = [event["type"] for event in history(states, one["executionArn"])]
        assert kinds == ["ExecutionStarted", *task, *task, "ExecutionSucceeded"]


def test_a_redrive_works_after_a_restart_of_the_service(tmp_path: Path) -> None:
    """The disk has the place of an execution and its Map Runs, its redrives with their tokens, and its events."""
    wait = {"Type": "Wait", "SecondsPath": "$", "End": True}
    of_run = line_of(M=distributed_map(at_once=1, A={"Type": "Pass", "Next": "W"}, W=wait))
    alone = line_of(A={"Type": "Pass", "Result": 1, "Next": "W"}, W={"Type": "Wait", "Seconds": 600, "End": True})
    with in_thread(lambda: service(tmp_path)) as url:
        states = states_client(url)
        mapped = start_machine(states, create_machine(states, "kept-run", of_run), [0, 600, 1])
        single = start_machine(states, create_machine(states, "kept", alone))
        assert until(lambda: len(states.list_map_runs(executionArn=mapped)["mapRuns"]) == 1)
        run = map_run_arn(states, mapped)
        assert until(lambda: len(executions_of(states, run, statusFilter="RUNNING")) == 1)
        assert until(lambda: len(executions_of(states, run)) == 2)
        states.stop_execution(executionArn=mapped)
        before = [history(states, one["executionArn"]) for one in executions_of(states, run)]
        assert [one["status"] for one in executions_of(states, run)] == ["SUCCEEDED", "ABORTED"]
        assert until(lambda: len(history(states, single)) == 4)
        states.stop_execution(executionArn=single)
        states.redrive_execution(executionArn=single, clientToken="first")
        states.stop_execution(executionArn=single)
        events = history(states, single)
    with in_thread(lambda: service(tmp_path)) as url:
        states = states_client(url)
        assert [one["redriveStatus"] for one in executions_of(states, run)] == [
            "NOT_REDRIVABLE",
            "REDRIVABLE_BY_MAP_RUN",
        ]
        states.redrive_execution(executionArn=mapped)
        assert until(lambda: states.describe_map_run(mapRunArn=run)["executionCounts"]["running"] == 1)
        states.stop_execution(executionArn=mapped)
        described = states.describe_map_run(mapRunArn=run)
        assert (described["status"], described["redriveCount"]) == ("ABORTED", 1)
        redriven = ["ExecutionRedriven", "ExecutionAborted"]
        first, second = (history(states, one["executionArn"]) for one in executions_of(states, run))
        assert (first, second[: len(before[1])]) == tuple(before)
        assert [one["type"] for one in second[len(before[1]) :]] == redriven
        assert history(states, single) == events
        states.redrive_execution(executionArn=single, clientToken="first")
        described = states.describe_execution(executionArn=single)
        assert (described["status"], described["redriveCount"]) == ("ABORTED", 1)
        states.redrive_execution(executionArn=single, clientToken="second")
        states.stop_execution(executionArn=single)
        after = history(states, single)
        assert (after[: len(events)], [one["type"] for one in after[len(events) :]]) == (events, redriven)


def test_retries_start_anew_and_a_map_within_a_parallel_goes_on(states: Any, worker: str) -> None:
    """After a redrive a Task has its retry again, also in a Map within a Parallel."""
    retried = activity_task(worker, Retry=[{"ErrorEquals": ["Broken"], "MaxAttempts": 1, "IntervalSeconds": 1}])
    inner = {"Type": "Map", "ItemProcessor": line_of(T=retried), "End": True}
    machine = create_machine(
        states, "redrive-deep", line_of(P={"Type": "Parallel", "Branches": [line_of(M=inner)], "End": True})
    )
    execution = start_machine(states, machine, ["x"])
    for _ in range(2):
        answer_work(states, worker, failing="x")
    assert await_end(states, execution)["status"] == "FAILED"
    states.redrive_execution(executionArn=execution)
    answer_work(states, worker, failing="x")
    answer_work(states, worker)
    assert json.loads(await_end(states, execution)["output"]) == [["x"]]


def test_a_stopped_or_timed_out_execution_is_redriven_with_its_first_definition(states: Any) -> None:
    """An update in between has no effect. The machine's time-out begins again, and a Fail state is entered again."""
    wait = line_of(W={"Type": "Wait", "Seconds": 600, "End": True})
    machine = create_machine(states, "redrive-stopped", wait)
    execution = start_machine(states, machine)
    assert until(lambda: len(history(states, execution)) == 2)
    states.stop_execution(executionArn=execution)
    states.update_state_machine(stateMachineArn=machine, definition=json.dumps(line_of(X={"Type": "Fail"})))
    states.redrive_execution(executionArn=execution)
    states.stop_execution(executionArn=execution, error="again")
    assert event_shapes(history(states, execution)) == [
        ("ExecutionStarted", 0), ("WaitStateEntered", 0), ("ExecutionAborted", 0),
        ("ExecutionRedriven", 3), ("ExecutionAborted", 0),
    ]  # fmt: skip
    timed = start_machine(states, create_machine(states, "redrive-timed", {**wait, "TimeoutSeconds": 1}))
    assert await_end(states, timed)["status"] == "TIMED_OUT"
    states.redrive_execution(executionArn=timed)
    assert await_end(states, timed)["status"] == "TIMED_OUT"
    failing = start_machine(states, machine)
    await_end(states, failing)
    states.redrive_execution(executionArn=failing)
    await_end(states, failing)
    assert event_shapes(history(states, failing)) == [
        ("ExecutionStarted", 0), ("FailStateEntered", 0), ("ExecutionFailed", 2),
        ("ExecutionRedriven", 3), ("FailStateEntered", 0), ("ExecutionFailed", 5),
    ]  # fmt: skip


def test_a_client_token_makes_a_request_repeatable(states: Any) -> None:
    """A repeated clientToken returns the same date and redrives once. redriveFilter selects redriven executions."""
    machine = create_machine(states, "redrive-token", line_of(F={"Type": "Fail"}))
    execution, other = start_machine(states, machine), start_machine(states, machine)
    await_end(states, execution), await_end(states, other)
    first = states.redrive_execution(executionArn=execution, clientToken="one")
    assert await_end(states, execution)["redriveCount"] == 1
    assert states.redrive_execution(executionArn=execution, clientToken="one")["redriveDate"] == first["redriveDate"]
    assert states.describe_execution(executionArn=execution)["redriveCount"] == 1
    (listed,) = states.list_executions(stateMachineArn=machine, redriveFilter="REDRIVEN")["executions"]
    assert (listed["executionArn"], listed["redriveCount"]) == (execution, 1)
    assert listed["redriveDate"] == first["redriveDate"]
    (listed,) = states.list_executions(stateMachineArn=machine, redriveFilter="NOT_REDRIVEN")["executions"]
    assert (listed["executionArn"], listed["redriveCount"], "redriveDate" in listed) == (other, 0, False)


def test_a_redrive_is_refused_with_the_reason_that_describe_execution_gives(states: Any) -> None:
    """Refused are: a success, a running, an unknown and an Express execution, and the child of a caught Map Run."""
    done = start_machine(states, create_machine(states, "redrive-done", line_of(P={"Type": "Pass", "End": True})))
    running = start_machine(
        states, create_machine(states, "redrive-running", line_of(W={"Type": "Wait", "Seconds": 600, "End": True}))
    )
    mapped = {**distributed_map(F={"Type": "Fail"}), "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Y"}]}
    of_map = start_machine(states, create_machine(states, "redrive-caught", line_of(M=mapped, Y={"Type": "Fail"})), [1])
    await_end(states, done), await_end(states, of_map)
    for execution in (done, running):
        described = states.describe_execution(executionArn=execution)
        refused = refusal(states.redrive_execution, executionArn=execution)
        assert described["redriveStatus"] == "NOT_REDRIVABLE"
        assert refused == ("ExecutionNotRedrivable", described["redriveStatusReason"] + ".")
    (one,) = executions_of(states, map_run_arn(states, of_map))
    assert (one["redriveStatus"], one["redriveStatusReason"]) == ("NOT_REDRIVABLE", redrives.MAP_RUN_NOT_OPEN)
    refused = refusal(states.redrive_execution, executionArn=one["executionArn"])
    assert refused == ("ExecutionNotRedrivable", f"{redrives.REDRIVEN_BY_MAP_RUN}.")
    assert refusal(states.redrive_execution, executionArn=done + "x")[0] == "ExecutionDoesNotExist"
    express = done.replace(":execution:", ":express:") + ":x"
    assert refusal(states.redrive_execution, executionArn=express)[0] == "InvalidArn"


DAY = 86_400_000


@pytest.mark.parametrize(
    ("now_ms", "change", "reason"),
    [
        (0, {}, None),
        (14 * DAY, {}, None),
        (14 * DAY + 1, {}, "Execution redrivable period exceeded"),
        (0, {"events": 24_998}, None),
        (0, {"events": 24_999}, "Execution history event limit exceeded"),
        (365 * DAY, {"stopped_ms": 365 * DAY}, "Execution has exceeded the max execution time"),
        (0, {"deleting": True}, "State machine is in DELETING status"),
        (0, {"open_runs": None}, redrives.PLACE_UNKNOWN),
    ],
)
def test_a_redrive_has_limits_of_age_and_events(now_ms: int, change: dict[str, Any], reason: str | None) -> None:
    """A redrive needs an end within 14 days, a start within a year, and at most 24,998 events."""
    it: dict[str, Any] = {"stopped_ms": 0, "events": 5, "deleting": False, "open_runs": frozenset()} | change
    closing = redrives.Closing("FAILED", it["stopped_ms"], events=it["events"])
    opening = redrives.Opening("arn", "name", "machine", "{}", 0)
    known = KnownExecution(opening, Path(), closing, open_runs=it["open_runs"])
    assert known.redrive_refusal_reason(now_ms, it["deleting"]) == reason


def test_a_token_is_known_for_fifteen_minutes_and_for_ten_redrives() -> None:
    """After fifteen minutes or ten later redrives, the same clientToken counts as a new request."""
    made = [redrives.Redrive(at_ms, str(at_ms)) for at_ms in range(11)]
    assert redrives.find_repeated(made, "10", 10 + redrives.TOKEN_MS) == made[10]
    assert redrives.find_repeated(made, "10", 11 + redrives.TOKEN_MS) is None
    assert redrives.find_repeated(made, "0", 11) is None
    assert redrives.find_repeated([redrives.Redrive(0)], None, 0) is None
