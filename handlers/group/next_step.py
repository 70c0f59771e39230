"""Decides what a function that keeps many streams does after the end of one stream's connection.

For a stream with a function of its own the machine decides, by the error's name (`statemachines/`): it waits, retries
after a back-off, or ends the execution. In a group the function decides, with the same delays (`keep_connected`): until
the stream is over, a newer function has it, or it should no longer be kept. Back-offs are cut into short pauses, so
that a waiting stream does not delay the end of its function.

    attempts -> StreamDropped       Pause(…) up to 1 s, 2 s, 4 s …      attempts -> StreamTakenOver      RELIEVED

An exception in a stream's steps, from a defect of its manager or from its performer, ends only that connection.
Invariants: a function does not connect a stream again after another has taken it over; a refusal is never retried
sooner than the machine would; a back-off is drawn before each further connection; whatever is open is closed by an
`Ended`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from handlers.connection.effects import Outcome, Progress
from handlers.connection.failures import was_accepted
from handlers.connection.reconnection import Draw, attempts
from handlers.connection.steps import Ended, Invocation, Pause, Report, Steps
from handlers.profile.behaviour import Profile
from handlers.values import dataclass

# As in the Retriers of Connect A: the first delay in seconds, and how often it doubles before the long back-off.
_RETRIES = {"StreamThrottled": 2, "StoreUnavailable": 2, "StreamDropped": 4}
_STORE_DELAY_S, _DROP_DELAY_S = 2.0, 1.0
# The error of a connection that a manager's defect ended; no function raises it.
BROKEN = "Broken"
# Errors of `handlers/errors.py` that performing a step may raise: we wrote their messages, so they are safe to show.
_NAMED = ("StreamDropped", "StoreUnavailable", "InvalidRequest")


class NextStep(enum.Enum):
    """What happens to a stream after one of its connections has ended; logs use the value."""

    AGAIN = "connects again after a back-off"
    RELIEVED = "a newer function has it"
    EXPIRED = "the function's deadline has come"
    STANDBY = "its lane must start again beside the other"
    OVER = "it is over"
    UNREAD = "its profile is requested"


@dataclass(frozen=True, slots=True)
class Delays:
    """The stage's delays in seconds, as in env/README.md."""

    retry_max_delay_s: float
    throttle_delay_s: float
    throttle_max_delay_s: float
    cool_down_s: float
    jitter_s: float


def error_outcome(error: Exception) -> Outcome:
    """Returns the outcome of a connection that an exception in its steps ended: a defect, unless the error is known."""
    name = type(error).__name__
    return Outcome(name, "", str(error)) if name in _NAMED else Outcome(BROKEN, "", f"a defect: {name}")


def next_step(outcome: Outcome, *, is_hot: bool) -> NextStep:
    """Returns what follows from the outcome of a stream's connection; `is_hot` is whether it has a hot standby."""
    match outcome.error, outcome.status:
        case "StreamTakenOver", _:
            return NextStep.RELIEVED
        case "ConnectionExpired", _:
            return NextStep.STANDBY if is_hot else NextStep.EXPIRED
        case (("StreamRejected" | "StreamBroken" | "InvalidRequest"), _):
            return NextStep.OVER
        case "", "superseded":
            return NextStep.RELIEVED
        case "", _:
            return NextStep.OVER
    return NextStep.AGAIN


def backoff_bounds_s(error: str, failures: int, delays: Delays) -> tuple[float, float]:
    """Returns the bounds in seconds of the back-off after this many failures by `error` in a row, from 1 on.

    Once the machine's retries would be used up, it is the lane's long back-off; then they begin anew.
    """
    tries = _RETRIES.get(error, 0)
    number = (failures - 1) % (tries + 1)
    if number >= tries:
        long_s = delays.throttle_max_delay_s if error == "StreamThrottled" else delays.cool_down_s
        return long_s, long_s + delays.jitter_s
    first_s, most_s = {
        "StreamThrottled": (delays.throttle_delay_s, delays.throttle_max_delay_s),
        "StoreUnavailable": (_STORE_DELAY_S, delays.retry_max_delay_s),
    }.get(error, (_DROP_DELAY_S, delays.retry_max_delay_s))
    # JitterStrategy FULL: "a random delay between 0 and the calculated one".
    return 0.0, min(most_s, first_s * 2.0**number)


# Returns whether this function should still connect the stream again, at that instant.
ShouldKeep = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a stream's last connection in a function ended, and what follows."""

    next_step: NextStep
    report: Report


def keep_connected(
    profile: Profile, invocation: Invocation, now_ms: int, delays: Delays, should_keep: ShouldKeep, draw: Draw
) -> Steps[StreamEnd]:
    """Returns how the stream ended in this function; `should_keep` is called before and after back-offs."""
    failures, error = 0, ""
    while True:
        began_ms = now_ms
        try:
            report = yield from attempts(profile, invocation, now_ms, draw)
        except Exception as defect:
            # A defect in one manager, or in its performer, ends one connection. The message has no text from the wire.
            report = Report(error_outcome(defect), Progress(0, began_ms))
            yield Ended(report)
        what = next_step(report.outcome, is_hot=profile.standby == "hot")
        if what is not NextStep.AGAIN:
            return StreamEnd(what, report)
        is_new = was_accepted(report.progress) or report.outcome.error != error
        failures, error = (1 if is_new else failures + 1), report.outcome.error
        rest_ms = round(1000 * draw(*backoff_bounds_s(error, failures, delays)))
        now_ms = yield from _back_off(rest_ms, invocation, should_keep)
        if now_ms < 0:
            return StreamEnd(NextStep.AGAIN, report)


def _back_off(rest_ms: int, invocation: Invocation, should_keep: ShouldKeep) -> Steps[int]:
    """Returns the instant at which the back-off is over; -1 if the stream should not be connected again."""
    answer = yield Pause(0)
    until_ms, latest_ms = answer.now_ms + rest_ms, invocation.deadline_ms - 3 * invocation.margin_ms
    while should_keep(answer.now_ms) and answer.now_ms < latest_ms:
        if answer.now_ms >= until_ms:
            return answer.now_ms
        answer = yield Pause(min(invocation.lease_every_ms, until_ms - answer.now_ms))
    return -1
