"""The real runs have teeth: a service of a project with three planted defects, beside one of the project as it is.

Both meet the same on real processes and sockets: a handover of an upstream that forbids a second connection, a reset,
and a wish to stop. Each defect shows in one of them, and in what the service itself wrote down.
"""

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from local.permissions import guard
from local.service import osls
from local.upstreams.demo_streams import Upstreams
from tests.chaos.real.proxy import Proxy
from tests.harness import Service, running
from tests.local.support import PROJECT, client, until
from tests.planted.table import ROOT, Row, changed, rows
from tests.real.upstream import serving

DEMO, EXCLUSIVE = "demo:teeth", "demo-exclusive:teeth"


DEFECTS = [row for row in rows() if row.real]


@dataclass(frozen=True)
class Stage:
    """One service, what it is connected to, and through what."""

    service: Service
    upstreams: Upstreams
    proxy: Proxy

    def ends(self, stream_id: str) -> list[str]:
        """Why the connections of a stream ended, as the ledger tells, "" for those that have not."""
        return [record.get("ended_by", "") for record in self.service.connections(stream_id)]

    def is_connected(self) -> bool:
        """Whether the upstream has a connection of the stream that is dropped and stopped."""
        return bool(self.upstreams.presence.clients(DEMO))

    def waited_after(self, error: str) -> bool:
        """Whether a lane went from its connection straight to its Wait by this error."""
        with contextlib.closing(client("stepfunctions", f"http://127.0.0.1:{self.service.port + 1}")) as states:
            machine = next(one for one in states.list_state_machines()["stateMachines"] if one["type"] == "STANDARD")
            found = states.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]
            histories = [
                {event["id"]: event for page in pages for event in page["events"]}
                for execution in found
                for pages in [
                    states.get_paginator("get_execution_history").paginate(executionArn=execution["executionArn"])
                ]
            ]
        for history in histories:
            for event in history.values():
                if event["type"] == "WaitStateEntered":
                    exited = history.get(event["previousEventId"], {})
                    failed = history.get(exited.get("previousEventId", 0), {})
                    if failed.get("taskFailedEventDetails", {}).get("error") == error:
                        return True
        return False

    def has_handed_over(self) -> bool:
        """Whether lane A has claimed beside lane B, and one of the two is over."""
        ends = self.ends(EXCLUSIVE)
        return len(ends) > 1 and any(ends)

    def was_reset(self) -> bool:
        """Whether that is written down, and the stream is connected again."""
        return "reset" in self.ends(DEMO) and self.is_connected()

    def has_stopped(self) -> bool:
        """Whether that is told, and the upstream has no connection any more."""
        return not self.is_connected() and self.service.ask("GET", DEMO)[1]["status"] == "stopped"


def project(folder: Path, defects: Iterable[Row]) -> Path:
    """A copy of the project with the defects in it."""
    osls.snapshot(PROJECT, folder)
    for room in ("handlers", "local", "timeline"):
        shutil.copytree(PROJECT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for path, text in changed(change for row in defects for change in row.changes).items():
        (folder / path.relative_to(ROOT)).write_text(text)
    return folder


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[list[Stage]]:
    """The service with the defects, and the one without."""
    with contextlib.ExitStack() as stack:
        found = []
        for name, defects in (("defective", DEFECTS), ("sound", ())):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "project").mkdir()
            upstreams, port = stack.enter_context(serving())
            proxy = stack.enter_context(contextlib.closing(Proxy(port)))
            address = f"http://127.0.0.1:{proxy.port}"
            variables = {"UPSTREAM_DEMO": address, guard.SETTING: ""}
            service = stack.enter_context(running(folder, project(folder / "project", defects), **variables))
            found.append(Stage(service, upstreams, proxy))
        yield found


def test_every_defect_can_be_put_into_the_project(tmp_path: Path) -> None:
    """There are three in the table, and their places are in the copy."""
    assert project(tmp_path, DEFECTS) == tmp_path
    assert len(DEFECTS) == 3


@pytest.mark.long
def test_a_deliberate_defect_shows_in_a_real_run(stages: list[Stage]) -> None:
    """Every defect shows in the service that has it, and nothing of the kind in the one that is as it should be."""
    for stage in stages:
        for stream_id in (DEMO, EXCLUSIVE):
            stage.service.post(stream_id)
    defective, sound = stages
    # The older may let go in the same instant that the newer opens, so not each handover shows it.
    assert until(lambda: "refused" in defective.ends(EXCLUSIVE), 60), defective.service.log
    assert until(sound.has_handed_over, 60), sound.service.log
    assert "refused" not in sound.ends(EXCLUSIVE)
    for stage in stages:
        assert until(stage.is_connected, 30), stage.service.log
        assert stage.proxy.reset() >= 1
    for stage in stages:
        assert until(stage.was_reset, 45), stage.service.log
        assert stage.service.ask("DELETE", DEMO)[0] == 202
    for stage in stages:
        assert until(stage.has_stopped, 45), stage.service.log
    assert [stage.waited_after("StreamDropped") for stage in stages] == [True, False]
    assert ["stopped" in stage.ends(DEMO) for stage in stages] == [False, True]
