"""How a stream's executions end, which one takes over from one that died, and how a failure is shown meanwhile.

Through the whole local service, at an upstream that refuses, tires, and sends one id twice.
"""

import json
from typing import Any

from tests.handlers.servers import UNTIL_CLOSE, Peer, refuses, sends
from tests.harness import STAGE, Service
from tests.local.support import until
from tests.local_run import LocalRun

STREAM, BUSY, RETRY_AFTER_S = "scripted:ends", "scripted:busy", 2


BUSY_ANSWER = b"HTTP/1.1 503 secret-reason\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n" % RETRY_AFTER_S
# One id with two bodies, and the first body in another spelling.
REPEATED = [b"id: same\ndata: %s\n\n" % data for data in (b'{"a": 1}', b'{"a":1.0}', b'{"a": 2}')]


def goes_on(peer: Peer) -> None:
    """Sends an event every 50 ms until the client goes."""
    peer.send(UNTIL_CLOSE)
    number = 0
    while not peer.gone.wait(0.05):
        number += 1
        peer.send(b'id: %d\ndata: {"n": %d}\n\n' % (number, number))


def dead_letters(service: Service) -> list[dict[str, Any]]:
    sqs = service.aws("sqs")
    url = sqs.get_queue_url(QueueName=f"streamkeeper-{STAGE}-dead-letters")["QueueUrl"]
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0).get("Messages", [])
    return [json.loads(message["Body"]) for message in messages]


def ended(service: Service, arn: str) -> dict[str, Any]:
    """Returns DescribeExecution's answer once the execution has ended."""
    assert until(lambda: service.execution(arn)["status"] != "RUNNING", 10), service.log
    return service.execution(arn)


def status_once(service: Service, status: str, execution: str | None) -> Any:
    """Returns GET's answer once the stream has this status, with this execution."""

    def is_so() -> bool:
        answer = service.ask("GET", STREAM)[1]
        return bool((answer.get("status"), answer.get("execution")) == (status, execution))

    assert until(is_so, 10), (service.ask("GET", STREAM), service.log)
    return service.ask("GET", STREAM)[1]


def test_a_stream_is_rejected_stopped_killed_and_taken_over(local_run: LocalRun) -> None:
    """Successive executions keep the stream; each ends with its own outcome, and reports it."""
    service = local_run
    service.script(STREAM, refuses(410), goes_on)
    rejected = ended(service, service.post(STREAM)["executionArn"])
    status = status_once(service, "rejected", None)
    is_a_clean_end(service, rejected, status)
    stays_rejected(service, status)

    # A stop right after a POST holds, whether the execution had claimed the stream by then or not.
    arn = service.post(STREAM)["executionArn"]
    assert service.ask("DELETE", STREAM)[0] == 202
    end = ended(service, arn)
    assert (end["status"], json.loads(end["output"])) == ("SUCCEEDED", {"status": "stopped"})
    assert status_once(service, "stopped", None)["holder"] is None

    dead = service.post(STREAM)["executionArn"]
    status_once(service, "running", dead)
    service.kill()
    is_a_gap(until(lambda: _with_a_gap(service.ask("GET", STREAM)[1]), 15))

    # The execution is aborted, so it releases nothing; the next POST has the stream under the next generation.
    before = status_once(service, "running", dead)
    service.aws("stepfunctions").stop_execution(executionArn=dead)
    successor = service.post(STREAM)["executionArn"]
    assert until(lambda: service.connections(STREAM)[-1]["execution"] == successor, 10), service.log
    after = status_once(service, "running", successor)
    assert (after["generation"], after["fence"] > before["fence"]) == (before["generation"] + 1, True)
    service.ask("DELETE", STREAM)
    assert json.loads(ended(service, successor)["output"]) == {"status": "stopped"}


def is_a_clean_end(service: Service, rejected: dict[str, Any], status: Any) -> None:
    """The execution succeeds; its output, the dead-letter message, GET and an alert all have the upstream's answer."""
    output = json.loads(rejected["output"])
    assert (rejected["status"], output["status"], output["error"]) == ("SUCCEEDED", "rejected", "StreamRejected")
    reason = "the upstream answered 410: a retry cannot help"
    assert json.loads(output["cause"])["errorMessage"] == reason
    last_error = status["last_error"]
    assert last_error["message"] == "refused: 410 Gone; not tried again: start it to try again"
    assert status["reason"] == "refused: 410 Gone; start it to try again"
    assert (last_error["cause"], last_error["lane"], last_error["fence"]) == ("refused", "B", 1)
    assert dead_letters(service) == [
        {"stream": STREAM, "execution": rejected["executionArn"], "error": "StreamRejected", "cause": output["cause"]}
    ]
    (alert,) = [line for line in service.log.splitlines() if " ALERT: " in line and STREAM in line]
    assert alert.endswith(f" ended for the stream '{STREAM}': rejected by StreamRejected: {reason}")


def stays_rejected(service: Service, before: Any) -> None:
    """After a DELETE the stream stays rejected: DELETE, GET and the list have status, reason and both instants."""
    code, stop_answer = service.ask("DELETE", STREAM)
    (listed,) = (one for one in service.ask("GET", "")[1]["streams"] if one["stream"] == STREAM)
    for answer in (stop_answer, service.ask("GET", STREAM)[1], listed):
        chosen = ("status", "reason", "ended_at", "execution")
        assert {name: answer[name] for name in chosen} == {name: before[name] for name in chosen}
        assert answer["stop_requested_at"] > before["ended_at"]
    assert (code, before["stop_requested_at"]) == (202, None)
    assert stop_answer["message"] == f"No lane is connected: {before['reason']}."


def is_a_gap(status: Any) -> None:
    """Checks the gap of a silent connection: its begin and end, and the connection's lane and fencing token."""
    assert status
    # On a slow machine more gaps follow, and the newest failure is that of the last gap.
    gaps, last_error = status["coverage"]["gaps"], status["last_error"]
    gap, newest = gaps[0], gaps[-1]
    assert (gap["cause"], gap["state"], gap["to_at"] is None) == ("unrecorded", "delivered", False)
    # Before Lambda's time limit a silent function may be slow instead of dead.
    assert (last_error["cause"], last_error["lane"]) == ("unheard", "B")
    assert (last_error["at"], last_error["over_at"]) == (newest["from_at"], newest["to_at"])
    assert (status["counts"]["at_least"], status["coverage"]["reaches_start"]) == (True, True)
    assert last_error["fence"] < status["fence"]
    assert status["coverage"]["connected_percent"] < 100
    assert (status["status"], status["lanes"]["B"]["phase"]) == ("running", "connected")


def test_a_failure_has_the_instant_of_the_next_try(local_run: LocalRun) -> None:
    """A failure has the status, its usual name and the instant from Retry-After, but not the upstream's own words; it
    is past once the stream is connected. An id with two bodies is counted, one with another spelling is not.
    """
    service = local_run
    repeats = sends(UNTIL_CLOSE, *REPEATED, then=Peer.wait_until_gone)
    refused: list[Peer] = []

    def is_busy(peer: Peer) -> None:
        refused.append(peer)
        sends(BUSY_ANSWER)(peer)

    service.script(BUSY, is_busy)
    service.post(BUSY)
    busy = until(lambda: _resting(service.ask("GET", BUSY)[1]), 10)
    assert busy, service.log
    service.script(BUSY, repeats)
    error = busy["last_error"]
    assert error["message"] == "refused: 503 Service Unavailable; next try after its back-off"
    assert (error["http_status"], error["over_at"], busy["status"]) == (503, None, "reconnecting")
    assert error["tried_again_at"] > error["at"] >= error["since"]
    # The connection that met the conflict writes it down.
    assert until(lambda: service.ask("GET", BUSY)[1]["counts"]["conflicts"], 3 * RETRY_AFTER_S), service.log
    over = service.ask("GET", BUSY)[1]
    error, counts = over["last_error"], over["counts"]
    assert error["message"] == "refused: 503 Service Unavailable; reconnected since"
    assert (error["tried_again_at"], error["failures"]) == (None, len(refused))
    # On a slow machine there may be more connections, and each brings the stored event once more.
    assert (counts["stored"], counts["duplicates"]) == (1, 3 * counts["conflicts"] - 1)
    assert "secret-reason" not in service.log


def _resting(status: Any) -> Any:
    """Returns the status while it has a back-off."""
    return status if (status.get("last_error") or {}).get("tried_again_at") else None


def _with_a_gap(status: Any) -> Any:
    """Returns the status once it has a gap, and the connection after the gap has caught up."""
    gaps = status["coverage"]["gaps"] if status.get("coverage") else []
    return status if gaps and gaps[0]["state"] != "open" else None
