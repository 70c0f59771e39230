"""Profiles are put into a bucket while streams run: no deployment, and no more than a minute until they are used.

The run enforces the permissions, and its one function, which streams share, lives longer than the test.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import running
from tests.local.support import until
from tests.projects import copied, with_settings
from tests.real.upstream import serving

# It repeats in a real run what tests/handlers/run/test_profile_source.py shows of the functions' part.
pytestmark = pytest.mark.long
BUCKET, FOLDER = "streamkeeper-test-events-000000000000-us-east-1", "streams/"
CALM = "demo:calm"
# No function hands over before the test has ended.
LIFE = {"function_timeout_s": 600, "wait_s": 500, "streams_per_function": 8}


def test_only_a_valid_profile_in_the_bucket_is_used_within_a_minute(tmp_path: Path) -> None:
    """The running function starts a new profile's stream; a wrong profile is reported, its former version used."""
    named = {"profiles_bucket": BUCKET, "profiles_folder": FOLDER}
    project = with_settings(copied(tmp_path / "project"), **LIFE, **named)
    sound = (project / "env" / "streams" / "demo.toml").read_text().replace("/{streamId}", "/demo:{name}")
    with (
        serving(lambda _who, _count: None) as (_, port),
        running(tmp_path, project, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service,
    ):
        service.has_own_roles = True  # they may read the bucket
        s3 = service.aws("s3")

        def puts(text: str) -> None:
            s3.put_object(Bucket=BUCKET, Key=f"{FOLDER}mine.toml", Body=text.encode())

        def status(stream: str) -> dict[str, Any]:
            code, said = service.ask("GET", stream)
            return said if code == 200 else {}

        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        service.post(CALM)
        assert until(lambda: status(CALM).get("status") == "running", 60), service.log
        assert service.ask("POST", "mine:new")[0] == 404
        puts(sound)
        service.post("mine:new")
        assert until(lambda: status("mine:new").get("status") == "running", 60), service.log
        assert "profile_problem" not in status("mine:new")
        puts("framing = 7\n")
        reason = "the profile 'mine' in the bucket is wrong, and its former version is used: "
        assert until(lambda: status("mine:new").get("profile_problem", "").startswith(reason), 90), service.log
        # A stream that joins now has the former version too.
        service.post("mine:later")
        assert until(lambda: status("mine:later").get("status") == "running", 60), service.log
        puts(sound)
        assert until(lambda: "profile_problem" not in status("mine:new"), 90), service.log
        streams = [CALM, "mine:new", "mine:later"]
        (function,) = {one["request_id"] for stream in streams for one in service.connections(stream)}
        assert function
        assert "not authorized" not in service.log
