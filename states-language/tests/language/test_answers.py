"""Prepared answers named by a state, in `execute` and in tests, and what a callable learns about its Task."""

from typing import Any

import pytest

from machines import machine
from states_language import Behaviour, TaskFailure
from states_language.testing import in_turn, run_machine

ARN = "arn:aws:states:"
GET = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:getItem", "Parameters": {"TableName": "t", "Key": {}}}
TWO = machine(("First", {**GET, "ResultPath": "$.first", "Next": "Second"}), ("Second", {**GET, "End": True}))


def test_two_states_that_make_the_same_call_can_have_different_answers() -> None:
    """An answer for the state's name precedes one for the call's name. `payloads` accepts both names."""
    run = run_machine(TWO, functions={"First": {"Item": 1}, "Second": {"Item": 2}})
    assert (run.output, run.status) == ({"Item": 2}, "SUCCEEDED")
    assert run.payloads("First") == [{"TableName": "t", "Key": {}}]
    assert len(run.payloads("dynamodb:getItem")) == 2
    run_machine(TWO, functions={"First": {}, "dynamodb:getItem": {"Item": 3}}).assert_output({"Item": 3})


def test_execute_takes_answers_by_state_name_too() -> None:
    """`execute` takes functions and prepared answers under a state's name, as `run_machine` does."""
    execution = TWO.execute(functions={"First": lambda *_: {"Item": 1}, "dynamodb:getItem": lambda *_: {"Item": 2}})
    assert execution.output == {"Item": 2}
    failing = machine(("A", {**GET, "Retry": [{"ErrorEquals": ["Busy"]}], "End": True}))
    answers = in_turn(TaskFailure("Busy"), Behaviour(error="Busy", delay_ms=500), {"Item": 3})
    execution = failing.execute(functions={"A": answers})
    assert (execution.output, execution.stopped_ms) == ({"Item": 3}, execution.started_ms + 1000 + 500 + 2000)


@pytest.mark.parametrize(
    "resource", ["arn:aws:states:::glue:startJobRun.sync", "arn:aws:states:us-east-1:1:activity:a"]
)
def test_a_function_completes_a_job_and_an_activity(resource: str) -> None:
    """In `execute`, a function's result completes a job or an activity; its exception fails the Task."""
    one = machine(("Work", {"Type": "Task", "Resource": resource, "End": True}))
    assert one.execute(functions={"Work": lambda *_: 7}).output == 7

    def broken(_payload: Any, _context: Any) -> Any:
        raise KeyError("x")

    assert one.execute(functions={"Work": broken}).error == "KeyError"


@pytest.mark.parametrize("by", ["run_machine", "execute"])
def test_a_callable_learns_its_state_attempt_and_input(by: str) -> None:
    """A callable gets its state, the attempt (from 1 at each visit) and the state's input beside its payload."""
    call = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke",
            "Parameters": {"FunctionName": "charge", "Payload": {"only": "this"}},
            "Retry": [{"ErrorEquals": ["KeyError"], "MaxAttempts": 2}], "ResultPath": None}  # fmt: skip
    twice = machine(("Charge", {**call, "Next": "Again"}), ("Again", {**call, "End": True}))
    learnt = []

    def charge(payload: Any, context: Any) -> None:
        learnt.append((context.state, context.attempt, context.input, payload))
        if context.attempt < 3:
            raise KeyError

    if by == "execute":
        assert twice.execute({"id": 7}, functions={"charge": charge}).status == "SUCCEEDED"
    else:
        assert run_machine(twice, {"id": 7}, functions={"charge": charge}).status == "SUCCEEDED"
    states = [(state, attempt) for state in ("Charge", "Again") for attempt in (1, 2, 3)]
    assert learnt == [(*one, {"id": 7}, {"only": "this"}) for one in states]


def test_answers_in_turn_are_counted_by_state() -> None:
    """If two states share `in_turn` answers, each state starts with the first answer."""
    retry = {"Retry": [{"ErrorEquals": ["Busy"]}]}
    answers = in_turn(TaskFailure("Busy"), {"Item": 1})
    twice = machine(("First", {**GET, **retry, "Next": "Second"}), ("Second", {**GET, **retry, "End": True}))
    run = run_machine(twice, functions={"First": answers, "Second": answers})
    assert len(run.calls) == 4
    run.assert_output({"Item": 1})
