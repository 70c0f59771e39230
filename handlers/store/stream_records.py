"""Reads a stream's records in the control table, lists the streams, and records the request to stop one.

It serves the control API. Invariants: every read is consistent; for a stream that was never started, only a stop
request is written, and only if the stream may be started; any answer of AWS other than a refused condition raises
`StoreUnavailable`, after the client's own retries.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from handlers.api.connection_records import Connection, Records
from handlers.aws.error_translation import ConditionFailed
from handlers.connection.gap_record import OPEN, REPAIRED, Gap, Repair
from handlers.connection.inputs import LOG, Layout
from handlers.connection.lease import Lease
from handlers.group.group_lease import GroupLease
from handlers.store import control_record, ledger_records
from handlers.store.control_record import ControlRecord, check_lease, damaged_attributes, to_record
from handlers.store.control_table import Table
from handlers.store.group_store import GroupStore, group_lease, live_of_member, member_lease
from handlers.store.leases import NEWEST as FEW
from handlers.store.leases import Leases, RecentConnections
from handlers.store.typed_values import Item, has_expired, item_key, read_as, read_int, read_text

# About a day with 15 minutes a connection, and far below the megabyte at which DynamoDB ends a page.
NEWEST = 100
# A connection's dead letters that were put back: an attribute for each, beside the item's key.
PUT_BACK, _KEY = "redriven#", ("PK", "SK")


class StreamRecords:
    """The control table; the client is made once and shared by all invocations of a sandbox.

    `events_table` has the cursors of streams with a log; "" if no caller needs cursors.
    """

    def __init__(self, dynamodb: Any, control_table: str, events_table: str = "") -> None:
        self.dynamodb = dynamodb
        self._events_table = events_table
        self._control_table = control_table
        self._table = Table(dynamodb, control_table)
        self._leases = Leases(dynamodb, control_table)

    def read(self, stream_id: str) -> Records | None:
        """Returns the stream's records with its newest NEWEST connections and gaps; None if it was never started."""
        lease = self._table.get(stream_id, "lease")
        if lease is None:
            return None
        record = to_record(lease)
        logged_ms = 0
        if record.layout.partitions == LOG and self._events_table:
            # Imported here: few streams have a log, and each import lengthens the cold start.
            from handlers.store.segment_reader import find_segment

            segment = find_segment(Table(self.dynamodb, self._events_table), stream_id)
            record = record.with_log_cursor(None if segment is None else segment.cursor)
            logged_ms = 0 if segment is None else segment.at_ms
        written = self.newest_gaps(stream_id, NEWEST)
        return replace(
            self._to_records(stream_id, lease),
            cursor=record.cursor,
            cursor_saved_ms=record.saved_ms,
            logged_ms=logged_ms,
            losses=[gap for gap in written if gap.number],
            losses_since_ms=written[-1].to_ms if len(written) == NEWEST else 0,
            repairs=[(gap, gap.repair) for gap in written if gap.repair is not None],
        )

    def read_for_status(self, stream_ids: Sequence[str]) -> Callable[[str], Records | None]:
        """As `read` for each of these streams, without the cursor: enough for a status.

        The leases are read at once, 100 in a request; the newest connections when they are needed, those of 20 streams
        in a request. Earlier errors are left out for a healthy stream. Losses are read if one of these connections
        counted any.
        """
        read = self._leases.read_items(stream_ids)
        leases = {stream_id: read[stream_id] for stream_id in stream_ids if stream_id in read}
        group_ids = {read_text(lease, "group") or "" for lease in leases.values()} - {""}
        groups = {one: group_lease(item) for one, item in self._leases.read_items(sorted(group_ids)).items()}
        recent = RecentConnections(self._table, leases)

        def records(stream_id: str) -> Records | None:
            if stream_id not in leases:
                return None
            read = self._to_records(stream_id, leases[stream_id], recent.records_of(stream_id), groups)
            if not any(one.missing for one in read.connections):
                return read
            return replace(read, losses=[gap for gap in self.newest_gaps(stream_id, NEWEST) if gap.number])

        return records

    def _to_records(
        self,
        stream_id: str,
        lease: Item,
        recent: list[Item] | None = None,
        groups: Mapping[str, GroupLease] | None = None,
    ) -> Records:
        """Returns the records; for a stream in a group they combine both leases. `groups` are those already read."""
        group_id, group, record = read_text(lease, "group") or "", None, to_record(lease)
        if group_id:
            group = self._leases.read_group(group_id) if groups is None else groups.get(group_id)
        items = self._table.newest_records(stream_id, "connection#", NEWEST) if recent is None else recent
        now_ms = time.time_ns() // 1_000_000
        # DynamoDB deletes expired records in any order, and a missing one would look like a gap between its neighbours.
        kept = [item for item in items if not has_expired(item, now_ms)]
        if group is not None:
            record = replace(record, lease=member_lease(lease, group), live=live_of_member(record.live, group))
        return Records(
            lease=record.lease,
            group=group_id,
            group_size=1 if group is None else max(1, group.size),
            cursor=None,
            cursor_saved_ms=None,
            connections=self._connections(stream_id, ledger_records.with_live_record(kept, record.live)),
            rest=record.rest,
            epoch=record.epoch,
            is_all=len(items) < NEWEST if recent is None else record.lease.fence <= FEW,
            kept_since_ms=_kept_since_ms(items, now_ms),
            damage=damaged_attributes(lease),
            was_answered=record.ledger_sum_with_live().fence > 0,
            repairs=_shown_repairs(lease),
            storage_form=_storage_form(record),
        )

    def _connections(self, stream_id: str, items: Sequence[Item]) -> list[Connection]:
        """Returns the connections of these records; dead letters that were put back no longer count."""
        found = [read_as(Connection, item) for item in items]
        if not any(one.dead_lettered for one in found):
            return found
        back = {
            item["SK"]["S"]: len(item) - len(_KEY) for item in self._table.newest_records(stream_id, PUT_BACK, NEWEST)
        }
        left = {one.fence: one.dead_lettered - back.get(_put_back_key(one.fence), 0) for one in found}
        return [replace(one, dead_lettered=max(0, left[one.fence])) for one in found]

    def record_put_back(self, stream_id: str, fence: int, event_key: str) -> None:
        """Records that an event which the connection dead-lettered is stored now; repeating it changes nothing."""
        # Imported here: only a redrive needs it, and each import lengthens the cold start.
        from handlers.segments.known_keys import key_hash

        self._table.set_attributes(item_key(stream_id, _put_back_key(fence)), {f"k{key_hash(event_key).hex()}": True})

    def streams(self, after: str, limit: int) -> list[str]:
        """Returns the first `limit` ids after `after` of the streams that were ever started, in their order.

        Read through an index, so a stream may be missing for a moment after its first start.
        """
        return self._leases.started_streams(after, limit)

    def members(self, group_id: str) -> list[str]:
        """Returns the ids of the streams that share the function of a group."""
        return list(GroupStore(self.dynamodb, self._control_table, group_id).members())

    def layout(self, stream_id: str) -> Layout | None:
        """Returns how the stream's events are stored; None if it was never started.

        Like `read`, it raises StoreUnavailable if the record has a layout that this version does not know.
        """
        lease = self._table.get(stream_id, "lease")
        if lease is not None:
            check_lease(lease)
        return None if lease is None else control_record.layout_of(lease)

    def read_connections_from(self, stream_id: str, fence: int, most: int) -> Records | None:
        """As `read`, with the first `most` connections from this one on, and the open one."""
        lease = self._table.get(stream_id, "lease")
        if lease is None:
            return None
        items = self._table.records_after(stream_id, "connection#", ledger_records.connection_key(fence - 1), most)
        return self._to_records(stream_id, lease, items)

    def gaps(self, stream_id: str, after: str, most: int) -> list[tuple[str, Gap]]:
        """Returns the recorded gaps after the sort key `after`, each with its own key; oldest first."""
        items = self._table.records_after(stream_id, ledger_records.GAP, after, most)
        return [(item["SK"]["S"], ledger_records.gap_of(item)) for item in items]

    def newest_gaps(self, stream_id: str, most: int) -> list[Gap]:
        """Returns the recorded gaps, newest first."""
        return [ledger_records.gap_of(item) for item in self._table.newest_records(stream_id, ledger_records.GAP, most)]

    def stop(self, stream_id: str, requested_at: str, *, may_start: bool, moved_to: str = "") -> Lease | None:
        """Writes the stop request and returns the lease; None if there is no lease and the stream must not start.

        A group's function learns of the request by the group's version, which is raised after it. With `moved_to` the
        request is a move's to that place: it is refused (None) while another request is in force.

        `requested_at` is ISO 8601 in UTC with milliseconds, like the machine's own instants, because the machine
        compares the texts.
        """
        # With a lease, the stream was started once. Without one, the update makes a lease with only the stop request:
        # the first POST may just have been answered, and its execution may not have claimed the stream yet.
        condition = "" if may_start else "attribute_exists(PK)"
        # Only the request is written: fence, holder and execution stay as the stream's holder wrote them. Its instant
        # makes it win over an earlier POST that has not claimed the stream yet. Written twice it is the same, so
        # repeating a request after a lost answer changes nothing; nor does a repeated one move the stop.
        update = "SET #stop = :yes, #stop_at = :now, #stop_since = if_not_exists(#stop_since, :now)"
        values: Item = {":yes": {"BOOL": True}, ":now": {"S": requested_at}}
        if moved_to:
            # If two moves come at once, the first to stop the stream wins: both would start it, each at its own place.
            condition = (
                "attribute_exists(PK) AND (attribute_not_exists(#stop) OR #stop_at = :now AND #moved_to = :move)"
            )
            update += ", #moved_to = :move"
            values[":move"] = {"S": f"{moved_to} {requested_at}"}
        try:
            response = self._table.update(
                item_key(stream_id, "lease"), update, condition, values, ReturnValues="ALL_NEW"
            )
        except ConditionFailed:
            return None
        group = read_text(response["Attributes"], "group")
        if group is not None:
            GroupStore(self.dynamodb, self._control_table, group).raise_version()
        return control_record.lease_of(response["Attributes"])


def _put_back_key(fence: int) -> str:
    return f"{PUT_BACK}{fence:012d}"


def _storage_form(record: ControlRecord) -> str:
    if record.layout.partitions == LOG:
        return "log"
    return "items without an order" if record.layout.order == "none" else "items"


def _shown_repairs(lease: Item) -> list[tuple[Gap, Repair]]:
    """Returns the newest repaired intervals as the lease has them, which are enough for a list."""
    spans = (span.partition("/") for span in (read_text(lease, "repaired") or "").split())
    shown = [(int(from_ms), int(to_ms)) for from_ms, _, to_ms in spans]
    return [(Gap(0, at_ms, to_ms, "", OPEN), Repair(at_ms, to_ms, state=REPAIRED)) for at_ms, to_ms in shown]


def _kept_since_ms(items: Sequence[Item], now_ms: int) -> int:
    """Returns since when no connection's record has expired; 0 if none ever does, as far as these items show."""
    kept_ms = [
        expires_at * 1000 - seen_ms
        for item in items
        if (expires_at := read_int(item, "expires_at")) is not None
        and (seen_ms := read_int(item, "seen_ms")) is not None
    ]
    return max(0, now_ms - min(kept_ms)) if kept_ms else 0
