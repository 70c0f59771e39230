"""Streams that are upgraded by `streamkeeper upgrade` while they are connected, to a good version and to a bad one.

Through the whole local service: real sockets, sandboxes, versions and executions.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness import STAGE, Service, running
from tests.local import support
from tests.local.support import until
from tests.real.test_redeploy import CODE, READS, changed, copied
from tests.real.upstream import serving

# Three upgrades, of which two watch streams for half a minute and more.
pytestmark = pytest.mark.long
STREAMS = [f"demo:upgrade-{number}" for number in range(4)]
# A version that fails for every stream, though it starts and takes an event.
BAD = (CODE[1], READS + '        raise RuntimeError("a bad version")\n')
NEW = "of new code"


@dataclass(frozen=True)
class Story:
    """What three upgrades answered; then what the table says of the streams, `after` the good one and at the end.

    `early` are the lanes of the connections that began between the deployment and the upgrade.
    """

    first: tuple[int, str]
    early: set[str]
    good: tuple[int, str]
    after: list[list[dict[str, Any]]]
    gaps: list[dict[str, Any]]
    connected: set[int]
    bad: tuple[int, str]
    second: str
    recovered: bool
    log: str


def upgrade(service: Service, project: Path, *options: str) -> tuple[int, str]:
    """The exit status of `streamkeeper upgrade` and what it printed."""
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
    project = folder / "project"
    project.mkdir()
    copied(project)
    settings = project / "env" / "test.yml"
    for name, before, now in (
        ("function_timeout_s", 8, 24),
        ("wait_s", 4, 10),
        ("start_allowance_s", 4, 8),
        ("renew_after", 1, 115),
        ("unconnected_after_s", 2, 6),
    ):
        changed(settings, (f"{name}: {before} ", f"{name}: {now} "))
    connected: list[int] = []
    with (
        serving(lambda _, count: connected.append(count)) as (_, port),
        running(folder, project, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service,
    ):
        for stream in STREAMS:
            service.post(stream)
        assert until(lambda: min(stored(service)) > 5, 40), service.log
        first = upgrade(service, project)
        changed(project / "handlers" / "connection_manager.py", CODE)
        assert until(lambda: "redeployed the code" in service.log, 20), service.log
        began = [len(each) for each in rows(service)]
        assert until(lambda: all(len(new) > old + 1 for new, old in zip(rows(service), began, strict=True)), 60)
        early = {row["lane"] for each, old in zip(rows(service), began, strict=True) for row in each[old:]}
        good = upgrade(service, project)
        after, seen = rows(service), set(connected)
        gaps = [gap for stream in STREAMS for gap in service.items("control", stream, "gap#")]
        changed(project / "handlers" / "connection_manager.py", BAD)
        assert until(lambda: service.log.count("redeployed the code") == 2, 20), service.log
        with subprocess.Popen(
            [sys.executable, "-m", "local.cli", "upgrade"],
            cwd=project,
            env=support.environment(PORT=str(service.port), STREAMKEEPER_STAGE=STAGE),
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline().startswith("the upgrade ")
            second = upgrade(service, project)[1]
            bad = other.wait(400), other.stdout.read()
        events = stored(service)
        recovered = until(lambda: all(new > old for new, old in zip(stored(service), events, strict=True)), 30)
        yield Story(first, early, good, after, gaps, seen, bad, second, recovered, service.log)


def test_the_first_upgrade_makes_a_version_of_what_is_deployed(story: Story) -> None:
    """There is nothing to compare it with, so it ends at once."""
    assert (story.first[0], story.first[1].splitlines()[-1]) == (0, "Success"), story.first


def test_a_deployment_changes_nothing_until_it_is_upgraded_to(story: Story) -> None:
    """Handovers go on, between functions of the version before."""
    assert story.early == {"A", "B"}


def test_a_good_version_is_taken_by_every_stream_without_a_gap(story: Story) -> None:
    """In waves; each stream is connected throughout, and its executions call the new version."""
    assert (story.good[0], story.good[1].splitlines()[-1]) == (0, "Success"), story.good
    assert [NEW in each[-1]["lane"] for each in story.after] == [True] * 4
    # The ledger may show a millisecond between two of them, where a clock's reading was late; a cursor closes that.
    open_gaps = [gap for gap in story.gaps if not gap["closed_by_cursor"] or gap["to_ms"] - gap["from_ms"] > 1]
    assert (story.connected, open_gaps) == ({1, 2}, [])


def test_a_bad_version_is_taken_back_in_the_first_wave(story: Story) -> None:
    """It is named why; the streams of the wave are connected again by the version before, the fourth never left it."""
    status, text = story.bad
    assert (status, "FailureClean: demo:upgrade-" in text) == (1, True), text
    assert "a wave of 3 of 4 streams" in text
    assert "of 4 streams, after 3" not in text
    assert story.recovered


def test_a_second_upgrade_is_refused_by_the_name_of_the_first(story: Story) -> None:
    """It says how to see it and how to end it."""
    assert story.second.startswith("streamkeeper: An upgrade runs already, 20")
