"""A redrive goes on from any place: an interrupted execution ends like one without interruptions."""

import asyncio
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from examples import examples
from states_language import Event, Execution, Machine, TaskCall, TaskFailure, VirtualClock, load
from states_language.place import Parts, Redriven
from states_language.scheduling.lanes import Lanes
from states_language.scheduling.pool import Pool

FUNCTION = "arn:aws:lambda:us-east-1:111111111111:function:f"
ADD = {"Type": "Pass", "QueryLanguage": "JSONata"}


def simple_state(kind: str, number: int) -> dict[str, Any]:
    """Return a state that changes the data or a variable, calls a function, or waits."""
    kinds: dict[str, dict[str, Any]] = {
        "pass": {**ADD, "Output": f"{{% $append($states.input, [{number}]) %}}"},
        "assign": {**ADD, "Assign": {"v": f"{{% $append($v, [{number}]) %}}"}},
        "read": {**ADD, "Output": "{% $append($states.input, $v) %}"},
        "wait": {"Type": "Wait", "Seconds": number},
        "task": {"Type": "Task", "Resource": FUNCTION},
    }
    return kinds[kind]


SIMPLE = st.builds(simple_state, st.sampled_from(["pass", "assign", "read", "wait", "task"]), st.integers(1, 5))


def line_of(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the states one after the other. The first state assigns the variable of this scope."""
    begun = [{**ADD, "Assign": {"v": []}}, *states]
    named = {f"S{at}": state | {"Next": f"S{at + 1}"} for at, state in enumerate(begun)}
    named[f"S{len(begun) - 1}"] = begun[-1] | {"End": True}
    return {"StartAt": "S0", "States": named}


def parallel(branches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a Parallel of these branches."""
    return {"Type": "Parallel", "Branches": branches}


def map_state(line: dict[str, Any], at_once: int, apart: bool) -> dict[str, Any]:
    """Return a Map of four items over this line. If `apart`, each item is an execution of its own."""
    mapped = {"Type": "Map", "QueryLanguage": "JSONata", "Items": [[1], [2], [3], [4]], "MaxConcurrency": at_once}
    config = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}} if apart else {}
    return mapped | {"ItemProcessor": config | line}


def nested_states(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of Parallels and Maps whose lines are made of the inner states."""
    lines = st.lists(inner, min_size=1, max_size=3).map(line_of)
    return st.builds(parallel, st.lists(lines, min_size=1, max_size=3)) | st.builds(
        map_state, lines, st.integers(0, 3), st.booleans()
    )


def rename_states(line: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the line with names of states and variables that no other line has."""
    named = {}
    for name, state in line["States"].items():
        own = f"{prefix}{name}"
        state = {**state, **({"Next": prefix + state["Next"]} if "Next" in state else {})}
        if "Output" in state:
            state["Output"] = state["Output"].replace("$v", f"$v{prefix}")
        if "Assign" in state:
            value = state["Assign"]["v"]
            state["Assign"] = {f"v{prefix}": value.replace("$v", f"$v{prefix}") if value else value}
        if "Branches" in state:
            state["Branches"] = [rename_states(inner, f"{own}_{at}_") for at, inner in enumerate(state["Branches"])]
        if "ItemProcessor" in state:
            state["ItemProcessor"] = state["ItemProcessor"] | rename_states(state["ItemProcessor"], f"{own}_")
        named[own] = state
    return {"StartAt": prefix + line["StartAt"], "States": named}


LINES = (
    st.lists(st.recursive(SIMPLE, nested_states, max_leaves=5), min_size=1, max_size=4).map(line_of).map(rename_states)
)


def run_interrupted(machine: Machine, stops: list[int], failing: list[bool]) -> tuple[Execution, list[Event]]:
    """Run to the end. Each run but the last is stopped so many ms after its start; `failing` says which calls fail."""
    events: list[Event] = []
    left = iter(failing)

    async def perform(call: TaskCall) -> Any:
        if next(left, False):
            raise TaskFailure("Broken")
        return call.payload

    clock = VirtualClock()
    # In lanes the executions of a Map Run end a few at a time.
    lanes = Lanes(Pool()) if len(stops) % 2 else None

    async def main() -> Execution:
        redriven, count = None, 0
        while True:
            execution = machine.start(
                [], clock=clock, perform=perform, on_event=events.append, redriven=redriven, lanes=lanes
            )
            if count < len(stops):
                await clock.sleep_until(clock.now_ms() + stops[count])
                for _ in range(stops[count] % 20):
                    await asyncio.sleep(0)
                execution.stop()
            await execution.wait()
            if execution.status == "SUCCEEDED":
                return execution
            count += 1
            redriven = Redriven(json.loads(json.dumps(execution.part)), count, execution.started_ms, len(events))

    return clock.run(main()), events


def nested_maps(apart: bool) -> dict[str, Any]:
    """Return a line with a Map over a Map of one task at a time."""
    return rename_states(
        line_of([map_state(line_of([map_state(line_of([simple_state("task", 1)]), 1, False)]), 0, apart)])
    )


@settings(max_examples=examples(40))
@example(nested_maps(apart=False), [], [True])  # iterations are aborted between their start and their first state
@example(nested_maps(apart=True), [], [False, False, False, True, True])  # an iteration fails while its Map Run does
@given(LINES, st.lists(st.integers(0, 9_000), max_size=4), st.lists(st.booleans(), max_size=8))
def test_interruptions_change_no_output(line: dict[str, Any], stops: list[int], failing: list[bool]) -> None:
    """An execution stopped at any pass and failed at any call has the same output and repeats no state."""
    machine = load(line)
    whole, expected = run_interrupted(machine, [], [])
    broken, events = run_interrupted(machine, stops, failing)
    assert broken.output == whole.output
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))

    def exits(history: list[Event]) -> list[str]:
        return sorted(event["stateExitedEventDetails"]["name"] for event in history if "Exited" in event["type"])

    def entries(history: list[Event]) -> list[str]:
        kinds = ("Entered", "IterationStarted", "IterationSucceeded", "StateSucceeded")
        return sorted(event["type"] for event in history if event["type"].endswith(kinds))

    assert exits(events) == exits(expected)
    assert entries(events) == entries(expected)


def test_the_place_of_many_items_lists_only_those_that_began() -> None:
    """If the second of a thousand items ended, the place lists two items. A redrive goes through all open ones."""
    parts = Parts(1000, 7, None)
    parts.end(1, "one")
    left = parts.resume_point()
    assert left == {"last_id": 7, "parts": [{}, {"output": "one"}]}
    again = Parts(1000, 7, left)
    assert again.open_numbers == [0, *range(2, 1000)]
    assert again.outputs[1] == "one"
