"""Decides what follows from the end of one stream's connection for its function, which keeps others connected.

Where a stream has a function of its own the machine decides that, by the error's name (`statemachines/`): it waits,
retries after a back-off, or ends the execution. In a group the function does, with the same delays, so that no end of
one stream's connection is an end of the function. Invariants: a stream that was relieved is not connected again by the
function that it was relieved from; a refusal is never retried sooner than the machine would.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from handlers.connection.effects import Outcome

# As the Retriers of Connect A have them: the first delay in seconds, and how often it is doubled before a long rest.
_RETRIES = {"StreamThrottled": 2, "StoreUnavailable": 2, "StreamDropped": 4}
_STORE_DELAY_S, _DROP_DELAY_S = 2.0, 1.0
# What a defect of a manager ends with; no function raises it.
BROKEN = "Broken"
# Errors of `handlers/errors.py` that come of performing a step: their messages are our own words.
_NAMED = ("StreamDropped", "StoreUnavailable", "InvalidRequest")


class NextStep(enum.Enum):
    """What becomes of a stream after a connection of it has ended; the value is the word used in logs."""

    AGAIN = "connects again after a rest"
    RELIEVED = "a newer function has it"
    EXPIRED = "the function's deadline has come"
    STANDBY = "its lane is to start again beside the other"
    OVER = "it is over"
    UNREAD = "its profile is asked for"


@dataclass(frozen=True, slots=True)
class Delays:
    """The stage's delays in seconds, as in env/README.md."""

    retry_max_delay_s: float
    throttle_delay_s: float
    throttle_max_delay_s: float
    cool_down_s: float
    jitter_s: float


def raised(error: Exception) -> Outcome:
    """Returns what a connection ended as that was ended by an error of its steps: a defect, if not one with a name."""
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
    """Returns between which seconds to draw the rest after so many failures by `error` in a row, from 1 on.

    Where the machine's retries would be used up it is a rest of the lane, and then they begin anew.
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
