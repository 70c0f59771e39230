"""The project changes while a stream of it is connected, through the whole local service on real sockets."""

from pathlib import Path

import pytest

from tests import projects
from tests.harness import Service, running
from tests.local.support import until
from tests.projects import changed, packaged
from tests.real.upstream import serving

STREAM, LATER = "demo:redeploy", "demo:later"
# The lane that a connection records is another one under the new code, and under the new definition.
READS = 'raise InvalidRequest("lane and execution in the event must be texts")\n'
CODE = (READS, READS + '    lane += " of new code"\n')
LANE = "$substringAfter($states.context.State.Name, 'Connect ')"
DEFINITION = (LANE, f"'New ' & {LANE}")


def lanes(service: Service, stream_id: str) -> list[str]:
    return [record["lane"] for record in service.connections(stream_id)]


@pytest.mark.long
def test_a_change_of_the_project_does_not_disconnect_a_stream(tmp_path: Path) -> None:
    """New functions have the new code, new executions the new definition, and the stream is connected throughout. A
    change that cannot be deployed is reported and has no effect; a new profile is usable even then.
    """
    project = packaged(projects.copied(tmp_path / "project"))
    connected: list[tuple[str, int]] = []
    with (
        serving(lambda *change: connected.append(change)) as (_, port),
        running(tmp_path, project, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service,
    ):
        service.post(STREAM)
        assert until(lambda: len(service.numbers(STREAM)) > 5, 20), service.log
        changed(project / "handlers" / "run" / "stream_invocation.py", CODE)
        changed(project / "statemachines" / "connections.asl.yml", DEFINITION)
        assert until(lambda: "redeployed the code" in service.log, 20), service.log
        before = len(service.connections(STREAM))
        service.post(LATER)
        assert until(lambda: lanes(service, LATER) == ["New B of new code"], 20), service.log
        assert service.ask("DELETE", LATER)[0] == 202
        assert until(lambda: lanes(service, STREAM)[before:], 20), service.log
        changed(project / "statemachines" / "connections.asl.yml", ("\nStartAt: ", "\nStartAt: Nowhere near "))
        assert until(lambda: "not redeployed" in service.log, 20), service.log
        (project / "env" / "streams" / "mine.toml").write_text((project / "env" / "streams" / "demo.toml").read_text())
        assert until(lambda: "profile mine is usable: POST /connections/mine" in service.log, 10), service.log
        assert (service.ask("POST", "mine:one")[0], service.ask("DELETE", "mine:one")[0]) == (200, 202)
        has_new_code(service, before)
        # The upstream never sees nobody, no gap is written down, and every event is stored once.
        counts = {count for stream_id, count in connected if stream_id == STREAM}
        assert (counts, service.items("control", STREAM, "gap#")) == ({1, 2}, [])
        kept = service.numbers(STREAM)
        assert kept == list(range(kept[0], kept[-1] + 1))
        reported(service.log)


def has_new_code(service: Service, before: int) -> None:
    """A connection is handed over at the change and not cut off; those after it run the new code.

    An execution keeps the definition that it was started with.
    """
    connections = service.connections(STREAM)
    new = ["new code" in record["lane"] for record in connections]
    assert (set(new[before:]), len(new) > before) == ({True}, True)
    assert (connections[0]["lane"], connections[0]["ended_by"]) == ("B", "taken_over")
    assert {record["lane"].removesuffix(" of new code") for record in connections} == {"A", "B"}


def reported(log: str) -> None:
    """Checks that each change and each refusal is one line, with its effect or its place."""
    (machine,) = [line.split(" ", 1)[1] for line in log.splitlines() if "not redeployed" in line]
    assert machine.startswith("not redeployed, nothing changed: statemachines/connections.asl.yml: ")
    lines = [line.split(" ", 1)[1] for line in log.splitlines() if " redeployed " in line]
    assert sorted(lines) == [
        "redeployed streamkeeper-test-connections: "
        "a stream gets new settings at its next handover, a new definition at its renewal",
        "redeployed the code: a stream gets it at its next handover",
    ]
