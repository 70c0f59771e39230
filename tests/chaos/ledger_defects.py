"""Deliberate defects of the ledger: gaps that are told as closed, and gaps that are invented.

`chaos_defects.py` lists them with the others. They decide nothing else. Invariant: each differs from the sound code in
what its docstring says.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from handlers.connection import ledger
from handlers.connection.effects import RecordLoss, ReplaceCursor
from handlers.connection.liveness import Liveness
from handlers.connection.record import Record
from handlers.connection.steps import Step
from handlers.errors import StoreUnavailable
from handlers.store.ledger_records import LedgerRecords
from handlers.store.requests import Request, Requests
from tests.chaos.defect import Defect
from tests.chaos.defect_schedules import (
    CUT_OFF,
    DEAD_PEER,
    LOST_ANSWERS,
    TWO_OUTAGES,
    forgets,
    has_losses,
    leaves_the_default,
)

SETTLED, END_MS, REQUESTS_OF = ledger._settled, ledger.Record.end_ms, Requests.of
PUT_GAP = LedgerRecords._put_gap
# By more than two clocks differ.
TOO_EARLY_MS = 2_500


def by_its_length(records: Iterable[ledger.Record]) -> list[ledger.Record]:
    """What was asked for is as old as the end of the connection before, however far that had come."""
    settled: list[ledger.Record] = []
    covered_ms: int | None = None
    for record in sorted(SETTLED(records), key=lambda record: (record.opened_ms, record.fence)):
        settled.append(record if covered_ms is None else replace(record, since_ms=covered_ms, live_ms=None))
        covered_ms = max(record.last_ms, covered_ms or 0)
    return settled


def never_behind(_record: ledger.Record, _at_ms: int) -> int:
    """A connection has caught up as soon as it is answered."""
    return 0


def from_its_opening(record: ledger.Record) -> int:
    """A connection brings what happens while it is connected, whatever it asked for."""
    return record.opened_ms


def alone(records: Iterable[ledger.Record]) -> list[ledger.Record]:
    """Nobody looks at whether another was connected until a default resume was answered."""
    return [replace(record, joined_ms=None) for record in SETTLED(records)]


def over_any_hole(records: Iterable[ledger.Record]) -> list[ledger.Record]:
    """A default resume counts as heeded, though nobody was connected before it."""
    return [replace(record, joined_ms=0) for record in SETTLED(records)]


def ends_early(record: ledger.Record, now_ms: int, dead_after_ms: int) -> int | None:
    """A connection that is closed counts until a while before."""
    end_ms = END_MS(record, now_ms, dead_after_ms)
    return end_ms if end_ms is None else max(record.opened_ms, end_ms - TOO_EARLY_MS)


def lost_since_the_opening(record: Record, now_ms: int, heard_ms: int) -> RecordLoss:
    """What the upstream says that it lost was lost since it last said something, whenever it was asked."""
    record._losses += 1
    return RecordLoss(record.fence, record._losses, heard_ms, now_ms, "announced_by_upstream")


def heard_until_its_end(record: ledger.Record) -> int:
    """A connection that was silent is taken for one that heard all until its end."""
    return record.last_ms


def heard_in_halves(_liveness: Liveness, _before_ms: int, **_framed: bool) -> None:
    """What came of a frame that has not ended counts as if it were whole."""


def gives_up_first(requests: Requests, step: Step) -> list[Request]:
    """The cursor is given up first, though it passes what is lost."""
    made = REQUESTS_OF(requests, step)
    return made[::-1] if isinstance(step, ReplaceCursor) else made


def gives_up_all_the_same(requests: Requests, step: Step) -> list[Request]:
    """The cursor is given up though the ledger has not answered, and perhaps says nothing of it."""
    made = REQUESTS_OF(requests, step)
    return [_unanswered(made[0]), *made[1:]] if isinstance(step, ReplaceCursor) else made


def _unanswered(request: Request) -> Request:
    def quietly() -> None:
        with contextlib.suppress(StoreUnavailable):
            request()

    return quietly


def never_revised(ledger: LedgerRecords, item: Any, before: Any) -> None:
    """What was written down of a gap stays as it was."""
    if before is None:
        PUT_GAP(ledger, item, before)


# What is replaced, and by what.
LEDGER: dict[str, tuple[str, Callable[..., Any] | property]] = {
    "a gap is closed by its length": ("handlers.connection.ledger._settled", by_its_length),
    "one that broke off counts as caught up": ("handlers.connection.ledger.Record.behind_ms", never_behind),
    "the cursor closes no gap": ("handlers.connection.ledger.Record.from_ms", property(from_its_opening)),
    "a default resume that is relieved leaves a gap": ("handlers.connection.ledger._settled", alone),
    "a default resume counts as heeded": ("handlers.connection.ledger._settled", over_any_hole),
    "a handover is told as a gap": ("handlers.connection.ledger.Record.end_ms", ends_early),
    "a loss is told from the opening": ("handlers.connection.record.Record.lost", lost_since_the_opening),
    "a silent connection counts as heard": (
        "handlers.connection.ledger.Record.silent_from_ms",
        property(heard_until_its_end),
    ),
    "half an event counts as heard": ("handlers.connection.liveness.Liveness.framed", heard_in_halves),
    "the cursor is given up before the ledger says so": ("handlers.store.requests.Requests.of", gives_up_first),
    "the cursor is given up though the ledger says nothing": (
        "handlers.store.requests.Requests.of",
        gives_up_all_the_same,
    ),
}


OF_THE_LEDGER = [
    Defect(
        "half an event counts as heard",
        {"lost"},
        function=LEDGER["half an event counts as heard"],
        like=CUT_OFF,
    ),
    Defect(
        "a gap is closed by its length",
        {"lost"},
        function=LEDGER["a gap is closed by its length"],
        like=TWO_OUTAGES,
    ),
    Defect(
        "one that broke off counts as caught up",
        {"lost"},
        function=LEDGER["one that broke off counts as caught up"],
        like=TWO_OUTAGES,
    ),
    Defect(
        "the cursor closes no gap",
        {"invented"},
        function=LEDGER["the cursor closes no gap"],
        among=lambda schedule: schedule.resumes,
    ),
    Defect(
        "a default resume that is relieved leaves a gap",
        {"invented"},
        function=LEDGER["a default resume that is relieved leaves a gap"],
        among=lambda schedule: leaves_the_default(schedule) and schedule.policy == "evicts" and schedule.renews,
    ),
    Defect(
        "a default resume counts as heeded",
        {"lost"},
        function=LEDGER["a default resume counts as heeded"],
        among=lambda schedule: leaves_the_default(schedule) and not schedule.resumes,
    ),
    Defect(
        "a gap's item is never revised",
        {"unrecorded-gaps"},
        function=("handlers.store.ledger_records.LedgerRecords._put_gap", never_revised),
        like=TWO_OUTAGES,
    ),
    Defect(
        "a handover is told as a gap",
        {"invented"},
        function=LEDGER["a handover is told as a gap"],
        among=lambda schedule: not schedule.resumes,
    ),
    Defect(
        "a loss is told from the opening",
        {"lost"},
        function=LEDGER["a loss is told from the opening"],
        among=has_losses,
    ),
    Defect(
        "the cursor is given up before the ledger says so",
        {"cursor-ahead"},
        function=LEDGER["the cursor is given up before the ledger says so"],
        among=lambda schedule: forgets(schedule) and schedule.memory.word == "status",
    ),
    Defect(
        "the cursor is given up though the ledger says nothing",
        {"cursor-ahead"},
        function=LEDGER["the cursor is given up though the ledger says nothing"],
        like=LOST_ANSWERS,
    ),
    Defect(
        "a silent connection counts as heard",
        {"lost"},
        function=LEDGER["a silent connection counts as heard"],
        like=DEAD_PEER,
    ),
]
