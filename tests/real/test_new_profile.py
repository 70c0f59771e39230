"""A profile that is deployed while a group's function runs: that function connects its streams, and disturbs no other.

The function lives for minutes here, so no handover helps it. The run enforces the permissions.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness import running
from tests.local.support import until
from tests.projects import copied, with_settings
from tests.real.upstream import serving

# It repeats in a real run what tests/handlers/group shows, and what tests/real/test_redeploy.py does of a stream alone.
pytestmark = pytest.mark.long
CALM = ["demo:calm", "demo-exclusive:calm", "demo-log:calm"]
NEW, MENDED = "mine:new", "worse:mended"
# Nobody hands over before the test has ended.
LIFE = {"function_timeout_s": 600, "wait_s": 500, "streams_per_function": 8}


@dataclass(frozen=True)
class Story:
    """The connections of each stream, what is stored of the new ones, how all stand, and what was printed."""

    connections: dict[str, list[dict[str, Any]]]
    numbers: dict[str, list[int]]
    statuses: list[str]
    log: str


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Three streams, then one of a profile that is new, and one of a profile that was broken when they began."""
    folder = tmp_path_factory.mktemp("new-profile")
    project = with_settings(copied(folder / "project"), **LIFE)
    profiles = project / "env" / "streams"
    sound = (profiles / "demo.toml").read_text().replace("/{streamId}", "/demo:{name}")
    (profiles / "worse.toml").write_text("framing = 7\n")
    with (
        serving(lambda _who, _count: None) as (_, port),
        running(folder, project, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service,
    ):
        for stream in CALM:
            service.post(stream)
        assert service.reaches("running", *CALM), service.log
        assert service.ask("POST", MENDED)[0] == 422
        (profiles / "mine.toml").write_text(sound)
        (profiles / "worse.toml").write_text(sound)
        for name in ("mine", "worse"):
            assert until(lambda name=name: f"profile {name} is usable" in service.log, 30), service.log  # type: ignore[misc]
        for stream in (NEW, MENDED):
            service.post(stream)
        assert until(lambda: all(len(service.numbers(stream)) > 5 for stream in (NEW, MENDED)), 60), service.log
        streams = [*CALM, NEW, MENDED]
        found = {stream: service.connections(stream) for stream in streams}
        yield Story(
            connections=found,
            numbers={stream: service.numbers(stream) for stream in (NEW, MENDED)},
            statuses=[service.status(stream) for stream in streams],
            log=service.log,
        )


def test_the_function_that_runs_connects_the_streams(story: Story) -> None:
    """The function that began before the profiles existed keeps all five streams, in one connection each."""
    (function,) = {one["request_id"] for connections in story.connections.values() for one in connections}
    assert function
    assert [len(connections) for connections in story.connections.values()] == [1] * 5
    assert story.statuses == ["running"] * 5


def test_nobody_is_rejected_or_refused(story: Story) -> None:
    """There is no dead letter and no missing permission at any time, and the events come without a hole."""
    assert not re.search("rejected|not authorized|AccessDenied|ALERT", story.log)
    for numbers in story.numbers.values():
        assert numbers == [*range(numbers[0], numbers[-1] + 1)]
