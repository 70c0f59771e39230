"""One connection to a hostile upstream, and the scripts that several tests play."""

from itertools import repeat
from typing import Any

from handlers.connection.steps import Report
from handlers.profile.parse import parse
from tests.handlers.aws import Memory
from tests.handlers.lanes import run
from tests.handlers.servers import Peer, Script, serving

STREAM = "demo"
EVENT = b"id: 1\ndata: 1\n\n"


def connect(memory: Memory, script: Script, *, lasts_ms: int = 120_000, **fields: Any) -> Report:
    """Return the report of one connection to a server that plays `script` to each connection."""
    table = {"framing": "sse", "allow_private": True, "max_frame_bytes": 100_000, "overlap_s": 0.1, **fields}
    with serving(script) as server:
        profile = parse(STREAM, {"address": server.address + "/s?q=hidden", "stall_after_s": 60, **table}, {})
        report = run(profile, memory.store(), lasts_ms=lasts_ms, margin_ms=2_000)
    assert "hidden" not in repr(report)
    return report


def ending(memory: Memory, script: Script, **fields: Any) -> tuple[str, str]:
    """Return the error's name and its sentence."""
    outcome = connect(memory, script, **fields).outcome
    return outcome.error, outcome.message


class Flood:
    """Sends a head, then the same text repeatedly until the client is gone; counts the bytes."""

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
    """Send a head, then `text` byte by byte, again twenty times a second until the client is gone."""

    def script(peer: Peer) -> None:
        peer.send(head)
        while not peer.gone.wait(0.05):
            for byte in text:
                peer.send(bytes([byte]))

    return script


NOT_OPENED = "the stream was not opened"
CLOSED = "the stream was closed"
