"""A profile is deployed while a group's function runs: the function connects its streams, and disturbs no other.

The function lives for minutes here, so no handover helps it. The run enforces the permissions.
"""

import re
from pathlib import Path

import pytest

from tests.harness import running
from tests.local.support import until
from tests.projects import copied, with_settings
from tests.real.upstream import serving

CALM = ["demo:calm", "demo-exclusive:calm", "demo-log:calm"]
# Streams of a new profile, and of one that was broken when the function began.
NEW, MENDED = "mine:new", "worse:mended"
# No function hands over before the test has ended.
LIFE = {"function_timeout_s": 600, "wait_s": 500, "streams_per_function": 8}


# It repeats in a real run what tests/handlers/group shows, and what tests/real/test_redeploy.py does of a stream alone.
@pytest.mark.long
def test_a_running_function_connects_streams_of_later_profiles(tmp_path: Path) -> None:
    """The function keeps all five streams, in one connection each, though it began before two of the profiles existed.

    There is no dead letter and no missing permission at any time, and the events have no hole.
    """
    project = with_settings(copied(tmp_path / "project"), **LIFE)
    profiles = project / "env" / "streams"
    sound = (profiles / "demo.toml").read_text().replace("/{streamId}", "/demo:{name}")
    (profiles / "worse.toml").write_text("framing = 7\n")
    with (
        serving(lambda _who, _count: None) as (_, port),
        running(tmp_path, project, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service,
    ):
        for stream in CALM:
            service.post(stream)
        assert service.reaches("running", *CALM), service.log
        assert service.ask("POST", MENDED)[0] == 422
        for name in ("mine", "worse"):
            (profiles / f"{name}.toml").write_text(sound)
        usable = [f"profile {name} is usable" for name in ("mine", "worse")]
        assert until(lambda: all(line in service.log for line in usable), 30), service.log
        for stream in (NEW, MENDED):
            service.post(stream)
        assert until(lambda: all(len(service.numbers(stream)) > 5 for stream in (NEW, MENDED)), 60), service.log
        streams = [*CALM, NEW, MENDED]
        assert [service.status(stream) for stream in streams] == ["running"] * 5
        connections = [one["request_id"] for stream in streams for one in service.connections(stream)]
        assert (len(connections), len(set(connections))) == (5, 1)
        assert not re.search("rejected|not authorized|AccessDenied|ALERT", service.log)
        for numbers in map(service.numbers, (NEW, MENDED)):
            assert numbers == [*range(numbers[0], numbers[-1] + 1)]
