"""Strategies for wild definitions: recorded ones with changes, and ones made of the language's words.

Each is either refused when it is loaded or runs to an end.
"""

import json
from typing import Any

from hypothesis import strategies as st

from recorded import load_cases
from states_language import Execution, Machine, TaskCall, TaskFailure
from states_language.clock import VirtualClock

RECORDED: list[Any] = [case["definition"] for name in ("executions.json", "services.json") for case in load_cases(name)]

PATHS = [
    *("$", "$$", "$.a", "$.a[0]", "$..*", "$[*]", "$.a[?(@.b > 1)]", "$x", "$x.a", "$$.Map.Item.Value", "$.a[-1:]"),
    "",
]
CALLS = ["States.Format('{}', $)", "States.Array($.a, 1)", "States.MathAdd($.a, 1)", "States.ArrayRange(0, $.a, 1)"]
QUERIES = [
    "{% $states.input %}", "{% $states.input.a %}", "{% $x + 1 %}", "{% [1..5] %}", "{% $string($states) %}",
    "{% $states.input.**.a %}", "{% function($y) { $y } %}", "{% $map($states.input, function($v) { $v.a }) %}",
    "{% $states.result %}", "{% ( %}",
]  # fmt: skip
WORDS = ["A", "B", "C", "States.ALL", "JSONata", "JSONPath", "DISTRIBUTED", "2020-01-01T00:00:00Z", "f"]
NUMBERS = st.integers(-3, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([10**30, 99_999_999])
LEAVES = st.none() | st.booleans() | NUMBERS | st.sampled_from([*PATHS, *CALLS, *QUERIES, *WORDS]) | st.text(max_size=6)
KEYS = st.sampled_from(["a", "b", "a.$", "b.$", "x", "Next", "End", "Default"]) | st.text(max_size=4)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
FIELDS = [
    *("Next", "End", "InputPath", "OutputPath", "ResultPath", "Parameters", "Result", "ResultSelector", "Assign"),
    *("Seconds", "SecondsPath", "Timestamp", "TimestampPath", "Error", "ErrorPath", "Cause", "CausePath", "Output"),
    *("Choices", "Default", "Variable", "Condition", "Branches", "ItemProcessor", "Iterator", "ItemsPath", "Items"),
    *("MaxConcurrency", "ItemSelector", "Retry", "Catch", "TimeoutSeconds", "HeartbeatSeconds", "Arguments", "Type"),
    *("QueryLanguage", "ToleratedFailureCount", "ItemBatcher", "ItemReader", "ResultWriter", "Label", "Resource"),
]


def _container_keys(value: Any) -> list[tuple[Any, Any]]:
    """Return each container in the value with each of its keys or indices."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        here = waiting.pop()
        keys = list(here) if isinstance(here, dict) else list(range(len(here))) if isinstance(here, list) else []
        places += [(here, key) for key in keys]
        waiting += [here[key] for key in keys]
    return places


@st.composite
def mutated_definitions(draw: st.DrawFn) -> Any:
    """Draw a recorded definition with up to four values replaced, removed, added or moved."""
    definition = json.loads(json.dumps(draw(st.sampled_from(RECORDED))))
    for _ in range(draw(st.integers(1, 4))):
        places = _container_keys(definition)
        if not places:
            break
        container, key = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.sampled_from(["replace", "remove", "add", "move"]))
        if how == "replace":
            container[key] = draw(VALUES)
        elif how == "remove":
            del container[key]
        elif how == "move":
            other, where = places[draw(st.integers(0, len(places) - 1))]
            container[key] = json.loads(json.dumps(other[where]))
        elif isinstance(container, dict):
            container[draw(st.sampled_from(FIELDS))] = draw(VALUES)
        else:
            container.append(draw(VALUES))
    return definition


def _with_end(state: dict[str, Any], target: str | None) -> dict[str, Any]:
    if state["Type"] in ("Fail", "Succeed"):
        return state
    if state["Type"] == "Choice":
        return {**state, "Default": target or "A"}
    return {**state, **({"Next": target} if target else {"End": True})}


@st.composite
def lines(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    """Draw a line of one to three states of any types; some lead back."""
    names = ["A", "B", "C"][: draw(st.integers(1, 3))]
    kinds = ["Pass", "Wait", "Task", "Choice", "Succeed", "Fail", *(["Parallel", "Map"] if depth else [])]
    states: dict[str, Any] = {}
    for index, name in enumerate(names):
        kind = draw(st.sampled_from(kinds))
        fields = draw(st.dictionaries(st.sampled_from(FIELDS[:18]), VALUES, max_size=2))
        state = {**fields, "Type": kind}
        if kind == "Wait":
            state = {"Seconds": draw(st.integers(0, 3)), **state}
        elif kind == "Task":
            state = {"Resource": "arn:aws:lambda:us-east-1:111111111111:function:f", **state}
            state["Retry"] = [{"ErrorEquals": ["States.ALL"], "MaxAttempts": draw(st.integers(0, 2))}]
        elif kind == "Choice":
            rule = {"Variable": draw(st.sampled_from(PATHS[:-1])), "IsPresent": draw(st.booleans())}
            state["Choices"] = [{**rule, "Next": draw(st.sampled_from(names))}]
        elif kind == "Parallel":
            state["Branches"] = draw(st.lists(lines(depth=depth - 1), min_size=1, max_size=2))
        elif kind == "Map":
            state["ItemProcessor"] = draw(lines(depth=depth - 1))
            state["ItemsPath"] = draw(st.sampled_from(["$", "$.a"]))
        states[name] = _with_end(state, names[index + 1] if index + 1 < len(names) else None)
    return {"StartAt": "A", "States": states}


DATA = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
    max_leaves=8,
)
ANSWERS = st.lists(
    DATA | st.sampled_from([TaskFailure("Broken", None), TaskFailure("States.Timeout", "late")]), max_size=4
)


def run_to_end(machine: Machine, data: Any, answers: list[Any]) -> Execution:
    """Return the ended execution. Calls are answered in turn; the last answer repeats."""
    left = list(answers)

    async def perform(_call: TaskCall) -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0] if left else {}
        if isinstance(answer, TaskFailure):
            raise answer
        return answer

    return machine.run(data, clock=VirtualClock(), perform=perform)
