"""`python -m bench.memory`: measures the memory of the function as it is deployed, under load and with large events.

The function is a process under AWS's runtime client, with TLS to the upstream and to DynamoDB, and all the authorities
of this machine to trust. The upstream sends events at a steady rate, and among them events up to the profile's bound,
which nothing can compress, so they go to the bucket by boto3. `--share` gives the function no more of a core than
Lambda gives so many megabytes, where this process may make a cgroup (version 1). What counts is the most that was ever
resident. Invariant: every event that was sent is stored.
"""

import argparse
import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from bench.ingest import environment, process
from bench.source import frame
from local.checkout import ROOT
from local.functions.sandbox import Sandbox
from local.stack import Function

GOAL_MB = 90
# Lambda: "at 1,769 MB, a function has the equivalent of one vCPU".
MB_PER_CORE = 1769
STREAM = "bench"
TICK_S = 0.01
PERIOD_US = 100_000
CGROUP = Path("/sys/fs/cgroup/cpu")
PROFILE = """
address = "${UPSTREAM_BENCH}"
allow_private = true
framing = "sse"
max_frame_bytes = %d
end = { event = "end" }
"""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """What the upstream sends: `events_per_s` 0 is as fast as it is taken; then `large` events of each size."""

    events_per_s: int
    seconds: float
    event_bytes: int
    large: int
    max_frame_bytes: int

    @property
    def sizes(self) -> list[int]:
        """How large the large events are: one that is an item, and those that no item holds, up to the bound."""
        beside = len("id: 1000000\ndata: \n\n") + 100
        return [300 * 1024, 600 * 1024, self.max_frame_bytes - beside]


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
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        self.cpu_s = (used_s(self.pid), 0.0)
        self._steady(handler, self._load.seconds)
        self.steady_s = time.monotonic() - self.asked_s
        for size in self._load.sizes * (1 if self._load.large else 0):
            for _ in range(self._load.large):
                self.sent += 1
                handler.wfile.write(f"id: {self.sent}\ndata: {os.urandom(size // 2).hex()}\n\n".encode())
                self._steady(handler, 0.2)
        handler.wfile.write(b"event: end\ndata: x\n\n")

    def _steady(self, handler: BaseHTTPRequestHandler, for_s: float) -> None:
        began_s, first = time.monotonic(), self.sent
        while (elapsed_s := time.monotonic() - began_s) < for_s:
            due = first + int(elapsed_s * self._load.events_per_s) if self._load.events_per_s else self.sent + 500
            frames = [frame(number, self._load.event_bytes) for number in range(self.sent + 1, due + 1)]
            handler.wfile.write(b"".join(frames))
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


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path, Path]:
    """Return TLS for 127.0.0.1, its key and certificate in one file, and all authorities with it in another."""
    key, shown = folder / "key.pem", folder / "certificate.pem"
    usage = "keyUsage=critical,digitalSignature,keyCertSign"
    extensions = ("subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:TRUE", usage)
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(shown)]
    command += [part for extension in extensions for part in ("-addext", extension)]
    subprocess.run(command, check=True, capture_output=True)
    both, trusted = folder / "both.pem", folder / "trusted.pem"
    both.write_text(key.read_text() + shown.read_text())
    authorities = ssl.get_default_verify_paths().cafile
    trusted.write_text((Path(authorities).read_text() if authorities else "") + shown.read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, both, trusted


def deployed() -> dict[str, str]:
    """Return the function's environment as serverless.yml has it."""
    text = (ROOT / "serverless.yml").read_text(encoding="utf-8").replace("!", "")
    variables: dict[str, str] = yaml.safe_load(text)["functions"]["connectionManager"]["environment"]
    return variables


def used_s(pid: int) -> float:
    """Return the CPU seconds of a process, user and system; source: proc(5), stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mb(pid: int) -> float:
    """Return the most memory that a process had resident."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


@contextlib.contextmanager
def share(memory_mb: int) -> Iterator[Path | None]:
    """Yield the file that takes the process which may use a core as a function of so many MB may; None for no limit."""
    if not memory_mb:
        yield None
        return
    group = CGROUP / f"bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(f"{PERIOD_US}")
        (group / "cpu.cfs_quota_us").write_text(f"{PERIOD_US * memory_mb // MB_PER_CORE}")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


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
        (folder / "bench.toml").write_text(PROFILE % load.max_frame_bytes)
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
            cpu_s, most_mb = used_s(sandbox.pid), resident_mb(sandbox.pid)
        finally:
            await sandbox.close()
    returned = json.loads(answer.payload)
    assert returned.get("stored") == upstream.sent + 1, f"{returned}: {upstream.sent} were sent; {b''.join(lines)!r}"
    return {
        "events": upstream.sent,
        "cold_start_s": round(upstream.asked_s - began_s, 2),
        "cpu_us": round((cpu_s - upstream.cpu_s[0]) / upstream.sent * 1e6, 1),
        "events_per_s": round(upstream.sent / (end_s - upstream.asked_s)),
        "most_mb": round(most_mb, 1),
    }


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description="Measures the function's memory.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--events-per-s", type=int, default=1000, help="how many (default 1000), 0: all that go")
    parser.add_argument("--seconds", type=float, default=10, help="for how long before the large events (default 10)")
    parser.add_argument("--event-bytes", type=int, default=200, help="bytes of JSON in an event (default 200)")
    parser.add_argument("--large", type=int, default=5, help="how many large events of each size (default 5)")
    parser.add_argument("--max-frame-bytes", type=int, default=1024 * 1024, help="the profile's bound (default 1 MiB)")
    parser.add_argument("--share", type=int, default=0, metavar="MB", help="as much of a core as so many MB have")
    options = parser.parse_args(argv)
    load = Load(options.events_per_s, options.seconds, options.event_bytes, options.large, options.max_frame_bytes)
    figures = asyncio.run(run(load, options.share)) | {"goal_mb": GOAL_MB}
    if options.json:
        print(json.dumps(asdict(load) | {"share_mb": options.share} | figures, indent=1))
        return 0
    print("\n".join(f"{name:<14}{value:>10}" for name, value in figures.items()))
    print(f"goal: below {GOAL_MB} MB: {'ok' if figures['most_mb'] < GOAL_MB else 'missed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
