"""How a stream's executions end, what takes over from one that died, and what is said of a failure meanwhile.

Through the whole local service, at an upstream that refuses, tires, and sends one id twice.
"""

import json
import os
import signal
from dataclasses import dataclass
from typing import Any

import pytest

from tests.handlers.servers import UNTIL_CLOSE, Peer
from tests.harness import STAGE, Service
from tests.local.support import until
from tests.local_run import LocalRun

STREAM, BUSY, RETRY_AFTER_S = "scripted:ends", "scripted:busy", 4


@dataclass(frozen=True)
class Story:
    """A stream that is rejected, stopped before it began, whose function is killed, whose execution is aborted."""

    rejected: dict[str, Any]
    rejected_status: Any
    asked_to_stop: tuple[tuple[int, Any], ...]
    dead_letters: list[dict[str, Any]]
    log: str
    stop_answer: tuple[int, Any]
    unbegun: dict[str, Any]
    unbegun_status: Any
    killed: Any
    abandoned: Any
    taken_over: Any
    successor: str
    stopped: dict[str, Any]
    busy: Any
    busy_over: Any


def is_busy(peer: Peer) -> None:
    """503, with a name of its own, and when to come again."""
    peer.send(b"HTTP/1.1 503 secret-reason\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n" % RETRY_AFTER_S)


def repeats(peer: Peer) -> None:
    """One id with two bodies, and the first spelled otherwise."""
    peer.send(UNTIL_CLOSE)
    for data in (b'{"a": 1}', b'{"a":1.0}', b'{"a": 2}'):
        peer.send(b"id: same\ndata: %s\n\n" % data)
    peer.wait_until_gone()


def refuses(peer: Peer) -> None:
    """410: another try cannot help."""
    peer.send(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")


def goes_on(peer: Peer) -> None:
    """An event every 50 ms until the client goes."""
    peer.send(UNTIL_CLOSE)
    number = 0
    while not peer.gone.wait(0.05):
        number += 1
        peer.send(b'id: %d\ndata: {"n": %d}\n\n' % (number, number))


def dead_letters(service: Service) -> list[dict[str, Any]]:
    """The messages in the dead-letter queue."""
    sqs = service.aws("sqs")
    url = sqs.get_queue_url(QueueName=f"streamkeeper-{STAGE}-dead-letters")["QueueUrl"]
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return [json.loads(message["Body"]) for message in messages]


def ended(service: Service, arn: str) -> dict[str, Any]:
    """DescribeExecution's answer once the execution has ended."""
    assert until(lambda: service.execution(arn)["status"] != "RUNNING", 10), service.log
    return service.execution(arn)


def status_once(service: Service, status: str, execution: str | None) -> Any:
    """GET's answer once the stream has this status, with this execution."""

    def is_so() -> bool:
        answer = service.ask("GET", STREAM)[1]
        return bool((answer.get("status"), answer.get("execution")) == (status, execution))

    assert until(is_so, 10), (service.ask("GET", STREAM), service.log)
    return service.ask("GET", STREAM)[1]


@pytest.fixture(scope="module")
def story(local_run: LocalRun) -> Story:
    """The stream from its rejection to its stop."""
    service = local_run
    service.script(STREAM, refuses, goes_on)
    service.script(BUSY, is_busy, is_busy, repeats)
    rejected = ended(service, service.post(STREAM)["executionArn"])
    rejected_status, messages = status_once(service, "rejected", None), dead_letters(service)
    asked_to_stop = (service.ask("DELETE", STREAM), service.ask("GET", STREAM), service.ask("GET", ""))
    arn = service.post(STREAM)["executionArn"]
    stop_answer = service.ask("DELETE", STREAM)
    unbegun, unbegun_status = ended(service, arn), status_once(service, "stopped", None)
    dead = service.post(STREAM)["executionArn"]
    status_once(service, "running", dead)
    for pid in service.sandboxes():
        os.kill(pid, signal.SIGKILL)
    killed = until(lambda: _with_a_gap(service.ask("GET", STREAM)[1]), 15)
    abandoned = status_once(service, "running", dead)
    service.aws("stepfunctions").stop_execution(executionArn=dead)
    successor = service.post(STREAM)["executionArn"]
    assert until(lambda: service.connections(STREAM)[-1]["execution"] == successor, 10), service.log
    taken_over = status_once(service, "running", successor)
    service.ask("DELETE", STREAM)
    service.post(BUSY)
    return Story(
        rejected=rejected,
        rejected_status=rejected_status,
        asked_to_stop=asked_to_stop,
        dead_letters=messages,
        stop_answer=stop_answer,
        unbegun=unbegun,
        unbegun_status=unbegun_status,
        killed=killed,
        abandoned=abandoned,
        taken_over=taken_over,
        successor=successor,
        busy=until(lambda: _resting(service.ask("GET", BUSY)[1]), 10),
        busy_over=until(lambda: _has_conflict(service.ask("GET", BUSY)[1]), 3 * RETRY_AFTER_S),
        stopped=ended(service, successor),
        log=service.log,
    )


def test_a_rejection_is_a_clean_end_with_its_reason(story: Story) -> None:
    """The execution succeeds; its output, the dead-letter message, GET and an alert all have the upstream's answer."""
    output = json.loads(story.rejected["output"])
    assert (story.rejected["status"], output["status"], output["error"]) == ("SUCCEEDED", "rejected", "StreamRejected")
    reason = "the upstream answered 410: a retry cannot help"
    words = "refused: 410 Gone; not tried again: a POST starts the stream again"
    assert story.rejected_status["last_error"]["message"] == words
    assert story.rejected_status["reason"] == "refused: 410 Gone; a POST starts the stream again"
    assert json.loads(output["cause"])["errorMessage"] == reason
    (message,) = story.dead_letters
    assert message == {
        "stream": STREAM,
        "execution": story.rejected["executionArn"],
        "error": "StreamRejected",
        "cause": output["cause"],
    }
    last_error = story.rejected_status["last_error"]
    assert (last_error["cause"], last_error["lane"], last_error["fence"]) == ("refused", "B", 1)
    (alert,) = [line for line in story.log.splitlines() if " ALERT: " in line and BUSY not in line]
    assert alert.endswith(f" ended for the stream '{STREAM}': rejected by StreamRejected: {reason}")


def test_a_stop_right_after_a_post_holds(story: Story) -> None:
    """Whether the execution had claimed the stream by then or not: it ends as stopped, and GET says so."""
    assert (story.stop_answer[0], story.unbegun_status["holder"]) == (202, None)
    assert (story.unbegun["status"], json.loads(story.unbegun["output"])) == ("SUCCEEDED", {"status": "stopped"})


def _resting(status: Any) -> Any:
    """The answer while a rest is written down."""
    return status if (status.get("last_error") or {}).get("tried_again_at") else None


def _has_conflict(status: Any) -> Any:
    """The answer once the connection that met the conflict has written that down."""
    return status if status["counts"]["conflicts"] else None


def _with_a_gap(status: Any) -> Any:
    return status if status.get("coverage") and status["coverage"]["gaps"] else None


def test_a_rejected_stream_that_is_asked_to_stop_stays_rejected(story: Story) -> None:
    """DELETE, GET and the list say so, why, and since when; and when somebody asked for the stop."""
    (code, stop_answer), (_, status), (_, listing) = story.asked_to_stop
    (listed,) = (one for one in listing["streams"] if one["stream"] == STREAM)
    before = story.rejected_status
    for answer in (stop_answer, status, listed):
        chosen = ("status", "reason", "ended_at", "execution")
        assert {name: answer[name] for name in chosen} == {name: before[name] for name in chosen}
        assert answer["stop_requested_at"] > before["ended_at"]
    assert (code, before["stop_requested_at"]) == (202, None)
    assert stop_answer["message"] == f"Nobody is connected: {before['reason']}."


def test_a_failure_says_until_when_the_upstream_rests(story: Story) -> None:
    """Status, usual name, lane, and the instant that Retry-After asks for; not the upstream's own words."""
    assert story.busy, story.log
    error = story.busy["last_error"]
    assert error["message"] == f"refused: 503 Service Unavailable; tried again at {error['tried_again_at']}"
    assert (error["http_status"], error["over_at"], story.busy["status"]) == (503, None, "reconnecting")
    assert error["tried_again_at"] > error["at"] >= error["since"]
    assert "secret-reason" not in story.log


def test_a_failure_is_past_once_the_stream_is_connected(story: Story) -> None:
    """It says since when; and the id that came with two bodies is counted, the one spelled otherwise is not."""
    assert story.busy_over, story.log
    error, counts = story.busy_over["last_error"], story.busy_over["counts"]
    assert error["message"] == f"refused: 503 Service Unavailable; over since {error['over_at']}"
    assert (error["tried_again_at"], error["failures"]) == (None, 2)
    assert (counts["stored"], counts["duplicates"], counts["conflicts"]) == (1, 2, 1)


def test_a_killed_function_is_a_gap_without_a_recorded_cause(story: Story) -> None:
    """Once it was silent for long enough: its begin and end, and that connection's lane and fencing token."""
    assert story.killed, story.log
    (gap,), last_error = story.killed["coverage"]["gaps"], story.killed["last_error"]
    assert (gap["cause"], gap["closed_by_cursor"], gap["to_at"] is None) == ("unrecorded", True, False)
    # Until Lambda must have ended it nobody can know that it is dead: it may as well be slow.
    assert (last_error["cause"], last_error["lane"]) == ("unheard", "B")
    assert last_error["over_at"] == gap["to_at"]
    assert (story.killed["counts"]["at_least"], story.killed["coverage"]["reaches_start"]) == (True, True)
    assert last_error["fence"] < story.killed["fence"]
    assert last_error["at"] == gap["from_at"]
    assert story.killed["coverage"]["percent"] < 100
    assert (story.killed["status"], story.killed["lanes"]["B"]["phase"]) == ("running", "connected")


def test_a_dead_claim_is_taken_over_at_once(story: Story) -> None:
    """The execution was aborted, so it released nothing; the next POST has the stream under the next generation."""
    before, after = story.abandoned, story.taken_over
    assert (after["execution"], after["generation"]) == (story.successor, before["generation"] + 1)
    assert after["fence"] > before["fence"]
    assert json.loads(story.stopped["output"]) == {"status": "stopped"}
