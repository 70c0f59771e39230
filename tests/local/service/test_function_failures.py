"""The failures of functions are read from the history of their execution."""

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.errors import StreamDropped, StreamTakenOver
from local.service.function_failures import Failure, Failures
from states_language import load
from states_language.clock import VirtualClock


def read_failures(fails: Iterator[Exception | str]) -> list[Failure]:
    """Returns the failures in the history of two lanes, A five seconds after B; `fails` has each call's outcome."""

    def work(_event: Any, _lambda_context: Any) -> str:
        outcome = next(fails)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def branch(lane: str, first: str) -> dict[str, Any]:
        parameters = {"FunctionName": "work", "Payload": {"lane": lane}}
        catch = [{"ErrorEquals": ["States.ALL"], "Next": f"Wait {lane}"}]
        task = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": parameters, "Catch": catch}
        wait = {"Type": "Wait", "Seconds": 5, "Next": f"Do {lane}"}
        return {"StartAt": f"{first} {lane}", "States": {f"Wait {lane}": wait, f"Do {lane}": {**task, "End": True}}}

    parallel = {"Type": "Parallel", "Branches": [branch("A", "Wait"), branch("B", "Do")], "End": True}
    machine = load({"StartAt": "Both", "States": {"Both": parallel}})
    history = machine.execute(functions={"work": work}, clock=VirtualClock(start_ms=0)).history
    reader = Failures()
    failures = [failure for end in range(len(history) + 1) for failure in reader.read_new(history[:end])]
    assert Failures().read_new(history) == failures
    return failures


def test_failures_are_read_from_a_history() -> None:
    """Each failed attempt is returned once, with its lane, its times and the function's message."""
    assert read_failures(iter([StreamDropped("cut"), StreamTakenOver("later"), "ended", "ended"])) == [
        Failure("B", 0, 0, "StreamDropped", "cut"),
        Failure("A", 5_000, 5_000, "StreamTakenOver", "later"),
    ]


@pytest.mark.parametrize(
    ("error", "message", "reason"),
    [
        ("StreamDropped", "nothing listens", "nothing listens"),
        ("StreamDropped", "", "StreamDropped"),
        ("Sandbox.Timedout", "Task timed out after 8.00 seconds", "its function was killed"),
        ("Runtime.ExitError", "Runtime exited with error: signal: killed", "its function was killed"),
        ("Lambda.Unknown", "no answer", "its function did not answer"),
        ("States.Timeout", "", "its function did not answer"),
    ],
)
def test_the_reason_is_the_message_or_the_error(error: str, message: str, reason: str) -> None:
    """The reason is the function's message, or else the error's name; only a known kill is called a kill."""
    assert Failure("A", 0, 0, error, message).reason == reason
