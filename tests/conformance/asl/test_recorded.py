"""What real AWS Step Functions answered, replayed against the interpreter."""

from typing import Any

import pytest

from states_language import load
from tests.conformance.asl.adapter import adapter
from tests.conformance.asl.recorded import cases, equal

EXECUTIONS = cases("executions.json")


def answered(case: dict[str, Any]) -> dict[str, Any]:
    return adapter(case["definition"], case["input"], case["lambdas"], case)


@pytest.mark.parametrize("case", EXECUTIONS, ids=lambda case: case["id"])
def test_a_recorded_execution_ends_as_it_did_on_aws(case: dict[str, Any]) -> None:
    """Status, output, error and cause are AWS's."""
    answer, expected = answered(case), case["expected"]
    for name in ("status", "output", "error", "cause"):
        assert equal(expected.get(name), answer.get(name)), name


@pytest.mark.parametrize("case", [c for c in EXECUTIONS if "event_types" in c["expected"]], ids=lambda case: case["id"])
def test_a_recorded_execution_has_the_history_it_had_on_aws(case: dict[str, Any]) -> None:
    """Event types in AWS's order; ids, previousEventIds and details too, where AWS's order is fixed."""
    answer, expected = answered(case), case["expected"]
    if not case["events_ordered"]:
        assert sorted(answer["event_types"]) == sorted(expected["event_types"])
        return
    assert answer["event_types"] == expected["event_types"]
    for wanted, event in zip(expected["events"], answer["events"], strict=True):
        assert equal(wanted, event), (wanted, event)


@pytest.mark.parametrize("case", cases("services.json"), ids=lambda case: case["id"])
def test_a_recorded_call_of_a_service_is_told_as_aws_told_it(case: dict[str, Any]) -> None:
    """With the services' recorded answers everything else follows: parameters, events, output, error."""
    answer, expected = answered(case), case["expected"]
    for name in ("status", "output", "error", "cause"):
        assert equal(expected.get(name), answer.get(name)), name
    assert sorted(answer["event_types"]) == sorted(expected["event_types"])
    if not case["events_ordered"]:
        return
    for wanted, event in zip(expected["events"], answer["events"], strict=True):
        assert equal(wanted, event), (wanted, event)


@pytest.mark.parametrize("case", cases("choice.json"), ids=lambda case: case["id"])
def test_a_recorded_comparison_holds_where_it_held_on_aws(case: dict[str, Any]) -> None:
    """One Choice Rule against one input: every operator by every type of value."""
    machine = load(
        {
            "StartAt": "Check",
            "States": {
                "Check": {"Type": "Choice", "Choices": [case["rule"]], "Default": "ConditionFalse"},
                "ConditionTrue": {"Type": "Pass", "Result": True, "End": True},
                "ConditionFalse": {"Type": "Pass", "Result": False, "End": True},
            },
        }
    )
    assert machine.execute(case["input"]).output is case["holds"]


def test_an_oversized_pass_result_fails_the_execution() -> None:
    """Recorded: a Result of 263,000 characters is States.DataLimitExceeded, and the state never exits."""
    machine = load(
        {"StartAt": "State_1", "States": {"State_1": {"Type": "Pass", "Result": "a" * 263_000, "End": True}}}
    )
    execution = machine.execute()
    assert [event["type"] for event in execution.history] == ["ExecutionStarted", "PassStateEntered", "ExecutionFailed"]
    assert execution.error == "States.DataLimitExceeded"
    assert execution.cause == (
        "The state/task 'State_1' returned a result with a size exceeding the maximum number of bytes service limit."
    )
