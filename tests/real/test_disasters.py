"""The disasters of docs/disasters.md, each played on local runs with the commands that the page names.

The upstream resumes from any id. After each disaster, each stream's events are those that the upstream has sent. The
times of the commands, and until all streams were connected again, are printed (`pytest -s`); the page has them.
"""

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import harness
from bench.fleet_peers import data
from local.permissions import guard
from tests import projects
from tests.harness import STAGE, Service, running
from tests.local.support import until

pytestmark = pytest.mark.long
STREAMS = [f"demo:{number}" for number in range(10)]
# The streams of a wrong profile, with an event a minute each: two cores cannot store two thousand events a second.
MANY, SELDOM_S = 1000, 60.0
# Functions live long enough that no handover happens meanwhile.
SETTINGS = {"function_timeout_s": 300, "wait_s": 240, "margin_s": 20, "unconnected_after_s": 20}
TABLES = {name: f"streamkeeper-{STAGE}-{name}" for name in ("control", "events")}
PROFILE = """
    address = "${UPSTREAM_DEMO}/%s{name}"
    allow_private = true
    framing = "sse"
    key = "id"
    stall_after_s = 240
    overlap = "evicts"
    reject_after = 0
    resume = { header = "Last-Event-ID" }
"""


class Clock:
    """Prints how long things took."""

    def __init__(self, disaster: str) -> None:
        self._disaster, self._began_s = disaster, time.monotonic()

    def says(self, what: str) -> None:
        """Prints the seconds since the disaster."""
        print(f"\n{self._disaster}: {what} after {time.monotonic() - self._began_s:.1f} s")


class Upstream:
    """An upstream with two events a second on each of its streams, or as many as the test says."""

    def __init__(self, address: str, process: "subprocess.Popen[str]") -> None:
        self.address, self._process = address, process

    def _ask(self, line: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def connected(self) -> int:
        """Return how many of its streams have a connection."""
        count: int = self._ask("counts")["connected"]
        return count

    def sent(self, streams: Sequence[str]) -> dict[str, set[tuple[str, str]]]:
        """Return the keys and bodies of the events that it has sent on each stream."""
        numbers = self._ask("report")
        each = {stream: int(stream.partition(":")[2]) for stream in streams}
        return {stream: {(str(n), data(one, n)) for n in numbers[one]} for stream, one in each.items()}


@pytest.fixture
def upstream(request: pytest.FixtureRequest) -> Iterator[Upstream]:
    """Yield the upstream of the streams."""
    with harness.run_module("bench.fleet_peers", str(MANY), str(getattr(request, "param", 0.5))) as (
        addresses,
        process,
    ):
        yield Upstream(addresses[0], process)


def project(folder: Path, path: str = "", **settings: int) -> Path:
    """Returns a copy of the project with these settings, whose profile requests this path of the upstream."""
    copy = projects.with_settings(projects.copied(folder), **SETTINGS | settings)
    (copy / "env" / "streams" / "demo.toml").write_text(PROFILE % path)
    return copy


def with_status(service: Service, status: str) -> set[str]:
    """Return the streams that have this status."""
    code, page = service.ask("GET", "?limit=1000")
    # A page may not come in time on a busy machine, or be short.
    return {one["stream"] for one in page["streams"] if one["status"] == status} if code == 200 else set()


def connected(service: Service) -> set[str]:
    """Return the streams that run."""
    return with_status(service, "running")


def connect(service: Service, streams: Sequence[str]) -> None:
    code, answer = service.ask_at("PUT", "fleet", "\n".join(streams))
    assert code in (200, 202), answer
    assert until(lambda: connected(service) >= set(streams), 120), service.log


def typed(service: Service, *words: str) -> None:
    """Type a command, which must succeed."""
    done = service.typed(*words)
    assert done.returncode == 0, done


def stored(service: Service) -> dict[str, set[tuple[str, str]]]:
    """Return the keys and bodies of the stored events, by their streams."""
    found: dict[str, set[tuple[str, str]]] = {}
    for page in service.aws("dynamodb").get_paginator("scan").paginate(TableName=TABLES["events"], ConsistentRead=True):
        for item in page["Items"]:
            found.setdefault(item["PK"]["S"], set()).add((item["SK"]["S"], item["data"]["S"]))
    return found


def is_whole(service: Service, upstream: Upstream, clock: Clock, streams: Sequence[str] = STREAMS) -> None:
    """Checks that every stream is connected and goes on, and that exactly the events that were sent are stored."""
    # The list of a thousand streams takes longer than they take to connect.
    is_long = len(streams) == MANY
    assert until(lambda: upstream.connected() == MANY if is_long else connected(service) >= set(streams), 600)
    clock.says(f"{len(streams)} streams are connected")
    before = upstream.sent(streams)
    assert until(lambda: not any(before[stream] == sent for stream, sent in upstream.sent(streams).items()), 180)
    wanted, found = upstream.sent(streams), dict[str, set[tuple[str, str]]]()

    def is_stored() -> bool:
        found.update(stored(service))
        return all(found.get(stream, set()) >= sent for stream, sent in wanted.items())

    assert until(is_stored, 120), [stream for stream, sent in wanted.items() if not found.get(stream, set()) >= sent]
    assert [one for one, sent in upstream.sent(streams).items() if not found[one] <= sent] == []
    clock.says("all was compared")


def place(service: Service) -> str:
    """Returns the run's name in the commands."""
    return f"local:{service.port}"


def copy_table(dynamodb: Any, table: str, to: str) -> None:
    """Make a table of another name with the same items, as point-in-time recovery does."""
    described = dynamodb.describe_table(TableName=table)["Table"]
    names = ("IndexName", "KeySchema", "Projection")
    dynamodb.create_table(
        TableName=to,
        KeySchema=described["KeySchema"],
        AttributeDefinitions=described["AttributeDefinitions"],
        BillingMode="PAY_PER_REQUEST",
        GlobalSecondaryIndexes=[{name: one[name] for name in names} for one in described["GlobalSecondaryIndexes"]],
    )
    for page in dynamodb.get_paginator("scan").paginate(TableName=table):
        for item in page["Items"]:
            dynamodb.put_item(TableName=to, Item=item)


def test_both_tables_are_deleted(tmp_path: Path, upstream: Upstream) -> None:
    """The run is killed as well. New tables get a backup's content, and the upstream sends the later events."""
    copy, backup = project(tmp_path / "project", streams_per_function=10), str(tmp_path / "backup")
    with running(tmp_path, copy, UPSTREAM_DEMO=upstream.address) as service:
        connect(service, STREAMS)
        time.sleep(5)
        typed(service, "backup", "--stage", place(service), "--to", backup)
        clock = Clock("both tables deleted")
        for table in TABLES.values():
            service.aws("dynamodb").delete_table(TableName=table)
        service.end(signal.SIGKILL)
        service.start()
        clock.says("the run has new tables")
        typed(service, "restore", "--from", backup, "--stage", place(service), "--start")
        clock.says("the command ended")
        is_whole(service, upstream, clock)


def test_tables_are_set_back(tmp_path: Path, upstream: Upstream) -> None:
    """After all events are deleted, the streams are restored from tables of an earlier instant, under other names."""
    copy = project(tmp_path / "project", streams_per_function=10)
    with running(tmp_path, copy, UPSTREAM_DEMO=upstream.address) as service:
        connect(service, STREAMS)
        time.sleep(3)
        dynamodb = service.aws("dynamodb")
        # The control table is the earlier one, so no cursor is ahead of the events.
        for name, table in TABLES.items():
            copy_table(dynamodb, table, f"earlier-{name}")
        time.sleep(3)
        clock = Clock("tables set back")
        typed(service, "stop", "--match", "demo:*")
        assert service.reaches("stopped", *STREAMS)
        for item in dynamodb.scan(TableName=TABLES["events"])["Items"]:
            key = {name: item[name] for name in ("PK", "SK")}
            dynamodb.delete_item(TableName=TABLES["events"], Key=key)
        clock.says("the streams are stopped")
        source = f"{place(service)}/earlier-events,earlier-control"
        typed(service, "restore", "--from", source, "--stage", place(service), "--replace", "--start")
        clock.says("the command ended")
        is_whole(service, upstream, clock)


def test_a_region_is_lost_and_streams_are_moved(tmp_path: Path, upstream: Upstream) -> None:
    """A run is killed for ever and a second takes over from a backup; a third takes over from the second by a move."""
    copy, backup = project(tmp_path / "project", streams_per_function=10), str(tmp_path / "backup")
    for name in ("lost", "second", "third"):
        (tmp_path / name).mkdir()
    with contextlib.ExitStack() as stack:
        lost, second, third = (
            stack.enter_context(running(tmp_path / name, copy, UPSTREAM_DEMO=upstream.address))
            for name in ("lost", "second", "third")
        )
        connect(lost, STREAMS)
        time.sleep(5)
        typed(lost, "backup", "--stage", place(lost), "--to", backup)
        clock = Clock("a region lost")
        lost.end(signal.SIGKILL)
        typed(second, "restore", "--from", backup, "--stage", place(second), "--start")
        clock.says("the command ended")
        is_whole(second, upstream, clock)
        clock = Clock("a planned move")
        typed(second, "move", "--match", "demo:*", "--from", place(second), "--to", place(third))
        clock.says("the command ended")
        is_whole(third, upstream, clock)
        assert not connected(second)
        typed(second, "move", "--match", "demo:*", "--from", place(second), "--to", place(third))
        (gap, *_) = third.ask("GET", "demo:0/gaps")[1]["gaps"][-1:]
        assert gap["cause"] == "stopped"


def test_no_concurrency_is_left(tmp_path: Path, upstream: Upstream) -> None:
    """Two functions may run, and both are taken: an alert names the waiting stream, which connects once one is free."""
    copy = project(tmp_path / "project", streams_per_function=1, connection_concurrency=2)
    with running(tmp_path, copy, UPSTREAM_DEMO=upstream.address) as service:
        connect(service, STREAMS[:2])
        service.post("demo:9")
        assert until(lambda: "ALERT: demo:9: Away" in service.log, 120), service.log
        assert re.search("demo:9: lane [AB] cannot connect: Rate Exceeded", service.log)
        assert service.status("demo:9") == "starting"
        service.ask("DELETE", "demo:0")
        assert service.reaches("stopped", "demo:0")
        is_whole(service, upstream, Clock("no concurrency left"), ["demo:9"])


@pytest.mark.parametrize("upstream", [SELDOM_S], indirect=True)
def test_a_profile_is_wrong(tmp_path: Path, upstream: Upstream) -> None:
    """A wrong profile rejects all its streams; once it is right, one start by its name connects all of them."""
    copy = project(tmp_path / "project", "nothing-", streams_per_function=100, function_timeout_s=900, wait_s=840)
    streams = [f"demo:{number}" for number in range(MANY)]
    # Other tests judge the permissions: checking them in one process takes more of two cores than the streams.
    with running(tmp_path, copy, UPSTREAM_DEMO=upstream.address, **{guard.SETTING: ""}) as service:
        service.ask_at("PUT", "fleet", "\n".join(streams))
        assert until(lambda: with_status(service, "rejected") == set(streams), 600), service.log
        clock = Clock("a wrong profile")
        (copy / "env" / "streams" / "demo.toml").write_text(PROFILE % "")
        assert until(lambda: "profile demo is redeployed" in service.log, 60), service.log
        typed(service, "start", "--match", "demo:*")
        clock.says("the command ended")
        is_whole(service, upstream, clock, streams)
