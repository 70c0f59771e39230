"""Runs the local service with both machines, and one upstream for all streams, which measures their gaps.

The service runs the compiled template, as a local run does, with the plain machine in addition to the deployed one.
Invariant: `open_stage` leaves no process and no file behind; each opening except a stream's first is counted once.
"""

import asyncio
import contextlib
import copy
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from handlers.connection.inputs import Layout
from handlers.store.event_reader import EventReader
from local import stages
from local.aws_endpoints import Endpoints
from local.checkout import ROOT
from local.listener import HOST, Listener, bind, port_of
from local.service import osls
from local.service.backend import Sockets
from local.service.embedded_aws import lock
from local.service.lifecycle import Service
from local.service.live_view import Screen
from local.upstreams.demo_streams import Upstreams

STAGE = "test"
# Only the benchmark itself drops connections.
_NEVER_S = (86_400.0, 86_400.0)
CONNECTIONS, STAGGERED = "connections", "staggered"
# The upstreams by policy, with the profiles of the demonstration.
POLICIES = {"evicts": "demo", "tolerates": "demo-ndjson", "forbids": "demo-exclusive"}
# The benchmark's own profile: the upstream that tolerates an overlap, with reconnection in place.
RECONNECTS = "demo-reconnects"
HANDOVER, DROP, KILL = "handover", "drop", "kill"


@dataclass(frozen=True)
class Stream:
    """A stream: its machine, the upstream's overlap policy, its profile, and its id at the upstream."""

    machine: str
    policy: str
    profile: str
    upstream: str
    name: str

    @property
    def stream_id(self) -> str:
        """The stream's id in the product."""
        return f"{self.profile}:{self.name}"

    @property
    def upstream_id(self) -> str:
        return f"{self.upstream}:{self.name}"


@dataclass
class GapGauge:
    """The gaps of one stream by cause; call `record_connections` at each change of its connections.

    Call `record_fault` before each fault.

    A gap that begins with a fault belongs to the fault. Every other opening is a handover, with a gap of 0 if the older
    connection was still open. Times are milliseconds of a clock that the caller reads.
    """

    gaps_ms: dict[str, list[float]] = field(default_factory=lambda: {HANDOVER: [], DROP: [], KILL: []})
    openings: int = 0
    connected: int = 0
    _fault: str = HANDOVER
    _closed_ms: float = 0.0

    def record_fault(self, kind: str) -> None:
        """Record that a fault of this kind is about to end the newest connection of the stream."""
        self._fault = kind

    def record_connections(self, at_ms: float, connected: int) -> None:
        """Record the number of connections that the stream has now."""
        before, self.connected = self.connected, connected
        if connected < before:
            self._closed_ms = at_ms
            return
        if self.openings:
            self.gaps_ms[self._fault].append(0.0 if before else at_ms - self._closed_ms)
        self.openings += 1
        self._fault = HANDOVER

    @property
    def unconnected_ms(self) -> float:
        """How long there was no connection between the first opening and the last."""
        return sum(sum(gaps) for gaps in self.gaps_ms.values())


class Stage:
    """The actions of a benchmark on the running service."""

    def __init__(self, stage: str, service: Service, upstreams: Upstreams, upstream_port: int, logs: Path) -> None:
        self._stage = stage
        self._service = service
        self._logs = logs
        self._upstreams = upstreams
        self._upstream_port = upstream_port
        endpoints = Endpoints({}, f"http://{HOST}:{port_of(service.sockets.aws)}")
        self._states, self._tables = endpoints.client("stepfunctions"), endpoints.client("dynamodb")

    async def start(self, stream: Stream) -> None:
        """Start an execution of the stream's machine."""
        name = f"{stages.SERVICE}-{self._stage}-{stream.machine}"
        arn = next(described.arn for described in self._service.stack.machines if described.name == name)
        text = json.dumps({"pathParameters": {"streamId": stream.stream_id}})
        await asyncio.to_thread(self._states.start_execution, stateMachineArn=arn, input=text)

    def drop(self, stream: Stream) -> None:
        """Reset the newest connection of the stream."""
        self._upstreams.drop(stream.upstream_id)

    def kill(self, stream: Stream) -> None:
        """Kill the function that has the newest connection of the stream, with SIGKILL."""
        for _, port in self._upstreams.open_connections.clients(stream.upstream_id)[-1:]:
            for pid in _owners(port, self._upstream_port):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    async def stored_numbers(self, stream: Stream) -> list[int]:
        """Return the numbers of the stored events, in order."""
        reader = EventReader(self._tables, f"{stages.SERVICE}-{self._stage}-events", lambda _: None)
        entries = await asyncio.to_thread(
            lambda: list(reader.entries(stream.stream_id, Layout(), now_ms=0, after="", limit=sys.maxsize))
        )
        return sorted(json.loads(one.event.data)["n"] for one in entries if one.event is not None and one.event.data)

    async def count_duplicates(self, stream: Stream) -> int:
        """Return how many events came as duplicates, as the connections count them."""
        pages = self._tables.get_paginator("query").paginate(
            TableName=f"{stages.SERVICE}-{self._stage}-control",
            ConsistentRead=True,
            KeyConditionExpression="PK = :stream",
            ExpressionAttributeValues={":stream": {"S": stream.stream_id}},
        )
        items = await asyncio.to_thread(lambda: [item for page in pages for item in page["Items"]])
        return sum(int(item["duplicates"]["N"]) for item in items if "duplicates" in item)

    def connect_times_ms(self, stream: Stream) -> list[float]:
        """Return the milliseconds from request to response of each connection that has ended."""
        found = []
        for path in sorted(self._logs.glob("*-connection-manager.log*")):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                # Lines of the runtime itself are not JSON objects.
                with contextlib.suppress(ValueError, AttributeError):
                    record = json.loads(line)
                    if record.get("stream_id") == stream.stream_id and record.get("connect_ms") is not None:
                        found.append(float(record["connect_ms"]))
        return found


@contextlib.asynccontextmanager
async def open_stage(watch: Callable[[str, int], None], stage: str = STAGE) -> AsyncIterator[Stage]:
    """Yield the running stage; `watch` is called at each change of a stream's connections. Raises UserError."""
    listener: Listener
    upstreams = Upstreams(lambda client: listener.reset(client), drop_after_s=_NEVER_S, watch=watch)
    listener = Listener(upstreams.app, bind(0, "the benchmark's upstream"))
    variables = {"UPSTREAM_DEMO": f"http://{HOST}:{listener.port}"}
    template = osls.template(stage)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        _write_profiles(ROOT / "env" / "streams", folder / "streams")
        changed = _with_plain_machine(template, stage, {"STREAMS_DIR": str(folder / "streams")})
        with prepare_service(folder, changed, variables) as service:
            await listener.start()
            try:
                await service.start()
                yield Stage(stage, service, upstreams, listener.port, folder / "logs")
            finally:
                upstreams.close()
                await service.stop()
                await listener.close()


def _write_profiles(source: Path, folder: Path) -> None:
    folder.mkdir()
    for profile in (*POLICIES.values(), "demo-standby"):
        shutil.copy(source / f"{profile}.toml", folder)
    changed = (source / "demo-ndjson.toml").read_text().replace("/{streamId}", "/demo-ndjson:{streamId}")
    (folder / f"{RECONNECTS}.toml").write_text(f"reconnect_tries = 5\n{changed}")


@contextlib.contextmanager
def prepare_service(folder: Path, template: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[Service]:
    """Yields a service of the template that keeps everything in the folder; it is neither started nor stopped.

    If its child processes fail, nothing more is stored, and the figures show that.
    """
    with lock(folder) as held:
        sockets = Sockets(*(bind(0, "the benchmark") for _ in range(4)))
        yield Service(folder, template, sockets, held, variables, _SilentScreen(), lambda: None)


class _SilentScreen(Screen):
    """A screen that shows nothing, because only the measurement is printed."""

    def __init__(self) -> None:
        super().__init__()
        self.interactive = False

    def print_lines(self, text: str) -> None:
        """Print nothing."""


def _with_plain_machine(template: dict[str, Any], stage: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the template with the plain machine, which is not deployed, and other variables of its functions."""
    definition = yaml.safe_load((ROOT / "statemachines" / f"{STAGGERED}.asl.yml").read_text())
    whole = stages.resolve(definition, stages.load(stage), stages.names(stage))
    changed = copy.deepcopy(template)
    for resource in changed["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function":
            resource["Properties"]["Environment"]["Variables"] |= environment
    changed["Resources"]["PlainMachine"] = {
        "Type": "AWS::StepFunctions::StateMachine",
        "Properties": {
            "StateMachineName": f"{stages.SERVICE}-{stage}-{STAGGERED}",
            "DefinitionString": json.dumps(whole),
        },
    }
    return changed


def _owners(port: int, remote_port: int) -> Iterator[int]:
    """Yield the processes, but not this one, that have the socket on 127.0.0.1 from `port` to `remote_port`.

    Source: proc(5), /proc/net/tcp.
    """
    ends = [f"0100007F:{port:04X}", f"0100007F:{remote_port:04X}"]
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    wanted = {f"socket:[{fields[9]}]" for fields in sockets if fields[1:3] == ends and fields[9] != "0"}
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            pid = int(folder.parent.name)
            if pid != os.getpid() and any(os.readlink(entry) in wanted for entry in folder.iterdir()):
                yield pid
