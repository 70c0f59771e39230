"""Connections as their records say, and the gaps that the ledger tells of them."""

from typing import Any

from handlers.connection.evidence import Record
from handlers.connection.gap_record import DELIVERED, Gap
from handlers.connection.ledger import gaps

DEAD_AFTER_MS = 5
NOW = 100_000


def connection(fence: int, opened_ms: int, closed_ms: int | None, **more: Any) -> Record:
    """Return a connection that asked from a cursor and closed at a given instant."""
    seen_ms = NOW if closed_ms is None else closed_ms
    return Record(fence, opened_ms, seen_ms, closed_ms, "" if closed_ms is None else "reset", True, **more)


def ledger(*written: Record, now_ms: int = NOW) -> list[Gap]:
    """Return the gaps that the ledger tells."""
    return gaps(list(written), now_ms, DEAD_AFTER_MS)


def open_spans(told: list[Gap]) -> list[tuple[int, int]]:
    """Return from when to when the gaps last that are not delivered."""
    return [(gap.from_ms, gap.to_ms) for gap in told if gap.state != DELIVERED]
