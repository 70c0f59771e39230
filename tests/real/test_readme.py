"""The commands of README, the tutorial and the page of operations do what the pages say, in a copy of the project.

Each block that is marked `sh` is run, in its order, except those under the heading "Deploy", which need AWS. The
test-suite does not run itself. `make run` plays Wikimedia, which the tutorial reads.
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
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import projects
from tests.harness import free_port
from tests.local.support import PROJECT, client, environment, until

NEEDS_AWS = "Deploy"
RUN, TEST = "make run", "make test"
# What a command must print, by its beginning; for the pages as a pattern.
PRINTS = {
    "cat > env/streams/prices.toml": "",
    ".venv/bin/streamkeeper profile check": "",
    ".venv/bin/streamkeeper profile try": "event      key ",
    "curl -X POST": '{"executionArn": "arn:aws:states:',
    "curl http://": '"status": "running"',
    "curl 'http://": '"position": "',
    "curl -X DELETE": '"status": "stop',
}
VERB = ".venv/bin/streamkeeper"
TUTORIAL = [
    (f"{VERB} profile new", ""),
    (f"{VERB} profile check", "edits.toml: valid; it resumes with the last event ID in the header Last-Event-ID"),
    (f"{VERB} profile try", r"event +key \["),
    (f"{VERB} start edits", "^edits (is starting|runs already)"),
    (f"{VERB} status edits", "^edits  running"),
    (f"{VERB} gaps edits", "^$"),
    (f"{VERB} events edits --limit 3", "(?s)edit-.*edit-.*edit-"),
    (f"{VERB} events edits --limit 100 --format ndjson", "^$"),
    ("cat > count_edits.py", "^$"),
    (".venv/bin/python count_edits.py", "^[1-9][0-9]* edits are in"),
    ("cat > make_queue.py", "^$"),
    (".venv/bin/python make_queue.py", "^$"),
    ("sed -i '1a deliver = ", "^$"),
    (f"{VERB} status edits", r"delivery +sqs:edits\.fifo +[1-9][0-9]* delivered"),
    ("cat > from_queue.py", "^$"),
    (".venv/bin/python from_queue.py", '"edit-'),
    (f"{VERB} stop edits", "^edits is stopp"),
]
OPERATIONS = [
    (f"{VERB} list", "running +demo"),
    (f"{VERB} status demo", "^demo  running"),
    ("curl http://127.0.0.1:3000/metrics", "streamkeeper_events_stored_total"),
    (f"{VERB} gaps demo", "^$"),
    (f"{VERB} gaps demo --from 7d --json", ""),
    (f"{VERB} redrive demo", ""),
    (f"{VERB} redrive --dry-run", ""),
    (f"{VERB} events demo --from 1h --limit 500 --format ndjson", "^$"),
    (f"{VERB} events demo --from 1h --limit 500 --format parquet", "^$"),
    (f"{VERB} stop demo", "^demo is stopp"),
    (f"{VERB} start demo", "^demo (is starting|runs already)"),
    ("curl http://127.0.0.1:3000/connections/demo/cost", '"about_usd": '),
]
NODE = ("package.json", "package-lock.json", ".npmrc")
ROOMS = ("handlers", "local", "streamkeeper", "timeline", "states-language")
LOCKS = tuple(f"requirements-{name}.txt" for name in ("dev", "durable", "velocity"))
FILES = ("Makefile", "serverless.yml", "pyproject.toml", *LOCKS, *NODE)
PATIENCE_S = 10


def commands(readme: str) -> Iterator[tuple[str, str]]:
    """Yields each command of a `sh` block, with the heading above it; a here-document is part of its command."""
    heading = ""
    for title, block in re.findall(r"^## ([^\n]*)$|^ *```sh\n(.*?)^ *```$", readme, re.MULTILINE | re.DOTALL):
        heading = title or heading
        lines = iter(textwrap.dedent(block).splitlines())
        for line in lines:
            command = re.sub(r"  +# .*", "", line)
            while command.endswith("\\"):
                command += f"\n{next(lines)}"
            here = re.search(r"<<'(\w+)'", command)
            if here is not None:
                for following in lines:
                    command += f"\n{following}"
                    if following == here[1]:
                        break
            yield heading, command


def commands_of(page: str) -> list[tuple[str, str]]:
    return list(commands((PROJECT / page).read_text(encoding="utf-8")))


def typed(page: str) -> list[str]:
    """Returns the commands of a page, except the run that they need."""
    return [command for _, command in commands_of(page) if command != RUN]


COMMANDS = commands_of("README.md")
PAGES = pytest.mark.parametrize(
    ("page", "wanted"), [("docs/tutorial.md", TUTORIAL), ("docs/operations.md", OPERATIONS)], ids=["tutorial", "ops"]
)


def copied(folder: Path) -> Path:
    """A copy of the project in which `make` has nothing to install."""
    projects.copy_rooms(folder, (*ROOMS, "env", "packaging", "statemachines"))
    for name in FILES:
        shutil.copy2(PROJECT / name, folder / name)
    # The environment is the one in which this test runs.
    for source, name in ((Path(sys.prefix), ".venv"), (PROJECT / "node_modules", "node_modules")):
        (folder / name).mkdir()
        for entry in source.iterdir():
            if entry.name != ".installed":
                (folder / name / entry.name).symlink_to(entry)
        (folder / name / ".installed").touch()
    return projects.packaged(folder, "local")


def listening(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


@contextlib.contextmanager
def made_run(project: Path, port: int, variables: dict[str, str]) -> Iterator[None]:
    """Runs `make run` in a terminal of its own, and ends it with Ctrl-C."""
    log = project / "run.log"
    # It ends with this process, also if that is killed.
    bound = [sys.executable, "-m", "local.bootstrap", "--exec", str(os.getpid())]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*bound, shutil.which("make") or "", "run", f"PYTHON={sys.executable}"],
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


@dataclass(frozen=True)
class Checkout:
    """A copy of the project in which `make run` is going; commands are typed there."""

    project: Path
    port: int
    variables: dict[str, str]
    addresses: dict[str, str]

    def typed(self, command: str) -> "subprocess.CompletedProcess[str]":
        """The command, run to its end in a shell."""
        moved = {f"127.0.0.1:{3000 + offset}": f"127.0.0.1:{self.port + offset}" for offset in range(3)}
        for address, here in (moved | self.addresses).items():
            command = command.replace(address, here)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.project, env=self.variables, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def prints(self, command: str, pattern: str) -> str:
        """Returns what the command prints, once it prints the pattern.

        An earlier request may not be finished yet: a profile is deployed, a stream is claimed.
        """
        tries: list[subprocess.CompletedProcess[str]] = []

        def is_done() -> bool:
            tries.append(self.typed(command))
            return tries[-1].returncode == 0 and re.search(pattern, tries[-1].stdout) is not None

        assert until(is_done, PATIENCE_S), f"{command}\n{tries[-1].stdout}\n{tries[-1].stderr}"
        return tries[-1].stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """One `make run` for the three pages."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here, which the commands of the pages need")
    folder = tmp_path_factory.mktemp("pages")
    project, port = copied(folder / "project"), free_port()
    variables = environment(
        PORT=str(port),
        STREAMKEEPER_DATA=str(folder / "data"),
        PYTHONPATH=os.pathsep.join([str(project), str(project / "states-language" / "src")]),
    )
    with made_run(project, port, variables):
        # As the tutorial says of a machine without the internet.
        addresses = {"https://stream.wikimedia.org/": f"http://127.0.0.1:{port + 2}/wikimedia/"}
        yield Checkout(project, port, variables, addresses)


@pytest.mark.cpu(6)
def test_the_commands_of_the_readme_print_what_it_says(checkout: Checkout) -> None:
    """`make run` and the five steps to an own stream print what README says; an unexpected command fails the test."""
    here = [command for heading, command in COMMANDS if heading != NEEDS_AWS]
    assert here[:2] == [RUN, TEST]
    for command in here[2:]:
        (text,) = [text for start, text in PRINTS.items() if command.startswith(start)]
        checkout.prints(command, re.escape(text))


@PAGES
def test_the_commands_of_a_page_are_known(page: str, wanted: list[tuple[str, str]]) -> None:
    """A command that the test does not expect fails it, and so does a missing one."""
    assert [command[: len(start)] for command, (start, _) in zip(typed(page), wanted, strict=True)] == [
        start for start, _ in wanted
    ]


@pytest.mark.long
@PAGES
def test_the_commands_of_a_page_print_what_it_says(
    checkout: Checkout, page: str, wanted: list[tuple[str, str]]
) -> None:
    """Each command prints what the page says, in the page's order."""
    if page == "docs/operations.md":
        checkout.prints(".venv/bin/streamkeeper start demo", "")
    for command, (_, pattern) in zip(typed(page), wanted, strict=True):
        checkout.prints(command, pattern)


@pytest.mark.long
def test_the_queue_has_every_event_of_the_tutorial_once(checkout: Checkout) -> None:
    """The queue has all events in order, from the first that was sent to the last stored, except those taken out."""
    sqs = client("sqs", f"http://127.0.0.1:{checkout.port + 1}")
    queue = sqs.get_queue_url(QueueName="edits.fifo")["QueueUrl"]
    sent: list[str] = []

    def stored() -> list[str]:
        page = checkout.typed(".venv/bin/streamkeeper events edits --json").stdout.splitlines()
        return [json.loads(line)["position"] for line in page]

    def has_arrived() -> bool:
        while messages := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                sent.append(json.loads(message["Body"])["position"])
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return bool(sent) and sent[-1] == stored()[-1]

    checkout.prints(".venv/bin/streamkeeper status edits || true", "stopped")
    assert until(has_arrived, PATIENCE_S), sent
    assert sent == stored()[-len(sent) :]


@pytest.mark.parametrize("command", [command for heading, command in COMMANDS if heading == NEEDS_AWS])
def test_the_commands_that_need_aws_have_valid_syntax(command: str) -> None:
    """The commands that need AWS are not run; the shell checks their syntax."""
    ran = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_make_test_checks_the_style_and_runs_the_tests() -> None:
    """`make test` exists and checks the style before the tests; `tests/test_types.py` checks the types."""
    planned = subprocess.run(["make", "-n", "test"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert "ruff check" in planned
    assert "pytest" in planned
