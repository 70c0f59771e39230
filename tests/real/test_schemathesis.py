"""Schemathesis, an independent tool, requests from the local run everything that its OpenAPI document offers.

It finds no answer that the document does not describe, no malformed request that is accepted and no valid one that is
refused. Each other method is answered with 405. The seed is printed, and drawn anew in each run except in continuous
integration.
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import Service
from tests.local.support import until
from tests.local_run import LocalRun


@pytest.fixture(scope="module")
def service(local_run: LocalRun) -> Service:
    """The run, with a stream that has events."""
    local_run.post("demo")
    # The execution claims the stream a moment after its start.
    assert until(lambda: bool(local_run.ask("GET", "demo/events")[1].get("events")), 30), local_run.log
    return local_run


# Schemathesis has no serializer for TOML. The schema of such a document is a text, which is sent as it is.
HOOKS = """
import schemathesis

@schemathesis.serializer("application/toml")
def toml(context, value):
    return value if isinstance(value, bytes) else str(value).encode()
"""
CONFIG = """
hooks = "hooks.py"

[[operations]]
include-name = "PUT /fleet"
# A document may contradict itself, or name too many streams, which no schema says.
checks.positive_data_acceptance.enabled = false

[checks]
# A DELETE asks for a stop: the stream that it names is there as before, and says that it stops.
use_after_free.enabled = false
"""


PART = 2
"""How many of the operations the default run asks for; 0 for all."""


def seed() -> str:
    """Returns the same seed in continuous integration, otherwise another one each time."""
    return "1" if os.environ.get("CI") else str(random.SystemRandom().randrange(10**6))


def asked(service: Service, folder: Path, examples: int, *more: str) -> str:
    """Returns what Schemathesis prints about all its checks; fails if one of them does."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"http://127.0.0.1:{service.port}/openapi.json",
    ]
    # Schemathesis warns if all answers are 404 or 409, as for repairs, which no profile of this run has.
    command += ["--warnings", "off", "--continue-on-failure", "--no-color", "--seed", seed(), "--request-timeout", "60"]
    command += ["--max-examples", str(examples), "--suppress-health-check", "all", *more]
    (folder / "schemathesis.toml").write_text(CONFIG)
    (folder / "hooks.py").write_text(HOOKS)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.cpu(4)
@pytest.mark.parametrize("part", [PART, pytest.param(0, marks=pytest.mark.long)])
def test_schemathesis_finds_no_mistake(service: Service, tmp_path: Path, part: int) -> None:
    """All checks run, with examples and boundary values of each parameter, on a few routes in each run."""
    paths = service.ask_at("GET", "openapi.json")[1]["paths"]
    operations = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    drawn = random.Random(seed()).sample(operations, part or len(operations))
    said = asked(service, tmp_path, 1, "--phases", "coverage", *(f"--include-name={name}" for name in drawn))
    assert re.search(rf"Operations: +{len(drawn)} selected ", said)
    assert "No issues found" in said


@pytest.mark.long
def test_schemathesis_finds_no_mistake_in_many_requests(service: Service, tmp_path: Path) -> None:
    """All checks run with many more generated requests, and with requests that follow from answers."""
    asked(service, tmp_path, 100)
