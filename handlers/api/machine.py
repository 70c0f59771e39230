"""Builds what `GET /connections/{streamId}/machine` shows: the states of the stream's machine, and those it is in.

The definition is that of the execution itself, as Step Functions answers it, and so are the current states: those that
were entered and not left since, in the newest events of its history. Pure. Invariant: what a history does not say is
not lit: of an execution that is over no state is current.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Far more than both lanes' last cycles have; what is older is over, but for a Parallel, which is lit by what is in it.
NEWEST = 500


def answer(stream_id: str, execution: Mapping[str, Any], definition: Mapping[str, Any], events: Iterable[Any]) -> Any:
    """The whole answer; `execution` is DescribeExecution's, `events` are the newest of its history, newest first."""
    runs = execution["status"] == "RUNNING"
    return {
        "stream": stream_id,
        "execution": execution["executionArn"],
        "execution_status": execution["status"],
        "graph": graph(definition),
        "current": current(events) if runs else [],
    }


def graph(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The states by name, each with its type, the names that may follow it, and the graphs of its branches."""
    states = {}
    for name, state in definition["States"].items():
        inner = [*state.get("Branches", ()), *(state[one] for one in ("ItemProcessor", "Iterator") if one in state)]
        states[name] = {
            "type": state["Type"],
            "comment": state.get("Comment"),
            "next": _following(state),
            **({"branches": [graph(one) for one in inner]} if inner else {}),
        }
    return {"start": definition["StartAt"], "states": states}


def _following(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where a state leads to, each once; `caught` where an error alone leads there."""
    plain = [state.get("Next"), *(one.get("Next") for one in state.get("Choices", ())), state.get("Default")]
    caught = [one.get("Next") for one in state.get("Catch", ())]
    following = {name: True for name in caught if name} | {name: False for name in plain if name}
    return [{"to": name, "caught": is_caught} for name, is_caught in following.items()]


def current(newest_first: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the states that are entered and not left, in the order in which they were entered."""
    left: set[str] = set()
    entered: list[str] = []
    for event in newest_first:
        kind = str(event["type"])
        details = event.get("stateExitedEventDetails") or event.get("stateEnteredEventDetails")
        if not details:
            continue
        name = str(details["name"])
        if kind.endswith("StateExited"):
            left.add(name)
        elif kind.endswith("StateEntered") and name not in left:
            left.add(name)
            entered.append(name)
    return entered[::-1]
