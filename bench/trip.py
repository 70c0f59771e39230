"""`python -m bench.trip`: counts how often an event's way, from its chunk to its request, changes modules.

It follows an event of a single stream, of a single stream that stores a log (for ten seconds, with a heartbeat), and of
a stream of a group. It counts each call of a function of `handlers` on the way, in order, and each resumption of a
generator. A move is a call in another module, or folder, than the call before.
"""

import itertools
import sys
from pathlib import Path
from types import FrameType

import handlers
from bench.harness import parse_options, show
from handlers.connection.inputs import Chunk
from handlers.connection.steps import Invocation
from handlers.profile.parse import parse
from local import stages
from local.costs.request_meter import Meter, MeteredDynamoDb, control_table, events_table
from local.costs.steady_upstream import event_frame
from local.simulation import scenario
from local.simulation.groups import GROUP, Group, join
from local.simulation.scripted_upstream import ScriptedUpstream
from local.simulation.shared_tasks import store_on
from local.simulation.slots import Slot, stream_needs
from local.simulation.virtual_function import Task, VirtualFunction
from states_language.clock import VirtualClock

KINDS = ("alone", "log", "group")
ROOT = str(Path(handlers.__file__).parent) + "/"
NAMES = {"events_table": "events", "control_table": "control"}
EVENT_BYTES = 200
# How long the function takes to open its streams, and how long a way is recorded: a log writes later.
OPENS_MS, LASTS_MS = 8_000, {"alone": 0, "log": 10_000, "group": 0}


class RecordedWay:
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


class Upstream(ScriptedUpstream):
    """Answers an opening at once, and sends what the run gives it."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock, scenario.Upstream(), clock.now_ms(), lambda: 0)

    def send(self, data: bytes) -> None:
        """Sends bytes to each opener."""
        for link in self._links:
            link.client.take_arrival(link, Chunk(data))


def measure_way(kind: str) -> dict[str, int]:
    """The counts of a kind's way: three events come, and then a fourth, whose way is recorded."""
    clock, way = VirtualClock(), RecordedWay()
    stream = "demo:a" if kind == "group" else "demo"
    upstreams = {one: Upstream(clock) for one in ((stream, "demo:b") if kind == "group" else (stream,))}
    table = {"address": "http://x.example/{streamId}", "framing": "sse", "resume": {"header": "Last-Event-ID"}}
    profile = parse("demo", table | ({"store": "log"} if kind == "log" else {}), {}, keep_days=30)
    client = MeteredDynamoDb(Meter({"events": events_table(), "control": control_table()}))
    who = Invocation(
        stream_id=GROUP if kind == "group" else stream,
        lane="A",
        execution="e",
        request_id="r",
        deadline_ms=clock.now_ms() + 900_000,
        margin_ms=20_000,
        lease_every_ms=5_000,
        progress_every_ms=20_000,
        overlap_max_ms=30_000,
    )
    function = VirtualFunction(clock, Task(1, who), lambda _outcome: None, is_prompt=True)
    function.draw = max
    if kind == "group":
        group = Group(lambda _stream: profile, upstreams, stages.load("local"), NAMES, client)
        join(client, NAMES["control_table"], upstreams, who.execution)
        needs = group.needs(function)
    else:
        needs = stream_needs(function, Slot(function, upstreams[stream]), profile, store_on(client, NAMES))

    async def run() -> None:
        function.start(needs)
        await clock.sleep_until(clock.now_ms() + OPENS_MS)
        for number in range(1, 4):
            upstreams[stream].send(event_frame(number, EVENT_BYTES))
            await clock.sleep_until(clock.now_ms() + OPENS_MS // 8)
        sys.setprofile(way)
        upstreams[stream].send(event_frame(4, EVENT_BYTES))
        await clock.sleep_until(clock.now_ms() + LASTS_MS[kind])
        sys.setprofile(None)

    clock.run(run())
    return way.counts()


def main(argv: list[str] | None = None) -> int:
    """Print the counts and return 0."""
    return show(parse_options(argv, __doc__), {kind: measure_way(kind) for kind in KINDS})


if __name__ == "__main__":
    sys.exit(main())
