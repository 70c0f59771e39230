"""A stream that no one here wrote: the changes feed of PouchDB's server, through the whole local service."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import Service
from tests.local.support import PROJECT, until
from tests.local_run import LocalRun

STREAM = "pouchdb:ledger"


class Cable:
    """TCP connections from the function, between two ports of this machine, which can be cut."""

    def __init__(self, from_port: int, to_port: int) -> None:
        self._to_port = to_port
        self._listening = socket.create_server(("127.0.0.1", from_port))
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends every connection that is open, without a word of HTTP."""
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accepts no more and ends what is open."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listening.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._to_port))
                self._ends += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError), source, target:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


class Database:
    """PouchDB's server with one database in memory."""

    def __init__(self) -> None:
        command = ["node", str(PROJECT / "tests" / "real" / "pouchdb-server.cjs"), "0"]
        self.process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().rsplit(" ", 1)[-1].strip()
        assert self.address.startswith("http://127.0.0.1:"), "PouchDB's server did not start"
        self.port = int(self.address.rsplit(":", 1)[1])
        self.written = 0
        self._put("")

    def write(self, count: int) -> None:
        """Writes `count` more documents, numbered on."""
        for _ in range(count):
            self.written += 1
            self._put(f"/doc-{self.written}", {"n": self.written})

    def _put(self, path: str, document: Any = None) -> None:
        body = json.dumps(document).encode() if document is not None else b""
        request = urllib.request.Request(self.address + "/ledger" + path, body, {"Content-Type": "application/json"})
        request.method = "PUT"
        urllib.request.urlopen(request, timeout=120).close()

    def close(self) -> None:
        """Ends the server."""
        self.process.terminate()
        self.process.wait(timeout=120)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def database() -> Iterator[Database]:
    """A database that is empty."""
    server = Database()
    yield server
    server.close()


def handovers(service: Service) -> int:
    return sum(record["ended_by"] == "taken_over" for record in service.connections(STREAM))


def stored(service: Service) -> list[int]:
    return [json.loads(item["data"])["doc"]["n"] for item in service.items("events", STREAM)]


def test_every_change_is_stored_once(local_run: LocalRun, database: Database) -> None:
    """Across two handovers, one SIGKILL of a function and one cut connection, each change is stored exactly once."""
    service = local_run
    with contextlib.closing(Cable(service.pouchdb_port, database.port)) as cable:
        database.write(5)
        service.post(STREAM)
        assert until(lambda: len(stored(service)) == 5, 20), service.log

        for passed in (1, 2):
            database.write(20)
            assert until(lambda passed=passed: handovers(service) >= passed, 30), service.log  # type: ignore[misc]

        killed = service.sandboxes()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        database.write(20)
        assert until(lambda: not set(killed) & set(service.sandboxes()), 10)
        assert until(lambda: len(stored(service)) == database.written, 20), service.log

        before = {record["fence"] for record in service.connections(STREAM)}
        cable.cut()
        database.write(20)
        assert until(lambda: len(stored(service)) == database.written, 20), service.log
        assert {record["fence"] for record in service.connections(STREAM)} > before

        database.write(20)
        assert until(lambda: len(stored(service)) == database.written, 20), service.log
        assert sorted(stored(service)) == list(range(1, database.written + 1))
