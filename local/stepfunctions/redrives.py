"""Decides whether an execution can be redriven, and which earlier answer a repeated request gets.

Invariant: DescribeExecution says REDRIVABLE of exactly those executions that RedriveExecution takes.
"""

from dataclasses import dataclass

from states_language.place import Part, holds_map_run

DAY_MS = 86_400_000
PERIOD_MS = 14 * DAY_MS
LONGEST_MS = 365 * DAY_MS
TOO_MANY_EVENTS = 24_999
TOKENS = 10
TOKEN_MS = 15 * 60_000
"""How many client tokens are known, and for how long. Source: RedriveExecution in the API reference."""

NOT_KEPT = "Where the execution stood is not known, because the local service ended while it ran"
MAP_RUN = "The local service does not redrive a Map Run that was started"
OF_MAP_RUN = "The local service does not redrive the executions of a Map Run"


@dataclass(frozen=True)
class Redrive:
    """One redrive: when, and the client token of its request."""

    at_ms: int
    token: str | None = None


def obstacle(part: Part | None) -> str | None:
    """Returns why an execution that ended here cannot go on from it; None where it can."""
    if part is None:
        return NOT_KEPT
    return MAP_RUN if holds_map_run(part) else None


def reason(
    *, status: str, started_ms: int, stopped_ms: int, now_ms: int, events: int, deleting: bool, kept: str | None
) -> str | None:
    """Returns why an execution cannot be redriven, in AWS's words where it has them; None where it can.

    events: the length of its history. kept: what `obstacle` says of where it stood.
    """
    if status in ("RUNNING", "SUCCEEDED"):
        return f"Execution is {status} and cannot be redriven"
    reasons = (
        (deleting, "State machine is in DELETING status"),
        # "the event history count is less than 24,999"
        (events >= TOO_MANY_EVENTS, "Execution history event limit exceeded"),
        (now_ms - started_ms >= LONGEST_MS, "Execution has exceeded the max execution time"),
        (now_ms - stopped_ms > PERIOD_MS, "Execution redrivable period exceeded"),
    )
    return next((text for holds, text in reasons if holds), kept)


def repeated(redrives: list[Redrive], token: str | None, now_ms: int) -> Redrive | None:
    """Returns the redrive that an earlier request with this client token made, as long as the token is known."""
    known = [one for one in redrives[-TOKENS:] if token is not None and one.token == token]
    return next((one for one in known if now_ms - one.at_ms <= TOKEN_MS), None)
