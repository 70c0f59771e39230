"""Builds what `GET /connections/{streamId}/timeline` shows: what each lane had in the last hour, and the gaps.

It is what a picture of the two lanes is drawn from. Invariants: a connection of which nobody knows whether it still
runs ends where it was last heard of; the gaps are those of the status.
"""

from __future__ import annotations

from typing import Any

from handlers.api import gaps, status_words
from handlers.api.connection_records import Connection, Connections, Records
from handlers.api.instants import at

WINDOW_MS = 3_600_000


def answer(stream_id: str, records: Records, now_ms: int, dead_after_ms: int) -> dict[str, Any]:
    """The whole answer; `to_at` is the server's clock, by which a page that follows sets its own."""
    connections = Connections(records, now_ms, dead_after_ms)
    from_ms = now_ms - WINDOW_MS
    covered = gaps.coverage(status_words.status(connections), connections, records)
    earliest = at(from_ms) or ""
    return {
        "stream": stream_id,
        "from_at": at(from_ms),
        "to_at": at(now_ms),
        "connections": [
            _shown(one, connections) for one in connections.all if _end_ms(one, connections) >= from_ms
        ],
        "gaps": [
            gap for gap in (covered["gaps"] if covered else ()) if gap["to_at"] is None or gap["to_at"] >= earliest
        ],
    }  # fmt: skip


def _shown(one: Connection, connections: Connections) -> dict[str, Any]:
    """`opened_at` is null where it was never answered, `until_at` the end, or now while the connection is open."""
    return {
        "lane": one.lane,
        "fence": one.fence,
        "claimed_at": at(one.claimed_ms or one.opened_ms),
        "opened_at": at(one.opened_ms),
        "until_at": at(_end_ms(one, connections)),
        "is_open": one in connections.open,
        "ended_by": connections.cause(one) or None,
        "stored": one.stored,
        "duplicates": one.duplicates,
        "dead_lettered": one.dead_lettered,
    }


def _end_ms(one: Connection, connections: Connections) -> int:
    if one in connections.open:
        return connections.now_ms
    return one.last_ms if one.closed_ms is not None else max(one.opened_ms or 0, one.seen_ms)
