"""Decides what one connection writes down of its upstream's failures, with the writes that it makes anyway.

Three of them carry it, and each at most one change:

    MarkConnected   the upstream has answered: others may try as well
    Heartbeat       it has lived: the row of failures is over. Its end would be too late to say so: by then its
                    successor has written another rest down, or failed, and the row would never end
    Release         it has failed: what the upstream is owed

It knows no store and no clock. Invariant: `held` is what the store said last, or what it was told and has taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from handlers.connection.backoff import Rest, RestChange, outlived
from handlers.connection.effects import Effect, Heartbeat, MarkConnected, Progress, Release
from handlers.connection.inputs import Claimed, LeaseRead
from handlers.connection.steps import Await


class RestChanges:
    """Of one connection: the rest as its claim `found` it, and as it is `held` now, as far as it knows.

    `found` is None where no claim was granted. `is_noted` is whether `held` says how it ended.
    """

    def __init__(self, rest: Rest) -> None:
        self.found: Rest | None = None
        self.held = rest
        self.is_noted = False
        self._has_outlived = False
        self._change: RestChange | None = None

    def beside(self, step: Effect | Await, now_ms: int, owed: Callable[[Rest], Rest | None]) -> Effect | Await:
        """Returns the step with the change that it carries; `owed` says what a failure found so leads to."""
        self._change = None
        if self.found is None or not isinstance(step, MarkConnected | Heartbeat | Release):
            return step
        after: Rest | None = self.held
        if isinstance(step, MarkConnected):
            after = answered(self.held, step.progress)
        elif isinstance(step, Release):
            after = owed(self.found)
        elif not self._has_outlived and step.progress.opened_ms is not None:
            after = outlived(self.held, now_ms - step.progress.opened_ms)
        if after is not None and after != self.held:
            self._change = RestChange(self.held, after)
        return replace(step, rest=self._change)

    def answer(self, step: Effect | Await, value: object) -> None:
        """Takes what the step was answered by."""
        change = self._change
        if isinstance(value, Claimed):
            self.found = self.held = value.rest
        if change is None:
            return
        is_done = value is None if isinstance(step, MarkConnected) else _says(value, change.after)
        if is_done:
            self.held = change.after
            self.is_noted = isinstance(step, Release)
        if isinstance(step, Heartbeat):
            self._has_outlived = True  # where others have written another rest down it is not tried again


def answered(held: Rest, progress: Progress) -> Rest:
    """What is written in place of `held` once the upstream has answered with a stream: others may try as well."""
    if not held.until_ms or progress.opened_ms is None:
        return held
    return replace(held, until_ms=progress.opened_ms, tried_ms=0)


def _says(value: object, rest: Rest) -> bool:
    return isinstance(value, LeaseRead) and value.rest == rest
