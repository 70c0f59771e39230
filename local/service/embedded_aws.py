"""Runs the embedded AWS (ministack) as a child process: DynamoDB, SQS and the rest, kept in the data folder.

It restarts the child when it dies, and reports a failure when it dies too often. Invariants: only one process uses a
data folder; the address survives a restart, because the listening socket is the parent's; after a death `on_death` runs
before the new child answers anything, and the new child answers no request that was sent before.
"""

import asyncio
import contextlib
import fcntl
import os
import platform
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

from local import listener
from local.checkout import CODE
from local.listener import HOST, port_of
from local.service.child import Supervisor
from local.service.embedded_aws_child import NOT_SAVED
from local.terminal import UserError, explain_os_errors

_WAIT_FOR_LOCK_S = 15.0
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", listener.HOSTS_VARIABLE)


def try_lock(folder: Path) -> IO[str] | None:
    """Returns the open lock file of a data folder, which is created if missing; None if another run holds it.

    The lock lasts until every process that inherited the descriptor has ended.
    """
    with explain_os_errors(f"The data folder {folder} cannot be used", "; set STREAMKEEPER_DATA"):
        # The embedded Secrets Manager stores its secrets here in plain text.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = (folder / "lock").open("a")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle


def lock(folder: Path, wait_s: float = _WAIT_FOR_LOCK_S) -> IO[str]:
    """As `try_lock`, but waits `wait_s` for an old run that still saves, and then raises UserError."""
    deadline_s = time.monotonic() + wait_s
    while (handle := try_lock(folder)) is None:
        if time.monotonic() > deadline_s:
            raise UserError(
                f"The data folder {folder} is in use by another run;"
                " stop that one or set STREAMKEEPER_DATA to another folder."
            )
        time.sleep(0.05)
    return handle


class EmbeddedAws(Supervisor):
    """One ministack process and its replacements; they share one listening socket."""

    name = "The embedded AWS"
    resumes_from = "its last save"

    def __init__(
        self,
        folder: Path,
        listening: socket.socket,
        lock_file: IO[str],
        on_death: Callable[[], None],
        on_restart: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(folder / "logs" / "engine.log", on_failure, say, on_restart)
        self._folder = folder
        self._listening = listening
        self._lock_file = lock_file
        self._on_death = on_death

    @property
    def url(self) -> str:
        """The address, valid for the whole run."""
        return f"http://{HOST}:{port_of(self._listening)}"

    async def stop(self) -> int | None:
        """Ends the child, which saves its state first; a line says what could not be saved within ten seconds."""
        try:
            status = await super().stop()
        finally:
            self._listening.close()
        if status is None:
            self.say("the embedded AWS took too long to save: changes of its last seconds are lost")
        elif status == NOT_SAVED:
            # The last line of its log names the services.
            *_, reason = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            self.say(f"the embedded AWS {reason}: {self.log} says why")
        return status

    def handle_death(self) -> None:
        """Closes queued connections, whose clients know a newer state than the restored one."""
        self._on_death()
        with contextlib.suppress(BlockingIOError):
            while True:
                self._listening.accept()[0].close()

    async def spawn(self, log: IO[bytes]) -> asyncio.subprocess.Process:
        """Starts ministack on the socket."""
        descriptors = (self._listening.fileno(), self._lock_file.fileno())
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "local.service.embedded_aws_child",
            str(os.getpid()),
            str(descriptors[0]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=descriptors,
            start_new_session=True,
            cwd=CODE,
            env=self._environment(),
        )

    async def wait_until_answering(self) -> None:
        """Returns once it is healthy. The socket already listens, so this waits in its queue for the child."""
        reader, writer = await asyncio.open_connection(HOST, port_of(self._listening))
        writer.write(b"GET /_ministack/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await reader.readline()
        writer.close()

    def _environment(self) -> dict[str, str]:
        return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {
            "PERSIST_STATE": "1",
            "STATE_DIR": str((self._folder / "engine").resolve()),
            # The state has no object of a bucket: each is written when it is put.
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str((self._folder / "objects").resolve()),
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(port_of(self._listening)),
            "LOG_LEVEL": "WARNING",
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            # ministack removes containers with its label from any Docker that it finds, so it must find none.
            "DOCKER_HOST": f"unix://{(self._folder / 'no-docker').resolve()}",
        }


# By `sys.platform` and `platform.machine()`.
_BUILDS = {("linux", "x86_64"): "linux-x64"}
_POLL_S = 0.02


def find_dynoxide(root: Path) -> Path | None:
    """Returns the binary in the project's node_modules; None if npm installed no build for this machine."""
    build = _BUILDS.get((sys.platform, platform.machine()))
    if build is None:
        return None
    path = root / "node_modules" / "@dynoxide" / build / "dynoxide"
    return path if os.access(path, os.X_OK) else None


def dynoxide_remedy() -> str:
    """Returns what to do if `find_dynoxide` returns None."""
    build = _BUILDS.get((sys.platform, platform.machine()))
    install = f"After `npm install @dynoxide/{build}` in this folder it costs none."
    return install if build else "Dynoxide, which loses nothing, has no build for this machine."


def database_file(folder: Path) -> Path:
    """Returns the file with the tables of a data folder."""
    return folder / "dynamodb.sqlite"


def unreadable_tables(folder: Path, *, is_embedded: bool) -> list[str]:
    """Returns lines about tables that this run cannot read, because runs with and without dynoxide have different ones.

    `is_embedded` says whether the embedded DynamoDB has the tables of this run; or else the embedded AWS has them, and
    a file notes that for later runs.
    """
    note = folder / "tables-apart"
    if not is_embedded:
        note.touch()
        lines = [
            f"ALERT: the tables in {database_file(folder)} cannot be read without dynoxide: this run uses new ones"
        ]
        return lines if database_file(folder).exists() else []
    if not note.exists():
        return []
    return [
        f"ALERT: {folder / 'engine'} has tables of earlier runs without dynoxide, and this run cannot read them;"
        f" remove {note} if you do not need them"
    ]


def _free_port() -> int:
    """Returns a port at which nothing listens, on any address."""
    while True:
        # dynoxide cannot use an open socket and starts seconds later, so the port is none of those that the system
        # gives to other programs meanwhile: these begin at 32,768.
        port = random.SystemRandom().randint(10_000, 32_767)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


class EmbeddedDynamoDB(Supervisor):
    """One dynoxide process and its replacements, which answer at one port.

    It is dynoxide, one binary that writes to SQLite: every acknowledged write is on disk, so no SIGKILL loses one. npm
    installs the binary as an optional dependency; if a machine has no build, `find_dynoxide` returns None and the
    embedded AWS holds the tables. Invariants: the address stays the same when the child is restarted; only one child
    uses a data folder, because it holds the folder's lock.
    """

    name = "The embedded DynamoDB"
    resumes_from = "what is on disk, which is everything"

    def __init__(
        self,
        folder: Path,
        binary: Path,
        lock_file: IO[str],
        on_failure: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(folder / "logs" / "dynamodb.log", on_failure, say)
        self._folder = folder
        self._binary = binary
        self._lock_file = lock_file
        # It accepts any `Host` and any origin, so a page in the user's browser must not find it: its address is one of
        # 16 million of the loopback. People use the AWS endpoint, which checks both.
        self._host = "127." + ".".join(str(random.SystemRandom().randint(1, 254)) for _ in range(3))
        self._port = _free_port()

    @property
    def url(self) -> str:
        """The address, valid for the whole run."""
        return f"http://{self._host}:{self._port}"

    async def spawn(self, log: IO[bytes]) -> asyncio.subprocess.Process:
        """Starts dynoxide, bound to this process, with nothing of the user's environment."""
        # The child works in the folder of the code.
        file = database_file(self._folder).resolve()
        arguments = ["--host", self._host, "--port", str(self._port), "--db-path", str(file)]
        bond = [sys.executable, "-m", "local.bootstrap", "--exec", str(os.getpid())]
        return await asyncio.create_subprocess_exec(
            *bond,
            str(self._binary),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[self._lock_file.fileno()],
            start_new_session=True,
            cwd=CODE,
            env={name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ},
        )

    async def wait_until_answering(self) -> None:
        """Returns once the port answers HTTP at all."""
        line = b""
        while not line.startswith(b"HTTP/"):
            await asyncio.sleep(_POLL_S)
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                writer.write(b"GET / HTTP/1.1\r\nHost: dynamodb\r\nConnection: close\r\n\r\n")
                line = await reader.readline()
                writer.close()
