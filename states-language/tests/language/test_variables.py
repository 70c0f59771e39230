"""Variables: their scopes, when they change and how much they may hold."""

from typing import Any

import pytest

from machines import function_raising, machine, task

BIG = "x" * 200_000


def assigned_texts(execution: Any) -> list[dict[str, str]]:
    """Return the variables that each state's exit event says were assigned."""
    exits = (event.get("stateExitedEventDetails", {}) for event in execution.history)
    return [details["assignedVariables"] for details in exits if "assignedVariables" in details]


def test_assignments_of_one_state_see_the_values_from_before_it() -> None:
    """Assign and the state's own fields read the values from before the state, so two variables can be swapped."""
    execution = machine(
        ("A", {"Type": "Pass", "Assign": {"x": 1, "y": 2}, "Next": "B"}),
        ("B", {"Type": "Pass", "Parameters": {"x.$": "$x"}, "Assign": {"x.$": "$y", "y.$": "$x"}, "Next": "C"}),
        ("C", {"Type": "Pass", "ResultPath": "$.now", "Parameters": {"x.$": "$x", "y.$": "$y"}}),
    ).execute()
    assert execution.output == {"x": 1, "now": {"x": 2, "y": 1}}


def test_a_task_assigns_from_the_result_before_its_selector() -> None:
    """In a Task's Assign, $ is the raw answer. ResultSelector affects only the output."""
    execution = machine(
        ("A", task(ResultSelector={"kept.$": "$.Payload.b"}, Assign={"a.$": "$.Payload.a"}, Next="B")),
        ("B", {"Type": "Pass", "ResultPath": "$.a", "InputPath": "$a"}),
    ).execute({"a": 1, "b": 2}, functions={"work": lambda payload, _: payload})
    assert execution.output == {"kept": 2, "a": 1}


def test_a_catcher_assigns_from_the_error_output() -> None:
    """A Catcher's own Assign reads the error output. The state's Assign is for its success."""
    catcher = {"ErrorEquals": ["Broken"], "Assign": {"how.$": "$.Error"}, "ResultPath": "$.e", "Next": "B"}
    work = task(Assign={"how": "well"}, Catch=[catcher], Next="B")
    states = ("A", work), ("B", {"Type": "Pass", "InputPath": "$how"})
    assert machine(*states).execute(functions={"work": function_raising("Broken")}).output == "Broken"


def test_an_attempt_that_fails_after_its_assign_assigns_nothing() -> None:
    """An attempt whose ResultSelector fails assigns nothing; the Catcher that takes over has no Assign."""
    fails: dict[str, Any] = {"ResultSelector": {"x.$": "States.ArrayGetItem($, 9)"}, "Assign": {"how": "badly"}}
    work = task(**fails, Catch=[{"ErrorEquals": ["States.ALL"], "Next": "B"}], Next="B")
    execution = machine(("A", work), ("B", {"Type": "Pass"})).execute(functions={"work": lambda *_: []})
    assert (execution.status, assigned_texts(execution)) == ("SUCCEEDED", [])


@pytest.mark.parametrize(("value", "how"), [(1, "rule"), (2, "default")])
def test_a_choice_assigns_by_the_way_that_it_takes(value: int, how: str) -> None:
    """A Choice Rule's Assign holds for that rule; the state's Assign holds for Default."""
    rule = {"Variable": "$.v", "NumericEquals": 1, "Assign": {"how": "rule"}, "Next": "B"}
    execution = machine(
        ("A", {"Type": "Choice", "Choices": [rule], "Assign": {"how": "default"}, "Default": "B"}),
        ("B", {"Type": "Pass", "InputPath": "$how"}),
    ).execute({"v": value})
    assert execution.output == how


def test_one_assign_holds_256_kib_and_an_execution_ten_mib() -> None:
    """One Assign holds at most 256 KiB and an execution 10 MiB. Beyond that the error is States.DataLimitExceeded."""
    two = machine(("A", {"Type": "Pass", "Assign": {"a": BIG, "b": BIG}})).execute()
    assert (two.status, two.error) == ("FAILED", "States.DataLimitExceeded")
    many = [
        (f"S{n}", {"Type": "Pass", "Assign": {f"v{n}": BIG}, **({"Next": f"S{n + 1}"} if n < 59 else {"End": True})})
        for n in range(60)
    ]
    full = machine(*many).execute()
    assert (full.status, full.error) == ("FAILED", "States.DataLimitExceeded")
    assert len(assigned_texts(full)) == 10 * 1024 * 1024 // (len(BIG) + 2)


def test_a_variable_that_is_assigned_again_counts_once() -> None:
    """A loop that rewrites one large variable does not fill the store."""
    execution = machine(
        ("A", {"Type": "Pass", "Assign": {"big": BIG, "n": 0}, "Next": "B"}),
        ("B", {"Type": "Pass", "Assign": {"big": BIG, "n.$": "States.MathAdd($n, 1)"}, "Next": "C"}),
        ("C", {"Type": "Choice", "Choices": [{"Variable": "$n", "NumericLessThan": 60, "Next": "B"}], "Default": "D"}),
        ("D", {"Type": "Succeed"}),
    ).execute()
    assert execution.status == "SUCCEEDED"
