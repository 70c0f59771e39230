"""Follows a stream: each event at least once, as it is stored, from a checkpoint that survives a kill.

Invariants: a saved place is never after an event that the consumer has not finished, and the consumer has finished an
event once it requests the next; an API that has answered before is tried again however long it is away; a checkpoint
file is replaced as a whole and written through to the disk, so a kill leaves the former file or the new one.
"""

import asyncio
import contextlib
import json
import logging
import math
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from streamkeeper.event import Event, event_of
from streamkeeper.exceptions import StreamkeeperError
from streamkeeper.following import Following, poll_steps
from streamkeeper.transport import Outcome, Send, Steps, T, Wait

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Within a page, a checkpoint is saved at most this often; at the end of a page it is always saved.
SAVE_EVERY_S = 0.2
# The checkpoint that uses each file that a process has locked, by the process too: a fork inherits no lock.
_RESERVED: "dict[tuple[int, Path], FileCheckpoint]" = {}
_LOG = logging.getLogger("streamkeeper")
Sender = Callable[[Send], Outcome]
# The steps to the instant at which to begin.
Begin = Steps[list[str | None]]
# Makes the path of the page after a position, with events from an instant on.
PagePath = Callable[[str, str | None], str]


class Checkpoint(Protocol):
    """The place where `follow` saves its progress; both methods are called in a thread, one at a time."""

    def load(self) -> dict[str, Any] | None:
        """Returns the state that was saved last; None before the first."""

    def save(self, state: dict[str, Any]) -> None:
        """Replaces the saved state, a few values of JSON; returns once a kill cannot undo it."""


class FileCheckpoint:
    """A checkpoint in a file, for one process until that ends; of several in this process, for the last that loaded."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        self.path = Path(path)

    @property
    def _name(self) -> tuple[int, Path]:
        return os.getpid(), self.path.resolve()

    def load(self) -> dict[str, Any] | None:
        """Returns the saved state; None without a file.

        Raises StreamkeeperError if the file is no checkpoint, or another process uses it.
        """
        self._reserve()
        _RESERVED[self._name] = self
        try:
            state = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise self._unusable(problem) from None
        except ValueError:
            state = None
        if not isinstance(state, dict):
            raise StreamkeeperError(f"{self.path} is not a checkpoint: name another file, or delete it to begin anew.")
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Replaces the file; raises StreamkeeperError if it cannot, and leaves the former one."""
        if _RESERVED.get(self._name, self) is not self:
            raise StreamkeeperError(f"A later follower uses the checkpoint {self.path}: give each its own.")
        part = self.path.with_name(f".{self.path.name}.part")
        try:
            with part.open("w", encoding="utf-8") as file:
                json.dump(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.path)
        except OSError as problem:
            raise self._unusable(problem) from None

    def _unusable(self, problem: OSError) -> StreamkeeperError:
        return StreamkeeperError(f"The checkpoint {self.path} cannot be used: {problem.strerror}.")

    def _reserve(self) -> None:
        if fcntl is None or self._name in _RESERVED:
            return
        try:
            # Never closed: a process loses its lock on a file when it closes it.
            file = os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as problem:
            raise self._unusable(problem) from None
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(file)
            raise StreamkeeperError(f"Another process uses the checkpoint {self.path}: give each its own.") from None


class Place:
    """How far a consumer is; kept in the checkpoint if there is one."""

    since: str | None

    def __init__(self, stream_id: str, checkpoint: Checkpoint | None, after: str, begin: Begin) -> None:
        self.stream_id, self.after = stream_id, after
        self._checkpoint, self._begin = checkpoint, begin
        self._saved: tuple[str, str | None] | None = None
        self._saved_s = -math.inf

    async def load(self, send: Sender) -> None:
        """Uses the saved place if there is one; otherwise it begins after `after`, at the instant of `begin`."""
        state = None if self._checkpoint is None else await asyncio.to_thread(self._checkpoint.load)
        if state is None:
            [self.since] = await _perform(send, self._begin)
            return
        try:
            stream_id, self.after, self.since = state["stream"], str(state["after"]), state["since"]
        except KeyError:
            raise StreamkeeperError("The checkpoint has another layout: it was not written by `follow`.") from None
        if stream_id != self.stream_id:
            raise StreamkeeperError(f"The checkpoint belongs to the stream {stream_id!r}, not to {self.stream_id!r}.")
        self._saved = (self.after, self.since)

    async def save(self, *, soon: bool = False) -> None:
        """Saves the place if it changed; with `soon`, only if the last save was at least SAVE_EVERY_S ago."""
        if (due := self._pending_save(soon)) is not None:
            await asyncio.to_thread(due)

    def save_now(self) -> None:
        """The same as `save`, for code that cannot await."""
        if (due := self._pending_save(False)) is not None:
            due()

    def _pending_save(self, soon: bool) -> Callable[[], None] | None:
        now_s = time.monotonic()
        is_known = self._saved == (self.after, self.since)
        if self._checkpoint is None or is_known or (soon and now_s - self._saved_s < SAVE_EVERY_S):
            return None
        self._saved, self._saved_s = (self.after, self.since), now_s
        return partial(self._checkpoint.save, {"stream": self.stream_id, "after": self.after, "since": self.since})


async def follow(send: Sender, path: PagePath, place: Place, every_s: float) -> AsyncGenerator[Event, None]:
    """Yields each event as it is stored; raises StreamkeeperError if the API refuses for good."""
    await place.load(send)
    # A consumer that is killed before its first event must begin here again, not later.
    await place.save()
    following = Following(place.after)
    try:
        while True:
            for raw in await _perform(send, poll_steps(following, lambda after: path(after, place.since), every_s)):
                yield event_of(place.stream_id, raw)
                # The consumer has finished this one. A late event stands before others, and the place never goes back.
                place.after = following.later(place.after, following.resume(raw["position"]))
                await place.save(soon=True)
            place.after = following.later(place.after, following.resume(following.place))
            await place.save()
    finally:
        # A later follower may use the file by now. Events that are not saved come again.
        with contextlib.suppress(StreamkeeperError):
            place.save_now()


async def _perform(send: Sender, steps: Steps[T]) -> T:
    """As `perform` of the transport, without blocking."""
    outcome: Outcome = None
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        outcome = None
        if isinstance(step, Wait):
            if step.why:
                _LOG.warning("%s", step.why)
            await asyncio.sleep(step.seconds)
        else:
            outcome = await _send(send, step)


async def _send(send: Sender, step: Send) -> Outcome:
    """Sends a request in a thread of its own; cancelled, it does not wait for the answer.

    asyncio has few threads, which others need too, and the end of a program would wait for them.
    """
    outcome: Future[Outcome] = Future()
    outcome.set_running_or_notify_cancel()

    def work() -> None:
        try:
            outcome.set_result(send(step))
        except BaseException as problem:
            outcome.set_exception(problem)

    threading.Thread(target=work, name="streamkeeper-follow", daemon=True).start()
    return await asyncio.wrap_future(outcome)
