"""The status shows what failed last, since when, and when it is tried again."""

from dataclasses import replace
from typing import Any

import pytest

from handlers.api.answers import to_iso
from handlers.connection.backoff import Backoff
from tests.handlers.api.shown import DEAD_AFTER_MS, NOW, connection, shown

REFUSED: dict[str, Any] = {"ended_by": "refused", "error": "StreamDropped", "http_status": 503, "detail": "unused"}
RELEASED: dict[str, Any] = {"execution": "", "ended_at_ms": 8}
LATER_MS = NOW + 40_000
LATER_WORDS = "next try after its back-off"


def refused(fence: int, at_ms: int, lane: str = "B", **more: Any) -> Any:
    """Return a connection that was claimed, and refused 100 ms later."""
    fields = {"claimed_ms": at_ms - 100, "seen_ms": at_ms - 100, "saved_ms": at_ms}
    return connection(fence, lane, None, **(fields | REFUSED | more))


def error(*connections: Any, **more: Any) -> Any:
    return shown(*connections, **more)["last_error"]


def test_the_last_error_names_its_row_of_failures_and_the_next_try() -> None:
    """The last error has the status with its usual name, the failures in a row, and the recorded back-off."""
    rows = [connection(1, "B", 1_000, 500_000, ended_by="reset", error="StreamDropped", detail="broken pipe")]
    rows += [refused(2, 600_000), refused(3, 999_000, "A")]
    detail = "503 Service Unavailable"
    why = {"message": f"refused: {detail}; {LATER_WORDS}", "cause": "refused", "http_status": 503, "detail": detail}
    where = {"at": to_iso(999_000), "since": to_iso(500_000), "failures": 3, "lane": "A", "fence": 3}
    again = {"tried_again_at": to_iso(LATER_MS), "tried_again_by": None, "final_at": None, "over_at": None}
    assert error(*rows, rest=Backoff("http", 2, LATER_MS)) == {**why, **where, **again}
    # A POST begins a new row: the stream was not tried while it was stopped or rejected.
    rows[1] = replace(rows[1], execution="before")
    again = error(*rows, started_at_ms=990_000)
    assert (again["failures"], again["since"]) == (1, to_iso(999_000))


FAILED_MS = NOW - 1_000
LATER = Backoff("http", 1, LATER_MS)
WITHIN = {"tried_again_by": to_iso(FAILED_MS + 25_000)}
STOPPED = "not tried again: a stop is requested"


@pytest.mark.parametrize(
    ("connections", "rest", "lease", "words", "instant"),
    [
        # A recorded back-off, else the machine's own and its limit, else nothing.
        ([{}], LATER, {}, LATER_WORDS, {"tried_again_at": to_iso(LATER_MS)}),
        ([{}], Backoff(), {}, "next try soon", WITHIN),
        (
            [{"error": "StreamThrottled"}],
            Backoff(),
            {},
            "next try soon",
            {"tried_again_by": to_iso(FAILED_MS + 300_000)},
        ),
        ([{}], Backoff("http", 1, NOW), {}, "next try soon", WITHIN),
        # An instant that has passed is not shown, and nothing where the machine has no Retrier.
        ([{"saved_ms": 1, "seen_ms": NOW - 30_000}], Backoff("http", 1, NOW - 1), {}, "", {}),
        ([{"error": "ConnectionExpired"}], Backoff(), {}, "", {}),
        # The token of a claim is newer than every record: a function is opening the stream.
        ([{}], LATER, {"fence": 2}, "trying again now", {}),
        # The mark of a try is no instant of the next one. The try has not claimed yet or has written nothing yet,
        # or it has ended in this failure and its back-off is not recorded yet.
        ([{}], replace(LATER, tried_ms=NOW - 500), {}, "trying again now", {}),
        ([{}], replace(LATER, tried_ms=NOW - 2_000), {}, "", {}),
        # A stream that is not tried again is shown so, whatever back-off is recorded.
        ([{}], LATER, {"stop": True}, STOPPED, {}),
        ([{}], LATER, RELEASED | {"ending": "StreamRejected"}, "not tried again: start it to continue", {}),
        # The error is over once a later connection was answered.
        (
            [{"saved_ms": 500_000}, connection(2, "B", 510_000)],
            LATER,
            {},
            "reconnected since",
            {"over_at": to_iso(510_000)},
        ),
    ],
)
def test_the_next_try_is_shown_as_far_as_it_is_known(
    connections: list[Any], rest: Backoff, lease: dict[str, Any], words: str, instant: dict[str, str | None]
) -> None:
    """The last error's message and at most one of its instants tell when the stream is tried again."""
    given, *later = connections
    shown_error = error(refused(1, FAILED_MS, **given), *later, rest=rest, **lease)
    assert shown_error["message"] == "; ".join(filter(None, ("refused: 503 Service Unavailable", words)))
    instants = ("tried_again_at", "tried_again_by", "final_at", "over_at")
    assert {name: shown_error[name] for name in instants} == dict.fromkeys(instants) | instant


def test_a_stream_over_its_budget_continues_on_the_next_day() -> None:
    """The reason of a stream over its budget is "over budget", until a later connection is open."""
    over = connection(1, "B", 1_000, FAILED_MS, ended_by="over_budget", error="StreamThrottled")
    body = shown(over, rest=LATER)
    assert body["reason"] == body["last_error"]["message"] == "over budget; continues on the next day (UTC)"
    assert shown(over, connection(2, "A", NOW - 900))["reason"] is None


def test_a_status_without_a_name_is_shown_alone() -> None:
    """A status that HTTP has no name for is shown alone, because the upstream's own words may be anything."""
    message = error(refused(1, FAILED_MS, http_status=599), rest=LATER)["message"]
    assert message == f"refused: 599; {LATER_WORDS}"


@pytest.mark.parametrize(
    ("how", "over_at", "words"), [("ended", to_iso(610_000), "reconnected since"), ("stopped", None, STOPPED)]
)
def test_an_error_is_over_once_the_upstream_has_ended_the_stream(how: str, over_at: str | None, words: str) -> None:
    """An error is over once the upstream ends the stream by its answer; a stop ends no error."""
    dropped = connection(1, "B", 500_000, 600_000, ended_by="ended_by_upstream", error="StreamDropped")
    last = connection(2, "B", None, claimed_ms=605_000, seen_ms=605_000, saved_ms=610_000, ended_by=how)
    shown_error = error(dropped, last, **RELEASED, ending="StreamEnded", ending_cause=how)
    assert (shown_error["message"], shown_error["over_at"]) == (f"ended by upstream; {words}", over_at)


def test_our_own_words_are_bounded_and_visible() -> None:
    """The detail of an error has at most 300 characters and no control characters for a terminal."""
    shown_error = error(refused(1, NOW - 1, http_status=0, detail="a\x1b[2J\n\ud800" + "x" * 400))
    assert shown_error["detail"] == "a\\x1b[2J\\n\\ud800" + "x" * 283 + "…"
    assert len(shown_error["detail"]) == 300


def test_a_function_that_may_still_run_is_not_called_dead() -> None:
    """A silent function is "unheard" while it may still run; past its deadline its end is "unrecorded"."""
    silent = {"seen_ms": 400_000, "saved_ms": 500_000, "claimed_ms": 300_000}
    running = shown(connection(1, "B", 300_100, deadline_ms=NOW, **silent), expires_at_ms=0)
    words = "lane B is silent: its function is slow, paused or gone"
    assert (running["last_error"]["cause"], running["last_error"]["message"]) == ("unheard", words)
    assert (running["lanes"]["B"]["phase"], running["status"]) == ("unheard", "reconnecting")
    assert (running["counts"]["ends"], running["counts"]["at_least"]) == ({"unheard": 1}, True)
    over = shown(connection(1, "B", 300_100, deadline_ms=NOW - DEAD_AFTER_MS - 1, **silent), expires_at_ms=0)
    words = "lane B is silent, and nobody recorded how its connection ended"
    assert (over["last_error"]["cause"], over["last_error"]["message"]) == ("unrecorded", words)
    assert (over["counts"]["ends"], over["counts"]["at_least"]) == ({"unrecorded": 1}, True)


def test_a_slow_store_is_no_silence() -> None:
    """A record that was written a moment ago is a sign of life, even if unstored events hold its `seen` back."""
    slow = connection(1, "B", 1_000, seen_ms=2_000, saved_ms=NOW - 1, deadline_ms=NOW + 1)
    body = shown(slow, connection(2, "A", 5_000))
    assert (body["lanes"]["B"]["phase"], body["last_error"], body["counts"]["ends"]) == ("connected", None, {})


def test_a_function_that_has_connected_again_is_done_with_the_connection_before() -> None:
    """A function's next claim proves that its connection before has ended, even if that end was never recorded."""
    first = connection(1, "B", 1_000, seen_ms=NOW - 1, request_id="same", deadline_ms=NOW + 9)
    body = shown(first, connection(2, "B", NOW - 1, request_id="same", deadline_ms=NOW + 9))
    assert (body["last_error"]["cause"], body["counts"]["at_least"]) == ("unrecorded", True)


def test_the_last_error_is_that_of_an_execution_that_failed() -> None:
    """An execution that ended by an error shows that error, and a rejection shows the connection that met it."""
    met = refused(1, 7, error="StreamRejected", http_status=401)
    for ending in ("StreamRejected", "StreamEnded"):
        shown_error = error(met, **RELEASED, ending=ending)
        assert (shown_error["lane"], shown_error["at"], shown_error["detail"]) == ("B", to_iso(7), "401 Unauthorized")
    cause = '{"errorMessage": "the profile \\"a\\" is wrong\\n", "errorType": "InvalidRequest", "requ'
    wrong = 'the profile "a" is wrong\\n'
    for ending, said, words, what in (
        ("InvalidRequest", cause, wrong, wrong),
        ("RenewalFailed", "No successor.", "No successor.", "RenewalFailed: No successor."),
        ("RenewalFailed", "", None, "RenewalFailed"),
    ):
        shown_error = error(met, **RELEASED, ending=ending, ending_cause=said)
        message = f"{what}; not tried again: start it to continue"
        fields = {
            "message": message,
            "cause": ending,
            "at": to_iso(8),
            "since": to_iso(8),
            "failures": 1,
            "detail": words,
        }
        no_instant = ("tried_again_at", "tried_again_by", "final_at", "over_at")
        assert shown_error == {**fields, **dict.fromkeys((*no_instant, "http_status", "lane", "fence"))}
    assert error(**RELEASED | {"ended_at_ms": 0}, ending="RenewalFailed")["at"] is None  # it was unreadable


def test_a_refusal_that_may_pass_has_the_instant_when_it_is_final() -> None:
    """Beside its next try, a refusal shows the instant when it becomes final.

    The instant disappears once it has passed, and with a connection, a stop or a start.
    """
    row = Backoff("refused", 2, LATER_MS, refused_since_ms=NOW - 9_000, final_ms=LATER_MS + 9)
    forbidden = refused(1, NOW - 1_000, http_status=403)
    shown_error = error(forbidden, rest=row)
    words = f"refused: 403 Forbidden; {LATER_WORDS}, rejected if the refusals continue"
    assert (shown_error["message"], shown_error["final_at"]) == (words, to_iso(LATER_MS + 9))
    assert error(forbidden, fence=2, rest=row)["message"].endswith(
        "trying again now, rejected if the refusals continue"
    )
    others = [
        error(forbidden, rest=replace(row, final_ms=NOW)),
        error(forbidden, rest=replace(row, kind="network")),
        error(refused(1, NOW - 1_000, http_status=0), rest=row),
        error(forbidden, rest=row, stop=True),
        error(forbidden, rest=row, started_at_ms=NOW - 500),
        error(forbidden, connection(2, "A", NOW - 500), rest=row),
        error(refused(1, NOW - 1_000, error="StreamRejected", http_status=403), rest=row, **RELEASED),
    ]
    assert [(one["final_at"], "final" in one["message"]) for one in others] == [(None, False)] * len(others)
