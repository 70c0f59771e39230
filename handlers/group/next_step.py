"""Decides what a function that keeps many streams does after the end of one stream's connection.

For a stream with a function of its own the machine decides, by the error's name (`statemachines/`): it waits, retries
after a back-off, or ends the execution. In a group the function decides, with the same delays, so that the end of one
stream's connection never ends the function. Invariants: a function does not connect a stream again after another has
taken it over; a refusal is never retried sooner than the machine would.
"""

from __future__ import annotations

import enum

from handlers.connection.effects import Outcome
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


def raised(error: Exception) -> Outcome:
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


def rest_bounds_s(error: str, failures: int, delays: Delays) -> tuple[float, float]:
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
