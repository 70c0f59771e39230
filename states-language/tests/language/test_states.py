"""Pass, Wait, Task, Choice, Succeed and Fail, and their data flow, beyond the recordings."""

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import states_language
from machines import INVOKE, event_times_ms, event_types, function_raising, machine, task
from states_language import TaskCall, TaskFailure
from states_language.clock import EPOCH_2026_MS, VirtualClock
from states_language.timestamps import format_timestamp, instant_ms

ARN = "arn:aws:lambda:us-east-1:111111111111:function:work"


def output(state: dict[str, Any], data: Any) -> Any:
    execution = machine(("S", state)).execute(data)
    assert execution.status == "SUCCEEDED", execution.cause
    return execution.output


def detail(state: dict[str, Any], data: Any) -> str:
    """Return the part of States.Runtime's cause that follows the sentence about the state."""
    last = [("Z", {"Type": "Succeed"})] if "Choices" in state else []
    execution = machine(("S", state), *last).execute(data)
    assert (execution.status, execution.error) == ("FAILED", "States.Runtime")
    start = "An error occurred while executing the state 'S' (entered at the event id #2). "
    assert (execution.cause or "").startswith(start)
    return (execution.cause or "").removeprefix(start)


def perform_once(state: dict[str, Any], answer: Any, data: Any = None) -> tuple[TaskCall, Any]:
    """Return the call that the Task made, and the execution."""
    calls: list[TaskCall] = []

    async def perform(call: TaskCall) -> Any:
        calls.append(call)
        if isinstance(answer, Exception):
            raise answer
        return answer

    execution = machine(("S", state)).run(data or {}, clock=VirtualClock(), perform=perform)
    return calls[0], execution


# ---- data ----


OUTPUTS: list[tuple[dict[str, Any], Any, Any]] = [
    # The five fields work in their order.
    (
        {"Type": "Pass", "InputPath": "$.in",
         "Parameters": {"doubled.$": "States.Array($.x, $.x)", "fixed": {"deep.$": "$.x"}}, "ResultPath": "$.out.here",
         "OutputPath": "$.out"},
        {"in": {"x": 1}, "out": {"kept": 0}},
        {"kept": 0, "here": {"doubled": [1, 1], "fixed": {"deep": 1}}},
    ),
    # ResultPath null drops the result.
    ({"Type": "Pass", "Result": 5, "ResultPath": None}, {"a": 1}, {"a": 1}),
    ({"Type": "Succeed", "InputPath": "$.a", "OutputPath": "$.b"}, {"a": {"b": 1}}, 1),
]  # fmt: skip
EMPTY = {"Type": "Choice", "Choices": [{"Variable": "$.v", "NumericEquals": 1, "Next": "Z"}]}
DETAILS: list[tuple[dict[str, Any], Any, str]] = [
    ({"Type": "Wait", "SecondsPath": "$.s"}, {"s": -1},
     "The SecondsPath parameter references a negative value: $.s == -1"),
    (EMPTY, {}, "Invalid path '$.v': The choice state's condition path references an invalid value."),
    (EMPTY, {"v": 2},
     "Failed to transition out of the state. The state does not point to a next state, please specify a Next field"),
    # A limit that is missing fails as a missing InputPath does.
    (task(TimeoutSecondsPath="$.t"), {"u": 1}, "Invalid path '$.t' : No results for path: $['t']"),
    (task(HeartbeatSecondsPath="$.t"), {"u": 1}, "Invalid path '$.t' : No results for path: $['t']"),
]  # fmt: skip


def test_a_states_data_fields_make_the_output() -> None:
    """The data fields of a state make this output of an input."""
    assert [(state, data, output(state, data)) for state, data, _ in OUTPUTS] == OUTPUTS


def test_the_cause_of_states_runtime_names_what_is_missing() -> None:
    """The cause of States.Runtime has AWS's words for the missing or wrong value."""
    assert [(state, data, detail(state, data)) for state, data, _ in DETAILS] == DETAILS


def test_a_result_path_that_does_not_fit_is_an_error_of_its_own() -> None:
    """A ResultPath that does not fit the input is States.ResultPathMatchFailure, which can be caught."""
    catch = [{"ErrorEquals": ["States.ResultPathMatchFailure"], "ResultPath": None, "Next": "P"}]
    states = [("T", task(ResultPath="$.a.b", Catch=catch)), ("P", {"Type": "Pass"})]
    execution = machine(*states).execute({"a": 1}, functions={"work": function_raising()})
    assert (execution.status, execution.output) == ("SUCCEEDED", {"a": 1})


# ---- Wait ----


@pytest.mark.parametrize(
    ("state", "data", "until_ms"),
    [
        ({"Seconds": 90}, {}, 90_000),
        ({"Seconds": 0}, {}, 0),
        ({"SecondsPath": "$.s"}, {"s": 3}, 3000),
        ({"Timestamp": "2026-01-01T00:00:01.5Z"}, {}, 1500),
        ({"Timestamp": "2026-01-01T01:00:00+01:00"}, {}, 0),
        ({"TimestampPath": "$.t"}, {"t": "2026-01-02T00:00:00.0001Z"}, 86_400_001),
        ({"TimestampPath": "$.t"}, {"t": "1999-01-01T00:00:00Z"}, 0),
        ({"TimestampPath": "$$.Execution.StartTime"}, {}, 0),
    ],
)
def test_a_wait_ends_at_its_time_and_never_early(state: dict[str, Any], data: Any, until_ms: int) -> None:
    execution = machine(("S", {"Type": "Wait", **state})).execute(data)
    assert event_times_ms(execution, "WaitStateExited") == [until_ms]


@given(st.datetimes(), st.integers(0, 999))
def test_a_timestamp_is_read_as_it_is_written(moment: Any, millis: int) -> None:
    text = f"{moment.isoformat(timespec='seconds')}.{millis:03d}Z"
    at = instant_ms(text)
    assert at is not None
    assert format_timestamp(at) == text


@pytest.mark.parametrize(
    "text", ["2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01t00:00:00z", "2026-01-01", 5, None]
)
def test_a_value_that_is_not_a_timestamp(text: Any) -> None:
    assert instant_ms(text) is None


# ---- Task ----


def test_a_lambda_call_names_the_function_and_carries_its_payload() -> None:
    """lambda:invoke and a function's ARN make the same call; only lambda:invoke wraps the answer."""
    entered = {"execution_arn", "entered_ms"}
    invoke = {"Type": "Task", "Resource": INVOKE, "Parameters": {"FunctionName": ARN + ":live", "Payload.$": "$"}}
    call, execution = perform_once(invoke, {"ok": 1}, {"x": 2})
    assert {k: v for k, v in call._asdict().items() if k not in entered} == {
        "attempt": 1, "exchange": None, "input": {"x": 2}, "resource": INVOKE, "service": "lambda", "action": "invoke",
        "sdk": False, "function": "work", "parameters": {"FunctionName": ARN + ":live", "Payload": {"x": 2}},
        "payload": {"x": 2}, "state": "S", "timeout_ms": None, "pattern": "", "pending": None, "reads": False,
    }  # fmt: skip
    assert (call.execution_arn, call.entered_ms) == (execution.arn, EPOCH_2026_MS)
    assert (execution.output["Payload"], execution.output["StatusCode"]) == ({"ok": 1}, 200)
    direct, execution = perform_once({"Type": "Task", "Resource": ARN, "TimeoutSeconds": 7}, {"ok": 1}, {"x": 2})
    assert (direct.function, direct.payload, direct.timeout_ms) == ("work", {"x": 2}, 7000)
    assert execution.output == {"ok": 1}


@pytest.mark.parametrize("pattern", ["", ".waitForTaskToken"])
def test_a_call_that_cannot_be_made_ends_the_execution(pattern: str) -> None:
    """If a call fails with States.Runtime, no Catcher takes it and the history has no TaskFailed."""

    async def perform(_call: TaskCall) -> Any:
        raise TaskFailure("States.Runtime", "no such parameter")

    state = {"Type": "Task", "Resource": f"arn:aws:states:::sqs:sendMessage{pattern}", "Parameters": {}}
    caught = {**state, "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Z"}]}
    execution = machine(("T", caught), ("Z", {"Type": "Pass"})).execute(perform=perform)
    assert (execution.status, execution.error) == ("FAILED", "States.Runtime")
    assert (execution.cause or "").endswith("'T' (entered at the event id #2). no such parameter")
    assert event_types(execution)[2:] == ["TaskScheduled", "TaskStarted", "ExecutionFailed"]


def test_a_late_answer_after_a_time_out_is_ignored() -> None:
    """A function sends no heartbeats, so the first missed heartbeat is a time-out too. A late answer is ignored."""

    async def slow(_payload: Any, _lambda_context: Any) -> str:
        await asyncio.sleep(5)
        return "done"

    catch = [{"ErrorEquals": ["States.Timeout"], "Next": "W"}]
    limits: dict[str, Any]
    for limits, timed_out, succeeded in (
        ({"TimeoutSeconds": 2}, [2_000], []),
        ({"TimeoutSeconds": 9, "HeartbeatSeconds": 3}, [3_000], []),
        ({"TimeoutSeconds": 9, "HeartbeatSeconds": 6}, [], [5_000]),
    ):
        states = ("T", {**task(Catch=catch, Next="W"), **limits}), ("W", {"Type": "Wait", "Seconds": 10})
        execution = machine(*states).execute(functions={"work": slow})
        assert (event_times_ms(execution, "TaskTimedOut"), event_times_ms(execution, "TaskSucceeded")) == (
            timed_out,
            succeeded,
        )


def test_a_payload_that_is_not_json_fails_the_task() -> None:
    state = {"Type": "Task", "Resource": INVOKE, "Parameters": {"FunctionName": "work", "Payload": "plain"}}
    execution = machine(("S", state)).execute(functions={"work": function_raising()})
    assert execution.error == "Lambda.InvalidRequestContentException"
    assert event_types(execution)[-2:] == ["TaskFailed", "ExecutionFailed"]


# ---- Choice ----


def is_chosen(rule: dict[str, Any], data: Any) -> bool:
    choice = {"Type": "Choice", "Choices": [{**rule, "Next": "Y"}], "Default": "N"}
    yes, no = {"Type": "Pass", "Result": True}, {"Type": "Pass", "Result": False}
    return machine(("S", choice), ("Y", yes), ("N", no)).execute(data).output is True


PRESENT = {"Variable": "$.v", "IsPresent": True}
BIG = {"Variable": "$.v", "NumericGreaterThan": 5}
RULES: list[tuple[dict[str, Any], Any, bool]] = [
    *(
        ({"Variable": "$.v", "StringMatches": pattern}, {"v": text}, holds)
        for pattern, text, holds in (("log-*.txt", "log-2026.txt", True), ("log-*.txt", "log-.txt.gz", False),
                                     ("*", "", True), ("a\\*b", "a*b", True), ("a\\*b", "axb", False),
                                     ("a\\\\*", "a\\x", True), ("a.c", "abc", False), ("a*", "a\nb", True))
    ),
    # Timestamps are compared as instants, whatever their offsets, to the nanosecond.
    ({"Variable": "$.v", "TimestampEquals": "2026-01-01T00:00:00Z"}, {"v": "2026-01-01T02:00:00+02:00"}, True),
    ({"Variable": "$.v", "TimestampEquals": "2026-01-01T00:00:00Z"}, {"v": "2026-01-01T00:00:00.000000001Z"}, False),
    # A test for presence shields the comparison after it: rules are asked only as far as needed.
    ({"And": [PRESENT, BIG]}, {"v": 6}, True),
    ({"And": [PRESENT, BIG]}, {}, False),
    ({"Or": [{"Not": PRESENT}, BIG]}, {}, True),
]  # fmt: skip


def test_a_rule_holds() -> None:
    assert [(rule, data, is_chosen(rule, data)) for rule, data, _ in RULES] == RULES


# ---- the room ----


def test_no_module_of_the_interpreter_reads_time_or_chance() -> None:
    """Time and randomness come from the clock: only clock.py may import time, random, secrets or uuid.

    The server is exempt.
    """
    for path in Path(states_language.__file__).parent.rglob("*.py"):
        if path.name == "clock.py" or path.parent.name == "server":
            continue
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not imported & {"time", "random", "secrets", "uuid"}, path.name
        calls = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        assert not calls & {"now", "utcnow", "today", "sleep"}, path.name


@pytest.mark.parametrize(
    "credentials",
    [
        {"Credentials": {"RoleArn": "arn:r"}},
        {"Credentials": {"RoleArn.$": "$.role"}},
        {"QueryLanguage": "JSONata", "Credentials": {"RoleArn": "{% $states.input.role %}"}},
    ],
)
def test_the_role_of_a_task_is_in_its_scheduled_event(credentials: dict[str, Any]) -> None:
    """A Task's role is in its scheduled event, whether fixed, by a path or by an expression."""
    _, execution = perform_once({"Type": "Task", "Resource": ARN, **credentials}, 1, {"role": "arn:r"})
    assert execution.history[2]["lambdaFunctionScheduledEventDetails"]["taskCredentials"] == {"roleArn": "arn:r"}


def test_a_role_that_is_not_a_text_fails_the_execution() -> None:
    """A RoleArn that is not a text fails the execution with States.Runtime."""
    state = {"Type": "Task", "Resource": ARN, "Credentials": {"RoleArn.$": "$.role"}}
    assert machine(("S", state)).execute({"role": 5}).error == "States.Runtime"
