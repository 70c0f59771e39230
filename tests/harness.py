"""The local service as a real process, for tests: started, used and ended as a person would."""

import contextlib
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness import command_of, descendants
from handlers.store import ledger_records
from local import cli
from local.permissions import guard
from tests import permission_edges
from tests.local import support

STAGE = "test"


# Below the ports that systems give to outgoing connections (from 32768 or 49152 on): nobody takes one meanwhile.
PORTS = range(10_000, 32_000)


def free_port(count: int = 3) -> int:
    """Returns the first of `count` consecutive ports that are free on 127.0.0.1."""
    for _ in range(100):
        port = random.SystemRandom().choice(PORTS)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for each in range(port, port + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
            return port
    raise AssertionError("no free ports")


class Service:
    """`streamkeeper run` of the stage `test` in a folder of its own; may be started again in the same folder.

    It enforces the permissions of the roles. `refused` are what a test lets it refuse, each a role and an action. Where
    the project `has_own_roles`, what they allowed is not judged by those of the stage that ships.
    """

    def __init__(self, folder: Path, project: Path = support.PROJECT, **environment: str) -> None:
        self.port = int(environment.pop("PORT", "") or free_port())
        self.project = project
        self.folder = folder
        self._log = folder / "run.log"
        own = {"STREAMKEEPER_STAGE": STAGE, "STREAMKEEPER_DATA": str(folder / "data"), "PORT": str(self.port)}
        self.variables = support.environment(**own | {guard.SETTING: "enforce"} | environment)
        self.refused: set[str] = set()
        self.has_own_roles = False
        self._clients: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when the HTTP API answers."""
        self.launch()
        assert support.until(self.answers, 60), self.log

    def launch(self, *starter: str) -> None:
        """Returns when the process has been created, by a command that becomes it if one is given.

        It ends with this process, which may be killed before it has ended it.
        """
        bond = [sys.executable, "-S", str(self.project / "local" / "bootstrap.py"), "--exec", str(os.getpid())]
        with self._log.open("ab") as log:
            command = [*starter, *bond, sys.executable, "-m", "local.cli", "run"]
            self.process = subprocess.Popen(command, cwd=self.project, env=self.variables, stdout=log, stderr=log)

    def answers(self) -> bool:
        """Returns whether the HTTP API answers."""
        assert self.process is not None
        assert self.process.poll() is None, self.log
        # The port is open before anything is served at it.
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=120).close()
        except urllib.error.HTTPError as refusal:
            refusal.close()
        except OSError:
            return False
        return True

    def check_permissions(self) -> None:
        """Fails if a request was refused that no test expects; allowed requests are judged with all others."""
        if not self.has_own_roles:
            permission_edges.add_record(Path(self.variables["STREAMKEEPER_DATA"]) / guard.RECORD)
        pattern = r"ALERT: refused: .*:assumed-role/(\w+)/\S+ is not authorized to perform: (\S+)"
        refused = {" ".join(found) for found in re.findall(pattern, self.log)}
        assert refused == self.refused, f"refused: {sorted(refused - self.refused)}\n{self.log}"

    @property
    def log(self) -> str:
        """The lines that the service has printed."""
        return self._log.read_text()

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Returns the exit status after the signal, once no process of the service is left."""
        assert self.process is not None
        below = self.descendants()
        self.process.send_signal(with_signal)
        status = self.process.wait(timeout=300)
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        assert support.until(lambda: not any(support.running(pid) for pid in below), 15), "processes are left"
        return status

    def descendants(self) -> list[int]:
        """Returns the process ids below the service."""
        assert self.process is not None
        return descendants(self.process.pid)

    def sandboxes(self) -> list[int]:
        """Returns the process ids of the functions' sandboxes."""
        return [pid for pid in self.descendants() if "bootstrap" in command_of(pid)]

    def kill(self) -> list[int]:
        """Kills all functions; returns the process ids that they had."""
        killed = self.sandboxes()
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return killed

    def post(self, stream_id: str) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self.port}/connections/{stream_id}"
        with urllib.request.urlopen(urllib.request.Request(address, method="POST"), timeout=120) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def ask(self, method: str, stream_id: str) -> tuple[int, Any]:
        """Returns status and JSON of a request to /connections/{stream_id}, to /connections for ""."""
        return self.ask_at(method, f"connections/{stream_id}".rstrip("/"))

    def ask_at(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        """Returns the same for a request to any path, with a text as body."""
        content = None if body is None else body.encode()
        headers = {} if body is None else {"Content-Type": "text/plain"}
        address = f"http://127.0.0.1:{self.port}/{path}"
        try:
            request = urllib.request.Request(address, content, headers, method=method)
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def status(self, stream_id: str) -> str:
        """Returns the stream's status as GET has it, or "" if the answer is a refusal."""
        return str(self.ask("GET", stream_id)[1].get("status", ""))

    def reaches(self, status: str, *stream_ids: str, within_s: float = 60) -> bool:
        """Returns whether all the streams reach this status in time."""
        return support.until(lambda: all(self.status(one) == status for one in stream_ids), within_s)

    def events(self, stream_id: str, limit: int = 100) -> list[dict[str, Any]]:
        """Returns the events of a stream as GET /connections/{stream_id}/events returns them, page by page.

        A stream whose execution has not claimed it yet, a moment after its POST, has none.
        """
        code, page = self.ask("GET", f"{stream_id}/events?limit={limit}")
        if code == 404 and page["type"].endswith("never-started"):
            return []
        collected = list(page["events"])
        while page["next"] is not None:
            code, page = self.ask("GET", f"{stream_id}/events?limit={limit}&after={page['next']}")
            assert code == 200, page
            collected += page["events"]
        return collected

    def typed(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Returns the result of the command `streamkeeper`, run to its end in this process, for this service."""
        said, wrong = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        known = {
            "PORT": str(self.port),
            "STREAMKEEPER_STAGE": STAGE,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port + 1}",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
        }
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("STREAMKEEPER_")]:
                patch.delenv(name)
            for name, value in (known | variables).items():
                patch.setenv(name, value)
            # It asks as the person who types it, not in the role of a function.
            asked_by_nobody = permission_edges.own_requests()
            with asked_by_nobody, contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
                try:
                    status = cli.main(arguments)
                except SystemExit as mistake:  # of argparse
                    status = int(mistake.code or 0)
        return subprocess.CompletedProcess(arguments, status, _written(said), _written(wrong))

    def aws(self, name: str) -> Any:
        """Returns the one client of an AWS service that this service's tests share."""
        if name not in self._clients:
            # What is killed and started again has closed the connections.
            self._clients[name] = support.client(name, f"http://127.0.0.1:{self.port + 1}", attempts=5)
        return self._clients[name]

    def execution(self, arn: str) -> dict[str, Any]:
        """Returns DescribeExecution's answer."""
        description: dict[str, Any] = self.aws("stepfunctions").describe_execution(executionArn=arn)
        return description

    def items(self, table: str, stream_id: str, prefix: str = "") -> list[dict[str, Any]]:
        """Returns the items of a stream whose sort key begins with `prefix`, their values plain.

        The events too it reads from the table: what is stored is to be seen by another way than the product's, also
        while its functions are killed. No stream of these tests is spread over several partition keys.
        """
        return [{name: _plain(value) for name, value in item.items()} for item in self.raw(table, stream_id, prefix)]

    def numbers(self, stream_id: str, member: str = "n") -> list[int]:
        """Returns this member of each stored event's body, or its key if `member` is "", in order."""
        items = self.items("events", stream_id)
        return sorted(int(json.loads(item["data"])[member] if member else item["SK"]) for item in items)

    def raw(self, table: str, stream_id: str, prefix: str) -> list[dict[str, Any]]:
        """Returns the same items as DynamoDB has them."""
        values = {":p": {"S": stream_id}} | ({":s": {"S": prefix}} if prefix else {})
        pages = self.aws("dynamodb").get_paginator("query").paginate(
            TableName=f"streamkeeper-{STAGE}-{table}",
            KeyConditionExpression="PK = :p AND begins_with(SK, :s)" if prefix else "PK = :p",
            ExpressionAttributeValues=values,
            ConsistentRead=True,
        )  # fmt: skip
        return [item for page in pages for item in page["Items"]]

    def connections(self, stream_id: str) -> list[dict[str, Any]]:
        """Returns the records of a stream's connections, oldest first; the control record has that of the newest."""
        # As if each were shown: with the counts of 0 that the ledger leaves out.
        rows = [
            ledger_records.live_record({"live": {"M": row}}) or row
            for row in self.raw("control", stream_id, "connection#")
        ]
        shown = [ledger_records.live_record(item) for item in self.raw("control", stream_id, "lease")]
        every = ledger_records.with_live_record(rows, next(iter(shown), None))
        plain = [{name: _plain(value) for name, value in row.items()} for row in every]
        return sorted(plain, key=lambda row: int(row["fence"]))


@contextlib.contextmanager
def running(folder: Path, project: Path = support.PROJECT, **environment: str) -> Iterator[Service]:
    """Yields a running service of the project in a folder; afterwards it has ended and nothing of it is left."""
    service = Service(folder, project, **environment)
    try:
        service.start()
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.end()
    service.check_permissions()


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def _plain(value: dict[str, Any]) -> Any:
    (kind, content), *_ = value.items()
    return int(content) if kind == "N" else content
