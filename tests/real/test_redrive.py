"""Dead-letter messages of a real run are put back by the command, as a person types it."""

import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handlers.framing.events import StreamEvent
from handlers.store import overflow
from tests.deploy.test_alarms import filters
from tests.handlers.servers import CHUNKED, Peer, serving
from tests.harness import STAGE, Service, running
from tests.local import support
from tests.local.support import until

UNPAID, RUNS = "demo:unpaid", "demo:runs"


class Upstream:
    """It sends one event of each stream; it refuses UNPAID once, as until a bill is paid, and ends it then."""

    def __init__(self) -> None:
        self._is_paid = False

    def __call__(self, peer: Peer) -> None:
        is_unpaid = b"unpaid" in peer.request.partition(b"\r\n")[0]
        if is_unpaid and not self._is_paid:
            self._is_paid = True
            peer.send(b"HTTP/1.1 402 Payment Required\r\nContent-Length: 0\r\n\r\n")
            return
        peer.send(CHUNKED)
        peer.chunk(b"id: 1\ndata: one\n\n")
        if is_unpaid:
            peer.chunk(b"event: end\ndata:\n\n")
        else:
            peer.wait_until_gone()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A run for both tests, whose queue each leaves empty."""
    folder = tmp_path_factory.mktemp("redrive")
    with serving(Upstream()) as server, running(folder, UPSTREAM_DEMO=server.address) as service:
        yield service


def redrive(service: Service, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status of the command, and what it says of each message."""
    command = [sys.executable, "-m", "local.cli", "redrive", "--json", *options]
    environment = support.environment(PORT=str(service.port), STREAMKEEPER_STAGE=STAGE)
    done = subprocess.run(
        command, env=environment, cwd=support.PROJECT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)["found"]


@contextlib.contextmanager
def queue(service: Service) -> Iterator[tuple[Any, str]]:
    """A client of the run's dead-letter queue, and the queue's address."""
    with contextlib.closing(support.client("sqs", f"http://127.0.0.1:{service.port + 1}")) as sqs:
        yield sqs, sqs.get_queue_url(QueueName=f"streamkeeper-{STAGE}-dead-letters")["QueueUrl"]


def waiting(service: Service) -> int:
    """How many messages are in the queue."""
    name = "ApproximateNumberOfMessages"
    with queue(service) as (sqs, url):
        return int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])


def counted(folder: Path) -> int:
    """How many lines of the connection manager's log the metric of rejections counts."""
    words = [word.removeprefix("?") for word in shlex.split(filters()["streamkeeper-test/Rejections"])]
    lines = (folder / "data" / "logs" / f"streamkeeper-{STAGE}-connection-manager.log").read_text().splitlines()
    return sum(any(word in line for word in words) for line in lines)


def test_a_rejected_stream_is_started_again_and_an_event_is_put_back(service: Service) -> None:
    """It was counted once. The 402 passes, the stream goes on, the lost event is there, and the queue is empty."""
    service.post(UNPAID)
    assert until(lambda: waiting(service) == 1, 30), service.log
    assert (service.ask("GET", UNPAID)[1]["status"], counted(service.folder)) == ("rejected", 1)
    status, (found,) = redrive(service)
    assert (status, found["stream"], found["outcome"]) == (1, UNPAID, "left")
    assert found["reason"].startswith("StreamRejected: ")
    (body,) = overflow.messages(UNPAID, 1, StreamEvent("0", "zero", "0", None, None, 5), "refused")
    with queue(service) as (sqs, url):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    status, both = redrive(service, "--restart")
    assert (status, sorted(one["outcome"] for one in both)) == (0, ["started", "stored"])
    assert until(lambda: service.ask("GET", UNPAID)[1]["status"] == "ended", 30), service.log
    assert [event["data"] for event in service.events(UNPAID)][:2] == ["zero", "one"]
    assert (waiting(service), counted(service.folder)) == (0, 1)


def test_the_message_of_a_stream_that_runs_again_is_deleted(service: Service) -> None:
    """Somebody has started it by a POST: nothing is left to do, and nothing is started beside it."""
    rejection = {"stream": RUNS, "execution": "arn", "error": "StreamRejected", "cause": "HTTP status 403"}
    execution = service.post(RUNS)["executionArn"]
    assert until(lambda: service.ask("GET", RUNS)[1].get("holder"), 30), service.log
    with queue(service) as (sqs, url):
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps(rejection))
    status, (found,) = redrive(service, "--restart")
    assert (status, found["outcome"], found["detail"], waiting(service)) == (0, "runs already", execution, 0)
