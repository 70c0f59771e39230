"""Performs the steps of many streams in one function at once: on tables in memory, in virtual time.

What a stream's upstream does is a script for each opening. Time passes only where every stream waits. Invariant: the
streams share the clock and the tables, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handlers.connection.effects import CloseUpstream, Open
from handlers.connection.inputs import Arrival, Closed, StoreFailed
from handlers.connection.steps import Answer, Await, Ended, Invocation, Step
from handlers.errors import StoreUnavailable
from handlers.group.fates import Delays
from handlers.group.keeping import Kept, kept
from handlers.group.rounds import Rounds
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.requests import Requests

Script = list[tuple[int, Arrival]]
DELAYS = Delays(
    retry_max_delay_s=5, throttle_delay_s=5, throttle_max_delay_s=30, cool_down_s=5, jitter_s=1
)  # fmt: skip


class GroupPerformer:
    """`openings` are the scripts of each stream's upstream, one for each time that it is opened."""

    def __init__(self, store: Store, openings: dict[str, list[Script]], lot: float = 0.5) -> None:
        self._store = store
        self._openings = {stream: iter(scripts) for stream, scripts in openings.items()}
        self._lot = lot
        self._requests: dict[str, Requests] = {}
        self._arrivals: dict[str, Script] = {}
        self.rounds: Rounds[Kept] = Rounds()
        self.now_ms = 0
        self.served: list[str] = []
        self.opened: list[tuple[str, int]] = []
        self.ended: dict[str, Kept | Exception] = {}
        self.kept_until: dict[str, int] = {}

    def begin(self, profile: Profile, invocation: Invocation) -> None:
        """Begins to keep a stream."""
        stream = invocation.stream_id
        self._requests[stream] = Requests(profile, self._store, invocation, lambda: self.now_ms)
        steps = kept(profile, invocation, self.now_ms, self._draw, DELAYS, lambda now_ms: self._keeps(stream, now_ms))
        self.rounds.begin(stream, steps, self.now_ms)

    def run(self, until_ms: int) -> None:
        """Performs all that is asked for, until nothing is left or that instant has come."""
        while True:
            if self.step():
                continue
            next_ms = min(self.next_ms(), default=None)
            if next_ms is None or next_ms > until_ms:
                self.now_ms = until_ms
                return
            self.now_ms = max(self.now_ms, next_ms)

    def step(self) -> bool:
        """Performs what is asked for now, and serves whoever waited; whether there was anything."""
        asked = list(self.rounds.asked())
        for stream, step in asked:
            self._perform(stream, step)
        ended = dict(self.rounds.ended())
        self.ended |= ended
        return self._serve() or bool(asked or ended)

    def _draw(self, least: float, most: float) -> float:
        return least + (most - least) * self._lot

    def _keeps(self, stream: str, now_ms: int) -> bool:
        return now_ms < self.kept_until.get(stream, 10**12)

    def next_ms(self) -> Iterator[int]:
        """When something is to be done next."""
        if self.rounds.due_ms is not None:
            yield self.rounds.due_ms
        yield from (self._arrivals[stream][0][0] for stream, _ in self.rounds.awaiting() if self._arrivals.get(stream))

    def _serve(self) -> bool:
        """Whether somebody waited for something that has come; each is served once at the most."""
        served = False
        for stream, step in self.rounds.awaiting():
            script = self._arrivals.get(stream)
            if script and script[0][0] <= self.now_ms:
                at_ms, arrival = script.pop(0)
                self.served.append(stream)
                self.rounds.answer(stream, Answer(self.now_ms, arrival, at_ms))
                served = True
            elif step.until_ms <= self.now_ms:
                self.rounds.answer(stream, Answer(self.now_ms))
                served = True
        for stream in self.rounds.rested(self.now_ms):
            self.rounds.answer(stream, Answer(self.now_ms))
            served = True
        return served or bool(self.rounds.has_asked)

    def _open(self, stream: str, _cursor: str | None) -> None:
        script = next(self._openings[stream], None)
        if script is None:
            raise RuntimeError("a defect of the performer")
        self._arrivals[stream] = [(self.now_ms + after_ms, arrival) for after_ms, arrival in script]

    def _leave(self, stream: str) -> None:
        self._arrivals[stream] = [one for one in self._arrivals.get(stream, []) if one[0] <= self.now_ms]

    def _perform(self, stream: str, step: Step) -> None:
        value: Any = None
        match step:
            case Open():
                try:
                    self._open(stream, step.cursor)
                except RuntimeError as defect:
                    self.rounds.fail(stream, defect, self.now_ms)
                    return
                self.opened.append((stream, self.now_ms))
            case CloseUpstream():
                self._leave(stream)
                self._arrivals.setdefault(stream, []).append((self.now_ms, Closed("closed_here")))
            case Ended():
                self._leave(stream)
                self._arrivals.pop(stream, None)
            case Await():
                raise AssertionError("Await is no step that is handed out")
            case _:
                try:
                    value = [request() for request in self._requests[stream].of(step)][-1]
                except StoreUnavailable as error:
                    value = StoreFailed(str(error))
        self.rounds.answer(stream, Answer(self.now_ms, value))
