"""The status of a stream that is over has its own words, which a later stop request does not change."""

from typing import Any

import pytest

from handlers.api.status_words import FROM_THE_START, NOT_TWICE
from handlers.connection.ends import ALREADY_ANSWERED
from tests.handlers.api.shown import NOW, connection, shown

ENDINGS = {
    "stopped": ("StreamEnded", "stopped"),
    "ended": ("StreamEnded", "ended"),
    "rejected": ("StreamRejected", "the upstream answered 404"),
    "broken": ("RenewalFailed", "No successor."),
}


@pytest.mark.parametrize("how", list(ENDINGS))
def test_a_stop_request_after_the_end_changes_nothing_of_it(how: str) -> None:
    """A stop request after the end keeps status and reason; the answer also shows when the stop was requested."""
    error, cause = ENDINGS[how]
    over: dict[str, Any] = {"execution": "", "ending": error, "ending_cause": cause, "ended_at_ms": 5}
    before, after = shown(**over), shown(**over, stop=True, stop_at_ms=7)
    assert before["status"] == after["status"] == how
    assert (before["stop_requested_at"], after["stop_requested_at"]) == (None, "1970-01-01T00:00:00.007Z")
    assert before["ended_at"] == after["ended_at"] == "1970-01-01T00:00:00.005Z"
    if how != "stopped":
        assert before["reason"] == after["reason"]


@pytest.mark.parametrize(
    ("how", "more", "reason"),
    [
        ("stopped", {"stop_at_ms": 7, "stop": True}, "stopped on request"),
        ("ended", {}, "the upstream answered 204: the stream has ended"),
        ("rejected", {}, "refused: 401 Unauthorized"),
        ("broken", {}, "the last execution failed: RenewalFailed: No successor."),
    ],
)
def test_the_reason_of_a_stream_that_is_over_is_named(how: str, more: dict[str, Any], reason: str) -> None:
    """The reason names the stop request, the upstream's answer, or the machine's error in one sentence.

    Only for a stream with a cursor it adds that a start continues from there.
    """
    error, cause = ENDINGS[how]
    ends: dict[str, dict[str, Any]] = {
        "ended": {"ended_by": "ended", "detail": "the upstream answered 204: the stream has ended"},
        "rejected": {"ended_by": "refused", "error": "StreamRejected", "http_status": 401},
    }
    one = connection(1, "B", None, claimed_ms=3, seen_ms=3, **ends.get(how, {"ended_by": "stopped"}))
    for token, cursor, again in (
        (0, None, FROM_THE_START),
        (1, None, "start it to continue"),
        (1, "7", "start it to continue from its cursor"),
    ):
        over: dict[str, Any] = {"execution": "", "ending": error, "ending_cause": cause, "ended_at_ms": 5}
        body = shown(one, **over, **more, connected_token=token, cursor=cursor)
        assert (body["status"], body["reason"]) == (how, f"{reason}; {again}")


def test_a_stream_that_is_requested_once_does_not_promise_to_continue() -> None:
    """A stream that is requested once and has an answer cannot be started again; before an answer it can."""
    answered = connection(1, "B", 3, 9, ended_by="ended")
    refused = connection(1, "B", None, claimed_ms=3, seen_ms=3, ended_by="refused", http_status=503)
    for one, again, over in (
        (answered, NOT_TWICE, {"stop": True, "stop_at_ms": 7}),
        (answered, NOT_TWICE, {"ending": "StreamEnded", "ending_cause": "ended"}),
        (refused, FROM_THE_START, {"ending": "StreamEnded", "ending_cause": "stopped"}),
        (refused, NOT_TWICE, {"ending": "StreamBroken", "ending_cause": "no end mark"}),
        (refused, NOT_TWICE, {"ending": "InvalidRequest", "ending_cause": ALREADY_ANSWERED.message}),
    ):
        body = shown(one, execution="", **over, is_once=True)
        assert body["reason"].endswith(f"; {again}")
        assert "continue" not in str(body["last_error"])


def test_a_connection_that_outlives_its_execution_is_shown_and_decides_nothing() -> None:
    """A connection that reads on after its execution was rejected is shown as connected; the status stays rejected."""
    over: dict[str, Any] = {"execution": "", "ending": "StreamRejected", "expires_at_ms": NOW + 1}
    body = shown(connection(1, "A", 1, deadline_ms=NOW + 9), **over)
    assert (body["status"], body["holder"]["lane"], body["lanes"]["A"]["phase"]) == ("rejected", "A", "connected")
