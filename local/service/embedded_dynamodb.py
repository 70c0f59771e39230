"""Runs DynamoDB as a child process that loses no write: dynoxide, one binary that writes to SQLite.

Every acknowledged write is on disk, so no SIGKILL loses one. npm installs the binary as an optional dependency; if a
machine has no build, `find_program` returns None and the embedded AWS holds the tables. Invariants: the address stays
the same when the child is restarted; only one child uses a data folder, because it holds the folder's lock.
"""

import asyncio
import contextlib
import os
import platform
import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from local.checkout import CODE
from local.service.child import Supervisor

# By `sys.platform` and `platform.machine()`.
_BUILDS = {("linux", "x86_64"): "linux-x64"}
_POLL_S = 0.02


def find_program(root: Path) -> Path | None:
    """Returns the binary in the project's node_modules; None if npm installed no build for this machine."""
    build = _BUILDS.get((sys.platform, platform.machine()))
    if build is None:
        return None
    path = root / "node_modules" / "@dynoxide" / build / "dynoxide"
    return path if os.access(path, os.X_OK) else None


def remedy() -> str:
    """Returns what to do if `find_program` returns None."""
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
    """One dynoxide process and its replacements, which answer at one port."""

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
