"""Runs the connection manager as it is deployed, in its own process, with an upstream and tables.

The function is a process under AWS's runtime client, and the upstream (`bench.upstreams`) is another. This process
serves the tables, so it sees an item at the instant at which it is written. Times are those of the monotonic clock,
which all processes of a machine share. Invariant: the stored events of a stream have no holes and no duplicates.
"""

import asyncio
import base64
import contextlib
import gc
import json
import os
import re
import ssl
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.harness import resident_mb, run_module, spent_s
from bench.tables import TABLES, Tables, serve
from bench.upstreams import Plan
from handlers.run.group_profiles import MOST_FRAME_BYTES
from handlers.store.event_items import body_of
from handlers.store.segment_reader import is_segment, stored_events
from local.checkout import ROOT
from local.costs.stage_costs import MB_PER_CORE
from local.functions.sandbox import Sandbox
from local.simulation.groups import GROUP, join
from local.simulation.tables import MemoryDynamoDB
from local.stack import Function

EXECUTION = "E1"
PROFILE = """
address = "${{UPSTREAM_BENCH}}/{behaviour}-{{name}}"
allow_private = true
framing = "{plan.framing}"
store = "{plan.store}"
max_frame_bytes = {plan.max_frame_bytes}
stall_after_s = 300
end = {{ data = "[DONE]" }}
{plan.fields}
"""
RESTS = ("RETRY_MAX_DELAY_S", "THROTTLE_DELAY_S", "THROTTLE_MAX_DELAY_S", "COOL_DOWN_S")
STARTED_WITHIN_S = 120
PERIOD_US = 100_000
CGROUP = Path("/sys/fs/cgroup/cpu")
_SENT = re.compile(r'"n":(\d+),"sent_us":(\d+)')


def environment(folder: Path, endpoint: str, **more: str) -> dict[str, str]:
    """Return a function's environment; its profiles are in `folder`, and all of AWS answers at `endpoint`."""
    return (
        {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        | {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_EC2_METADATA_DISABLED": "true",
            "EVENTS_TABLE": "events",
            "CONTROL_TABLE": "control",
            "DEAD_LETTER_QUEUE_URL": f"{endpoint}/queue",
            "STREAMS_DIR": str(folder),
            "MARGIN_S": "20",
            "LEASE_EVERY_S": "2",
            "PROGRESS_EVERY_S": "5",
            "WAIT_S": "840",
            "KEEP_DAYS": "30",
            "LEDGER_KEEP_DAYS": "0",
            "METRICS_BY": "stage",
            "SECRETS_PREFIX": "/streamkeeper/test/",
            "POWERTOOLS_SERVICE_NAME": "bench",
            "POWERTOOLS_METRICS_NAMESPACE": "bench",
            "POWERTOOLS_LOG_LEVEL": "WARNING",
        }
        | more
    )


@dataclass
class StoredEvents:
    """The stored events of each stream: their numbers, and how long each took since it was sent, in ms."""

    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    lags_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    items: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def record_item(self, table: str, key: tuple[str, str], item: Any) -> None:
        """Records the events of an item that was just written."""
        if table != "events":
            return
        now_us = time.monotonic_ns() // 1000
        if is_segment(item) and "B" in item.get("data", {}):
            item = item | {"data": {"B": base64.b64decode(item["data"]["B"])}}
            texts = [str(one.data) for one in stored_events(item, lambda _key: None)]
        else:
            texts = [str(body_of(item))] if "data" in item else []
        stream = key[0].removesuffix("#log")
        self.items[stream] += 1
        for text in texts:
            sent = _SENT.search(text)
            if sent is not None:
                self.numbers[stream].append(int(sent[1]))
                self.lags_ms[stream].append((now_us - int(sent[2])) / 1000)

    def holes(self) -> list[str]:
        """The streams with an event that is stored twice, or missing although a later one is stored."""
        return [one for one, found in self.numbers.items() if sorted(found) != [*range(1, len(found) + 1)]]


@dataclass
class RunningFunction:
    """A running function: its process, its answer, what it stored, and its tables and upstream."""

    pid: int
    answer: "asyncio.Task[Any]"
    watch: StoredEvents
    tables: Tables
    source: "subprocess.Popen[str]"

    async def until_all_stored(self, streams: list[str]) -> None:
        """Returns once each of the streams has stored an event."""
        until_s = time.monotonic() + STARTED_WITHIN_S
        # The body of a large event is in the bucket, so its number is not seen.
        while not all(self.watch.items[stream] for stream in streams):
            await self.run_for(0.1)
            assert time.monotonic() < until_s, "not all streams have stored an event"

    async def run_for(self, seconds: float) -> None:
        """Returns after these seconds; fails if the function ends meanwhile."""
        await asyncio.wait([self.answer], timeout=seconds)
        assert not self.answer.done(), self.answer.result()

    async def report(self) -> dict[str, Any]:
        """The next line that the upstream prints."""
        assert self.source.stdout is not None
        found: dict[str, Any] = json.loads(await asyncio.to_thread(self.source.stdout.readline))
        return found

    def restart_measurement(self) -> None:
        """Starts the measurement again; the numbers stay."""
        self.watch.lags_ms.clear()
        self.watch.items.clear()
        self.tables.requests = 0

    @property
    def cpu_s(self) -> float:
        """The processor time of the function."""
        return spent_s(self.pid)

    @property
    def most_mb(self) -> float:
        """The largest resident memory of the function."""
        return resident_mb(self.pid)


@contextlib.asynccontextmanager
async def start_function(plan: Plan, share_mb: int = 0) -> AsyncIterator[RunningFunction]:
    """Yield the started function, which is killed afterwards; it has a core, or the share of `share_mb` of memory.

    The streams of the plan form a group; a single one has the function to itself.
    """
    watch, is_alone = StoredEvents(), len(plan.ids) == 1
    if not is_alone:  # which may have no longer frames
        plan = replace(plan, max_frame_bytes=min(plan.max_frame_bytes, MOST_FRAME_BYTES))
    memory = MemoryDynamoDB(*TABLES, on_change=None if is_alone else watch.record_item)
    event: dict[str, Any] = {"pathParameters": {"streamId": plan.ids[0]}}
    if not is_alone:
        join(memory, "control", plan.ids, EXECUTION)
        event = {"pathParameters": {"streamId": GROUP}, "lane": "A", "execution": EXECUTION}
    with contextlib.ExitStack() as stack:
        # A collection of all items in the tables takes 100 ms, which each event would show as its own lag.
        gc.disable()
        stack.callback(gc.enable)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        context, both, trusted = certificate(folder) if plan.is_tls else (None, "", "")
        played = json.dumps(asdict(replace(plan, certificate=str(both))))
        (upstream, bucket), source = stack.enter_context(run_module("bench.upstreams", played))
        for behaviour in plan.streams:
            (folder / f"{behaviour}.toml").write_text(PROFILE.format(behaviour=behaviour, plan=plan))
        tables = Tables(memory)
        server = await serve(tables, context)
        scheme, is_socket = "https" if plan.is_tls else "http", plan.framing == "websocket"
        text = (ROOT / "packaging" / "functions.cjs").read_text(encoding="utf-8")
        variables = environment(
            folder,
            f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}",
            UPSTREAM_BENCH=upstream.replace("http", scheme.replace("http", "ws") if is_socket else scheme, 1),
            # boto3 brings its own authorities, and a function with other ones has no client but boto3.
            AWS_ENDPOINT_URL_S3=bucket,
            EVENTS_BUCKET="bench-bucket",
            JITTER_S="0",
            **dict.fromkeys(RESTS, "2"),
            **dict(re.findall(r"(MALLOC_\w+): '(\d+)'", text)),
            **({"SSL_CERT_FILE": str(trusted)} if trusted else {}),
        )
        lines: list[bytes] = []
        procs = stack.enter_context(cpu_share_file(share_mb))
        function = Function("bench", "handlers.connection_manager.handler", 900, share_mb or 128, variables)
        sandbox = Sandbox(function, {}, ROOT, lines.append)
        await sandbox.start()
        assert sandbox.pid is not None
        if procs is not None:
            procs.write_text(str(sandbox.pid))
        answer = asyncio.create_task(sandbox.invoke(json.dumps(event).encode()))
        try:
            yield RunningFunction(sandbox.pid, answer, watch, tables, source)
        finally:
            await sandbox.close()
            await answer
            server.close()
    assert watch.holes() == [], f"{watch.holes()}: {b''.join(lines)[-2000:]!r}"


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path, Path]:
    """Return TLS for 127.0.0.1, a file with its key and certificate, and one with all authorities including it."""
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


@contextlib.contextmanager
def cpu_share_file(memory_mb: int) -> Iterator[Path | None]:
    """Yield the file that gives a process the CPU share of a function of so many MB; None for no limit."""
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
