"""One packaging for all the tests of what is deployed, whichever process runs them."""

import fcntl
import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from local.service import osls
from tests.deploy.account import copied

ETCD = "https://etcd.example.org:2379"


@pytest.fixture(scope="session")
def package(run_folder: Path) -> Path:
    """What `npx sls package` wrote for its default stage; the process that asks first makes it, the others wait."""
    folder = run_folder / "package"
    with (run_folder / "package.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            packaged(run_folder / "packaging").rename(folder)
    return folder / ".serverless"


def packaged(folder: Path) -> Path:
    """Returns the folder, with a packaged copy of the project; the environment is nothing but PATH and HOME.

    Its stage has the address of one upstream, and of no other that a profile needs.
    """
    settings_file = copied(folder) / "env" / "dev.yml"
    upstreams = json.dumps({"UPSTREAM_ETCD": ETCD})
    settings_file.write_text(settings_file.read_text().replace("upstreams: {}", f"upstreams: {upstreams}"))
    environment = {name: os.environ[name] for name in ("PATH", "HOME")}
    command = ["npx", "--no", "sls", "package"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="session")
def archive(package: Path) -> dict[str, bytes]:
    """The files in the zip that Lambda gets, by path."""
    with zipfile.ZipFile(package / "streamkeeper.zip") as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="session")
def template(package: Path) -> dict[str, Any]:
    """The compiled template of stage dev."""
    compiled: dict[str, Any] = json.loads((package / osls.COMPILED).read_text())
    return compiled
