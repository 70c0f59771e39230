"""Recorded answers of AWS Step Functions: executions, TestState, and verdicts on definitions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from adapter import answer_function, replay_case
from endpoint import stepfunctions
from machines import event_types, machine
from recorded import group_by_recording, is_equal, load_cases
from states_language import TaskCall
from states_language.server.diagnostics import diagnostics

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


HERE, THERE = ":000000000000:", ":111111111111:"


def test_teststate_answers_as_aws_did(tmp_path: Path) -> None:
    """TestState returns AWS's status, output, next state, error, cause and every step of an inspection."""

    async def answers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
        async def perform(call: TaskCall) -> Any:
            return await answer_function(case["lambdas"], call)

        answered = []
        async with stepfunctions(tmp_path, perform=perform) as states:
            for case in load_cases("teststate.json"):
                answered.append((case, await states.call("TestState", case["request"])))
        return answered

    wrong = {}
    for case, answer in asyncio.run(answers()):
        told, expected = json.loads(json.dumps(answer).replace(HERE, THERE)), case["expected"]
        differing = [name for name in expected.keys() | told.keys() if not is_equal(expected.get(name), told.get(name))]
        if differing or told.keys() != expected.keys():
            wrong[case["id"]] = differing
    assert not wrong


CASES = load_cases("validation.json")
RECORDINGS = group_by_recording(CASES)
DIAGNOSED = [case for case in CASES if case["expected"].get("diagnostics")]


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_definition_is_accepted_where_aws_accepted_it(recording: str) -> None:
    """A definition is accepted if AWS accepted it, for Standard and for Express machines."""
    verdicts = {case["id"]: diagnostics(case["definition_text"], case["type"]) == [] for case in RECORDINGS[recording]}
    assert verdicts == {case["id"]: case["expected"]["valid"] for case in RECORDINGS[recording]}


@pytest.mark.parametrize("case", DIAGNOSED, ids=lambda case: case["id"])
def test_a_diagnostic_equals_that_of_aws(case: dict[str, Any]) -> None:
    """A diagnostic has AWS's severity, code, place and message."""
    assert diagnostics(case["definition_text"], case["type"]) == case["expected"]["diagnostics"]
