"""What real AWS Step Functions answered, replayed against the interpreter."""

from typing import Any

import pytest

from adapter import adapter
from recorded import by_recording, cases, equal
from states_language import load

EXECUTIONS = by_recording(cases("executions.json"))
SERVICES = by_recording(cases("services.json"))
CHOICES = by_recording(cases("choice.json"))
RESULT = ("status", "output", "error", "cause")


def answered(case: dict[str, Any]) -> dict[str, Any]:
    return adapter(case["definition"], case["input"], case["lambdas"], case)


def differing(answer: dict[str, Any], case: dict[str, Any]) -> list[Any]:
    """What AWS recorded of a history and the answer's says otherwise; its order where AWS's is fixed."""
    expected = case["expected"]
    if "event_types" not in expected:
        return []
    if sorted(answer["event_types"]) != sorted(expected["event_types"]):
        return [expected["event_types"], answer["event_types"]]
    if not case["events_ordered"]:
        return []
    if answer["event_types"] != expected["event_types"]:
        return [expected["event_types"], answer["event_types"]]
    pairs = zip(expected["events"], answer["events"], strict=True)
    return [(wanted, event) for wanted, event in pairs if not equal(wanted, event)]


def ends_otherwise(answer: dict[str, Any], case: dict[str, Any]) -> list[Any]:
    """What AWS recorded of the result, and the answer's, where these differ."""
    pairs = [(name, case["expected"].get(name), answer.get(name)) for name in RESULT]
    return [pair for pair in pairs if not equal(pair[1], pair[2])]


@pytest.mark.parametrize("recording", [*EXECUTIONS, *SERVICES])
def test_recorded_executions_end_as_they_did_on_aws(recording: str) -> None:
    """Status, output, error and cause are AWS's, and so are the event types in AWS's order; ids, previousEventIds and
    details too, where AWS's order is fixed. Services answer as recorded: everything else follows.
    """
    recorded = [*EXECUTIONS.get(recording, []), *SERVICES.get(recording, [])]
    answers = [(case, answered(case)) for case in recorded]
    wrong = {case["id"]: ends_otherwise(answer, case) + differing(answer, case) for case, answer in answers}
    assert not any(wrong.values()), wrong


def test_what_differs_from_a_recording_is_named() -> None:
    """An output, an event and an order that AWS did not record."""
    case = next(case for case in EXECUTIONS["base/test_base"] if case["events_ordered"])
    answer = answered(case)
    assert (ends_otherwise(answer, case), differing(answer, case)) == ([], [])
    assert [name for name, *_ in ends_otherwise({**answer, "output": '"x"'}, case)] == ["output"]
    assert len(differing({**answer, "events": [{**answer["events"][0], "id": 9}, *answer["events"][1:]]}, case)) == 1
    assert differing({**answer, "event_types": answer["event_types"][::-1]}, case) != []


@pytest.mark.parametrize("recording", CHOICES)
def test_recorded_comparisons_hold_where_they_held_on_aws(recording: str) -> None:
    """One Choice Rule against one input: every operator by every type of value."""
    assert [case["id"] for case in CHOICES[recording] if holds(case) is not case["holds"]] == []


def holds(case: dict[str, Any]) -> Any:
    """Whether the Choice Rule holds of the input here."""
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
    return machine.execute(case["input"]).output


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
