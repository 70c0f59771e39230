"""etcd itself for a test, or its recorded answers in the same steps, on a real socket.

A `Gateway` stands between the function and etcd's own gateway. Each request of the test to etcd begins a *step*. An
answer of a watch is recorded with the step in which it came.

The same class plays a recording back. It returns etcd's answers to the test, and sends a watch the lines of the steps
so far, if the watch's request is the recorded one. So a test runs with etcd and with its recording. In each step it
must wait for the answers that it expects.

With STREAMKEEPER_RECORD=1 the tests with etcd write the recordings anew.
"""

import base64
import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.harness import free_port
from tests.local.support import until

RECORDINGS = Path(__file__).parent / "data" / "etcd"
RECORDS = bool(os.environ.get("STREAMKEEPER_RECORD"))
# How often etcd reports the progress of a quiet watch: by either name of the setting, which other releases ignore.
SETTING = "WATCH_PROGRESS_NOTIFY_INTERVAL"
PROGRESS = {f"ETCD_{SETTING}": "200ms", f"ETCD_EXPERIMENTAL_{SETTING}": "200ms"}


def base64_of(text: str) -> str:
    """Return the Base64 of a key, as etcd's gateway has it."""
    return base64.b64encode(text.encode()).decode()


class Server:
    """A process of etcd with its data in a folder; it can be killed and started again."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._ports = (first := free_port(2), first + 1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self._ports[0]

    def start(self) -> None:
        """Start etcd, and return once it answers."""
        client, peer = (f"http://127.0.0.1:{port}" for port in self._ports)
        flags = {
            "data-dir": self._folder / "data", "listen-client-urls": client, "advertise-client-urls": client,
            "listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}",
        }  # fmt: skip
        command = [self._program, *(f"--{name}={value}" for name, value in flags.items())]
        with (self._folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(command, env={**os.environ, **PROGRESS}, stdout=log, stderr=log)
        assert until(self._answers, 30), (self._folder / "etcd.log").read_text()

    def kill(self) -> None:
        """Kill etcd, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def ask(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, urllib.error.HTTPError):
            self.ask("/v3/kv/range", {"key": base64_of("any")})
            return True
        return False


@dataclass
class Watch:
    """One recorded watch: its request, and each line with the step in which it came."""

    asked: Any
    lines: list[tuple[int, str]] = field(default_factory=list)


class Gateway:
    """Takes the test's requests and a profile's watches; without a server it plays `recording`."""

    def __init__(self, recording: Path, server: Server | None) -> None:
        self._recording = recording
        self._server = server
        self._step = 0
        self._changed = threading.Condition()
        self._open: list[socket.socket] = []
        self._answers: list[Any] = []
        self._watches: list[Watch] = []
        self.problems: list[str] = []
        if server is not None:
            server.start()
        else:
            played = json.loads(recording.read_text())
            self._answers = played["answers"]
            self._watches = [Watch(one["asked"], one["lines"]) for one in played["watches"]]
        self._count = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    # --- the test's requests ------------------------------------------------------------------------------------------

    def put(self, key: str, value: str = "v") -> int:
        """Return the revision in which the key has the value."""
        return self._revision("/v3/kv/put", {"key": base64_of(key), "value": base64_of(value)})

    def delete(self, key: str) -> int:
        """Return the revision in which the key is gone."""
        return self._revision("/v3/kv/deleterange", {"key": base64_of(key)})

    def put_together(self, *keys: str) -> int:
        """Return the revision in which one transaction changes all the keys."""
        puts = [{"request_put": {"key": base64_of(key), "value": base64_of("t")}} for key in keys]
        return self._revision("/v3/kv/txn", {"success": puts})

    def compact(self, revision: int) -> None:
        """Let etcd forget the changes before the revision."""
        server = self._server
        self._do(
            lambda: server.ask("/v3/kv/compaction", {"revision": str(revision), "physical": True}) if server else None
        )

    def cut(self) -> None:
        """End every watch without the end of its HTTP body."""
        self._do(lambda: None)
        self._cut()

    def restart(self) -> None:
        """Kill etcd and start it again on its data."""

        def again() -> None:
            if self._server is not None:
                self._server.kill()
                self._server.start()

        self._do(again)
        self._cut()

    def close(self) -> None:
        """End everything, and write the recording if there is to be one."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._cut()
        if self._server is None:
            return
        self._server.kill()
        if RECORDS:
            with self._changed:
                watches = [{"asked": watch.asked, "lines": watch.lines} for watch in self._watches]
            self._recording.parent.mkdir(parents=True, exist_ok=True)
            written = {"answers": self._answers, "watches": watches}
            self._recording.write_text(json.dumps(written, indent=1) + "\n")

    def _revision(self, path: str, body: Any) -> int:
        server = self._server
        return int(self._do(lambda: server.ask(path, body)["header"]["revision"] if server is not None else None))

    def _do(self, ask: Callable[[], Any]) -> Any:
        with self._changed:
            step = self._step
            self._step += 1
            self._changed.notify_all()
        if self._server is None:
            return self._answers[step]
        self._answers.append(ask())
        return self._answers[-1]

    def _cut(self) -> None:
        with self._changed:
            ends, self._open = self._open, []
            self._changed.notify_all()
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    # --- the answers to the function ---------------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            asked = _request(client)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            with self._changed:
                self._open.append(client)
                number, self._count = self._count, self._count + 1
            if self._server is not None:
                self._watch(client, asked, self._server)
            elif number >= len(self._watches) or self._watches[number].asked != asked:
                self.problems.append(f"watch {number} is not as recorded: {asked}")
                client.close()
            else:
                self._play(client, self._watches[number])

    def _watch(self, client: socket.socket, asked: Any, server: Server) -> None:
        watch = Watch(asked)
        with self._changed:
            self._watches.append(watch)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)) as connection:
            connection.request("POST", "/v3/watch", json.dumps(asked))
            for line in connection.getresponse():
                with self._changed:
                    if client not in self._open:
                        return
                    watch.lines.append((self._step, line.decode()))
                _send(client, line)

    def _may_send(self, step: int, client: socket.socket) -> bool:
        return self._step >= step or client not in self._open

    def _play(self, client: socket.socket, watch: Watch) -> None:
        for step, line in watch.lines:
            with self._changed:
                self._changed.wait_for(partial(self._may_send, step, client))
                if client not in self._open:
                    return
            _send(client, line.encode())


def _request(client: socket.socket) -> Any:
    """Return the JSON of a request's body."""
    with client.makefile("rb") as reader:
        length = 0
        while (line := reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            length = int(value) if name.lower() == "content-length" else length
        return json.loads(reader.read(length))


def _send(client: socket.socket, line: bytes) -> None:
    client.sendall(f"{len(line):x}\r\n".encode() + line + b"\r\n")
