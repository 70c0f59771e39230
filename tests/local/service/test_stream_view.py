"""What is told of a stream out of its records and of how its functions failed."""

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.connection.effects import RecordLoss
from handlers.connection.ledger import Gap
from handlers.errors import StoreUnavailable, StreamDropped, StreamTakenOver
from handlers.store import control_items
from local.service.function_failures import Failure, Failures
from local.service.stream_view import SILENT_MS, StreamView
from states_language import load
from states_language.clock import VirtualClock

REFUSED = Failure("B", 900, 1_000, "StreamDropped", "nothing listens")
OTHER = Failure("A", 1_500, 2_000, "StreamDropped", "the upstream answered 503")


def record(fence: int, lane: str, **numbers: int) -> dict[str, Any]:
    """A connection's record as DynamoDB gives it."""
    given = {"fence": fence, "seen_ms": 0} | numbers
    key = {"SK": {"S": f"connection#{fence:012d}"}}
    return key | {"lane": {"S": lane}} | {name: {"N": str(number)} for name, number in given.items()}


def loss(fence: int, number: int, cause: str) -> dict[str, Any]:
    """The record of a gap that the upstream announced."""
    return control_items.loss("demo", RecordLoss(fence, number, 5_000, 6_500, cause))


def test_an_announced_loss_is_told_once() -> None:
    """Connection, number and cause; a gap between two connections is none, and what was before is no news."""
    ledger = StreamView("demo", since_ms=1_000)
    between = control_items.gap("demo", Gap(2, 5_000, 6_000, "reset", True))
    told = [between, loss(2, 1, "announced_by_upstream"), control_items.loss("demo", RecordLoss(1, 1, 0, 900, "old"))]
    assert ledger.update(told, 2, 7_000) == ["demo: events of 1.5 s are lost: announced by upstream"]
    assert ledger.update(told, 2, 8_000) == []


def lanes(fails: Iterator[Exception | str]) -> list[Failure]:
    """The failures in the history of two lanes, A five seconds late, whose function does what `fails` says."""

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
    found = [failure for end in range(len(history) + 1) for failure in reader.new(history[:end])]
    assert Failures().new(history) == found
    return found


def test_failures_are_read_from_a_history() -> None:
    """Each attempt that failed is given once, with its lane, its times and what the function said."""
    assert lanes(iter([StreamDropped("cut"), StreamTakenOver("later"), "ended", "ended"])) == [
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
    ],
)
def test_a_reason(error: str, message: str, reason: str) -> None:
    """A function's own words, else the error's name; what kills a function has words of its own."""
    assert Failure("A", 0, 0, error, message).reason == reason


def test_a_stream_that_cannot_connect_is_told_once_a_reason() -> None:
    """The first failed opening is told, the same reason no second time, another one again, and then the connection."""
    ledger = StreamView("demo:a", 0)
    assert ledger.update([], 0, 1_100, [REFUSED, REFUSED]) == ["demo:a: lane B cannot connect: nothing listens"]
    assert ledger.update([], 0, 1_200, [REFUSED]) == []
    assert ledger.update([], 0, 2_100, [OTHER]) == ["demo:a: lane A cannot connect: the upstream answered 503"]
    opened = record(3, "B", opened_ms=3_000, seen_ms=3_000)
    assert ledger.update([opened], 3, 3_100) == ["demo:a: lane B is connected again (fence 3)"]
    assert ledger.update([opened], 3, 3_200) == []
    assert ledger.update([opened], 3, 3_300, [OTHER]) == ["demo:a: lane A cannot connect: the upstream answered 503"]


def test_a_connection_that_was_opened_is_no_failed_opening() -> None:
    """What ended it is told as its end; a lane that was taken over is told as nothing else."""
    ledger = StreamView("demo", 0)
    opened = record(1, "B", opened_ms=950, seen_ms=990, closed_ms=1_000) | {"ended_by": {"S": "reset"}}
    taken = Failure("B", 900, 1_000, "StreamTakenOver", "later")
    assert ledger.update([opened], 1, 1_100) == [
        "demo: lane B is connected (fence 1)",
        "demo: lane B is closed after 0.1 s: reset; 0 stored, 0 duplicates turned away",
    ]
    assert ledger.update([opened], 1, 1_100, [REFUSED, taken]) == []
    assert ledger.update([], 1, 2_100, [Failure("A", 1_500, 2_000, "ConnectionExpired", "later")]) == []


@pytest.mark.parametrize(
    ("failures", "now_ms", "words"),
    [
        (
            [Failure("B", 0, 1_000, "StoreUnavailable", "AWS did not answer PutItem")],
            1_100,
            "AWS did not answer PutItem",
        ),
        ([Failure("B", 0, 1_000, "Sandbox.Timedout", "Task timed out")], 1_100, "its function was killed"),
        (
            [Failure("A", 0, 1_000, "StoreUnavailable", "AWS did not answer")],
            1_000 + SILENT_MS,
            "its function was killed",
        ),
    ],
)
def test_a_connection_without_a_last_record_ends_as_its_function_did(
    failures: list[Failure], now_ms: int, words: str
) -> None:
    """The history says why nothing more was written; where it says nothing, silence is taken for a kill."""
    ledger = StreamView("demo", 0)
    opened = record(1, "B", opened_ms=500, seen_ms=900)
    assert ledger.update([opened], 1, 950) == ["demo: lane B is connected (fence 1)"]
    *_, told = ledger.update([opened], 1, now_ms, failures)
    assert told == f"demo: lane B is closed after 0.4 s: {words}; 0 stored, 0 duplicates turned away"


def test_a_store_that_does_not_answer_is_told_by_name() -> None:
    """An error without words of its own is told as its name."""
    (failure, *_) = lanes(iter([StoreUnavailable(), "ended", "ended"]))
    assert StreamView("demo", 0).update([], 0, 1, [failure]) == ["demo: lane B cannot connect: StoreUnavailable"]
