"""Counts what a stream's connections wrote, and makes pages of its gaps since its first start.

Old gaps are recorded; those of the newest connections are computed, because a killed connection recorded none, and one
that caught up changes what was recorded. Invariants: counts that are a lower bound, because a connection ended without
its last numbers, say so; each gap is on one page of a walk, and a gap that has not ended yet on the last page, without
a position; the status and a page show the same of a gap.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from handlers.api.connection_records import UNHEARD, Connections
from handlers.api.figures import gap_json, known_gaps
from handlers.api.queries import Listing, PageRequest, pattern_with_parts
from handlers.connection import ledger
from handlers.connection.evidence import UNRECORDED
from handlers.connection.gap_record import DELIVERED, Gap, Repair, apply_repairs
from handlers.store.ledger_records import GAP, gap_key

LIMIT, MOST = 100, 1000
_COUNTED = ("stored", "duplicates", "conflicts", "dead_lettered", "left_out")
_POSITION_IS = "a gap's position: 12 digits, or these with / and 6 digits, or parts~ and theirs"
LISTING = Listing(pattern_with_parts(r"[0-9]{12}(?:/[0-9]{6})?"), _POSITION_IS, LIMIT, MOST, is_timed=True)


def counts(connections: Connections) -> dict[str, Any]:
    """Returns what the newest connections wrote, and how they ended.

    `at_least` is whether they may have written more: the last numbers of one that ended without a record are unknown.
    """
    every = connections.all
    causes = [connections.cause(one) for one in every]
    return {
        "connections": len(every),
        **{name: sum(getattr(one, name) for one in every) for name in _COUNTED},
        "at_least": any(cause in (UNHEARD, UNRECORDED) for cause in causes),
        "ends": dict(sorted(Counter(cause for cause in causes if cause).items())),
    }


def sort_key(position: str) -> str:
    """Returns the sort key of a position; "" for the beginning."""
    return f"{GAP}{position.replace('/', '#')}" if position else ""


def gap_page(
    stream_id: str,
    status: str,
    connections: Connections,
    written: Sequence[tuple[str, Gap]],
    newest: Sequence[tuple[Gap, Repair]],
    request: PageRequest,
) -> dict[str, Any]:
    """Returns the answer: {"stream", "gaps", "next"}; `next` is None if nothing more was there.

    `written` are the recorded gaps after the position, by their sort keys, one more than the limit if there are that
    many. `newest` are the repairs of the newest gaps, which may cover others. A page has fewer than the limit if some
    are of another time.
    """
    missed, away, shown_records = known_gaps(status, connections)
    after, rows = sort_key(request.after), dict(written)
    last = max(rows, default="") if len(rows) > request.limit else "~"
    # A loss that an upstream announced is only recorded, not computed; its beginning is known better by now.
    losses = {key: gap for key, gap in rows.items() if gap.number}
    rows |= zip(losses, ledger.correct_losses(losses.values(), shown_records), strict=True)
    unfounded = {key: gap for key, gap in rows.items() if ledger.is_unfounded(gap, missed, shown_records)}
    rows |= {key: replace(gap, state=DELIVERED) for key, gap in unfounded.items()}
    rows |= {key: gap for gap in missed if after < (key := gap_key(gap)) <= last}
    repairs = {gap_key(gap): (gap, repair) for gap, repair in newest}
    repairs |= {key: (gap, gap.repair) for key, gap in written if gap.repair is not None}
    keys = sorted(rows)
    rows = dict(zip(keys, apply_repairs([rows[key] for key in keys], list(repairs.values())), strict=True))
    shown = [
        gap_json(gap) | {"position": _position(key)}
        for key in keys[: request.limit]
        if _is_within(gap := rows[key], request)
    ]
    if len(keys) > request.limit:
        return {"stream": stream_id, "gaps": shown, "next": _position(keys[request.limit - 1])}
    if away is not None and _is_within(away, request):
        shown.append(gap_json(away, goes_on=away.to_ms >= connections.now_ms) | {"position": None})
    return {"stream": stream_id, "gaps": shown, "next": None}


def _position(key: str) -> str:
    return key.removeprefix(GAP).replace("#", "/")


def _is_within(gap: Gap, request: PageRequest) -> bool:
    """Returns whether any part of the gap is in the requested time."""
    return gap.cause != "ended" and gap.from_ms < request.to_ms and gap.to_ms >= request.from_ms
