"""One packaging of each kind for all tests of the deployed stage, in all processes that run them."""

import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from local import stages
from local.release import __main__ as builder
from local.service import osls
from tests.deploy.account import copied
from tests.projects import kept, once, with_settings

# Quicker than by npx.
PACKAGE = ("node", *osls.COMMAND, "package")
CHINA, GOVCLOUD = "cn-north-1", "us-gov-west-1"
MAIL = "ops@example.org"
SINK = f"arn:aws-cn:sqs:{CHINA}:111111111111:q"
OPTIONS = {
    "machine_log_level": "ERROR", "api_access_log": True, "alert_email": MAIL,
    "vpc_subnet_ids": "subnet-0a1b2c3d,subnet-4e5f6a7b", "vpc_security_group_ids": "sg-0a1b2c3d",
    "permissions_boundary": "arn:aws-cn:iam::111111111111:policy/bound/er",
    "profiles_bucket": "mine", "profiles_folder": "streams/", "profile_sinks": f"http,{SINK}",
}  # fmt: skip
ETCD = "https://etcd.example.org:2379"
# What a release is made of besides the sources of the template.
RELEASED = ("handlers", "local/release", "env", "packaging", "pyproject.toml", "requirements.txt", "CHANGELOG.md")


@pytest.fixture(scope="session", autouse=True)
def _kept_template() -> None:
    """Compiles the template of the stage `test`, so that its seconds do not count for the first test that reads it."""
    osls.template("test")


@pytest.fixture(scope="session")
def whole_package(run_folder: Path) -> Path:
    """Return what `npx sls package` wrote for its default stage; the first process makes it, the others wait."""
    return once(run_folder / "whole-package", packaged) / ".serverless"


@pytest.fixture(scope="session")
def package() -> Path:
    """Return the same without requirements and compiled files in the zip, which take most of the time."""
    return kept("package", quickly_packaged, __file__, "handlers") / ".serverless"


@pytest.fixture(scope="session")
def china() -> Path:
    """Return a package for a region of China and a stage with prod's settings and all options.

    Its options are logs, an address for alerts, a VPC and a bucket of profiles. Its name is `test`, because a stage of
    that name is packaged quickly.
    """
    return kept("china", in_china, __file__) / ".serverless"


@pytest.fixture(scope="session")
def govcloud(run_folder: Path) -> Path:
    """Return a package for a region of GovCloud and the stage `test`."""
    return once(run_folder / "govcloud", in_govcloud) / ".serverless"


@pytest.fixture
def release() -> Path:
    """Return what `make release` makes of the project: a packaging for each condition, which the next run uses too.

    The first test pays for it, not the file: each test that uses it is long.
    """
    return kept("release", released, __file__, *RELEASED)


def released(folder: Path) -> Path:
    """Returns the folder, with a release."""
    builder.make_release(stages.ROOT, folder)
    return folder


def in_china(folder: Path) -> Path:
    """Returns the folder, packaged."""
    folder.mkdir()
    osls.copy_sources(stages.ROOT, folder)
    return sls(with_settings(folder, "test", "prod", **OPTIONS), *PACKAGE, "--stage", "test", "--region", CHINA)


def in_govcloud(folder: Path) -> Path:
    """Returns the folder, packaged."""
    osls.copy_sources(stages.ROOT, folder)
    return sls(folder, *PACKAGE, "--stage", "test", "--region", GOVCLOUD)


def packaged(folder: Path) -> Path:
    """Returns the folder, with a packaged copy of the project; the environment is nothing but PATH and HOME.

    Its stage has the address of one upstream, and of no other that a profile needs.
    """
    return sls(with_upstream(folder), "npx", "--no", "sls", "package")


def quickly_packaged(folder: Path) -> Path:
    """Returns the folder, packaged the same way without the zip's requirements and compiled files."""
    return sls(with_upstream(folder), *PACKAGE, STREAMKEEPER_TEMPLATE_ONLY="1")


def with_upstream(folder: Path) -> Path:
    """Returns the folder, with a copy of the project whose stage dev has the address of one upstream."""
    return with_settings(copied(folder), "dev", upstreams={"UPSTREAM_ETCD": ETCD})


def sls(folder: Path, *command: str, **variables: str) -> Path:
    """Returns the folder after the command has packaged in it."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME")} | variables
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="session")
def archive(package: Path) -> dict[str, bytes]:
    """Return the files in the zip by path, without requirements and compiled files."""
    return files_of(package)


@pytest.fixture(scope="session")
def whole_archive(whole_package: Path) -> dict[str, bytes]:
    """Return the files in the zip that Lambda gets, by path."""
    return files_of(whole_package)


def files_of(package: Path) -> dict[str, bytes]:
    """Returns the files in the zip of a package, by path."""
    with zipfile.ZipFile(package / "streamkeeper.zip") as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="session")
def template(package: Path) -> dict[str, Any]:
    """Return the compiled template of stage dev."""
    compiled: dict[str, Any] = json.loads((package / osls.COMPILED).read_text())
    return compiled


@pytest.fixture(scope="session")
def prod(china: Path) -> dict[str, Any]:
    """Return the compiled template of a stage with prod's settings and all options."""
    compiled: dict[str, Any] = json.loads((china / osls.COMPILED).read_text())
    return compiled
