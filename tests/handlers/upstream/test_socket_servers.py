"""WebSocket streams of servers from other projects: `ws`, `faye-websocket` (npm), `websockets`, `aiohttp` (PyPI)."""

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

import pytest

from handlers.profile.parse import parse
from tests.handlers.aws import EVENTS, Aws
from tests.handlers.lanes import run, start_lane
from tests.local.support import PROJECT, until

STREAM = "feed:eur-usd"
COUNT = 20
SUBSCRIBE = {"send": {"op": "subscribe", "channel": "{name}", "since": "{cursor}"}, "expect": {"$.op": "subscribed"}}
TABLE = {
    "framing": "websocket",
    "allow_private": True,
    **dict.fromkeys(("key", "cursor", "sequence"), "$.n"),
    "stall_after_s": 30,
    "subscribe": [SUBSCRIBE],
    "leave": {"send": {"op": "bye"}},
}


@contextlib.contextmanager
def server(name: str) -> Iterator[tuple[str, "queue.SimpleQueue[str]"]]:
    """Yield the address of a server of this package, and what it has received, line by line."""
    real = PROJECT / "tests" / "real"
    python = name in ("websockets", "aiohttp")
    command = [sys.executable, str(real / "socket_server.py")] if python else ["node", str(real / "socket-server.mjs")]
    with subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        address = process.stdout.readline().split()[-1]
        thread = threading.Thread(target=listen, args=(process.stdout, heard))
        thread.start()
        try:
            yield address, heard
        finally:
            process.terminate()
            thread.join()


def listen(lines: IO[str], heard: "queue.SimpleQueue[str]") -> None:
    for line in lines:
        heard.put(line.strip())


def heard_by(lines: "queue.SimpleQueue[str]", count: int) -> list[str]:
    return [lines.get(timeout=30) for _ in range(count)]


@pytest.mark.parametrize(
    ("name", "compression"), [("ws", True), ("faye-websocket", False), ("websockets", True), ("aiohttp", True)]
)
def test_a_feed_resumes_after_the_server_has_closed_the_socket(aws: Aws, name: str, *, compression: bool) -> None:
    """A stream stores half, is closed with 4000, subscribes again from its cursor, and stores the rest.

    Each ping is answered, long messages come whole, compressed or not, and the `leave` message comes before the close.
    """
    with server(name) as (address, lines):
        table: dict[str, Any] = {"address": f"{address}/{{name}}", "compression": compression, **TABLE}
        profile = parse("feed", table, {})
        report = run(profile, aws.store(), stream_id=STREAM, lasts_ms=60_000)
        assert (report.outcome.error, report.outcome.message) == (
            "StreamDropped",
            "the upstream closed the socket with 4000: half-way",
        )
        assert (report.progress.stored, aws.store().read(STREAM).cursor) == (COUNT // 2, str(COUNT // 2))
        assert heard_by(lines, 3) == ["subscribed since now", "ponged", "closed with 4000"]
        lane = start_lane(aws, profile, STREAM)
        assert until(lambda: len(aws.items(EVENTS, STREAM)) == COUNT)
        assert heard_by(lines, 2) == [f"subscribed since {COUNT // 2}", "ponged"]
        aws.stop(STREAM)
        assert lane.last_report.outcome.status == "stopped"
        assert heard_by(lines, 2) == ['said {"op":"bye"}', "closed with 1000"]
    items = aws.items(EVENTS, STREAM)
    assert {int(key) for key in items} == set(range(1, COUNT + 1))
