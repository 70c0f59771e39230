"""Builds records of a stream, and the API's answer made of them, for the tests of the API's answers."""

from collections.abc import Sequence
from typing import Any

from handlers.api.connection_records import Connection, Records
from handlers.api.last_error import Retries
from handlers.api.status import answer
from handlers.connection.backoff import Backoff
from handlers.connection.gap_record import Gap
from handlers.connection.lease import Lease

MINE, OTHER = "arn:mine", "arn:other"
NOW = 1_000_000
DEAD_AFTER_MS = 8_000
RETRIES = Retries(25_000, 300_000)
NO_REST = Backoff()


def connection(fence: int, lane: str, opened_ms: int | None, closed_ms: int | None = None, **more: Any) -> Connection:
    """Return a record of a connection; without an end it was saved just now."""
    start = opened_ms if opened_ms is not None else more.pop("claimed_ms")
    fields: dict[str, Any] = {
        "execution": MINE,
        "request_id": f"request-{fence}",
        "claimed_ms": start,
        "seen_ms": NOW if closed_ms is None else closed_ms,
        "ended_by": "" if closed_ms is None else "taken_over",
        "resumed": True,
    }
    return Connection(fence=fence, lane=lane, opened_ms=opened_ms, closed_ms=closed_ms, **(fields | more))


def shown(
    *connections: Connection,
    cursor: str | None = None,
    saved_ms: int | None = None,
    losses: Sequence[Gap] = (),
    rest: Backoff = NO_REST,
    is_all: bool = True,
    kept_since_ms: int = 0,
    damage: tuple[str, ...] = (),
    keeps_ms: int = 0,
    is_once: bool = False,
    **lease: Any,
) -> Any:
    """Return the answer for the stream `demo`; the newest connection holds the lease unless the lease differs."""
    fence = max((one.fence for one in connections), default=0)
    fields: dict[str, Any] = {"execution": MINE, "generation": 1, "fence": fence, "connected_token": fence}
    held = Lease(**(fields | {"expires_at_ms": NOW + 1} | lease))
    records = Records(
        held, cursor, saved_ms, connections, losses, rest, is_all, kept_since_ms, damage,
        upstream_keeps_ms=keeps_ms, is_once=is_once,
        repairs=[(loss, loss.repair) for loss in losses if loss.repair is not None],
    )  # fmt: skip
    return answer("demo", records, NOW, DEAD_AFTER_MS, RETRIES)
