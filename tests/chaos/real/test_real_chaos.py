"""The local service under real faults: signals to its processes, a bad network, a full disk, one after the other.

One service keeps three streams, one of each policy, from one upstream behind one proxy; their events are items, or lie
in logs. Each fault of `FAULTS` is a step; after each, every stream must store an event that happened when the fault was
over.
"""

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from handlers.store.event_reader import INDEX
from handlers.store.segment_reader import LOG_SUFFIX, log_key, stored_events
from local.permissions import guard
from local.upstreams.behaviours import INTERVAL_MS
from local.upstreams.clockwork import now_ms
from states_language.server.journals import Journals
from tests.chaos.real.proxy import Proxy
from tests.chaos.real.test_real_teeth import project
from tests.harness import Service, running
from tests.local.support import PROJECT, children, client, until
from tests.projects import changed
from tests.real.upstream import serving

pytestmark = pytest.mark.long
STREAMS = ("demo:chaos", "demo-ndjson:chaos", "demo-exclusive:chaos")
EXCLUSIVE = "demo-exclusive:chaos"
EVENTS = "streamkeeper-test-events"
# How many of the newest items are looked at, or segments.
LAST = 20
# A stopped function is killed at its limit of 8 s, and an idle one that is asked something after 10 s.
RECOVERED_WITHIN_S = 20


class Scene:
    """The service, the proxy between it and the upstream, and what the faults need of both."""

    def __init__(self, service: Service, proxy: Proxy, data: Path, store: str) -> None:
        self.service = service
        self.store = store
        self.proxy = proxy
        self.data = data
        self._pause = threading.Event()
        self._dynamodb = client("dynamodb", f"http://127.0.0.1:{service.port + 1}")

    def last(self, seconds: float) -> None:
        """Lets a fault last."""
        self._pause.wait(seconds)

    @property
    def database(self) -> int:
        """The process id of the database."""
        assert self.service.process is not None
        below = children(self.service.process.pid)
        return next(pid for pid in below if b"/dynoxide" in Path(f"/proc/{pid}/cmdline").read_bytes())

    def takes_writes(self) -> bool:
        """Whether the database takes a write."""
        with contextlib.suppress(BotoCoreError, ClientError):
            self._dynamodb.put_item(TableName=EVENTS, Item={"PK": {"S": "written"}, "SK": {"S": "by the test"}})
            return True
        return False

    def limit_files(self, size_bytes: int) -> None:
        """Sets how large a file may be that the service or the database writes; what they start inherits it."""
        assert self.service.process is not None
        for pid in (self.service.process.pid, self.database):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))

    def signal_functions(self, number: signal.Signals) -> None:
        """Sends every function a signal."""
        for pid in self.service.sandboxes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def keeps_up(self) -> bool:
        """Whether every stream stores, in time, an event that happens after now."""
        number = now_ms() // INTERVAL_MS + 1
        return until(lambda: all(number in self.newest(stream_id) for stream_id in STREAMS), RECOVERED_WITHIN_S)

    def newest(self, stream_id: str) -> list[int]:
        """The numbers of the last items, or of all events that lie in the last segments."""
        with contextlib.suppress(BotoCoreError, ClientError):
            is_log = self.store == "log"
            answer = self._dynamodb.query(
                TableName=EVENTS,
                **({} if is_log else {"IndexName": INDEX}),
                KeyConditionExpression="PK = :stream",
                ExpressionAttributeValues={":stream": {"S": log_key(stream_id) if is_log else stream_id}},
                ScanIndexForward=False,
                Limit=LAST,
            )
            return [int(key) for item in answer["Items"] for key in _keys(item)]
        return []

    def numbers(self, stream_id: str) -> list[int]:
        """The numbers of all events: of items in their own order, of a log in the order in which they lie there."""
        if self.store == "items":
            return sorted(int(item["SK"]) for item in self.service.items("events", stream_id))
        segments = self.service.raw("events", f"{stream_id}{LOG_SUFFIX}", "segment#")
        keys = [key for item in segments for key in _keys(item)]
        # It goes on meanwhile.
        assert [event["key"] for event in self.service.events(stream_id, 1000)][: len(keys)] == keys
        return [int(key) for key in keys]


def _keys(item: dict[str, Any]) -> list[str]:
    return [event.key for event in stored_events(item, lambda _key: None)] if "data" in item else [item["SK"]["S"]]


def functions_killed(scene: Scene) -> None:
    """SIGKILL of every function."""
    scene.signal_functions(signal.SIGKILL)


def functions_stand_still(scene: Scene) -> None:
    """SIGSTOP of every function, longer than a lease lasts without renewal, then SIGCONT."""
    scene.signal_functions(signal.SIGSTOP)
    scene.last(4.5)
    scene.signal_functions(signal.SIGCONT)


def functions_never_wake(scene: Scene) -> None:
    """SIGSTOP of every function, and nothing after: the service kills each at its limit."""
    scene.signal_functions(signal.SIGSTOP)


def database_killed(scene: Scene) -> None:
    """SIGKILL of the database, which starts again with all that it had answered."""
    os.kill(scene.database, signal.SIGKILL)


def database_stands_still(scene: Scene) -> None:
    """SIGSTOP of the database for longer than a request's limit, then SIGCONT: late requests are carried out late."""
    database = scene.database
    os.kill(database, signal.SIGSTOP)
    scene.last(3)
    os.kill(database, signal.SIGCONT)


def disk_full(scene: Scene) -> None:
    """No file can be written, neither by the database nor by the service, and every function is killed meanwhile.

    The means is RLIMIT_FSIZE: write(2) fails with EFBIG where a full disk gives ENOSPC, and needs no right to mount.
    """
    scene.limit_files(0)
    assert not scene.takes_writes(), "the disk was not full"
    scene.signal_functions(signal.SIGKILL)
    scene.last(3)
    scene.limit_files(resource.RLIM_INFINITY)
    assert until(scene.takes_writes, RECOVERED_WITHIN_S), "nothing is written when there is room again"


def slow_network(scene: Scene) -> None:
    """Half a second of latency each way."""
    scene.proxy.latency_s = 0.5
    scene.last(2)
    scene.proxy.latency_s = 0


def sliced_network(scene: Scene) -> None:
    """Pieces of 1 to 7 bytes."""
    scene.proxy.slice_bytes = 7
    scene.last(2)
    scene.proxy.slice_bytes = 0


def reset(scene: Scene) -> None:
    """RST to both sides of every connection."""
    assert scene.proxy.reset() >= 1


def truncated(scene: Scene) -> None:
    """A clean end of TCP in the middle of a chunk."""
    assert scene.proxy.truncate() >= 1


def silent(scene: Scene) -> None:
    """Nothing passes and nothing closes, for longer than demo-exclusive may be silent."""
    with scene.proxy.stalled():
        scene.last(4)


def slow_close(scene: Scene) -> None:
    """Each side hears a second late that the other has closed; every function is killed meanwhile."""
    scene.proxy.slow_close_s = 1
    scene.signal_functions(signal.SIGKILL)
    scene.last(2)
    scene.proxy.slow_close_s = 0


FAULTS: tuple[Callable[[Scene], None], ...] = (
    slow_network, reset, functions_killed, database_stands_still, truncated, functions_stand_still, database_killed,
    sliced_network, silent, functions_never_wake, disk_full, slow_close,
)  # fmt: skip


def in_logs(copy: Path) -> None:
    """The events of the three streams lie in logs, for which they wait half a second."""
    log = 'store = "log"\nflush_s = 0.5\n'
    for change in (('store = "items"\n', log), ('order = "index"\n', "")):
        changed(copy / "env" / "streams" / "demo.toml", change)
    for name in ("demo-ndjson", "demo-exclusive"):
        path = copy / "env" / "streams" / f"{name}.toml"
        path.write_text(path.read_text() + log)


@pytest.fixture(params=["items", "log"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Scene, Any]]:
    """Three streams that are connected and have a saved cursor."""
    (tmp_path / "project").mkdir()
    code = PROJECT
    if request.param == "log":
        code = project(tmp_path / "project", [])
        in_logs(code)
    with contextlib.ExitStack() as stack:
        upstreams, port = stack.enter_context(serving())
        proxy = stack.enter_context(contextlib.closing(Proxy(port)))
        # Its faults are those of a run whose functions reach the database by themselves.
        variables = {"UPSTREAM_DEMO": f"http://127.0.0.1:{proxy.port}", guard.SETTING: ""}
        service = stack.enter_context(running(tmp_path, code, **variables))
        found = Scene(service, proxy, tmp_path / "data", request.param)
        for stream_id in STREAMS:
            service.post(stream_id)
        # The first connection of a stream has no place to go on from: it begins with what happens next.
        assert until(lambda: all(found.newest(stream_id) for stream_id in STREAMS), 20), service.log
        yield found, upstreams
        assert service.end() == 0


def test_each_event_is_stored_once_whatever_happens(scene: tuple[Scene, Any]) -> None:
    """After each fault every stream is connected again; in the end no event is missing, and no execution has ended.

    In a log they lie in the upstream's order, and the API shows them so.
    """
    at, upstreams = scene
    for fault in FAULTS:
        fault(at)
        assert at.keeps_up(), f"after {fault.__name__}: {at.service.log}"
    newest = now_ms() // INTERVAL_MS
    assert at.keeps_up()
    for stream_id in STREAMS:
        numbers = at.numbers(stream_id)
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), stream_id
        assert numbers[-1] >= newest
    assert upstreams.presence.most(EXCLUSIVE) == 1
    assert len(_running(at.service)) == len(STREAMS)
    records = Journals(at.data / "executions")
    for record in records.read():
        ids = [event["id"] for event in records.history(record.path)]
        assert ids == list(range(1, len(ids) + 1)), "the history on disk has a hole"


def _running(service: Service) -> list[Any]:
    with contextlib.closing(client("stepfunctions", f"http://127.0.0.1:{service.port + 1}")) as states:
        machine = next(one for one in states.list_state_machines()["stateMachines"] if one["type"] == "STANDARD")
        found = states.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]
    assert {execution["status"] for execution in found} == {"RUNNING"}
    return list(found)
