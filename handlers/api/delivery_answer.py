"""Builds what `GET /connections/{streamId}` shows of a stream's delivery: a row for each sink.

Invariants: while an event waits the lag grows with the time, though nobody writes it; a sink that the profile names no
more waits for nothing.
"""

import tomllib
from pathlib import Path
from typing import Any

from handlers.api.instants import at
from handlers.profile.checked_fields import Fields
from handlers.profile.deliver_field import targets
from handlers.store.delivery_records import DeliveryRecord


def sinks(profile: Path) -> frozenset[str]:
    """What stands in records for the sinks that a profile's file names; none where it is not there or not TOML.

    Where the field is wrong, "" is among them: what waits for that stands under no sink's name.
    """
    try:
        table = tomllib.loads(profile.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset()
    fields = Fields(profile.stem, table, [])
    labels = frozenset(target.label for target in targets(fields))
    return labels | {""} if fields.problems else labels


def row(record: DeliveryRecord, now_ms: int) -> dict[str, Any]:
    """What is known of one sink."""
    return {
        "sink": record.sink,
        "delivered": record.delivered,
        "failed": record.failed,
        "dead_lettered": record.dead_lettered,
        "lag_ms": lag_ms(record, now_ms),
        "waits": record.waits or None,
        "seen_at": at(record.at_ms or None),
        "newest_received_at": at(record.newest_ms or None),
    }


def lag_ms(record: DeliveryRecord, now_ms: int) -> int:
    """How far the sink is behind: the age of what waits, or what the last delivery took from arrival on."""
    return record.lag_ms + (max(0, now_ms - record.at_ms) if record.waits else 0)
