"""The Step Functions API as an SDK uses it: machines, versions of them, tags, tokens and Express executions."""

import concurrent.futures
import json
import socket
from typing import Any

import pytest

from endpoint import (
    PASS,
    PREFIX,
    ROLE,
    await_end,
    create_machine,
    distributed_map,
    line_of,
    refusal,
    run_to_end,
    start_waiting_for_token,
    task_definition,
)
from states_language.server.actions import LARGEST_REQUEST_BYTES

_CONSTRAINT = "1 validation error detected: Value{} at '{}' failed to satisfy constraint: Member must {}"
_BAD = {"name": "bad", "roleArn": ROLE, "definition": json.dumps(PASS)}
_EXECUTION = PREFIX.replace("stateMachine", "execution") + "a:b"


@pytest.mark.parametrize(
    ("action", "parameters", "code", "message"),
    [
        ("create_state_machine", _BAD | {"definition": '{"StartAt": "S"}'}, "InvalidDefinition",
         "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: These fields are required: [States] at /'"),
        ("create_state_machine", _BAD | {"definition": '{"TimeoutSeconds": NaN}'}, "InvalidDefinition", None),
        ("create_state_machine", _BAD | {"definition": " " * 1_048_577}, "ValidationException",
         _CONSTRAINT.format("", "definition", "have length less than or equal to 1048576")),
        ("create_state_machine", _BAD | {"name": "t" * 81}, "ValidationException",
         _CONSTRAINT.format(f" '{'t' * 81}'", "name", "have length less than or equal to 80")),
        ("create_state_machine", _BAD | {"roleArn": "me"}, "InvalidArn", "Invalid Role Arn: 'me'"),
        ("create_state_machine", _BAD | {"roleArn": "arn:aws:iam::1:role/a"}, "InvalidArn", None),
        ("create_state_machine", _BAD | {"type": "FAST"}, "ValidationException",
         _CONSTRAINT.format(" 'FAST'", "type", "satisfy enum value set: [STANDARD, EXPRESS]")),
        ("create_state_machine", _BAD | {"versionDescription": "first"}, "ValidationException",
         "Version description can only be set when publish is true"),
        ("describe_state_machine", {"stateMachineArn": "x"}, "InvalidArn",
         "Invalid Arn: 'Invalid ARN prefix: x'"),
        ("describe_state_machine", {"stateMachineArn": _EXECUTION}, "InvalidArn",
         "Invalid Arn: 'Resource type not valid in this context: execution'"),
        ("list_state_machines", {"maxResults": 1001}, "ValidationException", None),
        ("list_state_machines", {"nextToken": "x"}, "InvalidToken", "Invalid Token: 'Invalid token'"),
        ("start_execution", {"stateMachineArn": PREFIX + "deployed", "input": ""}, "InvalidExecutionInput",
         "Invalid State Machine Execution Input: 'Invalid execution input.'"),
        ("start_execution", {"stateMachineArn": PREFIX + "deployed", "input": "{'"}, "InvalidExecutionInput",
         "Invalid State Machine Execution Input: "
         "'Unexpected character (\'\'\' (code 39)): was expecting double-quote to start field name'"),
        ("start_execution", {"stateMachineArn": PREFIX + "deployed", "traceHeader": "é"}, "ValidationException",
         _CONSTRAINT.format(" 'é'", "traceHeader", r"satisfy regular expression pattern: \p{ASCII}*")),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused_with_awss_error_name(
    states: Any, action: str, parameters: dict[str, Any], code: str, message: str | None
) -> None:
    """A bad definition, role, ARN or input, or a value outside its bounds, is refused with AWS's error name."""
    refused = refusal(getattr(states, action), **parameters)
    assert refused == (code, refused[1] if message is None else message)


def test_a_task_can_call_any_action_of_step_functions(states: Any) -> None:
    """aws-sdk:sfn calls this service: names in Pascal case, dates as texts, errors under the SDK's names."""
    listing = create_machine(
        states, "lists", task_definition("arn:aws:states:::aws-sdk:sfn:listStateMachines", {"MaxResults": 1}, End=True)
    )
    (listed,) = json.loads(run_to_end(states, listing)["output"])["StateMachines"]
    assert (listed["Type"], listed["CreationDate"][-1]) == ("STANDARD", "Z")
    describe = "arn:aws:states:::aws-sdk:sfn:describeStateMachine"
    seen, ended = (
        run_to_end(
            states,
            create_machine(
                states, f"looks-{name}", task_definition(describe, {"StateMachineArn": PREFIX + name}, End=True)
            ),
        )
        for name in ("deployed", "no")
    )
    assert json.loads(seen["output"])["CreationDate"][-1] == "Z"
    assert ended["error"] == "Sfn.StateMachineDoesNotExistException"
    assert ended["cause"].startswith(f"State Machine Does Not Exist: '{PREFIX}no' (Service: Sfn, Status Code: 400, ")


def test_validation_lists_every_problem_and_creates_nothing(states: Any) -> None:
    """Problems are listed in the order of their places, at most as many as requested, and no machine is created."""
    good = states.validate_state_machine_definition(definition=json.dumps(PASS))
    assert (good["result"], good["diagnostics"], good["truncated"]) == ("OK", [], False)
    judged = states.validate_state_machine_definition(definition="{}", type="EXPRESS")
    problem = {"severity": "ERROR", "code": "SCHEMA_VALIDATION_FAILED", "location": "/"}
    message = "These fields are required: [States, StartAt]"
    assert (judged["result"], judged["diagnostics"]) == ("FAIL", [problem | {"message": message}])
    bad = {"StartAt": "S", "States": {"S": {"Type": "Pass", "Next": "T"}, "U": {"Type": "Wait", "End": True}}}
    judged = states.validate_state_machine_definition(definition=json.dumps(bad))
    assert [one["location"] for one in judged["diagnostics"]] == ["/States/U", "/States/S/Next"]
    first = states.validate_state_machine_definition(definition=json.dumps(bad), maxResults=1)
    assert (len(first["diagnostics"]), first["truncated"], first["result"]) == (1, True, "FAIL")


def test_a_history_that_grows_is_read_backwards_without_a_shift(states: Any) -> None:
    """A page continues after the last event shown, whatever events were added in the meantime."""
    execution, token = start_waiting_for_token(states, "grows")
    first = states.get_execution_history(executionArn=execution, reverseOrder=True, maxResults=2)
    assert [event["id"] for event in first["events"]] == [5, 4]
    states.send_task_success(taskToken=token, output="{}")
    await_end(states, execution)
    rest = states.get_execution_history(
        executionArn=execution, reverseOrder=True, maxResults=9, nextToken=first["nextToken"]
    )
    assert ([event["id"] for event in rest["events"]], "nextToken" in rest) == ([3, 2, 1], False)


def test_a_worker_polls_an_activity_and_answers_by_its_token(states: Any) -> None:
    """A worker polls, gets the work once and answers by its token. Then the activity is deleted."""
    activity = states.create_activity(name="dig")["activityArn"]
    assert states.create_activity(name="dig")["activityArn"] == activity
    assert states.describe_activity(activityArn=activity)["name"] == "dig"
    assert [one["name"] for one in states.list_activities()["activities"]] == ["dig"]
    definition = {"StartAt": "S", "States": {"S": {"Type": "Task", "Resource": activity, "End": True}}}
    machine = create_machine(states, "digs", definition)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(states.get_activity_task, activityArn=activity, workerName="mole")
        execution = states.start_execution(stateMachineArn=machine, input='{"deep":1}')["executionArn"]
        work = waiting.result(10)
    assert work["input"] == '{"deep":1}'  # the text of ActivityScheduled
    states.send_task_heartbeat(taskToken=work["taskToken"])
    states.send_task_success(taskToken=work["taskToken"], output='"dug"')
    assert await_end(states, execution)["output"] == '"dug"'
    events = states.get_execution_history(executionArn=execution)["events"]
    assert [event["type"] for event in events][2:5] == ["ActivityScheduled", "ActivityStarted", "ActivitySucceeded"]
    assert events[3]["activityStartedEventDetails"] == {"workerName": "mole"}
    states.delete_activity(activityArn=activity)
    refused = ("ActivityDoesNotExist", f"Activity does not exist: '{activity}'")
    assert refusal(states.get_activity_task, activityArn=activity) == refused
    ended = run_to_end(states, machine)
    assert ended["error"] == "States.Runtime"
    assert ended["cause"].endswith(f" The activity {activity} does not exist.")


def test_map_runs_and_their_child_executions_are_listed_and_described(states: Any) -> None:
    """Map Runs are listed and described with counts, and so is each child execution, even after the end.

    A child execution's machine is the one around the Map, qualified by the Map's label (API reference).
    """
    choice = {"Type": "Choice", "Choices": [{"Variable": "$", "NumericEquals": 2, "Next": "F"}], "Default": "P"}
    mapped = distributed_map(at_once=2, C=choice, F={"Type": "Fail", "Error": "Bad"}, P={"Type": "Pass", "End": True})
    arn = create_machine(states, "maps", line_of(M={**mapped, "ToleratedFailureCount": 1, "Label": "each"}))
    execution = states.start_execution(stateMachineArn=arn, input="[1, 2, 3]")["executionArn"]
    assert await_end(states, execution)["status"] == "SUCCEEDED"
    (run,) = states.list_map_runs(executionArn=execution)["mapRuns"]
    assert (run["executionArn"], run["stateMachineArn"]) == (execution, f"{arn}/each")
    described = states.describe_map_run(mapRunArn=run["mapRunArn"])
    assert (described["status"], described["maxConcurrency"], described["toleratedFailureCount"]) == ("SUCCEEDED", 2, 1)
    assert described["itemCounts"] | {"pending": 0} == {
        "pending": 0, "running": 0, "succeeded": 2, "failed": 1, "timedOut": 0, "aborted": 0, "total": 3,
        "resultsWritten": 3, "failuresNotRedrivable": 0, "pendingRedrive": 0,
    }  # fmt: skip
    children = states.list_executions(mapRunArn=run["mapRunArn"])["executions"]
    assert sorted(one["status"] for one in children) == ["FAILED", "SUCCEEDED", "SUCCEEDED"]
    failed = states.list_executions(mapRunArn=run["mapRunArn"], statusFilter="FAILED")["executions"]
    assert [one["mapRunArn"] for one in failed] == [run["mapRunArn"]]
    of_two = states.describe_execution(executionArn=failed[0]["executionArn"])
    assert (of_two["status"], of_two["input"], of_two["error"]) == ("FAILED", "2", "Bad")
    assert of_two["mapRunArn"] == run["mapRunArn"]
    events = states.get_execution_history(executionArn=failed[0]["executionArn"])["events"]
    assert [event["type"] for event in events][-2:] == ["FailStateEntered", "ExecutionFailed"]
    assert states.describe_execution(executionArn=children[-1]["executionArn"])["output"] == "1"
    whole, part = (
        states.describe_state_machine_for_execution(executionArn=one) for one in (execution, failed[0]["executionArn"])
    )
    qualified = {"mapRunArn": run["mapRunArn"], "label": "each", "stateMachineArn": f"{arn}/each"}
    assert part == whole | qualified | {"ResponseMetadata": part["ResponseMetadata"]}
    assert refusal(states.describe_map_run, mapRunArn=run["mapRunArn"] + "x")[0] == "ResourceNotFound"


def test_an_unfinished_or_too_long_request_starts_nothing(states: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """If a client leaves within its body, nothing starts and nothing is printed. A body without end is refused."""
    address = states.meta.endpoint_url.removeprefix("http://").split(":")
    begun = create_machine(states, "half")
    lines = ("POST / HTTP/1.1", "Host: x", "X-Amz-Target: AWSStepFunctions.StartExecution", f"Content-Length: {2**30}")
    start = "\r\n".join((*lines, "", ""))
    body = json.dumps({"stateMachineArn": begun})
    with socket.create_connection((address[0], int(address[1]))) as client:
        client.sendall((start + body).encode())
    with socket.create_connection((address[0], int(address[1]))) as client:
        client.sendall(start.encode() + b" " * (LARGEST_REQUEST_BYTES + 1))
        assert client.recv(12) == b"HTTP/1.1 413"
    assert states.list_executions(stateMachineArn=begun)["executions"] == []
    assert capfd.readouterr() == ("", "")
