"""A secret, put as the README says, through the whole local service: it reaches the upstream and nobody else."""

import json
from pathlib import Path

from tests.handlers.servers import Peer, serving
from tests.harness import running
from tests.local.support import client, until

STREAM = "kubernetes:pods"
VALUE = "a-token-that-nobody-else-may-see"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
POD = b'{"type": "ADDED", "object": {"metadata": {"uid": "u", "resourceVersion": "10596"}}}\n'


def watches(peer: Peer) -> None:
    """A change, and silence until the client goes."""
    peer.send(ANSWER + POD)
    peer.wait_until_gone()


def test_a_local_function_sends_a_secret_and_tells_it_to_nobody(tmp_path: Path) -> None:
    """It comes by reference from the local Secrets Manager; no log, no history, no table and no answer holds it."""
    with serving(watches) as upstream, running(tmp_path, UPSTREAM_KUBERNETES=upstream.address) as service:
        endpoint = f"http://127.0.0.1:{service.port + 1}"
        secrets = client("secretsmanager", endpoint)
        secrets.create_secret(Name="/streamkeeper/kubernetes/token", SecretString=VALUE)
        arn = service.post(STREAM)["executionArn"]
        assert until(lambda: service.items("events", STREAM), 30)
        assert f"\r\nauthorization: Bearer {VALUE}\r\n".encode() in upstream.peers[0].request

        _, answer = service.ask("GET", STREAM)
        service.ask("DELETE", STREAM)
        assert until(lambda: service.execution(arn)["status"] != "RUNNING", 30)
        steps = client("stepfunctions", endpoint)
        history = steps.get_execution_history(executionArn=arn, includeExecutionData=True)
        told = [
            answer,
            service.execution(arn),
            history,
            service.items("control", STREAM),
            service.items("events", STREAM),
        ]
        logs = {path.name: path.read_text(errors="replace") for path in (tmp_path / "data" / "logs").rglob("*.log")}
    assert logs
    assert VALUE not in json.dumps(told, default=str) + service.log + "".join(logs.values())
    kept = [path for path in (tmp_path / "data" / "executions").rglob("*") if path.is_file()]
    assert kept
    assert not any(VALUE.encode() in path.read_bytes() for path in kept)
