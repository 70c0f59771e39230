"""The steps by which a function keeps one stream of its group: it connects, waits after an end, and connects again.

It repeats the invocation of a stream (`handlers/connection/reconnection.py`), as the machine does for a stream alone,
until the stream is over, a newer function has it, or it should no longer be kept. Back-offs are cut into short pauses,
so that a waiting stream does not delay the end of its function.

    attempts -> StreamDropped       Pause(…) up to 1 s, 2 s, 4 s …      attempts -> StreamTakenOver      RELIEVED

An exception in a stream's steps, from a defect of its manager or from its performer, ends only that connection.
Invariants: a back-off is drawn before each further connection; whatever is open is closed by an `Ended`.
"""

from __future__ import annotations

from collections.abc import Callable

from handlers.connection.effects import Progress
from handlers.connection.failures import lived
from handlers.connection.reconnection import Draw, attempts
from handlers.connection.steps import Ended, Invocation, Pause, Report, Steps
from handlers.group.next_step import Delays, NextStep, next_step, raised, rest_bounds_s
from handlers.profile.behaviour import Profile
from handlers.values import dataclass

# Returns whether this function should still connect the stream again, at that instant.
Keeps = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Kept:
    """How a stream's last connection in a function ended, and what follows."""

    next_step: NextStep
    report: Report


def kept(
    profile: Profile, invocation: Invocation, now_ms: int, delays: Delays, keeps: Keeps, draw: Draw
) -> Steps[Kept]:
    """Returns how the stream ended in this function; `keeps` is called before and after back-offs."""
    failures, error = 0, ""
    while True:
        began_ms = now_ms
        try:
            report = yield from attempts(profile, invocation, now_ms, draw)
        except Exception as defect:
            # A defect in one manager, or in its performer, ends one connection. The message has nothing that came over
            # the wire.
            report = Report(raised(defect), Progress(0, began_ms))
            yield Ended(report)
        what = next_step(report.outcome, is_hot=profile.standby == "hot")
        if what is not NextStep.AGAIN:
            return Kept(what, report)
        is_new = lived(report.progress) or report.outcome.error != error
        failures, error = (1 if is_new else failures + 1), report.outcome.error
        rest_ms = round(1000 * draw(*rest_bounds_s(error, failures, delays)))
        now_ms = yield from _rest(rest_ms, invocation, keeps)
        if now_ms < 0:
            return Kept(NextStep.AGAIN, report)


def _rest(rest_ms: int, invocation: Invocation, keeps: Keeps) -> Steps[int]:
    """Returns the instant at which the back-off is over; -1 if the stream should not be connected again."""
    answer = yield Pause(0)
    until_ms, latest_ms = answer.now_ms + rest_ms, invocation.deadline_ms - 3 * invocation.margin_ms
    while keeps(answer.now_ms) and answer.now_ms < latest_ms:
        if answer.now_ms >= until_ms:
            return answer.now_ms
        answer = yield Pause(min(invocation.lease_every_ms, until_ms - answer.now_ms))
    return -1
