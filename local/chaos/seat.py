"""One stream in one function of a group: its openings and its notes.

It decides nothing of what is done. Invariant: what comes reaches a function that is alive, and its last opening alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handlers.connection.inputs import Arrival
from handlers.connection.steps import Invocation, Steps
from handlers.group.keeping import Kept
from handlers.profile.behaviour import Profile
from local.chaos.chaotic_upstream import ChaoticUpstream
from local.chaos.link import Client, Link
from local.chaos.notes import Notes
from local.chaos.running import Running
from local.replay.virtual_reader import Reader
from states_language.clock import Clock


@dataclass(frozen=True, slots=True)
class Place:
    """What a function finds of a stream: its profile as deployed now, its upstream, and who has opened that."""

    profile: Profile
    upstream: ChaoticUpstream
    clients: list[Client]


class Seat:
    """Whoever opens the links of the stream in `place` for `function`."""

    def __init__(self, clock: Clock, function: Running, who: Invocation, place: Place) -> None:
        self.function = function
        self.place = place
        self.notes = Notes(clock, who, function.now_ms)
        self._reader: Reader | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its code still runs."""
        return self.function.is_alive

    @property
    def is_lost(self) -> bool:
        """Whether the machine has lost it and started another in its place."""
        return self.function.is_lost

    @property
    def died_ms(self) -> int | None:
        """When it was killed, None where it was not."""
        return self.function.died_ms

    @property
    def skew_ms(self) -> int:
        """How far its clock is wrong."""
        return self.function.skew_ms

    @property
    def links_by_fence(self) -> dict[int, Link]:
        """Its openings, by their fencing tokens."""
        return self.notes.links_by_fence

    @property
    def execution(self) -> str:
        """For whom it runs."""
        return self.function.execution

    def arrived(self, link: Link, arrival: Arrival) -> None:
        """Takes what the link brings, unless it was left already."""
        reader = self._reader
        if self.is_alive and reader is not None and reader.link is link:
            reader.takes(arrival)

    def open(self, cursor: str | None, heard: Callable[[], None]) -> Reader:
        """Opens the stream's upstream."""
        self._reader = reader = Reader(self.function.now_ms, heard, self._closed)
        reader.link = self.place.upstream.open(self, cursor)
        self.notes.opened(reader.link)
        return reader

    def close(self) -> None:
        """Closes its socket, as the function's end does."""
        if self._reader is not None and self._reader.link is not None:
            self.place.upstream.close(self._reader.link)

    def noted(self, steps: Steps[Kept]) -> Steps[Kept]:
        """The same steps, each noted before it is performed and after; the function may be killed between any two."""
        self.notes.begins()
        move: Callable[[], Any] = functools.partial(next, steps)
        while True:
            try:
                step = move()
            except StopIteration as ended:
                self.notes.settle()
                kept: Kept = ended.value
                return kept
            self.notes.before(step)
            try:
                answer = yield step
            except Exception as error:
                move = functools.partial(steps.throw, error)
                continue
            self.notes.after(step, answer.value)
            self.function.steps_on(step)
            move = functools.partial(steps.send, answer)

    def _closed(self, link: Link) -> None:
        # What is dropped with a function that was killed closes nothing: its socket may linger.
        if self.is_alive:
            self.place.upstream.close(link)
            self.notes.left()
