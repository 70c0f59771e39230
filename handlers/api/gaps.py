"""Computes what a stream's connections covered and missed since its last start, and pages of its gaps since its first.

Old gaps are written down; those of the newest connections are computed, because a connection that was killed wrote none
and one that caught up changes what was written. Invariants: what is not known is said: coverage that does not reach
back to the start says so, and so do counts that are a lower bound because a connection ended without its last numbers.
A gap is on one page of a walk, and the gap that nobody has ended yet on the last, without a position; what the status
shows of a gap is what a page shows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from handlers.api.answers import at
from handlers.api.connection_records import OVER, UNHEARD, Connection, Connections, Records
from handlers.api.queries import Listing, PageRequest
from handlers.api.status_words import CLAIMED
from handlers.connection import ledger
from handlers.connection.ledger import OPEN, UNRECORDED, Gap, Record, gaps
from handlers.store.ledger_records import GAP, gap_key

LIMIT, MOST = 100, 1000
_POSITION = re.compile(r"[0-9]{12}(?:/[0-9]{6})?")
LISTING = Listing(
    _POSITION, "a position as a gap has it: 12 digits, perhaps / and 6 digits", LIMIT, MOST, is_timed=True
)


def coverage(status: str, connections: Connections, records: Records) -> dict[str, Any] | None:
    """What the connections since the last start covered; None where none was answered."""
    run = connections.since_start()
    shown_records = [record for one in run for record in _records(connections, one)]
    if not shown_records:
        return None
    if len(run) < len(connections.all) or (shown_records[0].since_ms or 0) < records.lease.started_at_ms:
        # What came before the start is no gap: the stream was stopped.
        shown_records[0] = replace(shown_records[0], since_ms=None)
    now_ms = connections.now_ms
    missed = gaps(shown_records, now_ms, connections.dead_after_ms)
    openings = [record.opened_ms for record in shown_records]
    ends = [now_ms if record.closed_ms is None else record.closed_ms for record in shown_records]
    from_ms, to_ms = min([*openings, *(gap.from_ms for gap in missed)]), max(ends)
    pending = _pending(status, connections, shown_records)
    to_ms = max([to_ms, *(gap.to_ms for gap in pending)])
    losses = ledger.corrected((loss for loss in records.losses if loss.fence >= run[0].fence), shown_records)
    shown = sorted([*missed, *losses], key=lambda gap: gap.from_ms)
    # A loss may lie in a gap, or before the start from which coverage counts.
    gap_ms = _length_ms((max(gap.from_ms, from_ms), min(gap.to_ms, to_ms)) for gap in [*shown, *pending])
    length_ms = max(1, to_ms - from_ms)
    return {
        "from_at": at(from_ms),
        "to_at": at(to_ms),
        "reaches_start": reaches_start(connections, records),
        "connected_since_at": at(max((gap.to_ms for gap in missed), default=from_ms)) if connections.open else None,
        "connections": sum(one.opened_ms is not None for one in run),
        # Rounded down: only what has no gap is 100.
        "percent": (length_ms - gap_ms) * 1_000_000 // length_ms / 10_000,
        "overlap_ms": _overlap_ms(zip(openings, ends, strict=True)),
        "gap_ms": gap_ms,
        "gaps": [shown_gap(gap) for gap in shown] + [shown_gap(gap) | {"to_at": None} for gap in pending],
    }


def known_gaps(status: str, connections: Connections) -> tuple[list[Gap], list[Gap], list[Record]]:
    """The gaps between the newest connections, the one that nobody has ended yet, and what both follow from."""
    shown_records = [record for one in connections.all for record in _records(connections, one)]
    if not shown_records:
        return [], [], []
    # What came before the oldest of them is written down.
    shown_records[0] = replace(shown_records[0], since_ms=None)
    missed = gaps(shown_records, connections.now_ms, connections.dead_after_ms)
    return missed, _pending(status, connections, shown_records), shown_records


def _pending(status: str, connections: Connections, shown_records: list[Record]) -> list[Gap]:
    """The gap of which the end is not known yet; it is shown as None."""
    ends = [connections.now_ms if record.closed_ms is None else record.closed_ms for record in shown_records]
    to_ms = max(ends)
    last = shown_records[ends.index(to_ms)]
    if status in CLAIMED and not connections.open and last.ended_by not in OVER:
        return [Gap(0, to_ms, connections.now_ms, last.ended_by, OPEN)]
    return []


def reaches_start(connections: Connections, records: Records) -> bool:
    """Whether every connection since the last start is among these.

    It is where an older one is among them too, from before the start; else where no older record was left out or has
    expired since.
    """
    if len(connections.since_start()) < len(connections.all):
        return True
    return records.is_all and records.kept_since_ms <= records.lease.started_at_ms


def counts(connections: Connections) -> dict[str, Any]:
    """What the newest connections wrote, and how they ended.

    `at_least` is whether they may have written more: the last numbers of one that ended without a record are unknown.
    """
    every = connections.all
    causes = [connections.cause(one) for one in every]
    return {
        "connections": len(every),
        "stored": sum(one.stored for one in every),
        "duplicates": sum(one.duplicates for one in every),
        "conflicts": sum(one.conflicts for one in every),
        "dead_lettered": sum(one.dead_lettered for one in every),
        "at_least": any(cause in (UNHEARD, UNRECORDED) for cause in causes),
        "ends": dict(sorted(Counter(cause for cause in causes if cause).items())),
    }


def _records(connections: Connections, one: Connection) -> list[Record]:
    """The connection as the ledger's rules need it; one that is not known to be open closed when it was last seen."""
    opened_ms = one.seen_ms if one.opened_ms is None else one.opened_ms
    closed_ms = one.closed_ms
    if closed_ms is None and one not in connections.open:
        closed_ms = max(opened_ms, one.seen_ms)
    record = Record(
        one.fence,
        opened_ms,
        one.seen_ms,
        closed_ms,
        one.ended_by or ("" if one in connections.open else UNRECORDED),
        one.resumed,
        one.reach_ms,
        one.since_ms,
        one.live_ms,
        saved_ms=one.saved_ms or 0,
    )
    return ledger.records(record, one.opened_ms, one.forgot_ms)


def shown_gap(gap: Gap) -> dict[str, Any]:
    """A gap as JSON takes it."""
    return {
        "from_at": at(gap.from_ms),
        "to_at": at(gap.to_ms),
        "length_ms": gap.to_ms - gap.from_ms,
        "cause": gap.cause,
        "state": gap.state,
    }


def _length_ms(intervals: Iterable[tuple[int, int]]) -> int:
    """How long any of them lasted."""
    total = 0
    until_ms = 0
    for from_ms, to_ms in sorted(intervals):
        total += max(0, to_ms - max(from_ms, until_ms))
        until_ms = max(until_ms, to_ms)
    return total


def _overlap_ms(intervals: Iterable[tuple[int, int]]) -> int:
    """How long two or more were open at once."""
    known = list(intervals)
    return sum(max(0, to_ms - from_ms) for from_ms, to_ms in known) - _length_ms(known)


def sort_key(position: str) -> str:
    """The sort key that a position stands for; "" for the beginning."""
    return f"{GAP}{position.replace('/', '#')}" if position else ""


def gap_page(
    stream_id: str, status: str, connections: Connections, written: Sequence[tuple[str, Gap]],
    request: PageRequest,
) -> dict[str, Any]:  # fmt: skip
    """The answer: {"stream", "gaps", "next"}; `next` is None where nothing more was there.

    `written` are those that are written down behind the position, by their sort keys, one more than the limit where
    there are so many. A page has fewer than the limit where some are of another time.
    """
    missed, pending, shown_records = known_gaps(status, connections)
    after, rows = sort_key(request.after), dict(written)
    last = max(rows, default="") if len(rows) > request.limit else "~"
    # What an upstream announced is written down alone; from when on, is known better by now.
    losses = {key: gap for key, gap in rows.items() if gap.number}
    rows |= zip(losses, ledger.corrected(losses.values(), shown_records), strict=True)
    rows |= {key: gap for gap in missed if after < (key := gap_key(gap)) <= last}
    keys = sorted(rows)
    shown = [
        shown_gap(gap) | {"position": _position(key)}
        for key in keys[: request.limit]
        if _is_of(gap := rows[key], request)
    ]
    if len(keys) > request.limit:
        return {"stream": stream_id, "gaps": shown, "next": _position(keys[request.limit - 1])}
    shown += [shown_gap(gap) | {"to_at": None, "position": None} for gap in pending if _is_of(gap, request)]
    return {"stream": stream_id, "gaps": shown, "next": None}


def _position(key: str) -> str:
    return key.removeprefix(GAP).replace("#", "/")


def _is_of(gap: Gap, request: PageRequest) -> bool:
    """Whether any of the gap lies in the requested time; a stream that was stopped has no gap for it."""
    return gap.cause not in OVER and gap.from_ms < request.to_ms and gap.to_ms >= request.from_ms
