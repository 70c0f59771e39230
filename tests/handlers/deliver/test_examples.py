"""Each consumer of examples/ prints the events sent to its sink, once, and in order if the sink keeps one."""

import contextlib
import io
import runpy
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
import urllib3

from handlers.deliver import contract
from handlers.deliver.contract import Tools
from handlers.profile.deliver_field import KINDS, Target
from handlers.profile.secret_references import Reference
from tests.handlers.deliver import rigs
from tests.handlers.deliver.records import NOW_MS, event, message
from tests.harness import free_port
from tests.local.support import client, environment

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
BATCH = [message("rig:a", event(str(n), at_ms=NOW_MS + n)) for n in range(3)]
EXPECTED = [f"rig:a {n}" for n in range(3)]


def send(target: Target, endpoint: str) -> dict[int, object]:
    """Send each event in a request of its own, and all of them again; return the refusals."""
    tools = Tools(lambda service: client(service, endpoint), lambda _: rigs.SECRET, lambda: NOW_MS)
    _, sending = contract.make_sender(target, tools)
    refused: dict[int, object] = {}
    for one in BATCH * 2:
        refused |= sending([one])
    return refused


class Enough(Exception):
    """Ends a consumer: all that was sent is printed."""


class Terminal(io.StringIO):
    """Ends a consumer after its last line, because a consumer does not end by itself."""

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count("\n") == len(EXPECTED):
            raise Enough
        return written


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"lambda", "webhook"}))
def test_a_consumer_prints_each_event_once(kind: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer prints each event once, although each was sent twice."""
    target, _ = rigs.AWS_RIGS[kind](endpoint, f"example-{uuid.uuid4().hex[:8]}")
    assert send(target, endpoint) == {}
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    file = EXAMPLES / f"{'s3' if kind == 'firehose' else kind}.py"
    monkeypatch.setattr(sys, "argv", [str(file), target.name])
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session("x", "y", region_name="us-east-1"))
    with contextlib.redirect_stdout(Terminal()) as terminal, pytest.raises(Enough):
        runpy.run_path(str(file))
    lines = terminal.getvalue().splitlines()
    assert (sorted(lines) if kind in ("eventbridge", "firehose") else lines) == EXPECTED


def test_a_shard_that_was_split_is_read_before_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer reads a closed shard to its end, where Kinesis names no next iterator, and then its child."""
    records = [{"Data": one.text} for one in BATCH]
    pages = {"old": {"Records": records[:-1]}, "new": {"Records": records[-1:], "NextShardIterator": "new"}}
    kinesis = SimpleNamespace(
        list_shards=lambda **_: {"Shards": [{"ShardId": "new", "ParentShardId": "old"}, {"ShardId": "old"}]},
        get_shard_iterator=lambda **asked: {"ShardIterator": asked["ShardId"]},
        get_records=lambda **asked: pages[asked["ShardIterator"]],
    )
    monkeypatch.setattr(sys, "argv", ["kinesis.py", "any"])
    monkeypatch.setattr(boto3, "client", lambda _: kinesis)
    with contextlib.redirect_stdout(Terminal()) as terminal, pytest.raises(Enough):
        runpy.run_path(str(EXAMPLES / "kinesis.py"))
    assert terminal.getvalue().splitlines() == EXPECTED


def test_the_webhook_prints_each_signed_event_once() -> None:
    """The webhook prints each signed event once, although each was sent twice; unsigned requests get a 401."""
    port = free_port(1)
    target = Target("webhook", f"http://127.0.0.1:{port}/", secret=Reference("secret", "x"), allow_private=True)
    command = [sys.executable, str(EXAMPLES / "webhook.py"), str(port)]
    with subprocess.Popen(
        command, env=environment(SECRET=rigs.SECRET), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            http = urllib3.PoolManager(retries=urllib3.Retry(300, backoff_factor=0.1, backoff_max=0.1))
            others = [http.request("POST", target.name, headers=own) for own in ({}, {"webhook-signature": "\xfc"})]
            assert ([one.status for one in others], send(target, "")) == ([401, 401], {})
            assert [process.stdout.readline().strip() for _ in EXPECTED] == EXPECTED
        finally:
            process.kill()


def test_the_function_prints_what_it_was_called_with(capsys: pytest.CaptureFixture[str]) -> None:
    """The function prints the events of its call, and answers that none failed."""
    code: dict[str, object] = {}
    exec((EXAMPLES / "lambda_function.py").read_text(), code)
    handler = code["handler"]
    assert callable(handler)
    events = [{"key": message.key} for message in BATCH]
    assert handler({"stream": "rig:a", "events": events}, None) == {"batchItemFailures": []}
    assert capsys.readouterr().out.splitlines() == EXPECTED
