"""A secret, put as docs/profiles.md says, through the whole local service: it reaches the upstream and nobody else."""

import json
from pathlib import Path

from tests.handlers.servers import Peer, serving
from tests.harness import running
from tests.local.support import client, until

STREAM, REFUSED = "kubernetes:pods", "kubernetes:nodes"
VALUE = "a-token-that-nobody-else-may-see"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
POD = b'{"type": "ADDED", "object": {"metadata": {"uid": "u", "resourceVersion": "10596"}}}\n'


def watches(peer: Peer) -> None:
    """A change, and silence until the client goes."""
    peer.send(ANSWER + POD)
    peer.wait_until_gone()


def repeats(peer: Peer) -> None:
    """A refusal that repeats the request in its status line, a header and its body."""
    request = peer.request.replace(b"\r\n", b" ")
    peer.send(
        b"HTTP/1.1 400 %s\r\nX-Request: %s\r\nContent-Length: %d\r\n\r\n%s" % (request, request, len(request), request)
    )


def test_a_local_function_sends_a_secret_and_shows_it_nowhere(tmp_path: Path) -> None:
    """It comes by reference from the local Secrets Manager; no log, history, table, queue or answer contains it.

    One stream is served and another refused, by an upstream that repeats the request.
    """
    with serving(watches, repeats) as upstream, running(tmp_path, UPSTREAM_KUBERNETES=upstream.address) as service:
        endpoint = f"http://127.0.0.1:{service.port + 1}"
        secrets = client("secretsmanager", endpoint)
        secrets.create_secret(Name="/streamkeeper/test/kubernetes/token", SecretString=VALUE)
        arn = service.post(STREAM)["executionArn"]
        assert until(lambda: service.items("events", STREAM), 30)
        assert f"\r\nauthorization: Bearer {VALUE}\r\n".encode() in upstream.peers[0].request

        refused = service.post(REFUSED)["executionArn"]
        assert until(lambda: service.execution(refused)["status"] != "RUNNING", 30)
        assert service.ask("GET", REFUSED)[1]["status"] == "rejected"
        assert f"authorization: Bearer {VALUE} ".encode() in upstream.peers[1].request.replace(b"\r\n", b" ")
        service.ask("DELETE", STREAM)
        assert until(lambda: service.execution(arn)["status"] != "RUNNING", 30)
        steps, queues = client("stepfunctions", endpoint), client("sqs", endpoint)
        messages = [
            queues.receive_message(QueueUrl=address, MaxNumberOfMessages=10).get("Messages", [])
            for address in queues.list_queues()["QueueUrls"]
        ]
        assert any(messages)
        answers = [service.ask("GET", ""), *messages]
        for stream_id, ran in ((STREAM, arn), (REFUSED, refused)):
            history = steps.get_execution_history(executionArn=ran, includeExecutionData=True)
            records = [service.items(table, stream_id) for table in ("control", "events")]
            answers += [history, service.execution(ran), service.ask("GET", stream_id), *records]
        logs = {path.name: path.read_text(errors="replace") for path in (tmp_path / "data" / "logs").rglob("*.log")}
    assert logs
    assert VALUE not in json.dumps(answers, default=str) + service.log + "".join(logs.values())
    kept = [path for path in (tmp_path / "data" / "executions").rglob("*") if path.is_file()]
    assert kept
    assert not any(VALUE.encode() in path.read_bytes() for path in kept)
