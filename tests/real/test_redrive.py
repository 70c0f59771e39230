"""Dead-letter messages of a real run are put back by the command, as a person types it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from handlers.framing.events import StreamEvent
from handlers.store import overflow
from tests.deploy.test_alarms import filters
from tests.handlers.servers import Peer, chunks, refuses
from tests.harness import STAGE, Service
from tests.local.support import until
from tests.local_run import LocalRun

UNPAID, RUNS = "scripted:unpaid", "scripted:runs"
ONE = b"id: 1\ndata: one\n\n"


@pytest.fixture(scope="module")
def service(local_run: LocalRun) -> Service:
    """The run for both tests, whose queue each leaves empty."""
    local_run.script(UNPAID, refuses(402), chunks(ONE, b"event: end\ndata:\n\n"))
    local_run.script(RUNS, chunks(ONE, then=Peer.wait_until_gone))
    return local_run


def redrive(service: Service, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Returns the exit status of the command, and its result for each message."""
    done = service.typed("redrive", "--json", *options)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)["found"]


def queue(service: Service) -> tuple[Any, str]:
    """Returns a client of the run's dead-letter queue, and the queue's address."""
    sqs = service.aws("sqs")
    return sqs, sqs.get_queue_url(QueueName=f"streamkeeper-{STAGE}-dead-letters")["QueueUrl"]


def waiting(service: Service) -> int:
    """Returns how many messages are in the queue."""
    name = "ApproximateNumberOfMessages"
    sqs, url = queue(service)
    return int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])


def counted(folder: Path) -> int:
    """Returns how many lines of the connection manager's log the metric of rejections counts."""
    words = [word.removeprefix("?") for word in shlex.split(filters()["streamkeeper-test/Rejections"][0])]
    log = folder / "data" / "logs" / f"streamkeeper-{STAGE}-connection-manager.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return sum(any(word in line for word in words) for line in lines)


def test_a_rejected_stream_is_started_again_and_an_event_is_put_back(service: Service) -> None:
    """The rejection counts once. After the 402 the stream goes on, the lost event is stored, the queue is empty."""
    before = counted(service.folder)
    service.post(UNPAID)
    assert until(lambda: waiting(service) == 1, 30), service.log
    assert (service.status(UNPAID), counted(service.folder)) == ("rejected", before + 1)
    status, (found,) = redrive(service)
    assert (status, found["stream"], found["outcome"]) == (1, UNPAID, "left")
    assert found["reason"].startswith("StreamRejected: ")
    (body,) = overflow.dead_letter_messages(UNPAID, 1, StreamEvent("0", "zero", "0", None, None, 5), "refused")
    sqs, url = queue(service)
    sqs.send_message(QueueUrl=url, MessageBody=body)
    status, both = redrive(service, "--restart")
    assert (status, sorted(one["outcome"] for one in both)) == (0, ["started", "stored"])
    assert service.reaches("ended", UNPAID, within_s=30), service.log
    assert [event["data"] for event in service.events(UNPAID)][:2] == ["zero", "one"]
    assert (waiting(service), counted(service.folder)) == (0, before + 1)


def test_the_message_of_a_stream_that_runs_again_is_deleted(service: Service) -> None:
    """The stream was started by a POST, so no second execution is started."""
    rejection = {"stream": RUNS, "execution": "arn", "error": "StreamRejected", "cause": "HTTP status 403"}
    execution = service.post(RUNS)["executionArn"]
    assert until(lambda: service.ask("GET", RUNS)[1].get("holder"), 30), service.log
    sqs, url = queue(service)
    sqs.send_message(QueueUrl=url, MessageBody=json.dumps(rejection))
    status, (found,) = redrive(service, "--restart")
    assert (status, found["outcome"], found["detail"], waiting(service)) == (0, "runs already", execution, 0)
