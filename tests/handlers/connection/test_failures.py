"""A stream counts as stuck at its cursor after three equal, early ends in a row, and for no other reason."""

from dataclasses import replace
from typing import Any

import pytest

from handlers.connection.backoff import Rest
from handlers.connection.effects import Outcome, Progress
from handlers.connection.failures import SOON_MS, count, counted, same_end
from handlers.connection.steps import Report

RESET = Outcome("StreamDropped", "", "the stream was closed (reset)")


def report(
    *, lived_ms: int = 2_000, ended_by: str = "reset", outcome: Outcome = RESET, tail_bytes: int = 0, **more: Any
) -> Report:
    """The report of a connection that asked from cursor 41 in vain."""
    progress = Progress(
        1, 0, opened_ms=100, closed_ms=100 + lived_ms, ended_by=ended_by, unterminated_bytes=tail_bytes, resumed=True
    )
    return Report(outcome, progress, **({"stays_at": "41"} | more))


def after(*reports: Report) -> Rest:
    """Return what is known after these connections."""
    rest = Rest()
    for one in reports:
        rest = counted(rest, replace(rest, until_ms=0), one, 1_000_000)
    return rest


def test_the_third_same_end_makes_a_rest_that_grows_to_a_minute() -> None:
    """There is none before; then it is one second, two, four, and so on."""
    rests = [after(*[report()] * n) for n in range(1, 12)]
    assert [rest.same_ends for rest in rests] == list(range(1, 12))
    waits = [max(0, rest.until_ms - 1_000_000) for rest in rests]
    assert waits == [0, 0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_a_longer_rest_stays() -> None:
    """The rest that the upstream asked for applies."""
    asked = Rest("http", 1, 9_000_000, 0, 5, same_end(report()))
    assert counted(asked, asked, report(), 1_000_000).until_ms == 9_000_000


@pytest.mark.parametrize(
    "other",
    [
        report(stays_at="42"),
        report(ended_by="truncated"),
        report(outcome=replace(RESET, message="the stream was closed (reset): by peer")),
    ],
)
def test_another_end_begins_anew(other: Report) -> None:
    """The end differs in its cursor, its word or its detail."""
    assert after(report(), report(), other).same_ends == 1
    assert after(other, report(), report()).same_ends == 2


@pytest.mark.parametrize(
    "calm",
    [
        report(stays_at=None),
        report(lived_ms=SOON_MS),
        report(lived_ms=60_000, ended_by="ended_by_upstream"),
        report(ended_by="ended_by_upstream", reconnection_ms=3_000),
        report(outcome=Outcome("StreamTakenOver", "", ""), lived_ms=SOON_MS),
        report(outcome=Outcome("ConnectionExpired", "", ""), lived_ms=SOON_MS),
        report(outcome=Outcome("StreamTakenOver", "", ""), stays_at=None),
        report(outcome=Outcome("", "stopped", "")),
    ],
)
def test_what_is_healthy_is_never_counted(calm: Report) -> None:
    """An event or a cursor came, the connection lived, the upstream named a rest, or it ended without a fault."""
    assert (after(*[calm] * 9), count(Rest(same_ends=2, same_end="x"), calm)) == (Rest(), (0, ""))


@pytest.mark.parametrize("what", [{"ended_by": "bad_frame"}, {"ended_by": "stalled", "tail_bytes": 1}])
def test_what_comes_of_the_next_event_counts_whenever_it_ends(what: dict[str, Any]) -> None:
    """Bytes that cannot be framed, and an event that never comes whole, are what follows the cursor."""
    assert after(*[report(lived_ms=600_000, **what)] * 3).same_ends == 3


def test_an_upstream_that_does_not_answer_says_nothing_of_the_cursor() -> None:
    """Its own back-off paces it, and the count stays."""
    refused = replace(report(stays_at=None), progress=Progress(1, 0))
    assert after(report(), report(), refused, report()).same_ends == 3


@pytest.mark.parametrize("error", ["StreamTakenOver", "ConnectionExpired"])
def test_a_handover_between_such_ends_does_not_end_the_row(error: str) -> None:
    """The upstream had no part in it, and nothing could have come yet."""
    assert after(report(), report(), report(outcome=Outcome(error, "", "")), report()).same_ends == 3
