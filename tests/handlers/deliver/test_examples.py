"""Each consumer of examples/ prints what its sink was sent, once and, where the sink keeps one, in the order."""

import contextlib
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from handlers.deliver import known_sinks
from handlers.deliver.contract import Tools
from handlers.deliver.table_records import messages
from handlers.profile.deliver_field import KINDS, Target
from handlers.profile.secret_references import Reference
from tests.handlers.deliver import rigs
from tests.handlers.deliver.records import NOW_MS, event, item_record
from tests.harness import free_port
from tests.local.support import environment, until

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
BATCH = [messages(item_record("rig:a", event(str(n), at_ms=NOW_MS + n), n), n)[0] for n in range(3)]
EXPECTED = [f"rig:a {n}" for n in range(3)]


def is_open(port: int) -> bool:
    """Whether somebody listens."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def send(target: Target, endpoint: str) -> dict[int, object]:
    """Sends the events, one a request, and all of them again; returns what was refused."""
    tools = Tools(lambda service: rigs.client(service, endpoint), lambda _: rigs.SECRET, lambda: NOW_MS)
    _, sending = known_sinks.sending(target, tools)
    refused: dict[int, object] = {}
    for message in BATCH * 2:
        refused |= sending([message])
    return refused


def printed(command: list[str], variables: dict[str, str], ready: threading.Event, count: int) -> list[str]:
    """The first `count` lines that the consumer prints; `ready` is set once it runs."""
    process = subprocess.Popen(
        [sys.executable, *command], env=environment(**variables), stdout=subprocess.PIPE, text=True
    )
    lines: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        lines.extend(line.strip() for line in process.stdout)

    reader = threading.Thread(target=read)
    reader.start()
    ready.set()
    try:
        until(lambda: len(lines) >= count or process.poll() is not None, 10)
    finally:
        process.kill()
        process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()
    return lines


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"lambda", "webhook"}))
def test_a_consumer_prints_what_was_sent(kind: str, endpoint: str) -> None:
    """Though each event was sent twice."""
    name = f"example-{uuid.uuid4().hex[:8]}"
    target, _ = rigs.AWS_RIGS[kind](endpoint, name)
    assert send(target, endpoint) == {}
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
    }
    file = EXAMPLES / f"{'s3' if kind == 'firehose' else kind}.py"
    lines = printed([str(file), target.name], variables, threading.Event(), len(EXPECTED))
    assert (sorted(lines) if kind in ("eventbridge", "firehose") else lines) == EXPECTED


def test_the_webhook_prints_what_was_sent() -> None:
    """Signed with its secret, and each twice."""
    port, ready = free_port(1), threading.Event()
    target = Target("webhook", f"http://127.0.0.1:{port}/", secret=Reference("secret", "x"), allow_private=True)

    def post() -> None:
        ready.wait()
        assert until(lambda: is_open(port))
        assert send(target, "") == {}

    poster = threading.Thread(target=post)
    poster.start()
    lines = printed([str(EXAMPLES / "webhook.py"), str(port)], {"SECRET": rigs.SECRET}, ready, len(EXPECTED))
    poster.join()
    assert lines == EXPECTED


def test_the_function_prints_what_it_was_called_with(capsys: pytest.CaptureFixture[str]) -> None:
    """And says that nothing failed."""
    code: dict[str, object] = {}
    exec((EXAMPLES / "lambda_function.py").read_text(), code)
    handler = code["handler"]
    assert callable(handler)
    events = [{"key": message.key} for message in BATCH]
    assert handler({"stream": "rig:a", "events": events}, None) == {"batchItemFailures": []}
    assert capsys.readouterr().out.splitlines() == EXPECTED
