"""The child process of the embedded AWS: ministack behind a listening socket that the parent opened.

Invariants: state files are replaced as a whole, so a reader never sees half of one; SIGTERM saves everything before the
process ends, or the exit status is NOT_SAVED and the last line of the log names what is not saved; a save never delays
a request, because a forked copy of the process does it.
"""

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import sys
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from local import listener
from local.bootstrap import die_with_parent
from local.listener import Server

NOT_SAVED = 3
SAVE_EVERY_S = 1.0
# The pause after a save is this many times its cost, so that saving takes at most about a twentieth of a core.
PAUSE_PER_COST = 20.0
_READS = re.compile(rb"\.(Get|BatchGet|Query|Scan|Describe|List)\w*$")


class Changes:
    """An ASGI layer that records whether a request since the last save may have changed something."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.happened = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards the request, and records it once the answer begins."""
        if scope["type"] != "http" or not _may_change(scope):
            await self._app(scope, receive, send)
            return

        async def record(message: Message) -> None:
            self.happened.set()
            await send(message)

        await self._app(scope, receive, record)


def _may_change(scope: Scope) -> bool:
    target = next((value for name, value in scope["headers"] if name == b"x-amz-target"), None)
    if target is not None:
        return _READS.search(target) is None
    return bool(scope["method"] not in ("GET", "HEAD"))


class Saver:
    """Writes the state of every service to disk a moment after it changed."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._writer_pid: int | None = None

    async def run(self) -> None:
        """Saves until it is cancelled; the pause between saves grows with their cost."""
        pause_s = SAVE_EVERY_S
        while True:
            await self._changes.happened.wait()
            await asyncio.sleep(pause_s)
            self._changes.happened.clear()
            cost_s = await self._save_in_a_copy()
            pause_s = max(SAVE_EVERY_S, PAUSE_PER_COST * cost_s)

    async def _save_in_a_copy(self) -> float:
        started_s = time.monotonic()
        parent_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                # A copy that outlived this process could replace newer files with older ones.
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                die_with_parent(signal.SIGKILL, parent_pid)
                os.nice(5)
                from ministack import app
                from ministack.core.persistence import save_all

                save_all(app._build_persistence_save_dict())
            finally:
                os._exit(0)
        self._writer_pid = pid
        await asyncio.to_thread(os.waitpid, pid, 0)
        self._writer_pid = None
        return time.monotonic() - started_s

    def stop(self) -> None:
        """Ends a running save; the last save follows and is newer."""
        if self._writer_pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._writer_pid, signal.SIGKILL)


class _UnsavedServices(logging.Handler):
    """Collects the services whose state cannot be saved, which ministack only logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Takes the name at the beginning of the message."""
        if isinstance(record.args, tuple):
            self.names.append(str(record.args[0]))


async def serve(listening: socket.socket) -> list[str]:
    """Serves until SIGTERM, then saves, and returns the services that it could not save.

    The last save is ministack's own, at the end of its lifespan.
    """
    from ministack.app import app

    changes = Changes(app)
    # The service forwards requests with their original Host, which has its own port, and without their Origin.
    server = Server(changes, listening, (), (*listener.allowed_hosts(os.environ), *listener.LOOPBACK), lifespan="on")
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.end.set)
    saver, not_saved = Saver(changes), _UnsavedServices()
    saving = asyncio.create_task(saver.run())

    async def stop_saving() -> None:
        await server.end.wait()
        logging.getLogger("persistence").addHandler(not_saved)
        saving.cancel()
        saver.stop()

    end_of_saving = asyncio.create_task(stop_saving())
    await server.serve(sockets=[listening])
    end_of_saving.cancel()
    return not_saved.names


def main(arguments: list[str]) -> None:
    """Runs the embedded AWS; the arguments are the parent's process id and the listening socket's descriptor."""
    parent_pid, descriptor = (int(argument) for argument in arguments)
    die_with_parent(signal.SIGTERM, parent_pid)
    not_saved = asyncio.run(serve(socket.socket(fileno=descriptor)))
    if not_saved:
        print("could not save", ", ".join(not_saved), flush=True)
        sys.exit(NOT_SAVED)


if __name__ == "__main__":
    main(sys.argv[1:])
