"""Runs one function that keeps a group of streams connected, and watches when each event is stored.

The function is a process under AWS's runtime client, the upstream (`bench.group_source`) another. The table is served
by this one, which sees an item in the instant in which it is in the table. Times are of the monotonic clock, which all
processes of a machine share. Invariant: what was stored of a stream has no holes and nothing twice.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
import ssl
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import process
from bench.ingest import environment
from bench.memory_parts import certificate, deployed, share
from bench.processes import own_spent_s, resident_mb
from bench.tables import TABLES, Connection, Tables
from handlers.store import typed_values
from handlers.store.event_items import body_of
from handlers.store.group_store import GroupStore
from handlers.store.segment_reader import is_segment, stored_events
from local.checkout import ROOT
from local.functions.sandbox import Sandbox
from local.simulation.tables import MemoryDynamoDB
from local.stack import Function

GROUP, EXECUTION = "#1", "E1"
PROFILE = """
address = "${UPSTREAM_BENCH}/%s-{name}"
allow_private = true
framing = "%s"
store = "%s"
max_frame_bytes = %d
stall_after_s = 300
"""
RESTS = ("RETRY_MAX_DELAY_S", "THROTTLE_DELAY_S", "THROTTLE_MAX_DELAY_S", "COOL_DOWN_S")
STARTED_WITHIN_S = 120
_SENT = re.compile(r'"n":(\d+),"sent_us":(\d+)')


@dataclass(frozen=True)
class Plan:
    """The streams by what their upstream does, and how they are framed and stored."""

    streams: Mapping[str, int]
    framing: str = "sse"
    store: str = "items"
    events_per_s: float = 1
    event_bytes: int = 200
    max_frame_bytes: int = 16 * 1024 * 1024
    is_tls: bool = False
    large_bytes: int = 10 * 1024 * 1024
    fields: str = ""

    @property
    def ids(self) -> list[str]:
        """The ids of all streams."""
        return [one for behaviour in self.streams for one in self.of(behaviour)]

    def of(self, behaviour: str) -> list[str]:
        """The ids of those that do so."""
        return [f"{behaviour}:{number}" for number in range(self.streams[behaviour])]


@dataclass
class Watch:
    """What was stored: of each stream the numbers, and how long each event took from its sending, in milliseconds."""

    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    lags_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    items: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    requests: int = 0

    def changed(self, table: str, key: tuple[str, str], item: Any) -> None:
        """Records what an item holds that is in the table now."""
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

    def forget(self) -> None:
        """Begins to measure anew; the numbers stay."""
        self.lags_ms.clear()
        self.items.clear()
        self.requests = 0

    def holes(self) -> list[str]:
        """The streams of which an event is missing that is older than one that is stored, or stored twice."""
        return [one for one, found in self.numbers.items() if sorted(found) != [*range(1, len(found) + 1)]]


class Running:
    """One function of a group at work."""

    def __init__(self, plan: Plan, watch: Watch, sandbox: Sandbox, answer: "asyncio.Task[Any]") -> None:
        self.plan, self.watch = plan, watch
        self._sandbox, self._answer = sandbox, answer

    async def until_all_stored(self, streams: list[str]) -> None:
        """Returns once each of the streams has stored an event."""
        until_s = time.monotonic() + STARTED_WITHIN_S
        while not all(self.watch.numbers.get(stream) for stream in streams):
            await self.last(0.1)
            assert time.monotonic() < until_s, "not all streams have stored an event"

    async def last(self, seconds: float) -> None:
        """Returns so many seconds later; fails where the function ends meanwhile."""
        await asyncio.wait([self._answer], timeout=seconds)
        assert not self._answer.done(), self._answer.result()

    @property
    def cpu_s(self) -> float:
        """What the function has used of a processor."""
        assert self._sandbox.pid is not None
        return own_spent_s(self._sandbox.pid)

    @property
    def most_mb(self) -> float:
        """The most memory that the function ever had resident."""
        assert self._sandbox.pid is not None
        return resident_mb(self._sandbox.pid)


class _Counted(Tables):
    """The tables, whose requests are counted."""

    def __init__(self, tables: MemoryDynamoDB, watch: Watch) -> None:
        super().__init__(0)
        self._tables = tables
        self._watch = watch

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the response."""
        self._watch.requests += 1
        if "MessageBody" in request:  # the dead-letter queue has the same endpoint
            digest = hashlib.md5(request["MessageBody"].encode(), usedforsecurity=False).hexdigest()
            return 200, {"MessageId": "0", "MD5OfMessageBody": digest}
        return super().answer(operation, request)


@contextlib.asynccontextmanager
async def running(plan: Plan, share_mb: int = 0, **variables: str) -> AsyncIterator[Running]:
    """Yield the function once it was started; it is killed afterwards. It has a whole core, or what `share_mb` have."""
    watch = Watch()
    tables = MemoryDynamoDB(*TABLES, on_change=watch.changed)
    _join(tables, plan.ids)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        context, both, trusted = certificate(folder) if plan.is_tls else (None, None, None)
        source, playing = stack.enter_context(process("bench.group_source", *_options(plan, both)))
        upstream, bucket = source.rpartition("/")[2].removeprefix("127.0.0.1:").split()
        del playing
        for behaviour in plan.streams:
            text = PROFILE % (behaviour, plan.framing, plan.store, plan.max_frame_bytes) + plan.fields
            (folder / f"{behaviour}.toml").write_text(text)
        server = await _serve(_Counted(tables, watch), context)
        scheme = "https" if plan.is_tls else "http"
        endpoint = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        address = f"{scheme}://127.0.0.1:{upstream}"
        made = environment(folder, endpoint, address, 0, plan.event_bytes) | dict.fromkeys(RESTS, "2")
        made |= {"JITTER_S": "0", "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{bucket}", "EVENTS_BUCKET": "bench-bucket"}
        made |= {name: value for name, value in deployed().items() if name.startswith("MALLOC_")}
        made |= variables | ({"SSL_CERT_FILE": str(trusted)} if trusted else {})
        lines: list[bytes] = []
        procs = stack.enter_context(share(share_mb))
        function = Function("bench", "handlers.connection_manager.handler", 900, share_mb or 128, made)
        sandbox = Sandbox(function, {}, ROOT, lines.append)
        await sandbox.start()
        if procs is not None:
            procs.write_text(str(sandbox.pid))
        event = {"pathParameters": {"streamId": GROUP}, "lane": "A", "execution": EXECUTION}
        answer = asyncio.create_task(sandbox.invoke(json.dumps(event).encode()))
        try:
            yield Running(plan, watch, sandbox, answer)
        finally:
            await sandbox.close()
            await answer
            server.close()
    assert watch.holes() == [], f"{watch.holes()}: {b''.join(lines)[-2000:]!r}"


def _options(plan: Plan, both: Path | None) -> list[str]:
    options = [f"--framing={plan.framing}", f"--events-per-s={plan.events_per_s}", f"--event-bytes={plan.event_bytes}"]
    return [*options, f"--large-bytes={plan.large_bytes}", *([] if both is None else [f"--certificate={both}"])]


async def _serve(tables: Tables, tls: ssl.SSLContext | None) -> asyncio.Server:
    return await asyncio.get_running_loop().create_server(lambda: Connection(tables), "127.0.0.1", 0, ssl=tls)


def _join(tables: MemoryDynamoDB, streams: list[str]) -> None:
    """What the machine and the POSTs have written before a function runs."""
    groups = GroupStore(tables, "control", GROUP)
    lease = typed_values.key(GROUP, "lease") | {"execution": {"S": EXECUTION}}
    tables.put_item(TableName="control", Item=lease)
    joined = {"S": "1"}
    for stream in streams:
        record = {"joined": joined, "group": {"S": GROUP}, "stop": {"BOOL": False}}
        tables.put_item(TableName="control", Item=typed_values.key(stream, "lease") | record)
        groups.joins(stream, joined["S"])
    groups.changed()
