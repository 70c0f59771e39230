"""A project that is changed while a stream of it is connected, through the whole local service on real sockets."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import projects
from tests.harness import Service, running
from tests.local.support import until
from tests.projects import changed, packaged
from tests.real.upstream import serving

STREAM = "demo:redeploy"
# The lane that a connection records is another one under the new code, and under the new definition.
READS = "    return Request(stream_id, lane, execution, died=died, **numbers)\n"
CODE = (READS, '    lane += " of new code"\n' + READS)
LANE = "$substringAfter($states.context.State.Name, 'Connect ')"
DEFINITION = (LANE, f"'New ' & {LANE}")


@dataclass(frozen=True)
class Story:
    """A stream that was renewed and handed over again and again while its project was changed.

    `before` is how many connections there were when the change of the code was reported; `own` is how a POST and a
    DELETE of a profile were answered that was put there at the end, beside code that does not compile.
    """

    before: int
    connections: list[dict[str, Any]]
    gaps: list[dict[str, Any]]
    numbers: list[int]
    connected: list[int]
    own: tuple[int, int]
    log: str


def copied(folder: Path) -> Path:
    """A copy of the project whose executions start their successor after the first cycle of a lane."""
    changed(projects.copied(folder) / "env" / "test.yml", ("renew_after: 115 ", "renew_after: 1 "))
    return folder


def lanes(service: Service) -> list[str]:
    return [record["lane"] for record in service.connections(STREAM)]


def numbers(service: Service) -> list[int]:
    return sorted(json.loads(item["data"])["n"] for item in service.items("events", STREAM))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, run_folder: Path) -> Iterator[Story]:
    """From the POST until a connection of the new definition has stored some events."""
    folder = tmp_path_factory.mktemp("redeploy")
    project = packaged(copied(folder / "project"), run_folder)
    connected: list[int] = []
    with (
        serving(lambda _, count: connected.append(count)) as (_, port),
        running(folder, project, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service,
    ):
        service.post(STREAM)
        assert until(lambda: len(numbers(service)) > 5, 20), service.log
        changed(project / "handlers" / "connection_manager.py", CODE)
        changed(project / "statemachines" / "connections.asl.yml", DEFINITION)
        assert until(lambda: "redeployed the code" in service.log, 10), service.log
        before = len(service.connections(STREAM))
        assert until(lambda: "New B of new code" in lanes(service), 30), service.log
        changed(project / "statemachines" / "connections.asl.yml", ("\nStartAt: ", "\nStartAt: Nowhere near "))
        assert until(lambda: "not redeployed" in service.log, 20), service.log
        changed(project / "handlers" / "control.py", ("\nimport os\n", "\nimport nosuch\n"))
        assert until(lambda: "the former code goes on" in service.log, 10), service.log
        stored = len(numbers(service))
        assert until(lambda: len(numbers(service)) > stored + 10, 20), service.log
        (project / "env" / "streams" / "mine.toml").write_text((project / "env" / "streams" / "demo.toml").read_text())
        assert until(lambda: "profile mine is usable" in service.log, 10), service.log
        own = service.ask("POST", "mine:one")[0], service.ask("DELETE", "mine:one")[0]
        yield Story(
            before=before,
            connections=service.connections(STREAM),
            gaps=service.items("control", STREAM, "gap#"),
            numbers=numbers(service),
            connected=list(connected),
            own=own,
            log=service.log,
        )


def test_new_functions_have_the_new_code(story: Story) -> None:
    """A connection is handed over at the change and not cut off; those after it run the new code."""
    new = ["new code" in record["lane"] for record in story.connections]
    assert (set(new[story.before :]), len(new) > story.before) == ({True}, True)
    assert (story.connections[0]["lane"], story.connections[0]["ended_by"]) == ("B", "taken_over")


def test_new_executions_have_the_new_definition(story: Story) -> None:
    """An execution keeps the definition that it was started with; its successor has the new one."""
    of: dict[str, set[str]] = {}
    for record in story.connections:
        of.setdefault(record["execution"], set()).add(record["lane"].removesuffix(" of new code"))
    assert all(not {"B", "New B"} <= names for names in of.values())
    assert "New B" in list(of.values())[-1]


def test_the_stream_is_connected_throughout(story: Story) -> None:
    """The upstream never sees nobody, no gap is written down, and every event is stored once."""
    assert (set(story.connected), story.gaps) == ({1, 2}, [])
    assert story.numbers == list(range(story.numbers[0], story.numbers[-1] + 1))


def test_a_bad_change_is_reported_and_changes_nothing(story: Story) -> None:
    """One line each with the place; the stream continues, and the function of the broken code answers."""
    machine, code = [line.split(" ", 1)[1] for line in story.log.splitlines() if "not redeployed" in line]
    assert machine.startswith("not redeployed, nothing changed: statemachines/connections.asl.yml: ")
    assert code == (
        "not redeployed, the former code goes on: Unable to import module 'handlers/control': No module named 'nosuch'"
    )


def test_a_new_profile_is_usable_and_says_so(story: Story) -> None:
    """Though nothing else can be deployed: a POST starts it, and the function that stops it knows it."""
    assert "profile mine is usable: POST /connections/mine" in story.log
    assert story.own == (200, 202)


def test_each_change_is_reported_in_a_line(story: Story) -> None:
    """Once each, with what follows."""
    lines = [line.split(" ", 1)[1] for line in story.log.splitlines() if " redeployed " in line]
    assert sorted(lines) == [
        "redeployed streamkeeper-test-connections: "
        "a stream has new settings from its next handover on, a new definition from its renewal",
        "redeployed the code: a stream has it from its next handover on",
    ]
