"""Builds what `GET /connections/{streamId}/cost` shows: about what a stream has cost since it was last started.

It multiplies what the records say, hours and stored events, by the rates that `python -m local.costs.cost_pages` writes
into rates.json: the cost model's amounts for the stage `prod`. Where the records do not reach back to the start, the
events before them are taken to have come as often as those after. Invariant: it is called an estimate, and says by
what.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from handlers.api.connection_records import Connections, Records
from handlers.api.gaps import reaches_start
from handlers.api.instants import at
from handlers.connection.inputs import LOG, Order

RATES = Path(__file__).with_name("rates.json")
HOUR_MS, MILLION = 3_600_000, 1_000_000


@cache
def rates() -> dict[str, Any]:
    """The rates: `stream_hour_usd`, `million_events_usd` by how events are stored, and of what they are."""
    read: dict[str, Any] = json.loads(RATES.read_text(encoding="utf-8"))
    return read


def answer(
    stream_id: str, records: Records, partitions: int, order: Order, now_ms: int, dead_after_ms: int
) -> dict[str, Any]:
    """The whole answer; amounts are US dollars, 0 for a stream that was never connected."""
    connections, lease = Connections(records, now_ms, dead_after_ms), records.lease
    to_ms = now_ms if lease.execution or not lease.ended_at_ms else lease.ended_at_ms
    hours = max(0, to_ms - lease.started_at_ms) / HOUR_MS if lease.started_at_ms else 0.0
    run = connections.since_start()
    events = sum(one.stored for one in run)
    if run and not reaches_start(connections, records):
        shown_ms = max(1, to_ms - run[0].claimed_ms)
        events = round(events * max(1.0, (to_ms - lease.started_at_ms) / shown_ms))
    stored = "log" if partitions == LOG else "items without an order" if order == "none" else "items"
    table = rates()
    connected_usd = hours * table["stream_hour_usd"]
    events_usd = events / MILLION * table["million_events_usd"][stored]
    return {
        "stream": stream_id,
        "from_at": at(lease.started_at_ms or None),
        "to_at": at(to_ms),
        "about_usd": round(connected_usd + events_usd, 6),
        "parts": {"connected_usd": round(connected_usd, 6), "events_usd": round(events_usd, 6)},
        "hours": round(hours, 3),
        "events": events,
        "stored_as": stored,
        "rates": table,
    }
