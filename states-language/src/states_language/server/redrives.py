"""Decides whether an execution can be redriven, and which earlier answer a repeated request gets.

Invariants: DescribeExecution says REDRIVABLE of exactly those executions that RedriveExecution takes, and
REDRIVABLE_BY_MAP_RUN of exactly those that a redrive of their parent runs again.
"""

from dataclasses import dataclass

from states_language.place import PERIOD_MS, TOO_MANY_EVENTS, Part, open_map_runs

DAY_MS = 86_400_000
LONGEST_MS = 365 * DAY_MS
TOKENS = 10
TOKEN_MS = 15 * 60_000
"""How many client tokens are known, and for how long. Source: RedriveExecution in the API reference."""

NOT_KEPT = "Where the execution stood is not known, because the local service ended while it ran"
OF_MAP_RUN = "The execution is redriven by its Map Run: redrive the execution that started that"
NOT_OPEN = "The Map Run is not open in the execution that started it"
NOT_ENDED = ("RUNNING", "SUCCEEDED", "PENDING_REDRIVE")
TOO_LONG, TOO_OLD = "Execution history event limit exceeded", "Execution redrivable period exceeded"


@dataclass(frozen=True)
class Redrive:
    """One redrive: when, and the client token of its request."""

    at_ms: int
    token: str | None = None


def open_runs(part: Part | None) -> frozenset[str] | None:
    """Returns the Map Runs that a redrive redrives; None where it is not known where the execution stood."""
    return None if part is None else frozenset(open_map_runs(part))


def reason(
    *, status: str, started_ms: int, stopped_ms: int, now_ms: int, events: int, deleting: bool, is_kept: bool
) -> str | None:
    """Returns why an execution cannot be redriven, in AWS's words where it has them; None where it can.

    events: the length of its history. is_kept: whether it is known where it stood.
    """
    reasons = (
        (deleting, "State machine is in DELETING status"),
        (events >= TOO_MANY_EVENTS, TOO_LONG),
        (now_ms - started_ms >= LONGEST_MS, "Execution has exceeded the max execution time"),
        (now_ms - stopped_ms > PERIOD_MS, TOO_OLD),
        (not is_kept, NOT_KEPT),
    )
    return not_ended(status) or next((text for holds, text in reasons if holds), None)


def not_ended(status: str) -> str | None:
    """Returns why an execution of this status cannot be redriven: it runs, is about to, or has succeeded."""
    return f"Execution is {status} and cannot be redriven" if status in NOT_ENDED else None


def repeated(redrives: list[Redrive], token: str | None, now_ms: int) -> Redrive | None:
    """Returns the redrive that an earlier request with this client token made, as long as the token is known."""
    known = [one for one in redrives[-TOKENS:] if token is not None and one.token == token]
    return next((one for one in known if now_ms - one.at_ms <= TOKEN_MS), None)
