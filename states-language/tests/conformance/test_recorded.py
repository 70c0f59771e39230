"""Recorded answers of AWS Step Functions, replayed on the interpreter."""

from typing import Any

import pytest

from adapter import replay_case
from machines import event_types, machine
from recorded import group_by_recording, is_equal, load_cases

EXECUTIONS = group_by_recording(load_cases("executions.json"))
SERVICES = group_by_recording(load_cases("services.json"))
CHOICES = group_by_recording(load_cases("choice.json"))
RESULT = ("status", "output", "error", "cause")


def answer_case(case: dict[str, Any]) -> dict[str, Any]:
    return replay_case(case["definition"], case["input"], case["lambdas"], case)


def history_differences(answer: dict[str, Any], case: dict[str, Any]) -> list[Any]:
    """Return where the answer's history differs from the recorded one. The order counts if AWS's is fixed."""
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
    return [(wanted, event) for wanted, event in pairs if not is_equal(wanted, event)]


def result_differences(answer: dict[str, Any], case: dict[str, Any]) -> list[Any]:
    """Return AWS's recorded result and the answer's, if they differ."""
    pairs = [(name, case["expected"].get(name), answer.get(name)) for name in RESULT]
    return [pair for pair in pairs if not is_equal(pair[1], pair[2])]


@pytest.mark.parametrize("recording", [*EXECUTIONS, *SERVICES])
def test_recorded_executions_end_as_they_did_on_aws(recording: str) -> None:
    """A recorded execution has AWS's status, output, error, cause and event types here. Where AWS's order is fixed, the
    order, ids, previousEventIds and details match too. Services answer as recorded.
    """
    recorded = [*EXECUTIONS.get(recording, []), *SERVICES.get(recording, [])]
    answers = [(case, answer_case(case)) for case in recorded]
    wrong = {
        case["id"]: result_differences(answer, case) + history_differences(answer, case) for case, answer in answers
    }
    assert not any(wrong.values()), wrong


def test_the_comparison_finds_an_output_event_or_order_that_aws_did_not_record() -> None:
    """The comparison of these tests finds a different output, event or order, so a green run means something."""
    case = next(case for case in EXECUTIONS["base/test_base"] if case["events_ordered"])
    answer = answer_case(case)
    assert (result_differences(answer, case), history_differences(answer, case)) == ([], [])
    assert [name for name, *_ in result_differences({**answer, "output": '"x"'}, case)] == ["output"]
    assert (
        len(history_differences({**answer, "events": [{**answer["events"][0], "id": 9}, *answer["events"][1:]]}, case))
        == 1
    )
    assert history_differences({**answer, "event_types": answer["event_types"][::-1]}, case) != []


@pytest.mark.parametrize("recording", CHOICES)
def test_recorded_comparisons_hold_where_they_held_on_aws(recording: str) -> None:
    """A Choice Rule holds for an input if it held on AWS, for every operator with every type of value."""
    assert [case["id"] for case in CHOICES[recording] if is_rule_met(case) is not case["holds"]] == []


def is_rule_met(case: dict[str, Any]) -> Any:
    """Return whether the Choice Rule holds for the input here."""
    check = ("Check", {"Type": "Choice", "Choices": [case["rule"]], "Default": "ConditionFalse"})
    ends = [(f"Condition{holds}", {"Type": "Pass", "Result": holds}) for holds in (True, False)]
    return machine(check, *ends).execute(case["input"]).output


def test_an_oversized_pass_result_fails_the_execution() -> None:
    """A Result of 263,000 characters is States.DataLimitExceeded, and the state never exits (recorded)."""
    execution = machine(("State_1", {"Type": "Pass", "Result": "a" * 263_000})).execute()
    assert event_types(execution) == ["ExecutionStarted", "PassStateEntered", "ExecutionFailed"]
    assert execution.error == "States.DataLimitExceeded"
    assert execution.cause == (
        "The state/task 'State_1' returned a result with a size exceeding the maximum number of bytes service limit."
    )
