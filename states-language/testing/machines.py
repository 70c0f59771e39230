"""Small machines for tests, and views of a history."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from states_language import Execution, Machine, load

INVOKE = "arn:aws:states:::lambda:invoke"
ERROR_NAMES: dict[str, type[Exception]] = {}


def machine(*states: tuple[str, Mapping[str, Any]], **fields: Any) -> Machine:
    """Return the machine of these states. It starts at the first; a state without a Next ends it."""
    return load({"StartAt": states[0][0], "States": {name: with_end(state) for name, state in states}, **fields})


def with_end(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state with End: true, unless it has a Next or its type ends by itself."""
    if "Next" in state or state["Type"] in ("Choice", "Succeed", "Fail"):
        return dict(state)
    return {**state, "End": True}


def task(function: str = "work", **fields: Any) -> dict[str, Any]:
    """Return a Task state that invokes a function with the state's input as payload."""
    parameters = {"FunctionName": function, "Payload.$": "$"}
    return {"Type": "Task", "Resource": INVOKE, "Parameters": parameters, **fields}


def line(*states: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the definition of a branch."""
    return {"StartAt": states[0][0], "States": {name: with_end(state) for name, state in states}}


def distributed_map(*states: tuple[str, Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return a distributed Map whose items run these states; without any, a Pass."""
    config = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}}
    return {"Type": "Map", "ItemProcessor": config | line(*(states or (("A", {"Type": "Pass"}),))), **fields}


def write_file(folder: Path, name: str, content: Any) -> str:
    """Return the path of a new file with this text, or with this value as JSON."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def error_class(error: str) -> type[Exception]:
    """Return the exception class of this name."""
    return ERROR_NAMES.setdefault(error, type(error, (Exception,), {}))


def function_raising(*errors: str | None) -> Callable[[Any, Any], Any]:
    """Return a function that raises these errors in turn; for None, and after the last, it returns its payload."""
    left = list(errors)

    def function(payload: Any, _lambda_context: Any) -> Any:
        error = left.pop(0) if left else None
        if error is not None:
            raise error_class(error)(f"{error} was raised")
        return payload

    return function


def event_types(execution: Execution) -> list[str]:
    """Return the types of the events, in order."""
    return [event["type"] for event in execution.history]


def event_times_ms(execution: Execution, kind: str) -> list[int]:
    """Return when events of this type happened, in milliseconds from the start."""
    return [event["timestamp"] - execution.started_ms for event in execution.history if event["type"] == kind]


def event_chain(execution: Execution) -> list[tuple[int, int, str]]:
    """Return id, previousEventId and type of the events."""
    return [(event["id"], event["previousEventId"], event["type"]) for event in execution.history]
