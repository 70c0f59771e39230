"""A stream's news, from its records and from the failures of its functions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from handlers.api.connection_records import Connection, Records
from handlers.connection.gap_record import LOST, Gap
from handlers.connection.lease import Lease
from handlers.errors import StreamDropped, StreamTakenOver
from local.service.function_failures import Failure, Failures
from local.service.stream_view import SILENT_MS, StreamView
from states_language import load
from states_language.clock import VirtualClock

REFUSED = Failure("B", 900, 1_000, "StreamDropped", "nothing listens")

OTHER = Failure("A", 1_500, 2_000, "StreamDropped", "the upstream answered 503")


DEADLINE_MS = 60_000
TIME_IS_OVER_MS = DEADLINE_MS + SILENT_MS + 1


def connection(fence: int, lane: str, **values: Any) -> Connection:
    unset = dict.fromkeys(("claimed_ms", "seen_ms", "stored", "duplicates", "dead_lettered"), 0)
    named = {"opened_ms": None, "closed_ms": None, "ended_by": "", "resumed": False}
    return Connection(fence=fence, lane=lane, execution="arn:1", request_id=f"r{fence}", **unset | named | values)


def records(*connections: Connection, lease: Lease | None = None) -> Records:
    """Returns the records with these connections, of which the newest holds the stream."""
    newest = max((one.fence for one in connections), default=0)
    return Records(lease or Lease(fence=newest, connected_token=newest), None, None, connections)


def test_an_announced_loss_is_news_once() -> None:
    """A loss that the upstream announced is reported once, even if it grows; a loss before this run is not reported."""
    view = StreamView("demo", since_ms=1_000)
    losses = [Gap(2, 5_000, 6_500, "announced_by_upstream", LOST, 1), Gap(1, 0, 900, "old", LOST, 1)]
    assert view.update(None, 7_000, losses=losses) == ["demo: events of 1.5 s are lost: announced by upstream"]
    assert view.update(None, 8_000, losses=[replace(losses[0], to_ms=7_900)]) == []


def test_failed_openings_are_reported_once_per_reason() -> None:
    """The first failed opening is reported, each new reason, and then the connection."""
    view = StreamView("demo:a", 0)
    assert view.update(None, 1_100, [REFUSED, REFUSED]) == ["demo:a: lane B cannot connect: nothing listens"]
    assert view.update(None, 1_200, [REFUSED]) == []
    assert view.update(None, 2_100, [OTHER]) == ["demo:a: lane A cannot connect: the upstream answered 503"]
    opened = connection(3, "B", opened_ms=3_000, seen_ms=3_000)
    assert view.update(records(opened), 3_100) == ["demo:a: lane B is connected again (fencing token 3)"]
    assert view.update(records(opened), 3_200) == []
    assert view.update(records(opened), 3_300, [OTHER]) == ["demo:a: lane A cannot connect: the upstream answered 503"]


def test_the_end_of_a_connection_reports_dead_letters_and_conflicts() -> None:
    """The line of a connection's end counts dead letters, and events under a known key with another body."""
    view = StreamView("demo", 0)
    counts = {"stored": 3, "dead_lettered": 1, "duplicates": 2, "conflicts": 1}
    closed = connection(1, "B", opened_ms=1_000, seen_ms=2_000, closed_ms=2_000, ended_by="reset", **counts)
    assert view.update(records(closed), 2_100)[1] == (
        "demo: lane B is closed after 1.0 s: reset;"
        " 3 stored, 1 dead-lettered, 2 duplicates turned away, 1 under a known key with another body"
    )


@pytest.mark.parametrize(
    ("values", "now_ms", "unconnected_ms"),
    [
        ({"opened_ms": None}, 21_000, 20_000),
        ({"opened_ms": 900}, 21_000 + SILENT_MS, 0),
        ({"opened_ms": 900}, 21_001 + SILENT_MS, 20_001 + SILENT_MS),
        ({"opened_ms": 900, "closed_ms": 21_000}, 21_500, 20_500),
    ],
)
def test_a_stream_with_an_outdated_lease_counts_as_connected(
    values: dict[str, Any], now_ms: int, unconnected_ms: int
) -> None:
    """A stream whose old lease has expired counts as connected while a connection writes its record."""
    lease = Lease(fence=1, connected_token=1, execution="arn:1", expires_at_ms=1_000)
    view = StreamView("demo", 0)
    view.update(records(connection(2, "A", seen_ms=21_000, **values), lease=lease), now_ms)
    assert view.unconnected_ms(now_ms) == unconnected_ms


def test_an_opened_connection_is_not_a_failed_opening() -> None:
    """An opened connection's failure is reported as its end only. A lane taken over or expired reports nothing more."""
    view = StreamView("demo", 0)
    opened = connection(1, "B", opened_ms=950, seen_ms=990, closed_ms=1_000, ended_by="reset")
    taken = Failure("B", 900, 1_000, "StreamTakenOver", "later")
    assert view.update(records(opened), 1_100) == [
        "demo: lane B is connected (fencing token 1)",
        "demo: lane B is closed after 0.1 s: reset; 0 stored, 0 duplicates turned away",
    ]
    assert view.update(records(opened), 1_100, [REFUSED, taken]) == []
    assert view.update(None, 2_100, [Failure("A", 1_500, 2_000, "ConnectionExpired", "later")]) == []


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
            TIME_IS_OVER_MS,
            "nobody recorded how it ended",
        ),
        ([Failure("B", 0, 1_000, "States.Timeout", "")], TIME_IS_OVER_MS, "nobody recorded how it ended"),
    ],
)
def test_a_connection_without_a_last_record_ends_as_its_function_did(
    failures: list[Failure], now_ms: int, words: str
) -> None:
    """The history says why the connection ended. If not, the connection ends when its function's time is over."""
    view = StreamView("demo", 0)
    opened = connection(1, "B", opened_ms=500, seen_ms=900, deadline_ms=DEADLINE_MS)
    assert view.update(records(opened), 950) == ["demo: lane B is connected (fencing token 1)"]
    *_, news = view.update(records(opened), now_ms, failures)
    assert news == f"demo: lane B is closed after 0.4 s: {words}; 0 stored, 0 duplicates turned away"


def test_a_killed_connection_lasted_until_its_record_was_last_written() -> None:
    """Its time counts although events waited to be stored, so that the record calls no later instant good."""
    view = StreamView("demo", 0)
    opened = connection(1, "B", opened_ms=500, seen_ms=500, saved_ms=9_500, stored=37)
    killed = Failure("B", 0, 10_000, "Sandbox.Timedout", "Task timed out")
    assert view.update(records(opened), 10_100, [killed])[1] == (
        "demo: lane B is closed after 9.0 s: its function was killed; 37 stored, 0 duplicates turned away"
    )


@pytest.mark.parametrize(("ended_by", "said"), [("stopped", ""), ("reset", " after a gap of 5000 ms")])
def test_the_time_of_a_deliberate_stop_is_no_gap(ended_by: str, said: str) -> None:
    """The time of a stop is neither in the line of the next connection nor in the sum of gaps; that of a drop is."""
    view = StreamView("demo", since_ms=1_000)
    first = connection(1, "B", opened_ms=2_000, seen_ms=3_000, closed_ms=3_000, ended_by=ended_by)
    view.update(records(first), 3_500)
    news = view.update(records(first, connection(2, "B", opened_ms=8_000, seen_ms=8_000)), 8_500)
    assert news == [f"demo: lane B is connected (fencing token 2){said}"]
    assert view.gap_ms(8_500) == (5_000 if said else 0)


def test_a_silent_function_is_not_called_dead() -> None:
    """A function is reported once when it falls silent, and once when it returns; the holder's line shows it too."""
    view = StreamView("demo", 0)
    opened = connection(1, "B", opened_ms=500, seen_ms=900, saved_ms=1_000, deadline_ms=DEADLINE_MS)
    assert view.update(records(opened), 1_000 + SILENT_MS) == ["demo: lane B is connected (fencing token 1)"]
    assert view.holder_in_words() == "lane B holds it (fencing token 1)"
    unheard = "silent: its function is slow, paused or gone"
    silent_ms = 1_001 + SILENT_MS
    assert view.update(records(opened), silent_ms) == [f"demo: lane B is {unheard} (fencing token 1)"]
    assert view.update(records(opened), silent_ms + 1) == []
    assert view.holder_in_words() == f"lane B holds it (fencing token 1), {unheard}"
    again = replace(opened, saved_ms=silent_ms)
    assert view.update(records(again), silent_ms + 2) == ["demo: lane B is alive again (fencing token 1)"]
    assert view.gap_ms(silent_ms + 2) == 0


def test_a_connection_that_is_forgotten_counts_once() -> None:
    """Of older connections only the counts are kept. Each counts once, however often the newest 100 are read."""
    view = StreamView("demo", 10**9)
    every = [connection(n, "A", opened_ms=n, closed_ms=n, stored=1) for n in range(300)]
    for newest in (100, 200, 300, 300):
        view.update(records(*every[newest - 100 : newest]), 1_000)
    assert (view.stored, len(view.seen)) == (300, 150)


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
