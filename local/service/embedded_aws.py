"""Runs the embedded AWS (ministack) as a child process: DynamoDB, SQS and the rest, kept in the data folder.

It restarts the child when it dies, and reports a failure when it dies too often. Invariants: only one process uses a
data folder; the address survives a restart, because the listening socket is the parent's; after a death `on_death` runs
before the new child answers anything, and the new child answers no request that was sent before.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

from local import host_check
from local.checkout import CODE
from local.listener import HOST, port_of
from local.service.child import Supervisor
from local.service.embedded_aws_child import NOT_SAVED
from local.user_error import UserError, explain_os_errors

_WAIT_FOR_LOCK_S = 15.0
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", host_check.VARIABLE)


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
