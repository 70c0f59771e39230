"""`streamkeeper upgrade` upgrades connected streams, to a good version and to bad ones.

Through the whole local service: real sockets, sandboxes, versions and executions.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness import STAGE, Service, running
from tests.local import support
from tests.local.support import until
from tests.projects import changed, copied, with_settings
from tests.real.test_redeploy import CODE, LANE, READS
from tests.real.upstream import serving

# Six upgrades, of which five watch streams for half a minute and more.
pytestmark = pytest.mark.long
STREAMS = [f"demo:upgrade-{number}" for number in range(4)]
NEW = "of new code"
INVOCATION, STORE = "handlers/run/stream_invocation.py", "handlers/store/connection_store.py"
WRITES = "        self.write = self._writer.write\n"
SAYS = "        from handlers.connection.inputs import Written\n\n"
LEAKS = (
    "kept = []; self.write = lambda *asked: (kept.append(bytearray(b'x' * 2_000_000)), self._writer.write(*asked))[1]"
)
# Versions that start and take an event: which file they change, and how. The last one changes the definition alone.
BAD = {
    "raises": (INVOCATION, (CODE[1], READS + '    raise RuntimeError("a bad version")\n')),
    "says it stores": (STORE, (WRITES, f"{SAYS}        self.write = lambda *asked: Written(len(asked[3]), 0)\n")),
    "leaks": (STORE, (WRITES, f"{WRITES}        {LEAKS}\n")),
    "definition": ("statemachines/connections.asl.yml", (LANE, "$error('a bad definition')")),
}


@dataclass(frozen=True)
class Bad:
    """What an upgrade to a bad version answered, and a second one beside it; the streams that had another execution.

    `recovered` is whether all have new events since. Then what the tables say.
    """

    end: tuple[int, str]
    second: str
    wave: set[str]
    recovered: bool
    events: Mapping[str, list[dict[str, Any]]]
    gaps: Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Story:
    """What the upgrades answered; then what the table says of the streams, `after` the good one.

    `early` are the lanes of the connections that began between the deployment and the upgrade.
    """

    first: tuple[int, str]
    early: set[str]
    good: tuple[int, str]
    after: list[list[dict[str, Any]]]
    gaps: list[dict[str, Any]]
    connected: set[int]
    bad: Mapping[str, Bad]
    log: str


def upgrade(service: Service, project: Path, *options: str) -> tuple[int, str]:
    """Returns the exit status of `streamkeeper upgrade` and what it printed."""
    environment = support.environment(PORT=str(service.port), STREAMKEEPER_STAGE=STAGE)
    command = [sys.executable, "-m", "local.cli", "upgrade", *options]
    run = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=400)
    return run.returncode, run.stdout + run.stderr


def rows(service: Service) -> list[list[dict[str, Any]]]:
    return [service.connections(stream) for stream in STREAMS]


def stored(service: Service) -> list[int]:
    return [len(service.items("events", stream)) for stream in STREAMS]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Four streams: the first upgrade, one to a good version, and one to a bad version."""
    folder = tmp_path_factory.mktemp("upgrade")
    project = slower(folder / "project")
    connected: list[int] = []
    with (
        serving(lambda _, count: connected.append(count)) as (_, port),
        running(folder, project, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service,
    ):
        for stream in STREAMS:
            service.post(stream)
        assert until(lambda: min(stored(service)) > 5, 40), service.log
        first = upgrade(service, project)
        changed(project / INVOCATION, CODE)
        assert until(lambda: "redeployed the code" in service.log, 20), service.log
        began = [len(each) for each in rows(service)]
        assert until(lambda: all(len(new) > old + 1 for new, old in zip(rows(service), began, strict=True)), 60)
        early = {row["lane"] for each, old in zip(rows(service), began, strict=True) for row in each[old:]}
        good = upgrade(service, project)
        after, seen = rows(service), set(connected)
        gaps = [gap for stream in STREAMS for gap in service.items("control", stream, "gap#")]
        bad: dict[str, Bad] = {}
        for name, (path, change) in BAD.items():
            deploy(service, project / path, change)
            bad[name] = tried(service, project)
            if name != "definition":
                deploy(service, project / path, change[::-1])
        yield Story(first, early, good, after, gaps, seen, bad, service.log)


def slower(folder: Path) -> Path:
    """Returns a copy of the project whose functions live for longer, so that a wave is watched for a while."""
    return with_settings(copied(folder), function_timeout_s=24, wait_s=10, start_allowance_s=8, unconnected_after_s=6)


def deploy(service: Service, path: Path, change: tuple[str, str]) -> None:
    """Returns when the change is deployed."""
    before = service.log.count(" redeployed ")
    changed(path, change)
    assert until(lambda: service.log.count(" redeployed ") > before, 30), service.log


def tried(service: Service, project: Path) -> Bad:
    """Returns the result of an upgrade to the deployed version, which is bad."""
    holders = executions(service)
    with subprocess.Popen(
        [sys.executable, "-m", "local.cli", "upgrade"],
        cwd=project,
        env=support.environment(PORT=str(service.port), STREAMKEEPER_STAGE=STAGE),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("the upgrade ")
        second = upgrade(service, project)[1]
        text = process.stdout.read()
        end = process.wait(400), text
    events = stored(service)
    recovered = until(lambda: all(new > old for new, old in zip(stored(service), events, strict=True)), 30)
    after = executions(service)
    return Bad(
        end,
        second,
        {one for one in STREAMS if after[one] != holders[one]},
        recovered,
        {stream: service.items("events", stream) for stream in STREAMS},
        {stream: service.items("control", stream, "gap#") for stream in STREAMS},
    )


def executions(service: Service) -> dict[str, str]:
    """Returns the execution that holds each stream."""
    return {stream: service.items("control", stream, "lease")[0]["execution"] for stream in STREAMS}


def open_gaps(gaps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the gaps without those of a millisecond that a cursor closes: a late reading of the clock makes one."""
    return [gap for gap in gaps if gap["state"] != "delivered" or gap["to_ms"] - gap["from_ms"] > 1]


def holes(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Returns the times of the events around each hole in the numbers that the upstream sent."""
    numbered = sorted((json.loads(event["data"])["n"], event["received_at_ms"]) for event in events)
    return [(one[1], next_[1]) for one, next_ in itertools.pairwise(numbered) if next_[0] != one[0] + 1]


def lost(events: list[dict[str, Any]], gaps: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Returns the holes that lie in no gap."""
    spans = [(gap["from_ms"], gap["to_ms"]) for gap in gaps]
    # The first event after a gap was delivered just after the connection was opened.
    return [one for one in holes(events) if not any(begin <= one[0] and one[1] - end < 3_000 for begin, end in spans)]


def test_the_first_upgrade_makes_a_version_of_the_deployed_code(story: Story) -> None:
    """The first upgrade has no earlier version to compare with, so it ends at once."""
    assert (story.first[0], story.first[1].splitlines()[-1]) == (0, "Success"), story.first


def test_a_deployment_has_no_effect_before_its_upgrade(story: Story) -> None:
    """Handovers continue between functions of the former version."""
    assert story.early == {"A", "B"}


def test_a_good_version_is_taken_by_every_stream_without_a_gap(story: Story) -> None:
    """Streams take a good version in waves; each is connected throughout, and its executions call the new version."""
    assert (story.good[0], story.good[1].splitlines()[-1]) == (0, "Success"), story.good
    assert [NEW in each[-1]["lane"] for each in story.after] == [True] * 4
    assert (story.connected, open_gaps(story.gaps)) == ({1, 2}, [])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", "it has not handed over for "),
        ("says it stores", " streams that had events before have none"),
        ("leaks", " MB of memory, and "),
        ("definition", "it has not handed over for "),
    ],
)
def test_a_bad_version_is_taken_back_in_the_first_wave(story: Story, name: str, reason: str) -> None:
    """The reason is printed; the wave's streams are connected again by the former version, which the fourth stream
    never left. Events that the bad version reported as stored and did not store are lost, and a gap has their interval.
    """
    bad = story.bad[name]
    status, text = bad.end
    assert (status, "\nFailureClean: " in text, "of 4 streams that were asked" in text) == (1, True, False), text
    assert (reason in text, len(bad.wave) <= 3, bad.recovered) == (True, True, True), (text, bad.wave)
    assert [lost(events, bad.gaps[stream]) for stream, events in bad.events.items()] == [[]] * len(STREAMS)


def test_a_stream_outside_all_waves_misses_no_event(story: Story) -> None:
    """No wave of a bad version includes the fourth stream, which has no hole and no open gap."""
    waves = set().union(*(bad.wave for bad in story.bad.values()))
    (outside,) = set(STREAMS) - waves
    last = story.bad["definition"]
    assert (holes(last.events[outside]), open_gaps(last.gaps[outside])) == ([], [])


def test_a_second_upgrade_is_refused_by_the_name_of_the_first(story: Story) -> None:
    """The refusal says how to watch the first one and how to end it."""
    assert all(bad.second.startswith("streamkeeper: The upgrade 20") for bad in story.bad.values())
