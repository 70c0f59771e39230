"""Notes on each opening of one stream in one function what the rules on rests and limits must know (`link.py`).

It hears of each step before it is performed and of each answer, and decides nothing. Invariant: what it notes is by the
world's clock, but for what is left of the function's time, which is by the function's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from handlers.connection.effects import Claim, MarkConnected, Write
from handlers.connection.inputs import Claimed, StoreFailed
from handlers.connection.reconnection import lived
from handlers.connection.steps import ChangeRest, Ended, Invocation, ReadRest, Report, Step
from local.chaos.link import Again, Link
from states_language.clock import Clock


class Notes:
    """Of one stream in one function; `links_by_fence` are its openings by their fencing tokens."""

    def __init__(self, clock: Clock, invocation: Invocation, own_now_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._invocation = invocation
        self._own_now_ms = own_now_ms
        self._claimed_ms = self._looked_ms = 0
        self._took_ms: int | None = None
        self._fence = 0
        self._failed: Link | None = None  # the one whose outcome not all can know yet
        self._drawn: dict[int, float] = {}  # since the last connection: a pause and the longest that it could have been
        self._ended_ms = 0
        self._again: Again | None = None
        self._begins_anew = False  # the function has rested since, as the machine rests between two functions
        self._link: Link | None = None
        self.links_by_fence: dict[int, Link] = {}

    def begins(self) -> None:
        """Records that the function begins with the stream anew."""
        self._again = None
        self._begins_anew = False

    def rests(self) -> None:
        """Records that the function rests between two rows of tries, as the machine does between two functions.

        The connection after the rest must have been put off by chance as ever; the failures in a row count from there.
        """
        self._begins_anew = True

    def drew(self, least: float, most: float, value: float) -> None:
        """Records what was drawn by chance."""
        if least < most:
            self._drawn[round(1000 * value)] = 1000 * most

    def before(self, step: Step) -> None:
        """Records what is to be performed."""
        if not isinstance(step, ChangeRest | ReadRest | Ended):
            self.settle()
        now_ms = self._clock.now_ms()
        match step:
            case Claim():
                self._claimed_ms = now_ms
                # Another rest than it knows of refuses the claim, and of a rest that is over it takes the try.
                self._looked_ms, self._took_ms = now_ms, now_ms if step.try_until_ms else None
            case Ended(report):
                self._ended(report)

    def after(self, step: Step, value: Any) -> None:
        """Records what it was answered by."""
        if isinstance(value, StoreFailed):
            return
        if isinstance(step, Write) and step.fence in self.links_by_fence:
            self.links_by_fence[step.fence].written += len(step.events)
        if isinstance(value, Claimed):
            self._fence = value.lease.fence
        elif isinstance(step, MarkConnected) and self._link is not None:
            self._link.marked_ms = self._clock.now_ms()

    def opened(self, link: Link) -> None:
        """Records the opening that follows from an Open."""
        self._link = link
        link.claimed_ms, link.looked_ms, link.took_ms = self._claimed_ms, self._looked_ms, self._took_ms
        if self._again is not None:
            paused_ms = self._clock.now_ms() - self._ended_ms
            most_ms = max((most for drawn, most in self._drawn.items() if drawn <= paused_ms), default=0.0)
            link.again = replace(self._again, draw_most_ms=most_ms)
        self.links_by_fence[self._fence] = link

    def left(self) -> None:
        """Records that nothing is open."""
        self._link = None

    def settle(self) -> None:
        """From now on whoever looks knows what became of the connection that failed last."""
        if self._failed is not None and self._failed.settled_ms is None:
            self._failed.settled_ms = self._clock.now_ms()
        self._failed = None

    def _ended(self, report: Report) -> None:
        self._link = self._took_ms = None
        before = 0 if self._again is None or self._begins_anew else self._again.failures
        self._begins_anew = False
        failures = 0 if lived(report.progress) else before + 1
        left_ms, margin_ms = self._invocation.deadline_ms - self._own_now_ms(), self._invocation.margin_ms
        self._again = Again(failures, left_ms / margin_ms, 0)
        self._drawn.clear()
        self._ended_ms = self._clock.now_ms()
        self._failed = self.links_by_fence.get(report.progress.fence)
        if report.outcome.error == "StoreUnavailable":
            self._failed = None  # what it comes to may never be written down
