"""TestState as an SDK uses it: one state, run alone."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from endpoint import (
    PASS,
    ROLE,
    SEND,
    TOKEN_PARAMETERS,
    await_end,
    create_machine,
    distributed_map,
    line_of,
    refusal,
    service,
    states_client,
    task_definition,
)
from patience import in_thread
from states_language.scheduling.pool import processes


def test_teststate_refuses_a_bad_definition_input_or_state_name(states: Any) -> None:
    """A bad definition, invalid JSON as input, and a missing or unknown state name are refused."""
    passes = json.dumps({"Type": "Pass", "End": True})
    assert refusal(states.test_state, definition="no")[0] == "InvalidDefinition"
    assert refusal(states.test_state, definition='{"Type": "Pass"}')[0] == "InvalidDefinition"
    assert refusal(states.test_state, definition=passes, input="{")[0] == "InvalidExecutionInput"
    assert refusal(states.test_state, definition=json.dumps(PASS))[0] == "ValidationException"
    lost = refusal(states.test_state, definition=json.dumps(PASS), stateName="T")
    assert lost == ("ValidationException", "State not found in definition")


_MAP = {"Type": "Map", "ItemProcessor": PASS, "End": True}
_WRITER = {"Resource": "arn:aws:states:::s3:putObject", "Parameters": {"Bucket": "b", "Prefix": "p"}}
_RUN = distributed_map(**PASS["States"])
_WRITTEN = {**_RUN, "ResultWriter": _WRITER}
_PARALLEL = {"Type": "Parallel", "Branches": [PASS, line_of(T={"Type": "Succeed"})], "End": True}
_UNMOCKED = (
    "TestState API does not support Map or Parallel states. "
    "Supported state types include: [Task, Wait, Pass, Succeed, Fail, Choice]"
)
_WAITS = "TestState API does not support Activity tasks, .sync or .waitForTaskToken without a mock."
_FAILS = {"errorOutput": {"error": "Bad"}}
_CAUSE = (
    "stateConfiguration.errorCausedByState must name a state within this Map state, where the mocked error comes from."
)
_COUNTED = {"input": "[1]", "stateConfiguration": {"mapIterationFailureCount": 2}}
_TASK = {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage", "End": True}


def context_mock(context: str) -> dict[str, Any]:
    """Return the members of a request that mocks a result and the Context Object."""
    return {"mock": {"result": "{}"}, "context": context}


@pytest.mark.parametrize(
    ("state", "more", "message"),
    [
        ({"Type": "Pass", "End": True}, {"mock": {"result": "1"}}, "State type 'Pass' is not {} a mock is specified"),
        ({"Type": "Fail"}, {"mock": _FAILS}, "State type 'Fail' is not {} a mock is specified"),
        (_MAP, {}, _UNMOCKED),
        ({**_TASK, "Resource": "arn:aws:states:us-east-1:1:activity:a"}, {}, _WAITS),
        ({**_TASK, "Resource": SEND, "Parameters": TOKEN_PARAMETERS}, {}, _WAITS),
        (_PARALLEL, {}, _UNMOCKED),
        (_MAP, {"mock": {"result": "[]", **_FAILS}},
         "A test mock should have only one of the following fields: [result, errorOutput]."),
        (_MAP, {"mock": {"result": "[]"}, "revealSecrets": True},
         "TestState does not support RevealSecrets when a mock is specified."),
        (_MAP, {"mock": {"result": "{}"}}, "Mocked result must be an array."),
        (_MAP, {"mock": {"result": "no"}}, "Mocked result must be valid JSON"),
        (_WRITTEN, {"mock": {"result": "[]"}}, "Mocked result must be a JSON object."),
        (_PARALLEL, {"mock": {"result": "1"}}, "Mocked result must be an array."),
        (_PARALLEL, {"mock": {"result": "[1]"}},
         "Mocked result must contain the same number of items as number of Parallel branches."),
        (_MAP, {"mock": _FAILS}, _CAUSE),
        (_MAP, {"mock": _FAILS, "stateConfiguration": {"errorCausedByState": "StateName"}}, _CAUSE),
        (_RUN, {**_COUNTED, "mock": {"result": "[]"}},
         "Map iteration failure count must be less than or equal to the number of Map iterations"),
        (_MAP, _COUNTED, "TestState does not support MapIterationFailureCount when a mock is not specified."),
        (_TASK, {}, "RoleArn must be specified when testing a Task state"),
        (_TASK, context_mock('{"Task": {"Token": "t"}}'),
         "{}Context object contains 'Task' when state is not a Task state with"
         " a '.sync' or '.waitForTaskToken' service integration pattern"),
        (_TASK, context_mock('{"Execution": {"Id": 1}}'), "{}Execution.Id must be a string"),
        (_TASK, context_mock('{"Map": {}}'), "{}'Map' field is not supported when mocking a Context object"),
        (_TASK, context_mock('{"Execution": {"a": 1}}'), "{}Field 'a' is not allowed"),
        (_TASK, context_mock('{"A": {}}'), "{}Field 'A' is not allowed"),
    ],
)  # fmt: skip
def test_a_mock_that_a_state_cannot_have_is_refused(
    states: Any, state: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    """The messages are AWS's as localstack recorded them (its tests of TestState); _WAITS and _CAUSE are ours."""
    code = "InvalidDefinition" if message in (_UNMOCKED, _WAITS) else "ValidationException"
    message = message.format("Invalid Context object provided: " if message[0] == "{" else "supported when")
    assert refusal(states.test_state, definition=json.dumps(state), **more) == (code, message)


@pytest.mark.parametrize(("state", "inner"), [(_MAP, next(iter(PASS["States"]))), (_PARALLEL, "T")])
def test_a_mocked_error_comes_from_a_state_within(states: Any, state: dict[str, Any], inner: str) -> None:
    """The Catcher of a Map or Parallel takes an inner state's mocked error (Developer Guide, TestState)."""
    catch = [{"ErrorEquals": ["States.TaskFailed"], "Next": "N"}]
    answer = states.test_state(
        definition=json.dumps({"StartAt": "M", "States": {"M": state | {"Catch": catch}, "N": {"Type": "Succeed"}}}),
        stateName="M", input="[]", mock=_FAILS, stateConfiguration={"errorCausedByState": inner},
    )  # fmt: skip
    assert (answer["status"], answer["nextState"]) == ("CAUGHT_ERROR", "N")


def test_a_tested_task_names_the_servers_account(states: Any) -> None:
    """The ARN of a missing function has the account of this service's machines."""
    state = {**task_definition("arn:aws:states:::lambda:invoke", {"FunctionName": "none"})["States"]["S"], "End": True}
    cause = states.test_state(definition=json.dumps(state), roleArn=ROLE)["cause"]
    assert cause.startswith("Function not found: arn:aws:lambda:us-east-1:000000000000:function:none:$LATEST ")


def test_endless_expressions_delay_no_other_request(tmp_path: Path) -> None:
    """As many clients as there are evaluators test a state whose expression has no end.

    A history and another test are answered meanwhile.
    """
    endless = {"Type": "Pass", "QueryLanguage": "JSONata", "Output": "{% ($f := function($n) { $f($n) }; $f(0)) %}"}
    sent = threading.Semaphore(0)

    def attack(url: str) -> Any:
        states = states_client(url)
        states.meta.events.register("before-send", lambda **_: sent.release())
        return states.test_state(definition=json.dumps(endless | {"End": True}), roleArn=ROLE)

    with ThreadPoolExecutor(processes()) as clients, in_thread(lambda: service(tmp_path)) as url:
        states = states_client(url)
        execution = states.start_execution(stateMachineArn=create_machine(states, "small"))["executionArn"]
        await_end(states, execution)
        attacks = [clients.submit(attack, url) for _ in range(processes())]
        for _ in attacks:
            sent.acquire()
        small = json.dumps({"Type": "Pass", "End": True})
        assert states.test_state(definition=small, roleArn=ROLE)["status"] == "SUCCEEDED"
        assert len(states.get_execution_history(executionArn=execution)["events"]) == 4
        assert not any(each.done() for each in attacks)


def test_an_inspection_shows_the_variables_after_the_state(states: Any) -> None:
    """They are those of the request and those that the state or its Catcher assigns (API reference, InspectionData)."""
    task = {"Type": "Task", "QueryLanguage": "JSONata", "Resource": "arn:aws:states:::aws-sdk:sfn:listActivities"}
    catch = [{"ErrorEquals": ["Bad"], "Assign": {"why": "{% $states.errorOutput.Cause %}"}, "Next": "N"}]
    state = {**task, "Assign": {"n": "{% $old + 1 %}"}, "Catch": catch, "End": True}
    request = {"definition": json.dumps(state), "variables": '{"old": 1}', "inspectionLevel": "DEBUG"}
    done = states.test_state(**request, mock={"result": '{"Activities": []}'})
    assert json.loads(done["inspectionData"]["variables"]) == {"old": 1, "n": 2}
    caught = states.test_state(**request, mock={"errorOutput": {"error": "Bad", "cause": "It was."}})
    assert json.loads(caught["inspectionData"]["variables"]) == {"old": 1, "why": "It was."}
    for name in ("Variables", "StateName", "0"):  # no name of the machine that runs the state is in the way
        request["definition"] = json.dumps({"Type": "Pass", "Next": name})
        assert states.test_state(**request)["nextState"] == name


def test_an_inspection_shows_what_each_iteration_gets(states: Any) -> None:
    """It shows the items after ItemSelector, ItemBatcher and ItemsPointer; the request gives the ItemReader's text."""
    selected = {**_MAP, "ItemsPath": "$.items", "ItemSelector": {"n.$": "$$.Map.Item.Value", "of.$": "$.name"}}
    batched = {**_RUN, **selected, "ItemBatcher": {"MaxItemsPerBatch": 2}, "ItemProcessor": _RUN["ItemProcessor"]}
    from_s3 = {name: value for name, value in batched.items() if name != "ItemsPath"}
    shown = [inspect_state(states, state) for state in (selected, batched)]
    for text, config in (("1\n2\n3", {"InputType": "JSONL"}), ('{"a": [1, 2, 3]}', _BELOW_A)):
        shown.append(inspect_state(states, {**from_s3, "ItemReader": {**_READER, "ReaderConfig": config}}, text))
    items = [{"n": n, "of": "x"} for n in (1, 2, 3)]
    assert [json.loads(each["afterItemSelector"]) for each in shown] == [items] * 4
    batches = [{"Items": items[:2]}, {"Items": items[2:]}]
    assert [json.loads(each["afterItemBatcher"]) for each in shown[1:]] == [batches] * 3
    assert json.loads(shown[3]["afterItemsPointer"]) == [1, 2, 3]
    broken = states.test_state(
        definition=json.dumps({**from_s3, "ItemReader": {**_READER, "ReaderConfig": _BELOW_A}}), input='{"name": "x"}',
        mock={"result": "[]"}, stateConfiguration={"mapItemReaderData": "no"},
    )  # fmt: skip
    assert (broken["status"], broken["error"]) == ("FAILED", "States.ItemReaderFailed")


def inspect_state(states: Any, state: dict[str, Any], read: str = "", failed: int = 0) -> Any:
    """Return the inspection of a mocked Map over three items."""
    settings = {"mapItemReaderData": read, "mapIterationFailureCount": failed}
    answer = states.test_state(
        definition=json.dumps(state), input='{"items": [1, 2, 3], "name": "x", "share": 50}',
        mock={"result": "[]"}, inspectionLevel="DEBUG", stateConfiguration=settings,
    )  # fmt: skip
    return {**answer["inspectionData"], "error": answer.get("error")}


_READER = {"Resource": "arn:aws:states:::s3:getObject", "Parameters": {"Bucket": "b", "Key": "k"}}
_BELOW_A = {"InputType": "JSON", "ItemsPointer": "/a"}


def test_a_maps_bounds_are_read_from_its_input(states: Any) -> None:
    """A Map's bounds come from expressions, or from paths after InputPath. A percentage is of the items."""
    queried = {"QueryLanguage": "JSONata", "Items": "{% $states.input.items %}", "MaxConcurrency": "{% 2 + 3 %}"}
    share = {"ToleratedFailurePercentage": "{% $states.input.share %}"}
    pathed = {"InputPath": "$", "ItemsPath": "$.items", "ToleratedFailurePercentagePath": "$.share"}
    for state in ({**_RUN, **queried, **share}, {**_RUN, **pathed}):
        one, two = (inspect_state(states, state, failed=failed) for failed in (1, 2))
        assert (one["toleratedFailurePercentage"], one["error"]) == (50.0, None)
        assert two["error"] == "States.ExceedToleratedFailureThreshold"
    narrowed = {"InputPath": "$.share", "ItemsPath": "$$.Execution.Input.items", "MaxConcurrencyPath": "$"}
    assert inspect_state(states, {**_MAP, **narrowed})["maxConcurrency"] == 50
    for wrong in (
        {**queried, "ToleratedFailurePercentage": "{% 'x' %}"},
        {**pathed, "ToleratedFailureCountPath": "$.items"},
    ):
        assert inspect_state(states, {**_RUN, **wrong})["error"] in ("States.QueryEvaluationError", "States.Runtime")


@pytest.mark.parametrize(
    ("resource", "arguments"),
    [("states:startExecution", "{% 5 %}"), ("sqs:sendMessage", "{% [1] %}"), ("events:putEvents", {"Entries": [5]})],
)
def test_arguments_that_make_no_request_fail_the_task(states: Any, resource: str, arguments: Any) -> None:
    """Arguments that make no request fail the Task with States.Runtime, and the cause names them."""
    task = {"Type": "Task", "QueryLanguage": "JSONata", "Resource": f"arn:aws:states:::{resource}", "End": True}
    answer = states.test_state(definition=json.dumps({**task, "Arguments": arguments}), roleArn=ROLE)
    assert answer["error"] == "States.Runtime"
    assert "could not be used to start the Task" in answer["cause"]


def test_a_state_within_a_map_has_an_item(states: Any) -> None:
    """$$.Map.Item of an inner state has index 0 and the input as its value (Developer Guide, TestState)."""
    inner = {"StartAt": "I", "States": {"I": {"Type": "Pass", "Parameters": {"i.$": "$$.Map.Item"}, "End": True}}}
    outer = {"StartAt": "M", "States": {"M": {**_MAP, "ItemProcessor": inner}}}
    item = states.test_state(definition=json.dumps(outer), stateName="I", input="7")["output"]
    assert json.loads(item) == {"i": {"Index": 0, "Value": 7}}


def test_inner_states_of_a_tested_map_have_the_machines_query_language(states: Any) -> None:
    """The states within a tested Map have the machine's query language."""
    inner = {"StartAt": "I", "States": {"I": {"Type": "Pass", "Output": "{% $states.input %}", "End": True}}}
    outer = {"QueryLanguage": "JSONata", "StartAt": "M", "States": {"M": {**_MAP, "ItemProcessor": inner}}}
    answer = states.test_state(definition=json.dumps(outer), stateName="M", input="[1]", mock={"result": "[2]"})
    assert (answer["status"], answer["output"]) == ("SUCCEEDED", "[2]")


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"Type": "Pass", "End": True, "Catch": 1}, ""),
        ({"Type": "Choice", "Choices": 1}, "/Choices"),
        ({"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": 1, "Next": "A"}]}, "/Choices[0]/IsNull"),
    ],
)
def test_a_wrong_field_is_an_invalid_definition(states: Any, state: dict[str, Any], place: str) -> None:
    code, message = refusal(states.test_state, definition=json.dumps(state))
    assert (code, message.endswith(f" at /States/StateName{place}'")) == ("InvalidDefinition", True)
