"""One `streamkeeper run`, shared by all tests of a process that neither kill nor restart it.

It is started when the fixture `local_run` is first asked for, in the stage `test`, in a copy of the project that has
these profiles besides; two processes of pytest have the files of all these tests (`tests/conftest.py`):

    scripted, scripted-exclusive, scripted-ndjson   as the demonstrations, but what `script(path, …)` plays sends them;
                                                    of the first a 402 and a 410 are final
    epochs                                          as scripted-exclusive; an epoch may begin
    expected                                        as scripted; an event is expected every 2 s
    absent                                          as scripted, at `absent_port`, where nothing listens by itself
    pouchdb                                         as couchdb, at the path `pouchdb/…` of what `script` plays
    kubernetes                                      as it ships; a refusal is final at once

`demo`, `demo-exclusive`, `demo-ndjson` and `demo-standby` are sent by this process; the run itself plays
couchdb and etcd. Invariants: a file of tests has stream ids of its own; whoever had the run before leaves no stream
that runs, no dead-letter message, and no refused request that was not expected.
"""

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from tests import projects
from tests.handlers.servers import Peer, Script, serving
from tests.harness import STAGE, Service, free_port
from tests.local.support import until
from tests.real import upstream

# A profile of the copy: of which it is a copy, the variable that its address begins with, and more lines.
PROFILES = {
    "scripted": ("demo", "UPSTREAM_SCRIPTED", 'statuses = { 402 = "rejected", 410 = "rejected" }\n'),
    "scripted-exclusive": ("demo-exclusive", "UPSTREAM_SCRIPTED", ""),
    "scripted-ndjson": ("demo-ndjson", "UPSTREAM_SCRIPTED", ""),
    "epochs": ("demo-exclusive", "UPSTREAM_SCRIPTED", 'on_conflict = "epoch"\n'),
    "expected": ("demo", "UPSTREAM_SCRIPTED", "expect_every_s = 2\n"),
    "absent": ("demo", "UPSTREAM_ABSENT", ""),
    "pouchdb": ("couchdb", "UPSTREAM_POUCHDB", ""),
    "kubernetes": ("kubernetes", "UPSTREAM_KUBERNETES", "reject_after = 0\n"),
}
# A name that the run serves besides its own (tests/local/service/test_host_check.py).
HOST = "devbox.example"


class Scripts:
    """Plays each path's scripts, one a connection, the last one for all that follow."""

    def __init__(self) -> None:
        self._scripts: dict[str, tuple[Script, ...]] = {}
        self._peers: dict[str, list[Peer]] = {}

    def play(self, path: str, scripts: tuple[Script, ...]) -> list[Peer]:
        """Begins with the first script at a path; returns the list of its connections, which grows."""
        self._scripts[path] = scripts
        return self._peers.setdefault(path, [])

    def __call__(self, peer: Peer) -> None:
        """Plays the script of the requested path, or answers 404."""
        if not peer.request:
            return  # somebody has looked whether it listens
        path = unquote(peer.request.split()[1].decode().partition("?")[0].lstrip("/"))
        if path not in self._scripts:
            peer.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        self._peers[path].append(peer)
        scripts = self._scripts[path]
        scripts[min(len(self._peers[path]), len(scripts)) - 1](peer)


class LocalRun(Service):
    """The run, for the file of tests that has it now: `log` has the lines since then."""

    def __init__(self, folder: Path, project: Path, demo_port: int, scripts: Scripts, scripted: str) -> None:
        port = free_port(4)
        self.absent_port = port + 3
        self._scripts = scripts
        self._began = 0
        super().__init__(
            folder,
            project,
            PORT=str(port),
            UPSTREAM_DEMO=f"http://127.0.0.1:{demo_port}",
            UPSTREAM_SCRIPTED=scripted,
            UPSTREAM_ABSENT=f"http://127.0.0.1:{self.absent_port}",
            UPSTREAM_POUCHDB=f"{scripted}/pouchdb",
            UPSTREAM_KUBERNETES=f"{scripted}/kubernetes",
            UPSTREAM_COUCHDB=f"http://127.0.0.1:{port + 2}/couchdb",
            UPSTREAM_ETCD=f"http://127.0.0.1:{port + 2}/etcd",
            STREAMKEEPER_HOSTS=HOST,
            # Whatever a stream id holds is printed (tests/local/service/test_any_request.py).
            PYTHONIOENCODING="ascii",
        )

    @property
    def log(self) -> str:
        """The lines that were printed since the present file of tests began."""
        return super().log[self._began :]

    def script(self, path: str, *scripts: Script) -> list[Peer]:
        """Plays these at a path, such as `scripted:a`, one a connection; returns the connections as they come."""
        return self._scripts.play(path, scripts)

    @contextlib.contextmanager
    def lend(self) -> Iterator["LocalRun"]:
        """Lends the run to a file of tests: its streams are then stopped, its messages deleted, its refusals judged."""
        assert self.process is not None
        assert self.process.poll() is None, super().log
        self._began, self.refused = len(super().log), set()
        try:
            yield self
        finally:
            assert until(self._is_over, 30), self.log
            self._delete_dead_letters()
        self.check_permissions()

    def _is_over(self) -> bool:
        """Returns whether no stream runs, after a request to stop each running one."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=120) as answer:
            if not json.load(answer)["running"]:
                return True
        query: str | None = ""
        while query is not None:
            status, page = self.ask("GET", query)
            if status != 200:  # a busy machine has no answer yet
                return False
            for one in page["streams"]:
                if one["status"] not in ("stopped", "stopping", "ended", "rejected"):
                    self.ask("DELETE", quote(one["stream"], safe=""))
            query = f"?after={quote(page['next'], safe='')}" if page["next"] else None
        return False

    def _delete_dead_letters(self) -> None:
        sqs = self.aws("sqs")
        url = sqs.get_queue_url(QueueName=f"streamkeeper-{STAGE}-dead-letters")["QueueUrl"]
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


@contextlib.contextmanager
def start_run(folder: Path, run_folder: Path) -> Iterator[LocalRun]:
    """Yields the run of this process; all processes share the copy of the project."""
    project = projects.once(run_folder / "local-run", _project)
    scripts = Scripts()
    with serving(scripts) as server, upstream.serving() as (_, port):
        run = LocalRun(folder, project, port, scripts, server.address)
        try:
            run.start()
            yield run
        finally:
            if run.process is not None and run.process.poll() is None:
                run.end()


def _project(folder: Path) -> Path:
    projects.copied(folder)
    streams = folder / "env" / "streams"
    for name, (of, variable, more) in PROFILES.items():
        text = (streams / f"{of}.toml").read_text()
        own = re.sub(r"UPSTREAM_[A-Z]+", variable, text).replace("\nframing = ", f"\n{more}framing = ")
        # Whoever listens at the absent one's port plays `demo`.
        own = own.replace("UPSTREAM_ABSENT}/{streamId}", "UPSTREAM_ABSENT}/demo:{name}")
        (streams / f"{name}.toml").write_text(own)
    for path in streams.glob("demo*.toml"):
        # With ten events a second, as they ship, a stream costs the run twice as much CPU.
        path.write_text(path.read_text().replace('/{streamId}"', '/{streamId}?interval_ms=400"'))
    return projects.packaged(folder)
