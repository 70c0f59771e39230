"""Records of connections, and the gaps that the ledger derives from them."""

from typing import Any

from handlers.connection.evidence import Record
from handlers.connection.gap_record import DELIVERED, Gap
from handlers.connection.ledger import find_gaps

DEAD_AFTER_MS = 5
NOW = 100_000


def connection(fence: int, opened_ms: int, closed_ms: int | None, **more: Any) -> Record:
    """Return the record of a connection that resumed from a cursor; an open one has no `closed_ms`."""
    seen_ms = NOW if closed_ms is None else closed_ms
    return Record(fence, opened_ms, seen_ms, closed_ms, "" if closed_ms is None else "reset", True, **more)


def ledger(*written: Record, now_ms: int = NOW) -> list[Gap]:
    """Return the gaps that the ledger shows at `now_ms`."""
    return find_gaps(list(written), now_ms, DEAD_AFTER_MS)


def open_spans(told: list[Gap]) -> list[tuple[int, int]]:
    """Return the intervals of the gaps that are not delivered."""
    return [(gap.from_ms, gap.to_ms) for gap in told if gap.state != DELIVERED]
