"""PouchDB's server's feed of changes, which no one here wrote, through the whole local service."""

import contextlib
import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.handlers.servers import Peer, Script
from tests.harness import Service
from tests.local.support import PROJECT, until
from tests.local_run import LocalRun

STREAM = "pouchdb:ledger"


def relay(port: int) -> Script:
    """Passes a request on to the database at the port, and its answer back."""

    def play(peer: Peer) -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as far:
            far.sendall(peer.request.replace(b"/pouchdb/", b"/", 1))
            while data := far.recv(65_536):
                peer.send(data)

    return play


class NodeServer:
    """A server of a package of npm, which a script of this folder starts."""

    def __init__(self, script: str) -> None:
        command = ["node", str(PROJECT / "tests" / "real" / script), "0"]
        self.process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().rsplit(" ", 1)[-1].strip()
        assert self.address.startswith("http://127.0.0.1:"), f"{script} did not start"
        self.port = int(self.address.rsplit(":", 1)[1])
        self.written = 0

    def send(self, method: str, path: str, document: Any = None) -> None:
        """Sends a request; raises if it is refused."""
        body = json.dumps(document).encode() if document is not None else b""
        request = urllib.request.Request(self.address + path, body, {"Content-Type": "application/json"})
        request.method = method
        urllib.request.urlopen(request, timeout=120).close()

    def close(self) -> None:
        """Ends the server."""
        self.process.terminate()
        self.process.wait(timeout=120)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Database(NodeServer):
    """PouchDB's server with one database in memory."""

    def __init__(self) -> None:
        super().__init__("pouchdb-server.cjs")
        self.send("PUT", "/ledger")

    def write(self, count: int) -> None:
        """Writes `count` more documents, numbered on."""
        for _ in range(count):
            self.written += 1
            self.send("PUT", f"/ledger/doc-{self.written}", {"n": self.written})


@pytest.fixture(scope="module")
def feed(local_run: LocalRun) -> Iterator[tuple[Database, list[Peer]]]:
    """A database with five documents, and the connections to it, once the stream is started."""
    server = Database()
    peers = local_run.script("pouchdb/ledger/_changes", relay(server.port))
    server.write(5)
    local_run.post(STREAM)
    yield server, peers
    server.close()


def handovers(service: Service) -> int:
    """Returns how many connections were taken over by their successors."""
    return sum(record.get("ended_by") == "taken_over" for record in service.connections(STREAM))


def stored(service: Service) -> list[int]:
    return [json.loads(item["data"])["doc"]["n"] for item in service.items("events", STREAM)]


def test_every_change_is_stored_once(local_run: LocalRun, feed: tuple[Database, list[Peer]]) -> None:
    """Across two handovers, one SIGKILL of a function and one cut connection, each change is stored exactly once."""
    service, (database, peers) = local_run, feed
    assert until(lambda: len(stored(service)) == 5, 20), service.log

    for passed in (1, 2):
        database.write(9)
        assert until(lambda passed=passed: handovers(service) >= passed, 30), service.log  # type: ignore[misc]

    killed = service.kill()
    database.write(9)
    assert until(lambda: not set(killed) & set(service.sandboxes()), 10)
    assert until(lambda: len(stored(service)) == database.written, 20), service.log

    before = {record["fence"] for record in service.connections(STREAM)}
    for peer in peers:
        with contextlib.suppress(OSError):
            peer.connection.shutdown(socket.SHUT_RDWR)
    database.write(9)
    assert until(lambda: len(stored(service)) == database.written, 20), service.log
    assert {record["fence"] for record in service.connections(STREAM)} > before

    database.write(9)
    assert until(lambda: len(stored(service)) == database.written, 20), service.log
    assert sorted(stored(service)) == list(range(1, database.written + 1))
