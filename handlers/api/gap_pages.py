"""Builds one page of the gaps of a stream, from its first start on.

Old ones are written down; of the newest connections the gaps are computed, as for the status, because a connection that
was killed wrote none and one that caught up changes what was written. Invariants: a gap is on one page of a walk, and
the gap that nobody has ended yet on the last, without a position; what the status shows of a gap is what this shows.
"""

import re
from collections.abc import Sequence
from typing import Any

from handlers.api import gaps
from handlers.api.connection_records import OVER, Connections
from handlers.api.queries import Listing, PageRequest
from handlers.connection import ledger
from handlers.connection.ledger import Gap
from handlers.store.control_items import GAP, gap_key

LIMIT, MOST = 100, 1000
_POSITION = re.compile(r"[0-9]{12}(?:/[0-9]{6})?")
LISTING = Listing(
    _POSITION, "a position as a gap has it: 12 digits, perhaps / and 6 digits", LIMIT, MOST, is_timed=True
)


def sort_key(position: str) -> str:
    """The sort key that a position stands for; "" for the beginning."""
    return f"{GAP}{position.replace('/', '#')}" if position else ""


def page(
    stream_id: str, status: str, connections: Connections, written: Sequence[tuple[str, Gap]],
    request: PageRequest,
) -> dict[str, Any]:  # fmt: skip
    """The answer: {"stream", "gaps", "next"}; `next` is None where nothing more was there.

    `written` are those that are written down behind the position, by their sort keys, one more than the limit where
    there are so many. A page has fewer than the limit where some are of another time.
    """
    missed, pending, shown_records = gaps.known_gaps(status, connections)
    after, rows = sort_key(request.after), dict(written)
    last = max(rows, default="") if len(rows) > request.limit else "~"
    # What an upstream announced is written down alone; from when on, is known better by now.
    losses = {key: gap for key, gap in rows.items() if key.count("#") > 1 and not gap.is_refused}
    rows |= zip(losses, ledger.corrected(losses.values(), shown_records), strict=True)
    rows |= {key: gap for gap in missed if after < (key := gap_key(gap)) <= last}
    keys = sorted(rows)
    shown = [
        gaps.shown_gap(gap) | {"position": _position(key)}
        for key in keys[: request.limit]
        if _is_of(gap := rows[key], request)
    ]
    if len(keys) > request.limit:
        return {"stream": stream_id, "gaps": shown, "next": _position(keys[request.limit - 1])}
    shown += [gaps.shown_gap(gap) | {"to_at": None, "position": None} for gap in pending if _is_of(gap, request)]
    return {"stream": stream_id, "gaps": shown, "next": None}


def _position(key: str) -> str:
    return key.removeprefix(GAP).replace("#", "/")


def _is_of(gap: Gap, request: PageRequest) -> bool:
    """Whether any of the gap lies in the time that is asked for; that a stream was stopped is no gap."""
    return gap.cause not in OVER and gap.from_ms < request.to_ms and gap.to_ms >= request.from_ms
