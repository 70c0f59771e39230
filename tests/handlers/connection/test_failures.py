"""A stream counts as stuck at its cursor after three equal, early ends in a row, and for no other reason."""

from dataclasses import replace
from typing import Any

import pytest

from handlers.connection.backoff import Backoff
from handlers.connection.effects import Outcome, Progress
from handlers.connection.failures import SOON_MS, count_same_ends, end_fingerprint, with_end_counted
from handlers.connection.steps import Report

RESET = Outcome("StreamDropped", "", "the stream was closed (reset)")


def report(
    *, lived_ms: int = 2_000, ended_by: str = "reset", outcome: Outcome = RESET, tail_bytes: int = 0, **more: Any
) -> Report:
    """Return the report of a connection that resumed from cursor 41 in vain."""
    progress = Progress(
        1, 0, opened_ms=100, closed_ms=100 + lived_ms, ended_by=ended_by, unterminated_bytes=tail_bytes, resumed=True
    )
    return Report(outcome, progress, **({"stuck_cursor": "41"} | more))


def after(*reports: Report) -> Backoff:
    """Return the recorded back-off after these connections."""
    rest = Backoff()
    for one in reports:
        rest = with_end_counted(rest, replace(rest, until_ms=0), one, 1_000_000)
    return rest


def test_the_third_equal_end_in_a_row_starts_a_back_off_that_grows_to_a_minute() -> None:
    """Two equal ends need no back-off; from the third on it is 1 s, 2 s, 4 s and so on, at most 60 s."""
    rests = [after(*[report()] * n) for n in range(1, 12)]
    assert [rest.same_ends for rest in rests] == list(range(1, 12))
    waits = [max(0, rest.until_ms - 1_000_000) for rest in rests]
    assert waits == [0, 0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_a_longer_back_off_that_the_upstream_requested_stays() -> None:
    """The back-off of a stuck stream does not shorten one that the upstream requested."""
    asked = Backoff("http", 1, 9_000_000, 0, 5, end_fingerprint(report()))
    assert with_end_counted(asked, asked, report(), 1_000_000).until_ms == 9_000_000


@pytest.mark.parametrize(
    "other",
    [
        report(stuck_cursor="42"),
        report(ended_by="truncated"),
        report(outcome=replace(RESET, message="the stream was closed (reset): by peer")),
    ],
)
def test_a_different_end_begins_a_new_row(other: Report) -> None:
    """An end with another cursor, ledger word or detail begins a new row of equal ends."""
    assert after(report(), report(), other).same_ends == 1
    assert after(other, report(), report()).same_ends == 2


@pytest.mark.parametrize(
    "calm",
    [
        report(stuck_cursor=None),
        report(lived_ms=SOON_MS),
        report(lived_ms=60_000, ended_by="ended_by_upstream"),
        report(ended_by="ended_by_upstream", reconnection_ms=3_000),
        report(outcome=Outcome("StreamTakenOver", "", ""), lived_ms=SOON_MS),
        report(outcome=Outcome("ConnectionExpired", "", ""), lived_ms=SOON_MS),
        report(outcome=Outcome("StreamTakenOver", "", ""), stuck_cursor=None),
        report(outcome=Outcome("", "stopped", "")),
    ],
)
def test_a_healthy_end_is_never_counted(calm: Report) -> None:
    """An end is healthy if the cursor moved, the connection lived, a back-off was named, or nothing failed."""
    assert (after(*[calm] * 9), count_same_ends(Backoff(same_ends=2, same_end="x"), calm)) == (Backoff(), (0, ""))


@pytest.mark.parametrize("what", [{"ended_by": "bad_frame"}, {"ended_by": "stalled", "tail_bytes": 1}])
def test_an_end_inside_the_next_event_counts_however_late_it_comes(what: dict[str, Any]) -> None:
    """Unreadable bytes and an unfinished event are what follows the cursor, so such an end counts however late."""
    assert after(*[report(lived_ms=600_000, **what)] * 3).same_ends == 3


def test_a_connection_without_an_answer_keeps_the_count_of_equal_ends() -> None:
    """A connection that was never answered leaves the count of equal ends as it is: its own back-off paces it."""
    refused = replace(report(stuck_cursor=None), progress=Progress(1, 0))
    assert after(report(), report(), refused, report()).same_ends == 3


@pytest.mark.parametrize("error", ["StreamTakenOver", "ConnectionExpired"])
def test_a_handover_between_equal_ends_does_not_end_the_row(error: str) -> None:
    """An early handover keeps the count: the upstream had no part in it, and nothing could have come yet."""
    assert after(report(), report(), report(outcome=Outcome(error, "", "")), report()).same_ends == 3
