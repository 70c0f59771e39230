"""Turns lease, cursor and ledger into items of DynamoDB and back.

Pure. Invariant: reading what was written returns it; an item that an older or a newer release wrote is read by the
attributes it has.
"""

from datetime import datetime
from typing import Any

from handlers.connection import ledger
from handlers.connection.backoff import Rest
from handlers.connection.effects import Progress, RecordLoss
from handlers.connection.lease import Lease
from handlers.connection.ledger import Gap, Record

Item = dict[str, Any]
DAY_S = 86_400


def number(value: int) -> Item:
    """The value as a number of DynamoDB's."""
    return {"N": str(value)}


def key(stream_id: str, sort_key: str) -> Item:
    """The key of an item of either table."""
    return {"PK": {"S": stream_id}, "SK": {"S": sort_key}}


def connection_key(fence: int) -> str:
    """The sort key of a connection's record; records sort by their fencing token."""
    return f"connection#{fence:012d}"


def text(item: Item, name: str) -> str | None:
    """The text of an attribute; None where the item has none of that name."""
    value: str | None = item.get(name, {}).get("S")
    return value


def count(item: Item, name: str) -> int | None:
    """The whole number of an attribute; None where the item has none of that name."""
    return int(item[name]["N"]) if name in item else None


def lease(item: Item) -> Lease:
    """The lease of an item; what is absent is as in an empty lease."""

    return Lease(
        fence=count(item, "fence") or 0,
        connected_token=count(item, "connected") or 0,
        released_token=count(item, "released") or 0,
        expires_at_ms=count(item, "expires_at_ms") or 0,
        execution=text(item, "execution") or "",
        generation=count(item, "generation") or 0,
        stop=item.get("stop", {}).get("BOOL", False) is True,
        holder=text(item, "holder") or "",
        started_at_ms=_instant_ms(text(item, "started_at")),
        ending=text(item, "ending") or "",
        ended_at_ms=_instant_ms(text(item, "ended_at")),
        ending_cause=text(item, "ending_cause") or "",
        stop_at_ms=_instant_ms(text(item, "stop_at")),
    )


def _instant_ms(written: str | None) -> int:
    """The milliseconds of an instant as the machine writes it, 2026-01-01T00:00:00.000Z; 0 where there is none."""
    return round(datetime.fromisoformat(written).timestamp() * 1000) if written else 0


def expiry(from_ms: int, keep_days: int) -> Item:
    """The attribute that lets an item expire so many days later; none where `keep_days` is 0."""
    return {"expires_at": number(from_ms // 1000 + keep_days * DAY_S)} if keep_days else {}


def partitions(item: Item) -> int:
    """Over how many partition keys a stream's events are spread, as its lease says: one where it says nothing."""
    return int(item.get("partitions", {}).get("N", "1"))


def connection(progress: Progress, *, lane: str, execution: str, request_id: str) -> Item:
    """The attributes of a connection's record, without its key; an instant that has not come is absent."""
    texts = {"lane": lane, "execution": execution, "request_id": request_id, "ended_by": progress.ended_by}
    numbers: dict[str, int | None] = {
        "fence": progress.fence,
        "claimed_ms": progress.claimed_ms,
        "opened_ms": progress.opened_ms,
        "seen_ms": progress.seen_ms,
        "closed_ms": progress.closed_ms,
        "frames": progress.frames,
        "bytes": progress.bytes,
        "stored": progress.stored,
        "duplicates": progress.duplicates,
        "dead_lettered": progress.dead_lettered,
        "unterminated_bytes": progress.unterminated_bytes,
        "reach_ms": progress.reach_ms,
        "since_ms": progress.since_ms,
        "live_ms": progress.live_ms,
        "forgot_ms": progress.forgot_ms,
        "saved_ms": progress.saved_ms,
        "deadline_ms": progress.deadline_ms,
        # Mostly there is none.
        "conflicts": progress.conflicts or None,
        "http_status": progress.http_status or None,
    }
    if progress.ended_by:
        texts |= {"error": progress.error, "detail": progress.detail}
    attributes = {name: {"S": value} for name, value in texts.items()} | {"resumed": {"BOOL": progress.resumed}}
    return attributes | {name: number(value) for name, value in numbers.items() if value is not None}


def records(item: Item) -> list[Record]:
    """What a connection's record says of gaps; nothing where it was never answered."""
    seen_ms = count(item, "seen_ms") or 0
    record = Record(
        fence=count(item, "fence") or 0,
        opened_ms=seen_ms,
        seen_ms=seen_ms,
        closed_ms=count(item, "closed_ms"),
        ended_by=text(item, "ended_by") or "",
        resumed=item.get("resumed", {}).get("BOOL", False) is True,
        reach_ms=count(item, "reach_ms"),
        since_ms=count(item, "since_ms"),
        live_ms=count(item, "live_ms"),
    )
    return ledger.records(record, count(item, "opened_ms"), count(item, "forgot_ms"))


def gap(stream_id: str, interval: Gap) -> Item:
    """The item of a gap; gaps sort by the connection that ended them, and then by what it said."""
    sort_key = f"gap#{interval.fence:012d}" + ("#000000" if interval.is_refused else "")
    return key(stream_id, sort_key) | {
        "from_ms": number(interval.from_ms),
        "to_ms": number(interval.to_ms),
        "cause": {"S": interval.cause},
        "closed_by_cursor": {"BOOL": interval.closed_by_cursor},
    }


def loss(stream_id: str, announced: RecordLoss) -> Item:
    """The item of a gap that the upstream announced; it sorts behind the gap that the same connection ended."""
    return key(stream_id, f"gap#{announced.fence:012d}#{announced.number:06d}") | {
        "from_ms": number(announced.from_ms),
        "to_ms": number(announced.to_ms),
        "cause": {"S": announced.cause},
        "closed_by_cursor": {"BOOL": False},
    }


def lost(item: Item) -> Gap | None:
    """The gap that the upstream announced; None where the item is of one that follows from the connections."""
    _, fence, *number = item["SK"]["S"].split("#")
    if not number or not int(number[0]):
        return None
    return Gap(int(fence), count(item, "from_ms") or 0, count(item, "to_ms") or 0, text(item, "cause") or "", False)


def rest_of(item: Item) -> Rest:
    """What is known of an upstream's failures, as the item says; nothing where there is none."""
    return Rest(
        kind=text(item, "kind") or "",
        failures=count(item, "failures") or 0,
        until_ms=count(item, "until_ms") or 0,
        reconnection_ms=count(item, "reconnection_ms") or 0,
        same_ends=count(item, "same_ends") or 0,
        same_end=text(item, "same_end") or "",
    )


def rest(owed: Rest) -> Item:
    """The attributes of what is known of an upstream's failures, without its key."""
    return {
        "kind": {"S": owed.kind},
        "failures": number(owed.failures),
        "until_ms": number(owed.until_ms),
        "reconnection_ms": number(owed.reconnection_ms),
        "same_ends": number(owed.same_ends),
        "same_end": {"S": owed.same_end},
    }
