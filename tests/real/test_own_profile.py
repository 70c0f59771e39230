"""A user's own profile, valid or broken, lies beside those that ship and changes no verdict of the tests."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.support import PROJECT, environment
from tests.projects import ROOMS, copy_rooms

# The tests of the profiles that ship, and the one that names a profile which is not there.
FILES = (
    "handlers/profile/test_parse.py",
    "handlers/test_providers.py",
    "local/profiles",
    "deploy/test_mapping_templates.py",
)
CHOSEN = "ship or can_be_started or refused_trial"


@pytest.mark.long
def test_a_users_own_profiles_fail_no_test(tmp_path: Path) -> None:
    """In a copy of the project with two own profiles in env/streams, the tests that read profiles pass."""
    copy_rooms(tmp_path, (*ROOMS, "tests", "bench", "env", "packaging", "statemachines"))
    for name in ("pyproject.toml", "serverless.yml", "package-lock.json"):
        shutil.copy2(PROJECT / name, tmp_path / name)
    (tmp_path / "node_modules").symlink_to(PROJECT / "node_modules")
    streams = tmp_path / "env" / "streams"
    (streams / "aaa.toml").write_text('framing = "sse"\naddress = "${UPSTREAM_MINE}/x"\n')
    (streams / "mine.broken.toml").write_text("framing =\n")
    path = f"{tmp_path}:{PROJECT / 'states-language' / 'testing'}"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", CHOSEN,
         *(f"tests/{name}" for name in FILES)],
        cwd=tmp_path, env=environment(PYTHONPATH=path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
