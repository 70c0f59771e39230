"""Schemathesis, which nobody here wrote, asks the local run for everything that its OpenAPI document offers.

It finds nothing: no answer that the document does not describe, no malformed request that is taken, no sound one that
is refused, no method that is not answered with 405. The seed is printed, and drawn anew in each run but continuous
integration's.
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
    # Its execution claims it a moment after it was started.
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
    """Returns the same one in continuous integration, else another one each time."""
    return "1" if os.environ.get("CI") else str(random.SystemRandom().randrange(10**6))


def asked(service: Service, folder: Path, examples: int, *more: str) -> str:
    """What Schemathesis prints of all its checks; it fails where one of them does."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"http://127.0.0.1:{service.port}/openapi.json",
    ]
    # It warns where each answer is 404 or 409, as of a repair where no profile of this run repairs.
    command += ["--warnings", "off", "--continue-on-failure", "--no-color", "--seed", seed(), "--request-timeout", "60"]
    command += ["--max-examples", str(examples), "--suppress-health-check", "all", *more]
    (folder / "schemathesis.toml").write_text(CONFIG)
    (folder / "hooks.py").write_text(HOOKS)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.cpu(4)
@pytest.mark.parametrize("part", [PART, pytest.param(0, marks=pytest.mark.long)])
def test_schemathesis_finds_nothing(service: Service, tmp_path: Path, part: int) -> None:
    """All its checks run, with examples and boundary values of each parameter, on some routes in each run."""
    paths = service.ask_at("GET", "openapi.json")[1]["paths"]
    operations = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    drawn = random.Random(seed()).sample(operations, part or len(operations))
    said = asked(service, tmp_path, 1, "--phases", "coverage", *(f"--include-name={name}" for name in drawn))
    assert re.search(rf"Operations: +{len(drawn)} selected ", said)
    assert "No issues found" in said


@pytest.mark.long
def test_schemathesis_finds_nothing_in_many_requests(service: Service, tmp_path: Path) -> None:
    """The same with many more generated requests, and with requests that follow from answers."""
    asked(service, tmp_path, 100)
