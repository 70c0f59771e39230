"""Writes the ledger of a stream and reads its items: a record for each connection, and the gaps between connections.

A connection's record is written at its end. While it is the newest connected one, the control record shows it
(`control_record.py`); after a kill its successor writes it. Any write may be sent twice and may arrive late; each is
made so that this changes nothing. Invariant: a record with an end is replaced only by one with the same end, and never
by an earlier one.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from handlers.connection import evidence
from handlers.connection.effects import Progress, RecordLoss
from handlers.connection.evidence import Record
from handlers.connection.gap_record import DELIVERED, LOST, OPEN, Gap, Repair
from handlers.connection.inputs import GapsRecorded
from handlers.connection.ledger import find_gaps, is_delivered_elsewhere, is_unfounded, unrequested_gaps
from handlers.group import GROUP
from handlers.store import typed_values
from handlers.store.control_table import IS_NEW, Table
from handlers.store.typed_values import DAY_S, Item, has_expired, item_key, number_value, read_as, read_int

# The prefix of the sort keys of gaps.
GAP = "gap#"


def connection_key(fence: int) -> str:
    """Returns the sort key of a connection's record; records sort by their fencing tokens."""
    return f"connection#{fence:012d}"


def connection_item(progress: Progress, *, lane: str, execution: str, request_id: str) -> Item:
    """Returns the attributes of a connection's record, without its key; an instant that has not come is absent."""
    texts = {"lane": lane, "execution": execution, "request_id": request_id, "ended_by": progress.ended_by}
    # Usually there is no conflict, nothing left out and no HTTP status.
    numbers = {name: getattr(progress, name) for name in _NUMBERS} | {
        name: getattr(progress, name) or None for name in ("conflicts", "left_out", "missing", "http_status")
    }
    if progress.spending:
        texts["spending"] = progress.spending
    if progress.ended_by:
        texts |= {"error": progress.error, "detail": progress.detail}
    attributes = {name: {"S": value} for name, value in texts.items()} | {"resumed": {"BOOL": progress.resumed}}
    return attributes | {name: number_value(value) for name, value in numbers.items() if value is not None}


def records_of(item: Item) -> list[Record]:
    """Returns the records that a connection adds to the ledger; none if it was never answered."""
    record = read_as(Record, item, opened_ms=read_int(item, "seen_ms") or 0)
    return evidence.records(record, read_int(item, "opened_ms"), read_int(item, "forgot_ms"))


def has_caught_up(item: Item) -> bool:
    """Returns whether the connection had caught up, by its record."""
    return all(record.has_caught_up for record in records_of(item))


def gap_item(stream_id: str, interval: Gap) -> Item:
    """Returns the item of a gap; gaps sort by the connection that ended them, then by its announcements."""
    return item_key(stream_id, gap_key(interval)) | {
        "from_ms": number_value(interval.from_ms),
        "to_ms": number_value(interval.to_ms),
        "cause": {"S": interval.cause},
        "state": {"S": interval.state},
        **({} if interval.events is None else {"events": number_value(interval.events)}),
    }


def gap_key(interval: Gap) -> str:
    """Returns the sort key of a gap; an announced gap sorts after the gap that the same connection ended."""
    return f"{GAP}{interval.fence:012d}" + ("" if interval.number is None else f"#{interval.number:06d}")


def gap_of(item: Item) -> Gap:
    """Returns the gap of an item, announced or not."""
    _, fence, *number = item["SK"]["S"].split("#")
    return read_as(Gap, item, fence=int(fence), number=int(number[0]) if number else None, repair=repair_of(item))


def repair_of(item: Item) -> Repair | None:
    """Returns the repair in the gap's record; None if none has begun."""
    written: Item | None = item.get("repair", {}).get("M")
    return None if written is None else read_as(Repair, written, stamp=read_int(item, "repair_stamp") or 0)


def repair_value(repair: Repair) -> Item:
    """Returns the repair as an attribute, without empty fields; its stamp is another attribute."""
    field_values = {one.name: getattr(repair, one.name) for one in fields(Repair) if one.name != "stamp"}
    plain = {name: value for name, value in field_values.items() if value not in (None, "", False)}
    return {
        "M": {
            name: {"BOOL": value} if value is True else {"S": value} if isinstance(value, str) else number_value(value)
            for name, value in plain.items()
        }
    }


def loss_item(stream_id: str, announced: RecordLoss) -> Item:
    """Returns the item of a gap that the upstream announced."""
    span = announced.from_ms, announced.to_ms
    return gap_item(stream_id, Gap(announced.fence, *span, announced.cause, LOST, announced.number, announced.count))


def without_defaults(item: Item) -> Item:
    """Returns a connection's record without zeros and empty texts: each byte of it is kept for long."""
    return {name: value for name, value in item.items() if name not in _ABSENT or value != _ABSENT[name]}


def live_record(item: Item) -> Item | None:
    """Returns the ledger record, as attributes, of the connection that the control record shows; None without one."""
    shown: Item | None = item.get("live", {}).get("M")
    if shown is None or read_int(shown, "fence") is None or read_int(shown, "seen_ms") is None:
        return None
    return _ABSENT | shown


def with_live_record(rows: Sequence[Item], shown: Item | None) -> list[Item]:
    """Returns the ledger's records after the newest connection's, which the ledger itself has only from its end on."""
    if shown is None or any(row.get("fence") == shown["fence"] and "closed_ms" in row for row in rows):
        return list(rows)
    is_gap = (row["SK"]["S"].startswith("gap#") for row in rows)
    shown = {"SK": {"S": connection_key(read_int(shown, "fence") or 0)}} | shown
    return [shown, *(row for row, gap in zip(rows, is_gap, strict=True) if gap or row["fence"] != shown["fence"])]


_TEXTS = ("lane", "execution", "request_id", "ended_by")
# These are needed only while the connection is connected, so only the control record has them.
_OF_SILENCE = ("pause_ms", "expect_ms")
_COUNTS = ("frames", "bytes", "stored", "duplicates", "dead_lettered", "unterminated_bytes")
_NUMBERS = (
    *("fence", "claimed_ms", "opened_ms", "seen_ms", "closed_ms", *_COUNTS),
    *("reach_ms", "since_ms", "live_ms", "forgot_ms", "saved_ms", "deadline_ms", "heard_ms"),
    *("event_ms", "stopped_ms", "started_ms", *_OF_SILENCE),
)
_ABSENT: Item = {name: {"S": ""} for name in _TEXTS} | {name: {"N": "0"} for name in _COUNTS}
# How many earlier connections are searched for gaps that are not recorded.
SEARCHED_CONNECTIONS = 25
# How many if none of those was answered or recorded gaps: 400 tries are three hours of an outage with two lanes.
MOST_SEARCHED = 400


def _certain_ms(records: Sequence[Record], *, is_cut: bool) -> int:
    """Returns after when it is certain from these connections when a gap began; 0 if there are no older ones.

    `is_cut` is whether older ones exist. An older connection may have lasted longer than the one after it, and two
    lanes make two connections at a time.
    """
    # Nothing is older than the first connection.
    if not is_cut or any(record.fence == 1 for record in records):
        return 0
    return max(record.last_ms for record in sorted(records, key=evidence.fence_order)[:2])


class LedgerRecords:
    """The ledger of all streams; records expire after `keep_days`, 0 for never."""

    def __init__(self, dynamodb: Any, table: str, keep_days: int) -> None:
        self._table = Table(dynamodb, table)
        self._keep_days = keep_days

    def save(self, stream_id: str, record: Item) -> bool:
        """Returns whether a connection's record was written: False if a later one of this connection is there."""
        seen_ms = typed_values.read_int(record, "seen_ms") or 0
        record = without_defaults({name: value for name, value in record.items() if name not in (*_OF_SILENCE, "row")})
        record |= typed_values.expiry(seen_ms, self._keep_days)
        closed: dict[str, Any] = {} if "closed_ms" in record else {"closed_ms": -1}
        # There is no record, or it is no later than this one; and a closed one is replaced only by one with the same
        # close.
        condition = (
            "attribute_not_exists(#seen_ms) OR "
            "(#seen_ms <= :seen_ms AND (attribute_not_exists(#closed_ms) OR #closed_ms = :closed_ms))"
        )
        place = item_key(stream_id, connection_key(read_int(record, "fence") or 0))
        # Once the upstream has shown that it goes back to the cursor, a record has no `reach_ms` any more.
        return self._table.set_attributes(place, record, condition, remove=[*{"reach_ms"} - record.keys()], **closed)

    def record_gaps(
        self,
        stream_id: str,
        now_ms: int,
        dead_after_ms: int,
        own: Item,
        gaps_recorded_by: int,
        on_open: Callable[[], None] | None = None,
        *,
        has_open_gap: bool = False,
    ) -> GapsRecorded:
        """Records the gaps between the last connections, and whether each is closed by now.

        `own` is the calling connection's record, which the ledger need not have yet. A connection that is killed too
        soon records no gaps, so the next one searches for the earlier ones too. It goes back to before connection
        `gaps_recorded_by`, the last one that recorded gaps as far as the control record knows (0: none), or to one that
        certainly has. `on_open` is called before a gap is written in which events may be missing. An open gap that was
        none after all becomes delivered. With `has_open_gap` the connection has recorded an open gap before, so that is
        checked even if no gap is left.
        """
        rows = self._rows_to_search(stream_id, gaps_recorded_by, dead_after_ms)
        # DynamoDB deletes expired records in any order, and a missing one would look like a gap between its neighbours.
        rows = [own, *(row for row in rows if row["fence"] != own["fence"] and not has_expired(row, now_ms))]
        records = [record for row in rows for record in records_of(row)]
        shown = find_gaps(records, now_ms, dead_after_ms)
        # A connection that was relieved before it had caught up may have left an open gap that its successor has ended
        # since. So may one that had claimed before this one and was answered after it.
        fence, began_ms = read_int(own, "fence") or 0, read_int(own, "opened_ms") or now_ms
        is_late = any(record.fence < fence and record.opened_ms > began_ms for record in records)
        is_told = any(read_int(row, "missing") for row in rows)
        is_doubtful = has_open_gap or is_late or is_told or not all(map(has_caught_up, rows[1:]))
        # Otherwise, while the stream is down, a put of each known gap would be refused, one after the other.
        recorded = self._gaps_to_check(stream_id, rows) if shown or is_doubtful else []
        known = {item["SK"]["S"]: item for item in recorded}
        begin_ms = _certain_ms(records, is_cut=len(rows) >= SEARCHED_CONNECTIONS)
        for gap in shown:
            item = gap_item(stream_id, gap)
            key = item["SK"]["S"]
            # So many announced losses may lie in between that the gap is not among the items read.
            before = known.get(key) or self._table.get(stream_id, key)
            if before is None and gap.from_ms <= begin_ms and gap.fence <= gaps_recorded_by:
                # Connection `gaps_recorded_by` had read an older connection that lasted longer, so there was no gap.
                continue
            if before is not None and gap.from_ms <= begin_ms:
                # The gap's writer had read older records, so it knew better when and why it began.
                item |= {name: before[name] for name in ("from_ms", "cause")}
            # A proved gap stays proved: its writer may have read a newer connection's record.
            is_known = any(one.items() <= (before or {}).items() for one in (item, item | {"state": {"S": DELIVERED}}))
            if not is_known:
                if on_open is not None and gap.state != DELIVERED:
                    on_open()
                self._put_gap(item | typed_values.expiry(gap.to_ms, self._keep_days), before)
        gaps_recorded = [gap_of(item) for item in recorded]
        # The losses of older connections were not all read.
        told_since = gaps_recorded[-1].fence if len(gaps_recorded) >= SEARCHED_CONNECTIONS else 0
        for gap, item in zip(gaps_recorded, recorded, strict=True):
            if is_unfounded(gap, shown, records) or is_delivered_elsewhere(gap, gaps_recorded, records, told_since):
                self._put_gap(item | {"state": {"S": DELIVERED}}, item)
        is_open = any(gap.fence == fence and gap.state == OPEN for gap in shown)
        return GapsRecorded(len(unrequested_gaps(shown, records, fence)), is_open)

    def _rows_to_search(self, stream_id: str, gaps_recorded_by: int, dead_after_ms: int) -> list[Item]:
        """Returns the last connections, back to one that was answered and before which all gaps are recorded.

        An outage has many tries and a gap before them. The connection before that gap may have been killed too soon to
        record the gap before itself. A connection records gaps after `dead_after_ms`, so one that went on for twice as
        long after it had caught up certainly has. The control record does not know of every search: a group's function
        writes it seldom.
        """

        def is_enough(oldest: Item) -> bool:
            return any(
                record.fence < gaps_recorded_by
                or record.last_ms - max(record.opened_ms, record.live_ms or 0) > 2 * dead_after_ms
                for record in records_of(oldest)
            )

        return self._table.read_back(stream_id, "connection#", SEARCHED_CONNECTIONS, MOST_SEARCHED, is_enough)

    def _gaps_to_check(self, stream_id: str, rows: Sequence[Item]) -> list[Item]:
        """Returns the newest gaps, back to those of the oldest of these connections: each may have announced losses."""
        first = f"{GAP}{min(read_int(row, 'fence') or 0 for row in rows):012d}"
        return self._table.read_back(
            stream_id, GAP, SEARCHED_CONNECTIONS, MOST_SEARCHED, lambda item: item["SK"]["S"] <= first
        )

    def _put_gap(self, item: Item, before: Item | None) -> None:
        """Writes the gap in place of `before`, unless another connection was first; keeps what its repair wrote."""
        if before is None:
            self._table.put(item, IS_NEW)
            return
        place = {name: item[name] for name in ("PK", "SK")}
        attributes = {name: value for name, value in item.items() if name not in place}
        names = ("from_ms", "to_ms", "state")
        condition = " AND ".join(f"#{name} = :old_{name}" for name in names)
        self._table.set_attributes(place, attributes, condition, **{f"old_{name}": before[name] for name in names})

    def record_loss(self, stream_id: str, loss: RecordLoss) -> None:
        """Records a loss that was announced, or that has grown since; what its repair wrote stays."""
        item = loss_item(stream_id, loss)
        place = {name: item.pop(name) for name in ("PK", "SK")}
        self._table.set_attributes(place, item, "attribute_not_exists(#to_ms) OR #to_ms <= :to_ms")

    def read_spending(self, stream_id: str, fence: int) -> str:
        """Returns the stream's budget as a connection left it; "" if it was killed, or has none."""
        row = self._table.get(stream_id, connection_key(fence)) or {}
        return (typed_values.read_text(row, "spending") or "") if typed_values.read_text(row, "ended_by") else ""

    def add_spending(self, spender: str, day: int, events: int, size: int) -> tuple[int, int]:
        """Adds to what the streams of a profile or of the stage have stored on that day; returns the sums."""
        update = "SET #events = if_not_exists(#events, :zero) + :events, #bytes = if_not_exists(#bytes, :zero) + :bytes"
        values = {":zero": 0, ":events": events, ":bytes": size, ":expires_at": (day + 2) * DAY_S}
        place = item_key(GROUP, f"spent#{spender}#{day}")
        typed = {name: number_value(value) for name, value in values.items()}
        _, item = self._table.try_update(place, f"{update}, #expires_at = :expires_at", "", typed)
        return read_int(item or {}, "events") or 0, read_int(item or {}, "bytes") or 0

    def save_repair(self, stream_id: str, gap: Gap, repair: Repair) -> bool:
        """Returns whether the gap's record has the repair now: False if another was written since `repair.stamp`."""
        attributes = {"repair": repair_value(repair), "repair_stamp": repair.stamp + 1}
        condition = "attribute_exists(PK) AND (attribute_not_exists(#repair_stamp) OR #repair_stamp = :before)"
        return self._table.set_attributes(item_key(stream_id, gap_key(gap)), attributes, condition, before=repair.stamp)
