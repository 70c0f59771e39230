"""`python -m bench.trip`: counts how often an event's way, from its chunk to its request, changes modules.

It follows an event of a single stream, of a single stream that stores a log (for ten seconds, with a heartbeat), and of
a stream of a group. It counts each call of a function of `handlers` on the way, in order, and each resumption of a
generator. A move is a call in another module, or folder, than the call before.
"""

import functools
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import handlers
from bench.harness import options, show
from handlers.aws.secret_values import SecretValues
from handlers.connection.inputs import Chunk, Opened
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Invocation
from handlers.group.keeping import kept
from handlers.group.next_step import Delays
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.group_function import group_steps
from handlers.run.group_ports import Ask, GroupPorts, GroupTables, ReadProfiles
from handlers.run.performer import Performer
from handlers.run.ports import Ports
from handlers.run.requests import Requests
from handlers.run.threads import Bell
from handlers.store import typed_values
from local.costs.deployed_tables import control_table, events_table
from local.costs.metered import Meter, MeteredDynamoDb
from local.costs.steady_upstream import frame
from local.simulation.groups import GROUP, Group
from local.simulation.shared_tasks import store_on
from local.simulation.virtual_ports import PromptPool, VirtualReader

KINDS = ("alone", "log", "group")
ROOT = str(Path(handlers.__file__).parent) + "/"
NAMES = {"events_table": "events", "control_table": "control", "dead_letter_queue_url": ""}
EVENT_BYTES = 200
LOG_MS = 10_000
_START_MS = 1_767_225_600_000


class _Done(Exception):
    """Ends the run once everything was measured."""


class Way:
    """The calls of functions of `handlers` on an event's way, by their modules."""

    def __init__(self) -> None:
        self.modules: list[str] = []

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note a call; sys.setprofile calls this."""
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT):
            self.modules.append(name[len(ROOT) : -len(".py")])

    def counts(self) -> dict[str, int]:
        """The numbers of calls, modules, and moves between modules and between folders."""
        folders = [module.rpartition("/")[0] or module for module in self.modules]
        return {
            "calls": len(self.modules),
            "modules": len(set(self.modules)),
            "module_moves": sum(1 for _ in itertools.groupby(self.modules)),
            "folder_moves": sum(1 for _ in itertools.groupby(folders)),
        }


class World(Bell):
    """A bell, a clock and threads in a world where requests take no time; when all threads wait, the plot goes on.

    The plot yields the instant until which nothing else happens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at_ms = self._until_ms = _START_MS
        self.readers: dict[str, VirtualReader] = {}
        self.plot: Iterator[int] = iter(())

    def now_ms(self) -> int:
        """The time."""
        return self.at_ms

    def wait(self, for_s: float) -> set[str]:
        """Returns who rang; lets time pass if nobody did."""
        while not (rung := super().wait(0)) and for_s > 0:
            if self.at_ms < self._until_ms:
                self.at_ms = min(self._until_ms, self.at_ms + max(1, round(1000 * for_s)))
                break
            self._until_ms = next(self.plot, -1)
            if self._until_ms < 0:
                raise _Done
        return rung

    def open(self, stream: str, *_asked: object) -> VirtualReader:
        """Opens an upstream that sends what the plot lets it send."""
        self.readers[stream] = VirtualReader(
            self.now_ms, self.now_ms, functools.partial(self.ring, stream), lambda _link: None
        )
        return self.readers[stream]


def plot(world: World, way: Way, stream: str, first_ms: int, lasts_ms: int) -> Iterator[int]:
    """Answers each opening, sends three events, and then a fourth, whose way is recorded."""
    yield world.at_ms + first_ms
    for reader in world.readers.values():
        reader.takes(Opened(200, {"content-type": "text/event-stream"}))
    yield world.at_ms + first_ms
    for number in range(1, 4):
        world.readers[stream].takes(Chunk(frame(number, EVENT_BYTES)))
        yield world.at_ms
    yield world.at_ms + first_ms // 8
    sys.setprofile(way)
    world.readers[stream].takes(Chunk(frame(4, EVENT_BYTES)))
    yield world.at_ms + lasts_ms
    sys.setprofile(None)


def measured(kind: str) -> dict[str, int]:
    """The counts of a kind's way."""
    world, way = World(), Way()
    stream = "demo:a" if kind == "group" else "demo"
    world.plot = plot(world, way, stream, 8_000 if kind == "group" else 0, LOG_MS if kind == "log" else 0)
    table = {"address": "http://x.example/{streamId}", "framing": "sse", "resume": {"header": "Last-Event-ID"}}
    profile = parse("demo", table | ({"store": "log"} if kind == "log" else {}), {}, keep_days=30)
    client = MeteredDynamoDb(Meter({"events": events_table(), "control": control_table()}))
    who = Invocation(
        stream_id=GROUP if kind == "group" else stream, lane="A", execution="e", request_id="r",
        deadline_ms=world.at_ms + 900_000, margin_ms=20_000, lease_every_ms=5_000, progress_every_ms=20_000,
        overlap_max_ms=30_000,
    )  # fmt: skip
    try:
        (_keep if kind == "group" else _read)(world, profile, client, who)
    except _Done:
        return way.counts()
    finally:
        sys.setprofile(None)
    raise AssertionError("it ended before the event came")


def _read(world: World, profile: Profile, client: Any, who: Invocation) -> None:
    """One stream that has the function to itself."""
    performer: Performer[Any] = Performer(Ports(**_ports(world)))
    requests = Requests(profile, store_on(client, NAMES), who, world.now_ms)
    performer.begin(profile, who, attempts(profile, who, world.now_ms(), max), requests)
    performer.run()


def _keep(world: World, profile: Profile, client: Any, who: Invocation) -> None:
    """Two streams of a group."""
    upstreams: dict[str, Any] = dict.fromkeys(("demo:a", "demo:b"))
    Group(lambda _stream: profile, upstreams, {}, NAMES, client).joins()
    client.update_item(
        TableName="control",
        Key=typed_values.key(GROUP, "lease"),
        UpdateExpression="SET execution = :e",
        ExpressionAttributeValues={":e": {"S": "e"}},
    )
    ports = GroupPorts(
        **_ports(world),
        kept=functools.partial(kept, draw=max),
        profiles=ReadProfiles(lambda _stream: profile, lambda _stream: profile),
        reports=lambda *_report: None,
    )
    tables = GroupTables(client, _none, **NAMES)
    steps = group_steps(who, tables, Delays(5, 5, 30, 5, 1), ports)
    need = next(steps)
    while True:
        need = steps.send(need.request() if isinstance(need, Ask) else world.wait(need.for_s))


def _ports(world: World) -> dict[str, Any]:
    """The ports of either."""
    return {
        "clock": world, "bell": world, "pool": functools.partial(PromptPool, world),
        "open_upstream": world.open, "secrets": SecretValues(_none, ""), "log_report": lambda *_report: None,
    }  # fmt: skip


def _none(_service: str = "") -> Any:
    raise RuntimeError("no secret and no large event is here")


def main(argv: list[str] | None = None) -> int:
    """Print the counts and return 0."""
    asked = options(argv, __doc__)
    return show(asked, {kind: measured(kind) for kind in KINDS})


if __name__ == "__main__":
    sys.exit(main())
