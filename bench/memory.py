"""`python -m bench.memory`: measures the memory of the function as it is deployed, under load and with large events.

Each framing is measured with events as items and in a log, and two of them with a body that comes compressed. The
function is a process under AWS's runtime client, with TLS to the upstream and to DynamoDB, and all the authorities of
this machine to trust. The upstream sends events as fast as they are taken, and then among them events up to the
profile's bound, which nothing can compress below what an item holds, so they go to the bucket. `--share` gives the
function no more of a core than Lambda gives so many megabytes, where this process may make a cgroup (version 1). What
counts is the most that was ever resident. Invariant: every event that was sent is stored.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import ssl
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.group import Plan, running
from bench.harness import live, options, process, show, so
from bench.ingest import environment
from bench.memory_parts import FRAMES, certificate, content_type, deployed, share
from bench.processes import own_spent_s, resident_mb
from bench.source import data
from local.checkout import ROOT
from local.functions.sandbox import Sandbox
from local.stack import Function

GOAL_MB = 90
STREAM = "bench"
TICK_S = 0.01
PROFILE = """
address = "${UPSTREAM_BENCH}"
allow_private = true
framing = "%s"
store = "%s"
max_frame_bytes = %d
end = { data = "[DONE]" }
"""
MOST_FRAME_BYTES = 16 * 1024 * 1024
STORES = ("items", "log")
# A read of a body takes so much at once, so an event of `raw` has no more.
RAW_BYTES = 60 * 1024


@dataclass(frozen=True)
class Load:
    """What the upstream sends: `events_per_s` 0 is as fast as it is taken; then `large` events of each size."""

    framing: str
    store: str
    is_compressed: bool
    events_per_s: int
    seconds: float
    event_bytes: int
    large: int
    max_frame_bytes: int

    @property
    def sizes(self) -> list[int]:
        """How large the large events are: one that is an item, and those that no item holds, up to the bound."""
        beside = len(large(0, 0)) + len(self.frame(1_000_000, "")) + 100
        sizes = [300 * 1024, 600 * 1024, self.max_frame_bytes - beside]
        return [RAW_BYTES - beside] if self.framing == "raw" else sizes

    def frame(self, number: int, text: str) -> str:
        """An event as it is on the wire."""
        return FRAMES[self.framing](number, text)


def large(number: int, size: int) -> str:
    """A text of JSON which nothing can compress to less than half."""
    return f'{{"n":{number},"text":"{os.urandom(size // 2).hex()}"}}'


class Upstream:
    """One connection of a stream: what was sent, how many events, and when it was asked for."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.asked_s = 0.0
        self.sent = 0
        self.steady_s = 0.0
        self.cpu_s = (0.0, 0.0)
        self.pid = 0

    def play(self, handler: BaseHTTPRequestHandler) -> None:
        """Send the whole stream."""
        self.asked_s = time.monotonic()
        packer = zlib.compressobj(1, wbits=31) if self._load.is_compressed else None
        handler.send_response(200)
        handler.send_header("Content-Type", content_type(self._load.framing))
        handler.send_header("Transfer-Encoding", "chunked")
        if packer is not None:
            handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()

        def send(texts: list[str]) -> None:
            """Send the texts, each a chunk where it is an event of `raw`."""
            pieces = texts if self._load.framing == "raw" else ["".join(texts)]
            for piece in map(str.encode, pieces):
                data = piece if packer is None else packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
                if data:
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        self.cpu_s = (own_spent_s(self.pid), 0.0)
        self._steady(send, self._load.seconds)
        self.steady_s = time.monotonic() - self.asked_s
        for size in self._load.sizes * (1 if self._load.large else 0):
            for _ in range(self._load.large):
                self.sent += 1
                send([self._load.frame(self.sent, large(self.sent, size))])
                self._steady(send, 0.2)
        self.sent += 1
        send([self._load.frame(self.sent, "[DONE]")])
        handler.wfile.write(b"0\r\n\r\n")

    def _steady(self, send: Callable[[list[str]], None], for_s: float) -> None:
        began_s, first = time.monotonic(), self.sent
        while (elapsed_s := time.monotonic() - began_s) < for_s:
            due = first + int(elapsed_s * self._load.events_per_s) if self._load.events_per_s else self.sent + 500
            numbers = range(self.sent + 1, due + 1)
            send([self._load.frame(number, data(number, self._load.event_bytes)) for number in numbers])
            self.sent = due
            if self._load.events_per_s:
                time.sleep(TICK_S)


@contextlib.contextmanager
def serving(upstream: Upstream, context: ssl.SSLContext | None) -> Iterator[str]:
    """Serve the stream to who gets it, and a bucket to who puts; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            upstream.play(self)

        def do_PUT(self) -> None:
            left = int(self.headers["Content-Length"])
            while left:
                left -= len(self.rfile.read(min(left, 65536)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http{'' if context is None else 's'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def run(load: Load, memory_mb: int) -> dict[str, Any]:
    """Return the figures of one function; its share of a core is that of `memory_mb`, 0 for a whole one."""
    upstream = Upstream(load)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        context, both, trusted = certificate(folder)
        endpoint, _ = stack.enter_context(process("bench.tables", f"--certificate={both}"))
        address = stack.enter_context(serving(upstream, context))
        bucket = stack.enter_context(serving(upstream, None))
        procs = stack.enter_context(share(memory_mb))
        (folder / "bench.toml").write_text(PROFILE % (load.framing, load.store, load.max_frame_bytes))
        variables = environment(folder, endpoint.replace("http:", "https:"), address, 0, load.event_bytes)
        variables |= {
            "SSL_CERT_FILE": str(trusted),
            # boto3 has authorities of its own, and a function that is told of others has no client but boto3.
            "AWS_ENDPOINT_URL_S3": bucket,
            "EVENTS_BUCKET": "bench-bucket",
            **{name: value for name, value in deployed().items() if name.startswith("MALLOC_")},
        }
        function = Function("bench", "handlers.connection_manager.handler", 900, memory_mb or 128, variables)
        lines: list[bytes] = []
        sandbox = Sandbox(function, {}, ROOT, lines.append)
        began_s = time.monotonic()
        await sandbox.start()
        assert sandbox.pid is not None
        upstream.pid = sandbox.pid
        if procs is not None:
            procs.write_text(str(sandbox.pid))
        try:
            answer = await sandbox.invoke(json.dumps({"pathParameters": {"streamId": STREAM}}).encode())
            end_s = time.monotonic()
            cpu_s, most_mb = own_spent_s(sandbox.pid), resident_mb(sandbox.pid)
        finally:
            await sandbox.close()
    returned = json.loads(answer.payload)
    # Of `raw` a chunk of which a part has come is an event, and the rest another.
    stored = min(returned.get("stored", 0), upstream.sent) if load.framing == "raw" else returned.get("stored")
    assert stored == upstream.sent, f"{returned}: {upstream.sent} were sent; {b''.join(lines)!r}"
    return {
        "events": upstream.sent,
        "cold_start_s": round(upstream.asked_s - began_s, 2),
        "cpu_us": round((cpu_s - upstream.cpu_s[0]) / upstream.sent * 1e6, 1),
        "events_per_s": round(upstream.sent / (end_s - upstream.asked_s)),
        "most_mb": round(most_mb, 1),
    }


def kinds(framings: Sequence[str], stores: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield what is measured: framing, store, and whether the body comes compressed."""
    for framing in framings:
        for store in stores:
            yield framing, store, False
        if framing in ("sse", "ndjson"):
            yield framing, stores[-1], True


GROUP_GOAL_MB = 110
# What all streams of a group do at once: their frames, and how long their large events are.
GROUP_KINDS = (("calm", 0), ("flood", 0), ("large", 1024 * 1024), ("unfinished", 1024 * 1024), ("unfinished", 10**7))


async def run_group(behaviour: str, large_bytes: int, framing: str, store: str, streams: int, seconds: float) -> float:
    """Return the most memory that a function ever had whose streams all do that, each over TLS."""
    plan = Plan({behaviour: streams}, framing, store, is_tls=True, large_bytes=large_bytes)
    async with running(plan) as function:
        if behaviour == "calm":
            await function.until_all_stored(plan.ids)
        await function.last(seconds)
        return function.most_mb


def measure_groups(asked: argparse.Namespace) -> int:
    """Print what a function takes that keeps so many streams, and return 0; 1 where the goal is missed."""
    rows = []
    live(asked, f"{'framing':<10}{'store':<7}{'all streams':<22}{'most_mb':>9}")
    for framing, store in itertools.product(asked.framing, asked.store):
        for behaviour, large_bytes in GROUP_KINDS:
            what = f"{behaviour} {large_bytes or ''}".strip()
            most_mb = asyncio.run(run_group(behaviour, large_bytes, framing, store, asked.streams, asked.seconds))
            rows.append({"framing": framing, "store": store, "all": what, "most_mb": round(most_mb, 1)})
            live(asked, f"{framing:<10}{store:<7}{what:<22}{most_mb:>9.1f}")
    return _shown(asked, rows, f"{asked.streams} streams", GROUP_GOAL_MB)


def _shown(asked: argparse.Namespace, rows: list[dict[str, Any]], what: str, goal_mb: int) -> int:
    most_mb = max(row["most_mb"] for row in rows)
    goal = so(what, f"below {goal_mb} MB: {most_mb} MB", most_mb < goal_mb)
    return show(asked, {"goal_mb": goal_mb, "most_mb": most_mb, "streams": asked.streams, "rows": rows}, [], [goal])


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0, 1 where one of them misses the goal."""
    asked = options(
        argv, __doc__, framing=([*FRAMES], "which framings", [*FRAMES]), store=(STORES, "which stores", STORES),
        events_per_s=(0, "how many, 0 for all that go"), seconds=(4.0, "for how long before the large events"),
        event_bytes=(200, "bytes of JSON in an event"), large=(3, "how many large events of each size"),
        max_frame_bytes=(MOST_FRAME_BYTES, "the profile's bound"), share=(0, "as much of a core as so many MB have"),
        streams=(1, "measure a group of so many streams instead, all of which do the same at once"),
    )  # fmt: skip
    if asked.streams > 1:
        return measure_groups(asked)
    rows = []
    names = ("events", "cold_start_s", "cpu_us", "events_per_s", "most_mb")
    live(asked, f"{'framing':<10}{'store':<7}{'body':<7}" + "".join(f"{name:>14}" for name in names))
    for framing, store, is_compressed in kinds(asked.framing, asked.store):
        rates = asked.events_per_s, asked.seconds, asked.event_bytes, asked.large, asked.max_frame_bytes
        load = Load(framing, store, is_compressed, *rates)
        figures = asyncio.run(run(load, asked.share))
        rows.append(asdict(load) | {"share_mb": asked.share} | figures)
        body = "gzip" if is_compressed else "plain"
        live(asked, f"{framing:<10}{store:<7}{body:<7}" + "".join(f"{figures[name]:>14}" for name in names))
    return _shown(asked, rows, "a function", GOAL_MB)


if __name__ == "__main__":
    sys.exit(main())
