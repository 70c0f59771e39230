"""The inline Map state: its items, their inputs, its concurrency and its failures."""

from typing import Any

import pytest

from machines import event_types, line, machine, task
from states_language import Execution
from states_language.clock import VirtualClock

PASS = {"Type": "Pass"}


def map_state(*states: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    return {"Type": "Map", "ItemProcessor": line(*states), **fields}


def test_outputs_keep_the_order_of_the_items() -> None:
    """The output has the items' order, whichever iteration ends first."""
    clock = VirtualClock()

    async def slowest_first(payload: Any, _: Any) -> Any:
        await clock.sleep_until(clock.now_ms() + 1000 * (5 - payload))
        return payload * 10

    state = map_state(("A", task(OutputPath="$.Payload")), ItemsPath="$.list", ResultPath="$.out")
    execution = machine(("M", state)).execute({"list": [1, 2, 3]}, functions={"work": slowest_first}, clock=clock)
    assert execution.output == {"list": [1, 2, 3], "out": [10, 20, 30]}
    details = [dict[str, Any](event).get("mapIterationSucceededEventDetails") for event in execution.history]
    ended = [each["index"] for each in details if each is not None]
    assert ended == [2, 1, 0]


@pytest.mark.parametrize(("at_once", "seconds"), [(1, 480), (2, 240), (40, 12), (41, 12), (0, 12), (1000, 12)])
def test_max_concurrency_bounds_how_many_run_at_once(at_once: int, seconds: int) -> None:
    """Of 480 waits of a second at most forty run at once, whatever MaxConcurrency is. 0 sets no bound of its own."""
    state = map_state(("W", {"Type": "Wait", "Seconds": 1}), MaxConcurrency=at_once)
    execution = machine(("M", state)).execute(list(range(480)))
    assert (execution.stopped_ms or 0) - execution.started_ms == seconds * 1000


def test_the_selector_sees_the_item_its_index_and_the_input_of_the_state() -> None:
    """ItemSelector sees item, index and the state's input. Inner states, even in a Parallel, see $$.Map.Item."""
    inner = {"Type": "Parallel", "Branches": [line(("B", {"Type": "Pass", "InputPath": "$$.Map.Item.Value"}))]}
    state = map_state(
        ("P", {**inner, "ResultPath": "$.seen"}),
        InputPath="$.in",
        ItemsPath="$.items",
        ItemSelector={"i.$": "$$.Map.Item.Index", "v.$": "$$.Map.Item.Value", "k.$": "$.k", "s.$": "$$.State.Name"},
    )
    execution = machine(("M", state)).execute({"in": {"items": ["a"], "k": 7}})
    assert execution.output == [{"i": 0, "v": "a", "k": 7, "s": "M", "seen": ["a"]}]


@pytest.mark.parametrize(
    ("fields", "data", "cause"),
    [
        ({}, {}, 'Reference path "$" must point to array.'),
        ({"ItemsPath": "$$.Execution.Input"}, {"a": 1}, 'Reference path "$.Execution.Input" must point to array.'),
        ({"ItemsPath": "$.a.b"}, {"a": 1}, 'Unable to apply step "b" to input {"a":1}'),
        ({"ItemsPath": "$.l", "MaxConcurrencyPath": "$.n"}, {"l": [1], "n": "1_0"},
         'The MaxConcurrencyPath field refers to value "1_0" which is not a valid integer: $.n'),
        ({"ItemsPath": "$.l", "MaxConcurrencyPath": "$.n"}, {"l": [1], "n": -1},
         "Expected non-negative integer for MaxConcurrency, got '-1' instead."),
    ],
)  # fmt: skip
def test_a_wrong_items_path_or_concurrency_fails_the_execution(fields: Any, data: Any, cause: str) -> None:
    """An ItemsPath that gives no array, or a wrong MaxConcurrencyPath, fails the execution with States.Runtime."""
    execution = machine(("M", map_state(("A", PASS), **fields))).execute(data)
    assert execution.error == "States.Runtime"
    assert execution.cause == f"An error occurred while executing the state 'M' (entered at the event id #2). {cause}"


def test_a_failed_item_selector_fails_the_map() -> None:
    """A failed ItemSelector in JSONata is States.QueryEvaluationError, which the Map's Catcher takes."""
    state = map_state(
        ("A", PASS),
        ItemSelector={"v": "{% $states.input.none %}"},
        Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Z"}],
    )
    execution: Execution = machine(("M", state), ("Z", PASS), QueryLanguage="JSONata").execute([1])
    assert execution.output["Error"] == "States.QueryEvaluationError"
    assert "MapStateFailed" in event_types(execution)
