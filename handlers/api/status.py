"""Builds what `GET /connections/{streamId}` shows, and a page of all streams, each with the main part of that.

It has only the records of the control table. It cannot ask whether an execution or a function still runs; it knows only
for how long neither has written anything. Invariants: the answer follows only from the records and the instant; nothing
that may still run is called dead; streams are in the order of their ids, so one that exists throughout is exactly once
in a walk over the pages.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from handlers.api import gaps, status_words
from handlers.api.answers import to_iso
from handlers.api.bill import bill
from handlers.api.connection_records import OVER, UNHEARD, Connection, Connections, Records
from handlers.api.figures import Coverage, coverage, length_ms
from handlers.api.last_error import Retries, last_error, last_failed
from handlers.api.queries import Listing
from handlers.api.verdict import Situation, dead_letter_words, lost_words, verdict
from handlers.connection.failures import STUCK_AFTER
from handlers.connection.gap_record import LOST
from handlers.connection.spending import DAY_MS
from handlers.profile.addresses import STREAM_ID_LENGTH

# The lanes of statemachines/connections.asl.yml; one that has not connected yet has no record.
LANES = ("A", "B")
# For a stream that is well, this takes a twentieth of a request to the table, and a hundredth of one for its lease.
LIMIT, MOST = 100, 1000
LISTING = Listing(re.compile(rf"[^\0-\x1f]{{1,{STREAM_ID_LENGTH}}}"), "a stream id", LIMIT, MOST)
# `GET` of the stream shows more: its cursor and its newest connections.
SHOWN = (
    *("stream", "status", "verdict", "since_at", "since_before_at", "reason", "execution", "group", "generation"),
    *("fence", "started_at", "stop_requested_at", "ended_at", "holder", "last_event_at", "events_per_s", "open_gaps"),
    *("open_gaps_at_least", "ids_restarted_at", "last_error"),
)


def answer(
    stream_id: str,
    records: Records,
    now_ms: int,
    dead_after_ms: int,
    retries: Retries,
    *,
    is_brief: bool = False,
    whole: Coverage | None = None,
) -> dict[str, Any]:
    """Returns the answer about a stream as JSON; if `is_brief`, the verdict covers its newest connection alone.

    A connection other than the holder counts as open until it was silent for longer than `dead_after_ms`. Instants are
    texts in UTC; lengths are milliseconds. handlers/api/status_words.py lists the statuses. With `whole`, the verdict
    says what is missing there.
    """
    connections = Connections(records, now_ms, dead_after_ms)
    lease, holder, cursor = records.lease, connections.holder, records.cursor
    status = status_words.status(connections)
    error, stuck = last_error(status, connections, records.rest, retries), _stuck_cursor(status, connections, records)
    covered = coverage(status, connections, records)
    # The status is that of a lease without the unreadable attributes.
    damage = f"its lease cannot be read whole: {', '.join(records.damage)}" if records.damage else ""
    unwell = status_words.alert_words(status, connections, records)
    trouble = damage or _stuck_words(stuck) or (unwell.partition(" for ")[0] if is_brief else unwell)
    losses = "" if status != "running" or covered is None else lost_words(covered) or dead_letter_words(covered)
    fault = _fault(status, error)
    reasons = (damage, status_words.reason(status, connections), _stuck_words(stuck), fault, unwell, losses)
    since_ms, at_least = _since_ms(status, connections, covered)
    why, for_ms = _reason(status, connections), None if since_ms is None else max(0, now_ms - since_ms)
    has_connected = covered is not None or lease.connected_token > 0
    situation = Situation(status, why, for_ms, at_least, has_connected, trouble, is_brief, records.upstream_keeps_ms)
    return {
        "stream": stream_id,
        "status": status,
        "verdict": verdict(situation, whole or covered),
        "since_at": to_iso(None if at_least else since_ms),
        "since_before_at": to_iso(since_ms if at_least else None),
        "reason": next(filter(None, reasons), None),
        "execution": lease.execution or None,
        **({"group": records.group} if records.group else {}),
        "generation": lease.generation,
        "fence": lease.fence,
        "started_at": to_iso(lease.started_at_ms or None),
        "stop_requested_at": to_iso(lease.stop_at_ms or None) if lease.stop else None,
        "ended_at": to_iso(lease.ended_at_ms or None) if not lease.execution else None,
        "holder": holder and {"lane": holder.lane, "fence": holder.fence, "request_id": holder.request_id},
        "lanes": _lanes(status, connections),
        "cursor": None if cursor is None else {"value": cursor, "saved_at": to_iso(records.cursor_saved_ms)},
        "coverage": None if covered is None else covered.as_json(),
        "open_gaps": 0 if covered is None else sum(gap.state != LOST for gap in covered.missing),
        "open_gaps_at_least": covered is not None and not covered.reaches_start,
        **_pace(connections, records),
        "stuck_at_cursor": stuck,
        "budget": _budget(records, now_ms),
        "bill": None if is_brief else bill(stream_id, records, now_ms, dead_after_ms),
        "counts": gaps.counts(connections),
        "last_error": error,
    }


def _fault(status: str, error: Mapping[str, Any] | None) -> str:
    """Returns the error for which the stream is away; "" if it is not away, or nothing failed."""
    is_failing = status == "reconnecting" and error is not None and error["over_at"] is None
    return str(error["message"]) if is_failing and error is not None else ""


def _pace(connections: Connections, records: Records) -> dict[str, Any]:
    """Returns when the last new event came, the usual pace, and when ids started over."""
    silence, stored = status_words.silence(connections, records), sum(one.stored for one in connections.all)
    # Connected time counts once, however many connections are open: in a hot standby two are.
    open_ms = length_ms((one.opened_ms, one.last_ms) for one in connections.all if one.opened_ms is not None)
    return {
        "last_event_at": to_iso(silence.event_ms),
        # Less than a second shows no pace: a killed connection may have recorded only its first instant.
        "events_per_s": round(stored * 1000 / open_ms, 3) if open_ms >= 1000 else None,
        "pace": {
            "silent_ms": None if silence.event_ms is None else max(0, connections.now_ms - silence.event_ms),
            "usual_every_ms": open_ms // stored if stored else None,
            "longest_pause_ms": silence.longest_ms,
            "quiet_after_ms": silence.limit_ms(),
        },
        "ids_restarted_at": to_iso(records.epoch.since_ms or None),
    }


def _budget(records: Records, now_ms: int) -> dict[str, Any] | None:
    """Returns what the stream has stored of its budget today; None if it has none."""
    spending = records.spending
    if spending is None:
        return None
    today, paused_ms = spending.for_day(now_ms // DAY_MS), records.lease.paused_until_ms
    return {
        "day_at": to_iso(today.day * DAY_MS),
        "events": today.events,
        "bytes": today.bytes,
        "left_out": today.left_out,
        "events_per_day": today.most_events or None,
        "bytes_per_day": today.most_bytes or None,
        "used_percent": int(100 * today.share),
        "of": today.owner,
        "then": today.then,
        "paused_until_at": to_iso(paused_ms) if paused_ms > now_ms else None,
    }


def _stuck_cursor(status: str, connections: Connections, records: Records) -> dict[str, Any] | None:
    """Returns the cursor at which the last connections all ended in the same way; None if one got beyond it."""
    newest, ends = connections.newest, records.rest.same_ends
    if ends < STUCK_AFTER or status not in status_words.ACTIVE or newest is None or newest.stored:
        return None
    # A connection that was never answered, or is open, shows nothing about the cursor.
    last = next((one for one in reversed(connections.all) if one.opened_ms is not None and one.ended_by), None)
    return {"value": records.cursor, "same_ends": ends, "ended_by": None if last is None else last.ended_by}


def _stuck_words(stuck: dict[str, Any] | None) -> str:
    if stuck is None:
        return ""
    words = (stuck["ended_by"] or "the same end").replace("_", " ")
    return f"{stuck['same_ends']} connections in a row got nothing beyond the cursor: {words}"


def _reason(status: str, connections: Connections) -> str:
    """Returns the reason for the verdict; "" for a stream that is well."""
    failed = last_failed(connections)
    is_refused = connections.lease.ending == "StreamRejected" and failed is not None and failed.is_rejected
    if failed is not None and (status == "reconnecting" or (status == "rejected" and is_refused)):
        return status_words.short(connections.cause(failed), failed)
    if status == "unknown":
        return status_words.reason(status, connections) or ""
    return status_words.end_reason(status, connections)


def _since_ms(status: str, connections: Connections, covered: Coverage | None) -> tuple[int | None, bool]:
    """Returns since when the stream has its status, None if these records do not say; and whether it may be longer."""
    lease = connections.lease
    if status == "running" and covered is not None:
        # The control record does not know it: it saw each predecessor a heartbeat before its successor opened.
        since_ms = covered.connected_since_ms
        return since_ms, since_ms == covered.since_ms and not covered.reaches_start
    if status == "reconnecting" and covered is not None:
        return covered.to_ms if covered.away is None else covered.away.from_ms, False
    known = dict.fromkeys(("stopping", "stopped"), lease.stop_at_ms) | {"starting": lease.started_at_ms}
    # If it was connected before, these records do not have the instant.
    known["reconnecting"] = 0 if lease.connected_token else lease.started_at_ms
    known |= dict.fromkeys(("ended", "rejected", "broken"), lease.ended_at_ms)
    return known.get(status) or None, False


def _lanes(status: str, connections: Connections) -> dict[str, Any]:
    """Returns each lane's phase and its last connection, by lane."""
    lease, newest = connections.lease, {one.lane: one for one in connections.all}
    names = sorted({*newest, *(LANES if lease.execution else ())})
    lanes = {
        name: {"phase": _phase(status, connections, newest.get(name)), **_connection_json(newest.get(name))}
        for name in names
    }
    # A claim without a record: this lane's function is opening the stream.
    lane, last = lease.holder.partition("/")[0], connections.newest
    if lane in lanes and status in status_words.ACTIVE and lease.fence > (last.fence if last is not None else 0):
        lanes[lane]["phase"] = "connecting"
    return lanes


def _phase(status: str, connections: Connections, last: Connection | None) -> str:
    if last is not None and last in connections.open:
        return "connected"
    if status not in status_words.ACTIVE:
        return status
    # A connection from before the last start does not count for a lane that has not connected since.
    if last is None or last.ended_by == "taken_over" or not connections.is_of_this_start(last):
        return "waiting"
    if connections.cause(last) == UNHEARD:
        return UNHEARD
    return "ending" if last.ended_by in OVER else "reconnecting"


def _connection_json(last: Connection | None) -> dict[str, Any]:
    if last is None:
        return {}
    return {
        "fence": last.fence,
        "opened_at": to_iso(last.opened_ms),
        "seen_at": to_iso(last.seen_ms),
        "closed_at": to_iso(last.closed_ms),
        "ended_by": last.ended_by or None,
    }


def page(
    stream_ids: Iterable[str],
    read: Callable[[str], Records | None],
    limit: int,
    now_ms: int,
    dead_after_ms: int,
    retries: Retries,
    is_late: Callable[[], bool],
    lag: Callable[[str], int | None] = lambda _: None,
) -> dict[str, Any]:
    """Returns {"streams", "next"}; `next` is None after the last id. `lag` returns a stream's lag in milliseconds.

    It has up to `limit` streams, and fewer if it is late, but passes at least one id. A stream whose records are gone
    by now is left out.
    """
    streams: list[dict[str, Any]] = []
    ids = list(stream_ids)
    for count, stream_id in enumerate(ids, 1):
        records = read(stream_id)
        if records is not None:
            stream = answer(stream_id, records, now_ms, dead_after_ms, retries, is_brief=True)
            streams.append({name: stream[name] for name in SHOWN if name in stream} | {"lag_ms": lag(stream_id)})
        if count < len(ids) and (count == limit or is_late()):
            return {"streams": streams, "next": stream_id}
    return {"streams": streams, "next": None}
