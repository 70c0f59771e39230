"""Decides how events, lease, cursor and ledger look as items of DynamoDB; both ways, and pure.

Invariant: reading what was written gives it back; an item that an older or a newer release wrote is read by the
attributes it has.
"""

from datetime import datetime
from typing import Any

from handlers.handover.lease import Lease
from handlers.handover.ledger import Gap, Record
from handlers.stream.events import StreamEvent
from handlers.stream.signals import Progress

Item = dict[str, Any]

# DynamoDB: "The maximum item size in DynamoDB is 400 KB, which includes both attribute name binary length (UTF-8
# length) and attribute value lengths".
MAX_ITEM_BYTES = 400 * 1024
# "The size of a number is approximately ... up to 21 bytes."
_NUMBER_BYTES = 21


def number(value: int) -> Item:
    """The value as a number of DynamoDB's."""
    return {"N": str(value)}


def key(stream_id: str, sort_key: str) -> Item:
    """The key of an item of either table."""
    return {"PK": {"S": stream_id}, "SK": {"S": sort_key}}


def connection_key(fence: int) -> str:
    """The sort key of a connection's record; records sort by their fence."""
    return f"connection#{fence:012d}"


def event_item(stream_id: str, fence: int, count: int, event: StreamEvent) -> Item:
    """The item of an event. `position` sorts events by when they came, then by connection, then by `count`."""
    item = key(stream_id, event.key)
    item["data"] = {"S": event.data} if isinstance(event.data, str) else {"B": event.data}
    item["received_at_ms"] = number(event.received_at_ms)
    item["fence"] = number(fence)
    item["position"] = {"S": f"{event.received_at_ms:015d}/{fence:012d}/{count:012d}"}
    item |= {name: {"S": text} for name, text in (("id", event.id), ("name", event.name)) if text is not None}
    return item


def mark(item: Item, reason: str) -> Item:
    """What stands in the table in place of an event that went to the dead-letter queue: all but what the wire sent."""
    kept = {name: value for name, value in item.items() if name not in ("data", "id", "name")}
    return kept | {"dead_letter": {"S": reason}}


def size_bytes(item: Item) -> int:
    """The item's size as DynamoDB counts it, never too small."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: dict[str, Any]) -> int:
    (kind, content), *_ = value.items()
    if kind == "N":
        return _NUMBER_BYTES
    return len(content) if isinstance(content, bytes) else len(content.encode())


def text(item: Item, name: str) -> str | None:
    """The text of an attribute; None where the item has none of that name."""
    value: str | None = item.get(name, {}).get("S")
    return value


def lease(item: Item) -> Lease:
    """The lease of an item; what is absent is as in an empty lease."""

    def count(name: str) -> int:
        return int(item.get(name, {}).get("N", "0"))

    return Lease(
        fence=count("fence"),
        connected=count("connected"),
        released=count("released"),
        expires_at_ms=count("expires_at_ms"),
        execution=text(item, "execution") or "",
        generation=count("generation"),
        stop=item.get("stop", {}).get("BOOL", False) is True,
        holder=text(item, "holder") or "",
        started_at_ms=_instant_ms(text(item, "started_at")),
        ending=text(item, "ending") or "",
        ended_at_ms=_instant_ms(text(item, "ended_at")),
    )


def _instant_ms(written: str | None) -> int:
    """The milliseconds of an instant as the machine writes it, 2026-01-01T00:00:00.000Z; 0 where there is none."""
    return round(datetime.fromisoformat(written).timestamp() * 1000) if written else 0


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
    }
    found = {name: {"S": value} for name, value in texts.items()} | {"resumed": {"BOOL": progress.resumed}}
    return found | {name: number(value) for name, value in numbers.items() if value is not None}


def record(item: Item) -> Record | None:
    """What a connection's record says of gaps; None where it was never answered."""
    if "opened_ms" not in item:
        return None
    return Record(
        fence=int(item["fence"]["N"]),
        opened_ms=int(item["opened_ms"]["N"]),
        seen_ms=int(item["seen_ms"]["N"]),
        closed_ms=int(item["closed_ms"]["N"]) if "closed_ms" in item else None,
        ended_by=text(item, "ended_by") or "",
        resumed=item.get("resumed", {}).get("BOOL", False) is True,
    )


def gap(stream_id: str, found: Gap) -> Item:
    """The item of a gap; gaps sort by the connection that ended them."""
    return key(stream_id, f"gap#{found.fence:012d}") | {
        "from_ms": number(found.from_ms),
        "to_ms": number(found.to_ms),
        "cause": {"S": found.cause},
        "closed_by_cursor": {"BOOL": found.closed_by_cursor},
    }
