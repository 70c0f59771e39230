"""Says what the milliseconds of a gap after a death went into, from the execution's history and the function's log.

    told    from the end of the function, as its upstream saw it, until its Task failed; below 0 where that came first
    rest    until its lane entered the next Task: a cool-down after several deaths in a row, else nothing
    start   until the next function had its event and logged so: a cold start, and the wait for a free core
    open    until the upstream answered it: claim, turn, request

All times are milliseconds of the wall clock. Invariant: the four parts of a death are its gap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

FAILED, ENTERED = "TaskFailed", "TaskStateEntered"
# A history and a log have whole milliseconds.
ROUNDED_MS = 1


@dataclass(frozen=True)
class Death:
    """A death as the benchmark saw it: when it sent the signal, and when the upstream had nobody and had the next."""

    signalled_ms: float
    closed_ms: float
    opened_ms: float

    @property
    def gap_ms(self) -> float:
        """How long nobody was connected."""
        return self.opened_ms - self.closed_ms


@dataclass(frozen=True)
class Parts:
    """What a gap consists of, in milliseconds."""

    told: float
    rest: float
    start: float
    open: float

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name):.0f}" for field in fields(self))


def parts(death: Death, kind: str, history: Sequence[Mapping[str, Any]], started_ms: Iterable[float]) -> Parts | None:
    """Return the parts; None where the machine was not told of a death of this kind, so that nothing proved it.

    `history` is the stream's, and `started_ms` are the instants at which its functions had their events.
    """
    for event in history:
        if event["type"] != FAILED or event["taskFailedEventDetails"]["error"] != kind:
            continue
        failed_ms = _ms(event)
        if death.signalled_ms - ROUNDED_MS <= failed_ms <= death.opened_ms:
            entered_ms = _next_entry_ms(history, event)
            last_ms = max((at_ms for at_ms in started_ms if at_ms <= death.opened_ms), default=entered_ms)
            # Where the other lane opened, its function had started before.
            last_ms = max(last_ms, entered_ms)
            return Parts(
                failed_ms - death.closed_ms, entered_ms - failed_ms, last_ms - entered_ms, death.opened_ms - last_ms
            )
    return None


def _next_entry_ms(history: Sequence[Mapping[str, Any]], failed: Mapping[str, Any]) -> float:
    """Return when the lane whose Task failed entered its state again; the failure's time where it did not."""
    by_id = {event["id"]: event for event in history if event["execution"] == failed["execution"]}
    entry = failed
    while entry["type"] != ENTERED:
        entry = by_id[entry["previousEventId"]]
    name = entry["stateEnteredEventDetails"]["name"]
    entries = (
        _ms(event)
        for event in by_id.values()
        if event["type"] == ENTERED and event["id"] > failed["id"] and event["stateEnteredEventDetails"]["name"] == name
    )
    return min(entries, default=_ms(failed))


def _ms(event: Mapping[str, Any]) -> float:
    return float(event["timestamp"].timestamp() * 1000)
