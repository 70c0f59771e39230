"""A secret, put as docs/profiles.md says, through the whole local service: it reaches the upstream and nothing else."""

import json

from tests.handlers.servers import Peer, sends
from tests.local.support import until
from tests.local_run import LocalRun

STREAM, REFUSED = "kubernetes:pods", "kubernetes:nodes"
VALUE = "a-token-that-nobody-else-may-see"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
POD = b'{"type": "ADDED", "object": {"metadata": {"uid": "u", "resourceVersion": "10596"}}}\n'


def repeats(peer: Peer) -> None:
    """Answers with a refusal that repeats the request in its status line, a header and its body."""
    request = peer.request.replace(b"\r\n", b" ")
    peer.send(
        b"HTTP/1.1 400 %s\r\nX-Request: %s\r\nContent-Length: %d\r\n\r\n%s" % (request, request, len(request), request)
    )


def test_a_local_function_sends_a_secret_and_shows_it_nowhere(local_run: LocalRun) -> None:
    """The secret comes by reference from the local Secrets Manager; no log, history, table, queue or answer contains
    it. One stream is served and another refused, by an upstream that repeats the request.
    """
    service = local_run
    served = service.script("kubernetes/api/v1/pods", sends(ANSWER + POD, then=Peer.wait_until_gone))
    refused = service.script("kubernetes/api/v1/nodes", repeats)
    service.aws("secretsmanager").create_secret(Name="/streamkeeper/test/kubernetes/token", SecretString=VALUE)
    arn = service.post(STREAM)["executionArn"]
    assert until(lambda: service.items("events", STREAM), 30)
    assert f"\r\nauthorization: Bearer {VALUE}\r\n".encode() in served[0].request

    other = service.post(REFUSED)["executionArn"]
    assert until(lambda: service.execution(other)["status"] != "RUNNING", 30)
    assert service.status(REFUSED) == "rejected"
    assert f"authorization: Bearer {VALUE} ".encode() in refused[0].request.replace(b"\r\n", b" ")
    service.ask("DELETE", STREAM)
    assert until(lambda: service.execution(arn)["status"] != "RUNNING", 30)
    steps, queues = service.aws("stepfunctions"), service.aws("sqs")
    messages = [
        queues.receive_message(QueueUrl=address, MaxNumberOfMessages=10, VisibilityTimeout=0).get("Messages", [])
        for address in queues.list_queues()["QueueUrls"]
    ]
    assert any(messages)
    answers = [service.ask("GET", ""), *messages]
    for stream_id, ran in ((STREAM, arn), (REFUSED, other)):
        history = steps.get_execution_history(executionArn=ran, includeExecutionData=True)
        records = [service.items(table, stream_id) for table in ("control", "events")]
        answers += [history, service.execution(ran), service.ask("GET", stream_id), *records]
    data = service.folder / "data"
    logs = {path.name: path.read_text(errors="replace") for path in (data / "logs").rglob("*.log")}
    assert logs
    assert VALUE not in json.dumps(answers, default=str) + service.log + "".join(logs.values())
    kept = [path for path in (data / "executions").rglob("*") if path.is_file()]
    assert kept
    assert not any(VALUE.encode() in path.read_bytes() for path in kept)


def test_a_demonstration_that_needs_a_secret_has_it(local_run: LocalRun) -> None:
    """A POST alone connects `demo-token`, whose played servers ask for a token and a ticket."""
    arn = local_run.post("demo-token")["executionArn"]
    assert until(lambda: local_run.items("events", "demo-token"), 30)
    local_run.ask("DELETE", "demo-token")
    assert until(lambda: local_run.execution(arn)["status"] != "RUNNING", 30)
