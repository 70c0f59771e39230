"""Keeps a child process of the service alive: starts it, watches it, restarts it, ends it.

Invariants: between `start` and `stop` a dead child is replaced, or `on_failure` is called; `handle_death` runs after
the old child has ended and before the new one is spawned, so that nothing relies on the state of the old one.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

from local.terminal import UserError

_STOP_WITHIN_S = 10.0
_READY_WITHIN_S = 30.0
_MOST_RESTARTS = 5
_RESTARTS_WINDOW_S = 60.0


class Supervisor:
    """Keeps one child alive; `say` reports a restart, `on_failure` gets a sentence when it stays dead.

    `name` begins a sentence ("The embedded AWS"); `resumes_from` ends one ("its last save").
    """

    name: str
    resumes_from: str

    def __init__(
        self,
        log: Path,
        on_failure: Callable[[str], None],
        say: Callable[[str], None],
        on_restart: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.log = log
        self.say = say
        self._on_failure, self._on_restart = on_failure, on_restart
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def spawn(self, log: IO[bytes]) -> asyncio.subprocess.Process:
        """Starts the child, whose output goes into its log."""
        raise NotImplementedError

    async def wait_until_answering(self) -> None:
        raise NotImplementedError

    def handle_death(self) -> None:
        """Runs after the old child has ended and before the new one is spawned."""

    @property
    def pid(self) -> int | None:
        """The process id of the present child."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Returns once the child answers; if it does not start, raises a UserError that names its log."""
        self._process = await self._spawn()
        await self._wait_until_ready()
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> int | None:
        """Ends the child, which saves its state first; returns its exit status, None if it was killed as too slow."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
        process = self._process
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_WITHIN_S)
        except TimeoutError:
            self.kill()
            await process.wait()
            return None
        return process.returncode

    def kill(self) -> None:
        """Ends the child with SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _spawn(self) -> asyncio.subprocess.Process:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            return await self.spawn(log)

    async def _wait_until_ready(self) -> None:
        assert self._process is not None
        answer = asyncio.create_task(self.wait_until_answering())
        death = asyncio.create_task(self._process.wait())
        done, pending = await asyncio.wait(
            {answer, death}, timeout=_READY_WITHIN_S, return_when=asyncio.FIRST_COMPLETED
        )
        for task in pending:
            task.cancel()
        if answer not in done:
            self.kill()
            last = self.log.read_text(errors="replace").strip().rpartition("\n")[2]
            ends = f"Its last line is: {last}" if last else "It is empty."
            within = "" if death in done else f" within {_READY_WITHIN_S:g} s"
            raise UserError(f"{self.name} did not start{within}; its log is {self.log}. {ends}")
        answer.result()

    async def _watch(self) -> None:
        deaths_s: list[float] = []
        while True:
            assert self._process is not None
            await self._process.wait()
            if self._closing:
                return
            now_s = time.monotonic()
            deaths_s = [at_s for at_s in deaths_s if now_s - at_s < _RESTARTS_WINDOW_S] + [now_s]
            if len(deaths_s) > _MOST_RESTARTS:
                self._on_failure(f"{self.name} died {len(deaths_s)} times in a minute, so the service stops.")
                return
            name = self.name[0].lower() + self.name[1:]
            self.say(f"{name} died ({self._process.returncode}); it restarts from {self.resumes_from}")
            self.handle_death()
            try:
                self._process = await self._spawn()
            except OSError as problem:
                self._on_failure(f"{self.name} cannot be started again ({problem.strerror}), so the service stops.")
                return
            if self._on_restart is not None:
                await self._on_restart()
