"""Follows a stream: each event at least once, as it is stored, from a checkpoint that survives a kill.

Invariants: what is saved is behind no event that the consumer has not finished, which it has once it requests the next;
an API that has answered is asked again for as long as it is away, one that will never answer is not.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from streamkeeper.checkpoint import Checkpoint
from streamkeeper.event import Event, event_of
from streamkeeper.exceptions import Refused, StreamkeeperError
from streamkeeper.following import Following
from streamkeeper.retrying import Asking, Outcome, Send, Wait, asking

# How often a checkpoint is saved at most, within a page; at a page's end it is saved always.
SAVE_EVERY_S = 0.2
# How long after a start its execution may need to claim the stream, and how often that is checked.
STARTS_S, STARTS_EVERY_S = 15.0, 1.0
_LOG = logging.getLogger("streamkeeper")
Sender = Callable[[Send], Outcome]
# The path of the page behind a position, of events from an instant on.
PagePath = Callable[[str, str | None], str]


class Place:
    """Where a consumer stands: kept in the checkpoint where there is one."""

    def __init__(self, stream_id: str, checkpoint: Checkpoint | None, after: str, since: str | None) -> None:
        self.after, self.since = after, since
        self._stream_id = stream_id
        self._checkpoint = checkpoint
        self._saved: tuple[str, str | None] | None = None
        self._saved_s = -math.inf

    async def load(self) -> None:
        """Takes what was saved, before `after` and `since`; saves these where nothing was."""
        if self._checkpoint is None:
            return
        state = await asyncio.to_thread(self._checkpoint.load)
        if state is None:
            # A consumer that is killed before its first event begins here again, not later.
            await self.save()
            return
        try:
            stream_id, self.after, self.since = state["stream"], str(state["after"]), state["since"]
        except KeyError:
            raise StreamkeeperError("The checkpoint has another layout: it is not one of `follow`.") from None
        if stream_id != self._stream_id:
            raise StreamkeeperError(f"The checkpoint is of the stream {stream_id!r}, not of {self._stream_id!r}.")
        self._saved = (self.after, self.since)

    async def save(self, *, soon: bool = False) -> None:
        """Saves it where it changed; with `soon`, not if it was saved a moment ago."""
        if self._is_due(soon):
            assert self._checkpoint is not None
            await asyncio.to_thread(self._checkpoint.save, self._state())

    def save_now(self) -> None:
        """The same where nothing may be awaited."""
        if self._is_due(False):
            assert self._checkpoint is not None
            self._checkpoint.save(self._state())

    def _is_due(self, soon: bool) -> bool:
        now_s = time.monotonic()
        is_known = self._saved == (self.after, self.since)
        if self._checkpoint is None or is_known or (soon and now_s - self._saved_s < SAVE_EVERY_S):
            return False
        self._saved, self._saved_s = (self.after, self.since), now_s
        return True

    def _state(self) -> dict[str, Any]:
        return {"stream": self._stream_id, "after": self.after, "since": self.since}


async def follow(send: Sender, path: PagePath, place: Place, every_s: float) -> AsyncGenerator[Event, None]:
    """Yields each event as it is stored; raises StreamkeeperError where the API refuses for good."""
    await place.load()
    following = Following(place.after)
    try:
        while True:
            after = following.after(time.monotonic_ns() // 1_000_000)
            page = await _page(send, path(after, place.since))
            for raw in following.take(page):
                yield event_of(raw)
                # The consumer has finished this one. One that is written late stands before others; nobody goes back.
                place.after = following.later(place.after, following.resume(raw["position"]))
                await place.save(soon=True)
            place.after = following.later(place.after, following.resume(following.place))
            await place.save()
            if not following.is_behind(page):
                await asyncio.sleep(every_s)
    finally:
        place.save_now()


async def _page(send: Sender, path: str) -> dict[str, Any]:
    """The page; of a stream that was started a moment ago it waits until its execution has claimed it."""
    left_s = STARTS_S
    while True:
        try:
            return await _performed(send, asking("GET", path, math.inf))
        except Refused as refusal:
            if refusal.kind != "never-started" or left_s <= 0:
                raise
            left_s -= STARTS_EVERY_S
            await asyncio.sleep(STARTS_EVERY_S)


async def _performed(send: Sender, steps: Asking) -> dict[str, Any]:
    outcome: Outcome = None
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as end:
            answer: dict[str, Any] = end.value
            return answer
        outcome = None
        if isinstance(step, Wait):
            _LOG.warning("%s Trying again in %g s.", step.reason, step.seconds)
            await asyncio.sleep(step.seconds)
        else:
            outcome = await asyncio.to_thread(send, step)
