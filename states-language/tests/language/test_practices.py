"""Warnings about definitions that load."""

from typing import Any

import pytest

from machines import line, task
from states_language.definition.practices import warnings

ALL = [{"ErrorEquals": ["States.ALL"], "Next": "Over"}]
OVER = ("Over", {"Type": "Succeed", "Comment": "The end."})


def machine_with_comments(*states: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a definition whose every state has a Comment."""
    return {"Comment": "A test.", **line(*((name, {"Comment": "It is.", **state}) for name, state in states))}


def find_practices(definition: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one.pointer, one.practice) for one in warnings(definition)]


def test_a_missing_comment_is_a_warning() -> None:
    """The machine and each state without a Comment get a warning, in branches too."""
    listed = find_practices(line(("A", {"Type": "Parallel", "Branches": [line(("B", {"Type": "Pass"}))]})))
    assert listed == [("/", "comment"), ("/States/A", "comment"), ("/States/A/Branches/0/States/B", "comment")]


def test_an_uncaught_error_is_a_warning() -> None:
    """A Task gets the warning unless it, or a Parallel around it, catches everything."""
    some = [{"ErrorEquals": ["States.TaskFailed"], "Next": "Over"}]
    assert find_practices(machine_with_comments(("A", task(Catch=some, Next="Over")), OVER)) == [
        ("/States/A", "unhandled-error")
    ]
    branch = machine_with_comments(("B", task()))
    del branch["Comment"]
    around = {"Type": "Parallel", "Branches": [branch], "Next": "Over"}
    assert find_practices(machine_with_comments(("A", around), OVER)) == [
        ("/States/A/Branches/0/States/B", "unhandled-error")
    ]
    assert find_practices(machine_with_comments(("A", {**around, "Catch": ALL}), OVER)) == []


@pytest.mark.parametrize(("most", "warned"), [(2000, False), (2100, True), (99_999_999, True)])
def test_a_retrier_that_can_fill_half_of_the_history_is_a_warning(most: int, warned: bool) -> None:
    """A Retrier is warned of if one visit could use half of 25,000 events. MaxAttempts holds for each Error Name."""
    retry = [{"ErrorEquals": ["X", "Y"], "MaxAttempts": most}]
    listed = find_practices(machine_with_comments(("A", task(Retry=retry, Catch=ALL, Next="Over")), OVER))
    assert listed == ([("/States/A/Retry/0", "history")] if warned else [])


def loop_with_rule(rule: dict[str, Any]) -> dict[str, Any]:
    language = {"QueryLanguage": "JSONata"} if "Condition" in rule else {}
    return machine_with_comments(
        ("Poll", {"Type": "Wait", "Seconds": 9, "Next": "Look"}),
        ("Look", {"Type": "Choice", **language, "Choices": [{**rule, "Next": "Poll"}], "Default": "Over"}),
        OVER,
    )


@pytest.mark.parametrize(("most", "warned"), [(700, False), (1100, True)])
def test_an_attempt_of_a_parallel_counts_the_events_of_its_branches(most: int, warned: bool) -> None:
    """An attempt counts its start and each inner state's entry, exit and work: 12 events here."""
    branch = machine_with_comments(("B", task(Next="C")), ("C", task(Next="D")), ("D", {"Type": "Succeed"}))
    around = {"Type": "Parallel", "Branches": [branch], "Retry": [{"ErrorEquals": ["X"], "MaxAttempts": most}]}
    del branch["Comment"]
    listed = find_practices(machine_with_comments(("A", {**around, "Catch": ALL, "Next": "Over"}), OVER))
    assert listed == ([("/States/A/Retry/0", "history")] if warned else [])


@pytest.mark.parametrize(
    ("rule", "bounded"),
    [
        ({"Variable": "$.n", "NumericLessThan": 9}, True),
        ({"Not": {"Variable": "$.at", "TimestampGreaterThanPath": "$.end"}}, True),
        ({"And": [{"Variable": "$.n", "NumericLessThan": 9}, {"Variable": "$.a", "IsNull": True}]}, True),
        ({"Variable": "$.status", "StringEquals": "RUNNING"}, False),
        ({"Condition": "{% $n >= 9 %}"}, True),
        ({"Condition": "{% $n = 9 %}"}, True),
        ({"Condition": "{% $states.input.status = 'done' %}"}, False),
        ({"Condition": "{% $states.input.status = '<b> 9' %}"}, False),
        ({"Condition": "{% $states.input.status ~> $exists() /* > 9 */ %}"}, False),
    ],
)
def test_a_loop_without_a_bound_is_a_warning(rule: dict[str, Any], bounded: bool) -> None:
    """A Choice that compares a number or a time bounds a loop. A comparison of a status does not."""
    assert find_practices(loop_with_rule(rule)) == ([] if bounded else [("/States/Poll", "endless-loop")])


@pytest.mark.parametrize(
    ("payload", "bounded"),
    [
        ({"count": "{% $count > 9 ? $error('enough') : $count %}"}, True),
        ({"counts": [1, "{% $count > 9 ? $error('enough') : $count %}"]}, True),
        ({"count": "{% $error('never') %}"}, False),
        ({"count": "{% $count > 9 ? '$error(' : $count %}"}, False),
        ({"count": "$error( > "}, False),
    ],
)
def test_a_task_that_fails_at_a_high_count_bounds_a_loop(payload: dict[str, Any], bounded: bool) -> None:
    """A loop is bounded if a Task's Arguments raise an error at a high count and its Catcher leaves the loop."""
    calls = {"Type": "Task", "QueryLanguage": "JSONata", "Resource": "arn:aws:states:::lambda:invoke"}
    again = {**calls, "Arguments": {"FunctionName": "f", "Payload": payload}, "Catch": ALL, "Next": "Poll"}
    listed = find_practices(
        machine_with_comments(("Poll", {"Type": "Wait", "Seconds": 9, "Next": "Do"}), ("Do", again), OVER)
    )
    assert listed == ([] if bounded else [("/States/Poll", "endless-loop")])


def test_a_loop_is_found_among_thousands_of_states() -> None:
    """A loop after 5,000 states is found and named by its states, from the first in the definition. The time grows with
    the states, not with their square.
    """
    states = {f"S{at}": {"Type": "Pass", "Next": f"S{at + 1}"} for at in range(5_000)}
    states["S5000"] = {"Type": "Pass", "Next": "S4999"}
    (loop,) = [one for one in warnings({"StartAt": "S0", "States": states}) if one.practice == "endless-loop"]
    assert loop.says == "nothing bounds the loop S4999 → S5000 → S4999"
