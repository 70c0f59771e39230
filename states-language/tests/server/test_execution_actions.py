"""Executions as an SDK uses them: start, describe, list, read the history and stop; and the refusals."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
import urllib3

from endpoint import PASS, PREFIX, ROLE, WAIT, await_end, create_machine, refusal, run_to_end, task_definition
from patience import until

DEPLOYED = {"stateMachineArn": PREFIX + "deployed"}
START = "arn:aws:states:::states:startExecution"
GONE = PREFIX.replace("stateMachine", "execution") + "deployed:gone"
OF_A_RUN = PREFIX.replace("stateMachine", "execution") + "deployed/label:gone"


def test_an_execution_from_start_to_stop(states: Any) -> None:
    """StartExecution, DescribeExecution and StopExecution return what the SDK expects, dates as dates."""
    machine = create_machine(states, "waits", WAIT)
    started = states.start_execution(stateMachineArn=machine, name="life", input='{"a": 1}')
    arn = machine.replace(":stateMachine:", ":execution:") + ":life"
    assert started["executionArn"] == arn
    assert abs((datetime.now(UTC) - started["startDate"]).total_seconds()) < 60
    described = states.describe_execution(executionArn=arn)
    assert (described["status"], described["name"], described["input"]) == ("RUNNING", "life", '{"a": 1}')
    assert described["stateMachineArn"] == machine
    # Running, with the same name and input: the same answer. With other input, or closed: ExecutionAlreadyExists.
    request = {"stateMachineArn": machine, "name": "life"}
    again = states.start_execution(**request, input='{ "a":1.0 }')
    assert (again["executionArn"], again["startDate"]) == (arn, started["startDate"])
    taken = ("ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
    assert refusal(states.start_execution, **request, input='{"a":true}') == taken
    stopped = states.stop_execution(executionArn=arn, error="Enough", cause="It was a test.")
    described = states.describe_execution(executionArn=arn)
    assert (described["status"], described["error"], described["cause"]) == ("ABORTED", "Enough", "It was a test.")
    assert described["stopDate"] == stopped["stopDate"]
    assert states.get_execution_history(executionArn=arn)["events"][-1]["type"] == "ExecutionAborted"
    assert refusal(states.start_execution, **request, input='{"a": 1}') == taken


def test_lists_are_paged(states: Any) -> None:
    """ListExecutions lists the newest first, filtered by status, page by page."""
    machine = create_machine(states, "listed")
    for number in range(3):
        run_to_end(states, machine, name=f"page-{number}")
    request = {"stateMachineArn": machine, "statusFilter": "SUCCEEDED"}
    pages = list(states.get_paginator("list_executions").paginate(**request, PaginationConfig={"PageSize": 2}))
    names = [[execution["name"] for execution in page["executions"]] for page in pages]
    assert names == [["page-2", "page-1"], ["page-0"]]
    described = states.describe_state_machine(**DEPLOYED)
    assert (json.loads(described["definition"]), described["type"]) == (PASS, "STANDARD")


def test_the_history_is_paged_and_can_be_reversed(states: Any) -> None:
    """GetExecutionHistory returns pages, backwards too, and omits data on request."""
    arn = states.start_execution(**DEPLOYED, input='{"a": 1}')["executionArn"]
    await_end(states, arn)
    paginator = states.get_paginator("get_execution_history")
    pages = list(paginator.paginate(executionArn=arn, PaginationConfig={"PageSize": 3}))
    events = [event for page in pages for event in page["events"]]
    kinds = ["ExecutionStarted", "PassStateEntered", "PassStateExited", "ExecutionSucceeded"]
    assert [(event["id"], event["type"]) for event in events] == list(enumerate(kinds, 1))
    assert json.loads(events[0]["executionStartedEventDetails"]["input"]) == {"a": 1}
    backwards = states.get_execution_history(executionArn=arn, reverseOrder=True, includeExecutionData=False)
    assert [event["type"] for event in backwards["events"]] == kinds[::-1]
    assert "input" not in backwards["events"][-1]["executionStartedEventDetails"]


def test_a_page_of_a_history_ends_after_a_megabyte(states: Any) -> None:
    """A larger page would delay all other clients while it is written. The next page goes on, in either order."""
    names = "ABCDE"
    passes = {name: {"Type": "Pass", "Next": then} for name, then in pairwise(names)}
    arn = create_machine(states, "large-events", {"StartAt": "A", "States": {**passes, "E": {"Type": "Succeed"}}})
    execution = run_to_end(states, arn, input=json.dumps("x" * 200_000))["executionArn"]
    read = states.get_paginator("get_execution_history").paginate
    for backwards in (False, True):
        pages = [page["events"] for page in read(executionArn=execution, reverseOrder=backwards)]
        assert [len(page) for page in pages] == [5, 5, 2]
        ids = [event["id"] for page in pages for event in page]
        assert ids == sorted(range(1, 13), reverse=backwards)


def test_a_machine_starts_an_execution(states: Any) -> None:
    """states:startExecution returns the ARN and the date and does not wait for the end."""
    begun = {"StateMachineArn": DEPLOYED["stateMachineArn"], "Name": "begun", "Input": {"by.$": "$$.Execution.Id"}}
    output = json.loads(
        run_to_end(states, create_machine(states, "starts", task_definition(START, begun, End=True)))["output"]
    )
    arn = PREFIX.replace("stateMachine", "execution") + "deployed:begun"
    assert output["ExecutionArn"] == arn
    assert datetime.fromisoformat(output["StartDate"]).year >= 2024
    assert until(lambda: states.describe_execution(executionArn=arn)["status"] == "SUCCEEDED")
    assert list(json.loads(states.describe_execution(executionArn=arn)["input"])) == ["by"]


def test_a_refused_start_fails_the_task_with_awss_error_name(states: Any) -> None:
    """A refused StartExecution fails the Task with the service's error name, and so does a missing function."""
    cases = {
        "starts-nowhere": ({"StateMachineArn": PREFIX + "nowhere"}, "StepFunctions.StateMachineDoesNotExistException"),
        "starts-badly": ({"StateMachineArn": PREFIX + "deployed", "Name": "a*"}, "StepFunctions.InvalidNameException"),
    }
    for name, (parameters, error) in cases.items():
        assert (
            run_to_end(states, create_machine(states, name, task_definition(START, parameters, End=True)))["error"]
            == error
        )
    misses = task_definition("arn:aws:states:::lambda:invoke", {"FunctionName": "missing"}, End=True)
    assert run_to_end(states, create_machine(states, "misses", misses))["error"] == "Lambda.ResourceNotFoundException"


@pytest.mark.parametrize("name", ["a b", "a/b", "a:b", "a*", "a$", 'a"b', "a\\b", "a\x01", "malformed*"])
def test_a_name_that_aws_refuses_is_invalid_name(states: Any, name: str) -> None:
    """White space, brackets, wildcards, special and control characters are InvalidName, for executions and machines."""
    assert refusal(states.start_execution, **DEPLOYED, name=name)[0] == "InvalidName"
    machine = {"name": name, "definition": json.dumps(PASS), "roleArn": ROLE}
    assert refusal(states.create_state_machine, **machine) == ("InvalidName", f"Invalid Name: '{name}'")


@pytest.mark.parametrize(
    ("action", "parameters", "error"),
    [
        ("StartExecution", {**DEPLOYED, "input": 5}, "ValidationException"),
        ("StartExecution", {**DEPLOYED, "input": {}}, "ValidationException"),
        ("StartExecution", {**DEPLOYED, "name": 5}, "ValidationException"),
        ("StartExecution", {**DEPLOYED, "name": ["a"]}, "ValidationException"),
        ("StartExecution", {"stateMachineArn": 5}, "ValidationException"),
        ("StartExecution", {"stateMachineArn": "x"}, "InvalidArn"),
        ("StartExecution", {"stateMachineArn": PREFIX + "none"}, "StateMachineDoesNotExist"),
        ("StartExecution", {**DEPLOYED, "input": "{"}, "InvalidExecutionInput"),
        ("StartExecution", {**DEPLOYED, "input": "NaN"}, "InvalidExecutionInput"),
        ("StartExecution", {**DEPLOYED, "input": '{"a": [-Infinity]}'}, "InvalidExecutionInput"),
        ("StartExecution", {**DEPLOYED, "input": "[" * 100_000}, "InvalidExecutionInput"),
        ("StartExecution", {**DEPLOYED, "input": f'"{"é" * 131_072}"'}, "InvalidExecutionInput"),
        ("StartExecution", {**DEPLOYED, "name": [[]] * 100_000}, "SerializationException"),
        ("StartExecution", {**DEPLOYED, "input": '"\ud800"'}, "InvalidExecutionInput"),
        ("StartExecution", {**DEPLOYED, "name": "\ud800"}, "InvalidName"),
        ("ListExecutions", {**DEPLOYED, "nextToken": 5}, "ValidationException"),
        ("ListExecutions", {**DEPLOYED, "nextToken": "LTU="}, "InvalidToken"),
        ("ListExecutions", {**DEPLOYED, "nextToken": "?"}, "InvalidToken"),
        ("ListExecutions", {**DEPLOYED, "maxResults": True}, "ValidationException"),
        ("ListExecutions", {**DEPLOYED, "maxResults": "5"}, "ValidationException"),
        ("ListExecutions", {**DEPLOYED, "statusFilter": ["RUNNING"]}, "ValidationException"),
        ("ListStateMachines", {"maxResults": float("nan")}, "SerializationException"),
        ("ListStateMachines", [], "SerializationException"),
        ("StopExecution", {"executionArn": "arn:aws:states:a:b:execution:c:d", "error": 5}, "ValidationException"),
        ("StopExecution", {"executionArn": GONE}, "ExecutionDoesNotExist"),
        ("StopExecution", {"executionArn": OF_A_RUN}, "ExecutionDoesNotExist"),
        ("DescribeExecution", {"executionArn": None}, "ValidationException"),
        ("DescribeExecution", {"executionArn": GONE}, "ExecutionDoesNotExist"),
        ("DescribeExecution", {"executionArn": OF_A_RUN}, "ExecutionDoesNotExist"),
        ("RedriveExecution", {"executionArn": GONE}, "ExecutionDoesNotExist"),
        ("MakeCoffee", {}, "UnknownOperationException"),
    ],
)
def test_a_bad_request_is_400_with_awss_error_name(states: Any, action: str, parameters: Any, error: str) -> None:
    """Even a request that the SDK would never send gets 400, an error name and a sentence."""
    headers = {"X-Amz-Target": f"AWSStepFunctions.{action}", "Content-Type": "application/x-amz-json-1.0"}
    with urllib3.PoolManager() as http:
        answer = http.request("POST", states.meta.endpoint_url, body=json.dumps(parameters), headers=headers)
    assert (answer.status, answer.json()["__type"]) == (400, f"com.amazonaws.states#{error}")
    assert answer.json()["message"]


def test_an_express_execution_is_answered_at_once(states: Any) -> None:
    """StartSyncExecution returns output or error; it is refused for a Standard machine."""
    arn = create_machine(states, "express", type="EXPRESS")
    answer = states.start_sync_execution(stateMachineArn=arn, input='{"a":1}', name="one")
    assert (answer["status"], answer["output"], answer["name"]) == ("SUCCEEDED", '{"a":1}', "one")
    assert answer["executionArn"].startswith(PREFIX.replace("stateMachine", "express") + "express:one:")
    assert answer["billingDetails"]["billedMemoryUsedInMB"] == 64
    fail = {"StartAt": "S", "States": {"S": {"Type": "Fail", "Error": "Bad"}}}
    failed = states.start_sync_execution(stateMachineArn=create_machine(states, "express-bad", fail, type="EXPRESS"))
    assert (failed["status"], failed["error"]) == ("FAILED", "Bad")
    refused = refusal(states.start_sync_execution, stateMachineArn=PREFIX + "deployed")
    assert refused == ("StateMachineTypeNotSupported", "This operation is not supported by this type of state machine")
    started = states.start_execution(stateMachineArn=arn)["executionArn"]
    assert refusal(states.describe_execution, executionArn=started)[0] == "InvalidArn"
    assert refusal(states.list_executions, stateMachineArn=arn)[0] == "StateMachineTypeNotSupported"
