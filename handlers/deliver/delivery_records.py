"""Counts in the control table what was delivered of a stream to each of its sinks.

A record's key is the stream's id and `delivery#<sink>`. The counts are of deliveries: what was sent twice counts twice.
Invariant: a count only grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from handlers.store import typed_values
from handlers.store.control_table import Table

PREFIX = "delivery#"
# A profile has a few sinks; older ones may have left a record.
MOST = 20


class Place(NamedTuple):
    """A stream and where its events go."""

    stream_id: str
    label: str


@dataclass(slots=True)
class Count:
    """What came of a stream's events at one sink; `lag_ms` is the age of the oldest that waits, or of the last taken.

    `newest_ms` is when the newest that was taken had come; `reason` is why the first waits.
    """

    delivered: int = 0
    failed: int = 0
    dead_lettered: int = 0
    lag_ms: int = 0
    newest_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """What is known of a stream at one sink; `waits` is why its next event is not delivered, "" where none waits."""

    sink: str
    delivered: int
    failed: int
    dead_lettered: int
    lag_ms: int
    at_ms: int
    newest_ms: int
    waits: str


def add(dynamodb: Any, table: str, counts: Mapping[Place, Count], now_ms: int) -> None:
    """Adds what came of an invocation; raises StoreUnavailable."""
    for place, count in counts.items():
        values = {":d": count.delivered, ":f": count.failed, ":l": count.dead_lettered, ":now": now_ms}
        values |= {":lag": count.lag_ms} | ({":new": count.newest_ms} if count.newest_ms else {})
        sets = "#lag_ms = :lag, #at_ms = :now, #waits = :waits" + (", #newest_ms = :new" if count.newest_ms else "")
        Table(dynamodb, table).update(
            typed_values.key(place.stream_id, f"{PREFIX}{place.label}"),
            f"ADD #delivered :d, #failed :f, #dead_lettered :l SET {sets}",
            "",
            {name: typed_values.number(value) for name, value in values.items()}
            | {":waits": {"S": count.reason[:500]}},
        )


def read(dynamodb: Any, table: str, stream_id: str) -> list[DeliveryRecord]:
    """The records of a stream by their sinks' names; raises StoreUnavailable."""
    items = Table(dynamodb, table).newest(stream_id, PREFIX, MOST)
    records = (typed_values.read_as(DeliveryRecord, item, sink=item["SK"]["S"][len(PREFIX) :]) for item in items)
    return sorted(records, key=lambda one: one.sink)
