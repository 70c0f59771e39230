"""One connection to an upstream that plays a hostile part, and the parts that several tests need."""

from itertools import repeat
from typing import Any

from handlers.aws.secret_values import SecretValues
from handlers.connection.steps import Invocation, Report
from handlers.profile.parse import parse
from handlers.run.stream_invocation import run_invocation
from handlers.run.threads import SystemClock
from tests.handlers.aws import SECRETS, Aws
from tests.handlers.servers import Peer, Script, serving

STREAM = "demo"
EVENT = b"id: 1\ndata: 1\n\n"


def connect(aws: Aws, script: Script, *, lasts_ms: int = 120_000, **fields: Any) -> Report:
    """The report of one connection to a server that plays `script` to the first and to all that follow."""
    table = {"framing": "sse", "allow_private": True, "max_frame_bytes": 100_000, "overlap_s": 0.1, **fields}
    with serving(script) as server:
        profile = parse(STREAM, {"address": server.address + "/s?q=hidden", "stall_after_s": 60, **table}, {})
        clock = SystemClock()
        deadline_ms = clock.now_ms() + lasts_ms
        invocation = Invocation(STREAM, "A", "", "r1", deadline_ms, 2_000, 100, 100, 60_000)
        report = run_invocation(
            profile, aws.store(), SecretValues(repr, SECRETS), invocation, clock, lambda *_report: None
        )
        assert clock.now_ms() < deadline_ms
    assert "hidden" not in repr(report)
    return report


def ending(aws: Aws, script: Script, **fields: Any) -> tuple[str, str]:
    """The error's name and its sentence."""
    outcome = connect(aws, script, **fields).outcome
    return outcome.error, outcome.message


def sends(*parts: bytes) -> Script:
    def script(peer: Peer) -> None:
        for part in parts:
            peer.send(part)

    return script


class Flood:
    """Sends a head, then one text again and again until the client is gone; counts the bytes."""

    def __init__(self, head: bytes, text: bytes) -> None:
        self._head = head
        self._text = text
        self.sent_bytes = 0

    def __call__(self, peer: Peer) -> None:
        peer.send(self._head)
        for text in repeat(self._text):
            peer.send(text)
            self.sent_bytes += len(text)


def drips(head: bytes, text: bytes) -> Script:
    """Sends a head, then `text` for ever in single bytes, twenty a second."""

    def script(peer: Peer) -> None:
        peer.send(head)
        while not peer.gone.wait(0.05):
            for byte in text:
                peer.send(bytes([byte]))

    return script


NOT_OPENED = "the stream was not opened"
CLOSED = "the stream was closed"
