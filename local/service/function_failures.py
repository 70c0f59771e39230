"""Reads from an execution's history how its functions failed: on which lane, when, and why.

Invariants: each failure is returned once, after its attempt has ended.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# How the types of events about functions begin: for a Task, and for a Task of the older form, whose input is the
# function's own.
_PREFIXES = ("Task", "LambdaFunction")
# The errors of a function that was killed, and those after which it may still run.
_KILLED = ("Sandbox.Timedout", "Runtime.ExitError")
_UNANSWERED = ("Lambda.Unknown", "States.Timeout")
_REQUEST = re.compile(r"^RequestId: \S+ Error: ")


@dataclass(frozen=True)
class Failure:
    """A failed attempt; times are epoch milliseconds, `error` is the Error Name, `message` the function's own."""

    lane: str
    from_ms: int
    at_ms: int
    error: str
    message: str

    @property
    def reason(self) -> str:
        """A phrase that says why, the same for the same cause in any lane or request."""
        if self.error in _UNANSWERED:
            return "its function did not answer"
        return "its function was killed" if self.error in _KILLED else self.message or self.error

    @property
    def is_certain(self) -> bool:
        """Whether the function is known to have ended."""
        return self.error not in _UNANSWERED


class Failures:
    """Reads one execution's history as it grows."""

    def __init__(self) -> None:
        self._read = 0
        self._open: dict[int, tuple[str, int]] = {}

    def read_new(self, history: Sequence[Mapping[str, Any]]) -> list[Failure]:
        """Returns the failures of functions since the last call; `history` is complete, oldest event first."""
        failures = []
        for event in history[self._read :]:
            kind, previous = event["type"], event.get("previousEventId", 0)
            prefix = next((one for one in _PREFIXES if kind.startswith(one)), None)
            details = event.get(f"{kind[:1].lower()}{kind[1:]}EventDetails", {})
            match kind.removeprefix(prefix) if prefix else "":
                case "Scheduled":
                    lane = _lane_of(details, "parameters" if prefix == "Task" else "input")
                    if lane is not None:
                        self._open[event["id"]] = (lane, event["timestamp"])
                case "Started" if previous in self._open:
                    self._open[event["id"]] = self._open.pop(previous)
                case "Succeeded":
                    self._open.pop(previous, None)
                case "Failed" | "TimedOut" if previous in self._open:
                    lane, from_ms = self._open.pop(previous)
                    message = message_of_cause(details.get("cause") or "")
                    failures.append(Failure(lane, from_ms, event["timestamp"], details.get("error", ""), message))
        self._read = len(history)
        return failures


def _lane_of(scheduled: Mapping[str, Any], member: str) -> str | None:
    """The lane in a function's input, B by default; None for a Task that calls no function."""
    if scheduled.get("resourceType", "lambda") != "lambda":
        return None
    try:
        input_ = json.loads(scheduled.get(member, ""))
        lane = (input_["Payload"] if member == "parameters" else input_)["lane"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return "B"
    return lane if isinstance(lane, str) and lane else "B"


def message_of_cause(cause: str) -> str:
    """Returns the message of the exception in a Cause, or the Cause itself."""
    try:
        message = json.loads(cause)["errorMessage"]
    except (ValueError, RecursionError, KeyError, TypeError):
        message = cause
    return _REQUEST.sub("", " ".join(str(message).split()))
