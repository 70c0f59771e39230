"""Groups of streams that are upgraded while their streams are connected, through the whole local service."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handlers.upgrade.upgrade_steps import place
from tests.harness import STAGE, Service, running
from tests.local import support
from tests.local.support import until
from tests.real.test_redeploy import CODE, DEFINITION, copied
from tests.real.test_upgrade import BAD, NEW, Bad, deploy, executions, lost, open_gaps, slower, stored, tried, upgrade
from tests.real.upstream import serving

# Five upgrades, of which four watch groups for some time.
pytestmark = pytest.mark.long
GROUPS = [f"#{number}" for number in range(1, 5)]
STREAMS = [f"demo:group-{number}" for number in range(8)]
# Who is in no first wave: three go first.
LAST = max(GROUPS, key=place)


@dataclass(frozen=True)
class Story:
    """What the upgrades answered; then what the table says of the streams, `after` the good one.

    `renewed` and `back` are the lanes of the streams of the last group, with a definition that an upgrade takes back,
    and after that.
    """

    groups: Mapping[str, str]
    good: tuple[int, str]
    after: list[list[dict[str, Any]]]
    gaps: list[dict[str, Any]]
    connected: set[int]
    bad: Mapping[str, Bad]
    renewed: set[str]
    aborted: tuple[int, str]
    back: set[str]


def members(service: Service) -> dict[str, str]:
    """The group of each stream."""
    return {stream: str(service.ask("GET", stream)[1].get("group")) for stream in STREAMS}


def lanes(service: Service, streams: list[str]) -> set[str]:
    """Of the newest connection of each."""
    return {service.connections(stream)[-1]["lane"] for stream in streams}


def started_again(service: Service, streams: list[str]) -> None:
    """Stops a group's streams, until its execution is over, and starts them: in a new execution of the machine."""
    arn = executions(service, [LAST])[LAST]
    for stream in streams:
        service.ask("DELETE", stream)
    assert until(lambda: service.execution(arn)["status"] != "RUNNING", 90), service.log
    before = stored(service, streams)
    for stream in streams:
        service.post(stream)
    assert until(lambda: all(new > old for new, old in zip(stored(service, streams), before, strict=True)), 60)


def aborted(service: Service, project: Path) -> tuple[int, str]:
    """The end of an upgrade that somebody has go back once the first wave was asked."""
    command = [sys.executable, "-m", "local.cli", "upgrade"]
    environment = support.environment(PORT=str(service.port), STREAMKEEPER_STAGE=STAGE)
    with subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "have handed over" not in process.stdout.readline():
            time.sleep(0.01)
        upgrade(service, project, "--abort")
        return process.wait(400), process.stdout.read()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Four groups of two streams: the first upgrade, a good version, two bad ones, and a definition that goes back."""
    folder = tmp_path_factory.mktemp("groups")
    project = copied(folder / "project")
    slower(project, streams_per_function=(1, 2))
    connected: list[int] = []
    with (
        serving(lambda _, count: connected.append(count)) as (_, port),
        running(folder, project, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service,
    ):
        for stream in STREAMS:
            service.post(stream)
        assert until(lambda: min(stored(service, STREAMS)) > 5, 60), service.log
        groups = members(service)
        assert upgrade(service, project)[0] == 0
        deploy(service, project / "handlers" / "connection_manager.py", CODE)
        good = upgrade(service, project)
        after, seen = [service.connections(stream) for stream in STREAMS], set(connected)
        gaps = [gap for stream in STREAMS for gap in service.items("control", stream, "gap#")]
        bad: dict[str, Bad] = {}
        for name in ("raises", "says it stores"):
            path, change = BAD[name]
            deploy(service, project / path, change)
            bad[name] = tried(service, project, STREAMS, GROUPS)
            deploy(service, project / path, change[::-1])
        deploy(service, project / "statemachines" / "connections.asl.yml", DEFINITION)
        last = [stream for stream, group in groups.items() if group == LAST]
        started_again(service, last)
        renewed = lanes(service, last)
        end = aborted(service, project)
        until(lambda: not any(lane.startswith("New") for lane in lanes(service, last)), 30)
        yield Story(groups, good, after, gaps, seen, bad, renewed, end, lanes(service, last))


def test_streams_share_functions(story: Story) -> None:
    """Two each."""
    assert sorted(story.groups.values()) == sorted(GROUPS * 2)


def test_a_good_version_is_taken_by_every_group_without_a_gap(story: Story) -> None:
    """In waves; each stream is connected throughout, and its executions call the new version."""
    assert (story.good[0], story.good[1].splitlines()[-1]) == (0, "Success"), story.good
    assert "a wave of 3 of 4 streams" in story.good[1]
    assert [NEW in each[-1]["lane"] for each in story.after] == [True] * 8
    assert (story.connected, open_gaps(story.gaps)) == ({1, 2}, [])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("raises", "it has not handed over for "), ("says it stores", " streams that had events before have none")],
)
def test_a_bad_version_is_taken_back_in_the_first_wave(story: Story, name: str, reason: str) -> None:
    """It is said why; the streams of the wave are connected again by what they ran before, the last never left it."""
    bad = story.bad[name]
    status, text = bad.end
    assert (status, "\nFailureClean: " in text, "of 4 streams that were asked" in text) == (1, True, False), text
    assert (reason in text, LAST in bad.wave, bad.recovered) == (True, False, True), (text, bad.wave)
    assert [lost(events, bad.gaps[stream]) for stream, events in bad.events.items()] == [[]] * 8


def test_what_was_dropped_is_a_gap_of_each_stream(story: Story) -> None:
    """Of those of the wave and of no other."""
    gaps = story.bad["says it stores"].gaps
    dropped = {stream for stream in STREAMS if "not_stored" in [gap["cause"] for gap in gaps[stream]]}
    assert dropped == {stream for stream, group in story.groups.items() if group != LAST}


def test_a_group_that_was_renewed_meanwhile_goes_back_too(story: Story) -> None:
    """It was in no wave, and ran the definition that is taken back."""
    assert (story.aborted[0], "FailureClean: somebody asked" in story.aborted[1]) == (1, True), story.aborted
    assert ({lane.partition(" ")[0] for lane in story.renewed}, story.back & story.renewed) == ({"New"}, set())
