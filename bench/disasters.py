"""`python -m bench.disasters`: plays the disasters of docs/disasters.md on local runs, and says how long each took.

Each begins with streams that are connected and ends when they are again, by the commands that the page names, typed
into a process of their own. Runs, functions, tables and sockets are real; the upstream goes on from any id. After each
the events are compared with their numbers: what is missing, or there twice, fails the benchmark. Invariant: after a
run, one that was interrupted too, no process and no file of it is left.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

from bench import harness
from bench.harness import Row, at_least, options, say, show
from local.checkout import ROOT
from local.listener import HOST
from local.service import osls
from local.user_error import UserError

STAGE, PROFILE = "test", "demo"
ROOMS = ("handlers", "local", "streamkeeper", "timeline")
# Nothing is handed over meanwhile: what is measured is what the commands and the connections take.
SETTINGS = {"function_timeout_s": 300, "wait_s": 240, "margin_s": 20, "unconnected_after_s": 20}
FEW, EVERY_S, CONNECTED_S = 10, 0.5, 300.0
TABLES = ("events", "control")


def _port() -> int:
    """The first of four ports that are free."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for each in range(port, port + 4):
                stack.enter_context(socket.socket()).bind((HOST, each))
            return port


@dataclass
class Played:
    """A `streamkeeper run` in a folder of its own, which may be killed and started again there."""

    folder: Path
    project: Path
    upstream: str
    port: int = field(default_factory=_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def place(self) -> str:
        """What the commands call it."""
        return f"local:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the run and of the commands."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "STREAMKEEPER_"))}
        own = {"STREAMKEEPER_STAGE": STAGE, "STREAMKEEPER_DATA": str(self.folder), "PORT": str(self.port)}
        return kept | own | {"UPSTREAM_DEMO": self.upstream}

    def start(self) -> None:
        """Returns once it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "run.log").open("ab") as log:
            command = [sys.executable, "-m", "local.cli", "run"]
            self.process = subprocess.Popen(command, cwd=self.project, env=self.variables, stdout=log, stderr=log)
        until(lambda: self.ask("/health") is not None, "the run answers")

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> None:
        """Returns once it has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(with_signal)
            self.process.wait(timeout=120)

    def ask(self, path: str) -> Any:
        """The JSON of an answer; None where there is none, or another than 200."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port}{path}", timeout=60) as answer:
                return json.load(answer)
        except (OSError, urllib.error.HTTPError):
            return None

    def typed(self, *words: str, may_refuse: bool = False) -> str:
        """What a command prints; raises UserError where it fails."""
        line = [sys.executable, "-m", "local.cli", *words]
        done = subprocess.run(line, cwd=self.project, env=self.variables, capture_output=True, text=True, check=False)
        if done.returncode not in ((0, 1) if may_refuse else (0,)):
            raise UserError(f"`streamkeeper {' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def aws(self, service: str) -> Any:
        """A client to its services of AWS."""
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
        return boto3.client(service, endpoint_url=f"http://{HOST}:{self.port + 1}", **keys)

    def running(self) -> set[str]:
        """The streams that are connected."""
        found, after = set[str](), ""
        while (page := self.ask(f"/connections?limit=1000{after}")) is not None:
            found |= {one["stream"] for one in page["streams"] if one["status"] == "running"}
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        return found

    def connect(self, streams: Sequence[str]) -> None:
        """Returns once these streams are connected."""
        (self.folder / "streams.txt").write_text("\n".join(streams))
        self.typed("apply", str(self.folder / "streams.txt"), may_refuse=True)
        until(lambda: self.running() >= set(streams), "all streams are connected")

    def numbers(self, stream_id: str) -> list[int]:
        """The ids of a stream's events, in their order."""
        found, after = list[int](), ""
        while (page := self.ask(f"/connections/{stream_id}/events?limit=1000{after}")) is not None:
            found += [int(event["id"]) for event in page["events"]]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        return found


def until(is_so: Callable[[], bool], words: str, within_s: float = CONNECTED_S) -> None:
    """Returns once it is so; raises UserError where it is not in time."""
    end_s = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end_s:
            raise UserError(f"After {within_s:g} s it is not so that {words}.")
        time.sleep(0.1)


def checked(run: Played, streams: Sequence[str], least: int) -> int:
    """How many events the streams have; raises UserError where a number is missing or there twice."""
    total = 0
    for stream_id in streams:
        numbers = sorted(run.numbers(stream_id))
        if len(numbers) < least or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise UserError(f"The events of {stream_id} are not whole: {numbers[:3]} … {numbers[-3:]}, {len(numbers)}.")
        total += len(numbers)
    return total


def project(folder: Path, settings: dict[str, int], address: str = "${UPSTREAM_DEMO}/{name}") -> Path:
    """A copy of the project with other settings, and the profile of the upstream."""
    folder.mkdir()
    osls.snapshot(ROOT, folder)
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, dirs_exist_ok=True)
    path = folder / "env" / f"{STAGE}.yml"
    text = path.read_text()
    for name, value in (SETTINGS | settings).items():
        text = re.sub(rf"^{name}: \S+", f"{name}: {value}", text, flags=re.MULTILINE)
    path.write_text(text)
    write_profile(folder, address)
    return folder


def write_profile(folder: Path, address: str) -> None:
    """Writes the profile of all streams here."""
    lines = (
        f'address = "{address}"\nallow_private = true\nframing = "sse"\nkey = "id"\nstall_after_s = 30\n'
        'overlap = "evicts"\nreject_after = 0\nresume = { header = "Last-Event-ID" }\n'
    )
    (folder / "env" / "streams" / f"{PROFILE}.toml").write_text(lines)


# --- the disasters ----------------------------------------------------------------------------------------------------


class Stage:
    """The folder, the upstream and the projects that the disasters share; `many` are the streams of one profile."""

    def __init__(self, folder: Path, upstream: str, many: int) -> None:
        self.folder, self.upstream, self.many = folder, upstream, many
        self.runs: list[Played] = []
        self.few = [f"{PROFILE}:{number}" for number in range(FEW)]
        self.project = project(folder / "project", {"streams_per_function": FEW})

    def run(self, name: str, of: Path | None = None) -> Played:
        """Another run, which answers."""
        run = Played(self.folder / name, of or self.project, self.upstream)
        self.runs.append(run)
        run.start()
        return run

    def deleted_tables(self) -> Row:
        """Both tables are deleted; a backup from before is restored into new ones."""
        run, backup = self.run("deleted"), str(self.folder / "backup")
        run.connect(self.few)
        time.sleep(5)
        run.typed("backup", "--stage", run.place, "--to", backup)
        begun_s, dynamodb = time.monotonic(), run.aws("dynamodb")
        for table in TABLES:
            dynamodb.delete_table(TableName=f"streamkeeper-{STAGE}-{table}")
        run.end(signal.SIGKILL)
        # What makes the tables again: locally a start, on AWS a restored or a new table.
        run.start()
        commands_s = self._restored(run, backup)
        return self._row("both tables deleted", run, begun_s, commands_s)

    def lost_region(self) -> Row:
        """A run is killed with all its processes and never comes back; another takes over from the backup."""
        lost, backup = self.run("lost"), str(self.folder / "backup-lost")
        lost.connect(self.few)
        time.sleep(5)
        lost.typed("backup", "--stage", lost.place, "--to", backup)
        other = self.run("other")
        begun_s = time.monotonic()
        lost.end(signal.SIGKILL)
        return self._row("a region lost", other, begun_s, self._restored(other, backup))

    def restored_tables(self) -> Row:
        """Tables of an earlier instant under other names, as point-in-time recovery makes them, are taken over."""
        run = self.run("restored")
        run.connect(self.few)
        time.sleep(3)
        dynamodb = run.aws("dynamodb")
        for table in reversed(TABLES):  # the control table is the earlier one, so no cursor is ahead
            self._copy(dynamodb, f"streamkeeper-{STAGE}-{table}", f"earlier-{table}")
        time.sleep(3)
        begun_s = time.monotonic()
        run.typed("stop", "--match", f"{PROFILE}:*", may_refuse=True)
        for item in dynamodb.scan(TableName=f"streamkeeper-{STAGE}-events")["Items"]:
            key = {name: item[name] for name in ("PK", "SK")}
            dynamodb.delete_item(TableName=f"streamkeeper-{STAGE}-events", Key=key)
        until(lambda: not run.running(), "all streams are stopped")
        restored_s = time.monotonic()
        words = ("--from", f"{run.place}/earlier-events,earlier-control", "--stage", run.place, "--replace", "--start")
        run.typed("restore", *words)
        return self._row("tables set back to an earlier instant", run, begun_s, time.monotonic() - restored_s)

    def moved(self) -> Row:
        """Streams go to another stage while they are connected."""
        here, there = self.run("here"), self.run("there")
        here.connect(self.few)
        time.sleep(3)
        begun_s = time.monotonic()
        here.typed("move", "--match", f"{PROFILE}:*", "--from", here.place, "--to", there.place)
        return self._row("moved to another stage", there, begun_s, time.monotonic() - begun_s)

    def no_concurrency(self) -> Row:
        """Another team has all concurrency; once it leaves, the stream that found no room connects by itself."""
        few = project(self.folder / "narrow", {"streams_per_function": 1, "connection_concurrency": 2})
        run, team = self.run("narrow-run", few), self.few[:2]
        run.connect(team)
        waiting = self.few[2]
        run.typed("start", waiting)
        until(lambda: f"ALERT: {waiting}: Away" in (run.folder / "run.log").read_text(), "the stream is in an alert")
        for one in team:
            run.typed("stop", one)
        until(lambda: not run.running() & set(team), "the other team has left")
        begun_s = time.monotonic()
        until(lambda: waiting in run.running(), "the stream is connected")
        return {"disaster": "no concurrency left", "streams": 1, "commands_s": 0.0, "seconds": since(begun_s)}

    def wrong_profile(self) -> Row:
        """A profile with a wrong path: the upstream rejects all its streams; then it is right, and they are started."""
        copy = project(self.folder / "wrong", {"streams_per_function": 100}, "${UPSTREAM_DEMO}/nothing/x{name}")
        run = self.run("wrong-run", copy)
        streams = [f"{PROFILE}:{number}" for number in range(self.many)]
        (run.folder / "streams.txt").write_text("\n".join(streams))
        run.typed("apply", str(run.folder / "streams.txt"), may_refuse=True)
        begun_s = time.monotonic()
        write_profile(copy, "${UPSTREAM_DEMO}/{name}")
        commanded_s = time.monotonic()
        until(lambda: not run.running(), "no stream runs by the wrong profile")
        while run.running() < set(streams):
            run.typed("start", "--match", f"{PROFILE}:*", may_refuse=True)
            if since(begun_s) > CONNECTED_S * 2:
                raise UserError(f"{len(run.running())} of {self.many} streams are connected.")
        found = {"disaster": "a wrong profile", "streams": self.many, "commands_s": since(commanded_s)}
        return found | {"seconds": since(begun_s)}

    def _restored(self, run: Played, backup: str) -> float:
        """How long the restore took."""
        begun_s = time.monotonic()
        run.typed("restore", "--from", backup, "--stage", run.place, "--start")
        return since(begun_s)

    def _row(self, disaster: str, run: Played, begun_s: float, commands_s: float) -> Row:
        until(lambda: run.running() >= set(self.few), "all streams are connected again")
        seconds = since(begun_s)
        time.sleep(2)
        events = checked(run, self.few, 6)
        row = {"disaster": disaster, "streams": FEW, "commands_s": round(commands_s, 1), "seconds": seconds}
        return row | {"events": events}

    @staticmethod
    def _copy(dynamodb: Any, table: str, to: str) -> None:
        described = dynamodb.describe_table(TableName=table)["Table"]
        indexes = [
            {name: one[name] for name in ("IndexName", "KeySchema", "Projection")}
            for one in described.get("GlobalSecondaryIndexes", [])
        ]
        dynamodb.create_table(
            TableName=to, KeySchema=described["KeySchema"], AttributeDefinitions=described["AttributeDefinitions"],
            BillingMode="PAY_PER_REQUEST", GlobalSecondaryIndexes=indexes,
        )  # fmt: skip
        for page in dynamodb.get_paginator("scan").paginate(TableName=table):
            for item in page["Items"]:
                dynamodb.put_item(TableName=to, Item=item)


def since(begun_s: float) -> float:
    """Seconds until now."""
    return round(time.monotonic() - begun_s, 1)


DISASTERS = ("deleted_tables", "restored_tables", "lost_region", "moved", "no_concurrency", "wrong_profile")


@contextlib.contextmanager
def opened(many: int) -> Iterator[Stage]:
    """Yields what the disasters share."""
    with (
        harness.process("bench.fleet_peers", str(max(many, FEW)), str(EVERY_S)) as (addresses, _),
        tempfile.TemporaryDirectory(prefix="disasters-") as name,
    ):
        stage = Stage(Path(name), addresses[0], many)
        try:
            yield stage
        finally:
            for run in stage.runs:
                run.end()


def measure(many: int, names: Sequence[str]) -> Row:
    """Returns the figures; raises UserError where a disaster does not end well."""
    rows: list[Row] = []
    with opened(many) as stage:
        for name in names:
            rows.append(getattr(stage, name)())
            say(__doc__, rows[-1])
            for run in stage.runs:
                run.end()
    return {"rows": rows}


def main(argv: list[str] | None = None) -> int:
    """Returns 0, or 2 where a disaster did not end well."""
    asked = options(
        argv, __doc__,
        streams=(1000, "streams of the wrong profile", at_least(1)), only=(DISASTERS, "which disasters", DISASTERS),
    )  # fmt: skip
    try:
        return show(asked, measure(asked.streams, asked.only))
    except UserError as problem:
        say(__doc__, problem)
        return 2


if __name__ == "__main__":
    sys.exit(main())
