"""README's commands do what README says, typed into a copy of the project.

Each block that is marked `sh` is run, in its order, but for those under the heading "Deploy", which need AWS. The
test-suite does not run itself.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness import free_port
from tests.local.support import PROJECT, environment, until

NEEDS_AWS = "Deploy"
RUN, TEST = "make run", "make test"
# What a command must print, by how it begins.
PRINTS = {
    "cat > env/streams/prices.toml": "",
    ".venv/bin/streamkeeper profile check": "",
    ".venv/bin/streamkeeper profile try": "event      key ",
    "curl -X POST": '{"executionArn": "arn:aws:states:',
    "curl http://": '"status": "running"',
    "curl 'http://": '"position": "',
    "curl -X DELETE": '"status": "stop',
}
NODE = ("package.json", "package-lock.json", ".npmrc")
ROOMS = ("handlers", "local", "timeline", "states-language")
LOCKS = tuple(f"requirements-{name}.txt" for name in ("dev", "durable", "velocity"))
FILES = ("Makefile", "serverless.yml", "pyproject.toml", *LOCKS, *NODE)
PATIENCE_S = 10


def commands(readme: str) -> Iterator[tuple[str, str]]:
    """Each command of a `sh` block, with the heading above it; a here-document is part of its command."""
    heading = ""
    for title, block in re.findall(r"^## ([^\n]*)$|^ *```sh\n(.*?)^ *```$", readme, re.MULTILINE | re.DOTALL):
        heading = title or heading
        lines = iter(textwrap.dedent(block).splitlines())
        for line in lines:
            command = re.sub(r"  +# .*", "", line)
            if (here := re.search(r"<<'(\w+)'", command)) is not None:
                for following in lines:
                    command += f"\n{following}"
                    if following == here[1]:
                        break
            yield heading, command


COMMANDS = list(commands((PROJECT / "README.md").read_text(encoding="utf-8")))


def samples() -> dict[str, dict[str, Any]]:
    """The answers in JSON that docs/api.md shows, by how the command before them begins."""
    page = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```\n\$ (curl [^\n]*?)http://[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return {start: json.loads(answer) for start, answer in shown if answer.startswith("{")}


def copied(folder: Path) -> Path:
    """A copy of the project in which `make` has nothing to install."""
    for room in (*ROOMS, "env", "packaging", "statemachines"):
        shutil.copytree(PROJECT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in FILES:
        shutil.copy2(PROJECT / name, folder / name)
    # The environment is the one in which this test runs.
    for source, name in ((Path(sys.prefix), ".venv"), (PROJECT / "node_modules", "node_modules")):
        (folder / name).mkdir()
        for entry in source.iterdir():
            if entry.name != ".installed":
                (folder / name / entry.name).symlink_to(entry)
        (folder / name / ".installed").touch()
    return folder


def listening(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


@contextlib.contextmanager
def made_run(project: Path, port: int, variables: dict[str, str]) -> Iterator[None]:
    """`make run` in a terminal of its own; at the end somebody types Ctrl-C."""
    log = project / "run.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", "run", f"PYTHON={sys.executable}"],
            cwd=project, env=variables, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        assert until(lambda: process.poll() is not None or listening(port), PATIENCE_S), log.read_text()
        assert process.poll() is None, log.read_text()
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE_S)
    assert not listening(port)


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    """`make run`, and a stream of one's own in five steps, prints what README says; a command nobody expects fails.

    What the API answers has the fields that docs/api.md shows, and no other.
    """
    project, port = copied(tmp_path / "project"), free_port()
    here = [command for heading, command in COMMANDS if heading != NEEDS_AWS]
    assert here[:2] == [RUN, TEST]
    variables = environment(
        PORT=str(port),
        STREAMKEEPER_DATA=str(tmp_path / "data"),
        PYTHONPATH=os.pathsep.join([str(project), str(project / "states-language" / "src")]),
    )

    answers: dict[str, str] = {}

    def prints(command: str, text: str) -> bool:
        for offset in range(3):
            command = command.replace(f"127.0.0.1:{3000 + offset}", f"127.0.0.1:{port + offset}")
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=project, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        answers[command[: command.index("http://")] if "http://" in command else ""] = ran.stdout
        return ran.returncode == 0 and text in ran.stdout

    with made_run(project, port, variables):
        for command in here[2:]:
            (text,) = [text for start, text in PRINTS.items() if command.startswith(start)]
            # What was asked for a moment ago may not be done yet: a profile is deployed, a stream is claimed.
            assert until(partial(prints, command, text), PATIENCE_S), command
    for start, sample in samples().items():
        assert (start, set(json.loads(answers[start]))) == (start, set(sample))


@pytest.mark.parametrize("command", [command for heading, command in COMMANDS if heading == NEEDS_AWS])
def test_the_commands_that_need_aws_are_understood_by_the_shell(command: str) -> None:
    """They are not run; their syntax is checked."""
    ran = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_make_knows_what_the_readme_says() -> None:
    """`make test` is there; what it runs is the whole of the checks."""
    planned = subprocess.run(["make", "-n", "test"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert "ruff check" in planned
    assert "pytest" in planned
