"""Estimates what a stream has cost since it was last started, and what a month of it costs, in US dollars.

The rates are those of `streamkeeper cost` for the stage `prod` (rates.json, which local/costs/cost_pages.py writes):
the price list is read in one place only. Streams of a group share its function's hours. Invariant: a cost is called an
estimate, and names the rates behind it.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from handlers.api.answers import to_iso
from handlers.api.connection_records import Connections, Records
from handlers.api.figures import has_all_since_start

RATES = Path(__file__).with_name("rates.json")
HOUR_MS, MILLION, MONTH_HOURS = 3_600_000, 1_000_000, 730


@cache
def rates() -> dict[str, Any]:
    """Returns the rates, and what they are for.

    `stream_hour_usd` is for a stream with a function of its own, `shared_hour_usd` the part of it that the streams of a
    group share, and `million_events_usd` has a rate for each way to store events.
    """
    read: dict[str, Any] = json.loads(RATES.read_text(encoding="utf-8"))
    return read


def cost(stream_id: str, records: Records, now_ms: int, dead_after_ms: int) -> dict[str, Any]:
    """Estimates what a stream has cost since it was last started, in US dollars; 0 if it was never started.

    If the records do not reach back to the start, earlier events are assumed to have come as often as later ones. A
    month is forecast from all that time; a stream that no execution holds costs only its storage. A start that replaced
    a dead execution is no new one: the connections before it count.
    """
    connections, lease = Connections(records, now_ms, dead_after_ms), records.lease
    to_ms = now_ms if lease.execution or not lease.ended_at_ms else lease.ended_at_ms
    run, from_ms = connections.since_start(), lease.started_at_ms
    if run and run[0].claimed_ms:
        from_ms = min(from_ms, run[0].claimed_ms)
    hours = max(0, to_ms - from_ms) / HOUR_MS if from_ms else 0.0
    events = sum(one.stored for one in run)
    if run and not has_all_since_start(connections, records):
        shown_ms = max(1, to_ms - run[0].claimed_ms)
        events = round(events * max(1.0, (to_ms - from_ms) / shown_ms))
    table = rates()
    connected_usd = hours * (table["stream_hour_usd"] - table["shared_hour_usd"] * (1 - 1 / records.group_size))
    events_usd = events / MILLION * table["million_events_usd"][records.storage_form]
    month_usd = (connected_usd + events_usd) / hours * MONTH_HOURS if hours and lease.execution else 0.0
    return {
        "stream": stream_id,
        "from_at": to_iso(from_ms or None),
        "to_at": to_iso(to_ms),
        "about_usd": round(connected_usd + events_usd, 6),
        "forecast_month_usd": round(month_usd, 2),
        "parts": {"connected_usd": round(connected_usd, 6), "events_usd": round(events_usd, 6)},
        "hours": round(hours, 3),
        "events": events,
        "stored_as": records.storage_form,
        "rates": table,
    }


def bill(stream_id: str, records: Records, now_ms: int, dead_after_ms: int) -> dict[str, Any] | None:
    """Returns a short form of it for the status; None if the stream was never started."""
    if not records.lease.started_at_ms:
        return None
    whole = cost(stream_id, records, now_ms, dead_after_ms)
    names = {"since_at": "from_at", "so_far_usd": "about_usd", "forecast_month_usd": "forecast_month_usd"}
    return {name: whole[of] for name, of in names.items()}
