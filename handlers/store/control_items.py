"""Turns lease, cursor and ledger into items of DynamoDB and back.

Pure. Invariant: reading what was written returns it; an item that an older or a newer release wrote is read by the
attributes it has.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from handlers.connection import ledger
from handlers.connection.backoff import Rest
from handlers.connection.effects import Progress, RecordLoss
from handlers.connection.inputs import LOG, MOST_PARTITIONS, Order
from handlers.connection.lease import Lease
from handlers.connection.ledger import Gap, Record

Item = dict[str, Any]
DAY_S = 86_400
# What the sort keys of gaps begin with.
GAP = "gap#"


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
    """The text of an attribute; None where the item has none of that name, or no text there."""
    value: str | None = item.get(name, {}).get("S")
    return value


def count(item: Item, name: str) -> int | None:
    """The whole number of an attribute; None where the item has none of that name, or no whole number there."""
    written = item.get(name, {}).get("N")
    try:
        return None if written is None else int(written)
    except ValueError:
        return None


def lease(item: Item) -> Lease:
    """The lease of an item; what is absent, or cannot be read, is as in an empty lease.

    handlers/store/lease_damage.py says what cannot be read.
    """
    return Lease(
        fence=count(item, "fence") or 0,
        connected_token=count(item, "connected") or 0,
        released_token=count(item, "released") or 0,
        expires_at_ms=count(item, "expires_at_ms") or 0,
        execution=text(item, "execution") or "",
        generation=count(item, "generation") or 0,
        stop=item.get("stop", {}).get("BOOL", False) is True,
        holder=text(item, "holder") or "",
        started_at_ms=instant_ms(text(item, "started_at")) or 0,
        ending=text(item, "ending") or "",
        ended_at_ms=instant_ms(text(item, "ended_at")) or 0,
        ending_cause=text(item, "ending_cause") or "",
        stop_at_ms=instant_ms(text(item, "stop_at")) or 0,
        connected_by=_connected_by(item),
    )


def mark(fence: int, request_id: str) -> Item:
    """What a connection writes beside its token when it is marked as connected."""
    return {"S": f"{fence}/{request_id}"}


def _connected_by(item: Item) -> str:
    """The request of the connection that is connected; "" where the mark does not say."""
    fence, _, request_id = (text(item, "marked") or "").partition("/")
    return request_id if fence == str(count(item, "connected") or 0) else ""


def instant(at_ms: int) -> str:
    """The instant as the machine writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"


def instant_ms(written: str | None) -> int | None:
    """The milliseconds of an instant as the machine writes it, 2026-01-01T00:00:00.000Z; None where it is none."""
    try:
        return round(datetime.fromisoformat(written).timestamp() * 1000) if written else None
    except (ValueError, OverflowError):
        return None


def expiry(from_ms: int, keep_days: int) -> Item:
    """The attribute that lets an item expire so many days later; none where `keep_days` is 0."""
    return {"expires_at": number(from_ms // 1000 + keep_days * DAY_S)} if keep_days else {}


def partitions(item: Item) -> int:
    """Over how many partition keys a stream's events are spread, as its lease says: one where it says nothing.

    LOG where they lie in a log.
    """
    fixed = fixed_partitions(item)
    return 1 if fixed is None else fixed


def fixed_partitions(item: Item) -> int | None:
    """What stands in the lease as `partitions`; None where nothing does, or what no profile can ask for."""
    fixed = count(item, "partitions")
    return fixed if fixed is not None and LOG <= fixed <= MOST_PARTITIONS else None


def order(item: Item) -> Order:
    """Whether all of a stream's items are in the index of the order, as its lease says: they are where it says nothing.

    Once it says "none" some are not, so nobody says otherwise again. A log has no index, and is in order.
    """
    return "none" if text(item, "order") == "none" and partitions(item) != LOG else "index"


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
        "heard_ms": progress.heard_ms,
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
        saved_ms=count(item, "saved_ms") or 0,
        heard_ms=count(item, "heard_ms"),
    )
    return ledger.records(record, count(item, "opened_ms"), count(item, "forgot_ms"))


def gap(stream_id: str, interval: Gap) -> Item:
    """The item of a gap; gaps sort by the connection that ended them, and then by what it said."""
    return key(stream_id, gap_key(interval)) | {
        "from_ms": number(interval.from_ms),
        "to_ms": number(interval.to_ms),
        "cause": {"S": interval.cause},
        "closed_by_cursor": {"BOOL": interval.closed_by_cursor},
    }


def gap_key(interval: Gap) -> str:
    """The sort key of a gap that follows from the connections."""
    return f"{GAP}{interval.fence:012d}" + ("#000000" if interval.is_refused else "")


def recorded_gap(item: Item) -> Gap:
    """The gap of an item, whichever kind it is."""
    _, fence, *number = item["SK"]["S"].split("#")
    return Gap(
        int(fence),
        count(item, "from_ms") or 0,
        count(item, "to_ms") or 0,
        text(item, "cause") or "",
        item.get("closed_by_cursor", {}).get("BOOL", False) is True,
        bool(number) and not int(number[0]),
    )


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


def live(item: Item) -> Item:
    """A connection's record in the ledger as it stands in the control record: a count of nothing is absent."""
    return {"M": lean(item)}


def lean(item: Item) -> Item:
    """A connection's record without what counts nothing and says nothing: each byte of it is kept for long."""
    return {name: value for name, value in item.items() if name not in _ABSENT or value != _ABSENT[name]}


def live_record(item: Item) -> Item | None:
    """The attributes of the ledger's record of the connection that the control record shows; None where it has none."""
    shown: Item | None = item.get("live", {}).get("M")
    if shown is None or count(shown, "fence") is None or count(shown, "seen_ms") is None:
        return None
    return whole(shown)


def whole(item: Item) -> Item:
    """A connection's record with what `lean` left out."""
    return _ABSENT | item


def with_live(rows: Sequence[Item], shown: Item | None) -> list[Item]:
    """The ledger's records with that of the newest connection, first: the ledger has it from its end on."""
    if shown is None or any(row.get("fence") == shown["fence"] and "closed_ms" in row for row in rows):
        return list(rows)
    is_gap = (row["SK"]["S"].startswith("gap#") for row in rows)
    shown = {"SK": {"S": connection_key(count(shown, "fence") or 0)}} | shown
    return [shown, *(row for row, gap in zip(rows, is_gap, strict=True) if gap or row["fence"] != shown["fence"])]


_TEXTS = ("lane", "execution", "request_id", "ended_by")
_COUNTS = ("frames", "bytes", "stored", "duplicates", "dead_lettered", "unterminated_bytes")
_ABSENT: Item = {name: {"S": ""} for name in _TEXTS} | {name: {"N": "0"} for name in _COUNTS}


def known(what: ledger.Known) -> Item:
    """What the ledger says of all connections but the newest, as a list of numbers."""
    numbers = (what.fence, what.at_ms or 0, what.connected_ms, what.until_ms, *chain.from_iterable(what.waits))
    return {"L": [number(value) for value in numbers]}


def known_of(item: Item) -> ledger.Known:
    """What `known` wrote; nothing where there is none, or where it cannot be read."""
    numbers = known_numbers(item)
    if not numbers or not numbers[0]:
        return ledger.Known()
    fence, at_ms, connected_ms, until_ms, *rest = numbers
    waits = tuple(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
    return ledger.Known(fence, at_ms, connected_ms, until_ms, waits)


def known_numbers(item: Item) -> list[int] | None:
    """The numbers that `known` wrote; None where none stand there: four, and three for each that waits."""
    written: list[Item] = item.get("known", {}).get("L", [])
    numbers = [value for one in written if (value := count({"one": one}, "one")) is not None]
    return numbers if len(numbers) == len(written) >= 4 and len(numbers) % 3 == 1 else None


_REST = (
    *("kind", "failures", "until_ms", "reconnection_ms", "same_ends", "same_end"),
    *("refused_since_ms", "final_ms", "tried_ms"),
)


def rest_of(item: Item) -> Rest:
    """What is known of an upstream's failures, as the control record says; nothing where it says nothing."""
    return Rest(
        kind=text(item, "rest_kind") or "",
        failures=count(item, "rest_failures") or 0,
        until_ms=count(item, "rest_until_ms") or 0,
        reconnection_ms=count(item, "rest_reconnection_ms") or 0,
        same_ends=count(item, "rest_same_ends") or 0,
        same_end=text(item, "rest_same_end") or "",
        refused_since_ms=count(item, "rest_refused_since_ms") or 0,
        final_ms=count(item, "rest_final_ms") or 0,
        tried_ms=count(item, "rest_tried_ms") or 0,
    )


def rest(owed: Rest) -> Item:
    """The attributes of the control record that say what is known of an upstream's failures."""
    values = {name: getattr(owed, name) for name in _REST}
    return {f"rest_{name}": {"S": value} if isinstance(value, str) else number(value) for name, value in values.items()}
