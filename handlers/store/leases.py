"""Lists the streams, reads their leases by pages and batches, and words the alerts that a lease's record gives.

This decides what a check of all streams costs.

The index `by-record` has the records of the control table by their sort keys: its partition `lease` has every stream in
the order of the ids, and for each whether an execution holds it. The leases themselves are read from the table, 100 in
a request, because an index would have to copy each heartbeat. So with 100,000 streams, of which executions hold 2,000,
4 to 10 requests of a megabyte each list them, and 20 read the leases.

Invariants: nothing is written; the order is that of the ids' UTF-8 bytes, so a page that begins after an id misses no
stream that existed throughout. The index may be a moment late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handlers.connection.lease import Lease
from handlers.connection.liveness import Silence
from handlers.connection.spending import spending_of
from handlers.group import is_group
from handlers.group.group_lease import GroupLease
from handlers.store import control_record, ledger_records, typed_values
from handlers.store.control_record import ATTRIBUTES
from handlers.store.control_table import BY_RECORD, KEYS, Table
from handlers.store.group_store import group_lease, lease_of_group
from handlers.store.typed_values import Item, instant_ms, read_int, read_text

LEASE = "lease"


class Leases:
    """The leases of a control table; the client is made once and may be used by several threads."""

    def __init__(self, dynamodb: Any, control_table: str) -> None:
        self._table = Table(dynamodb, control_table)

    def started_streams(self, after: str, limit: int) -> list[str]:
        """Returns the first `limit` ids after `after` of the streams that were ever started, in their order."""
        found: list[str] = []
        while len(found) < limit:
            entries, after = self._page(after, Limit=limit - len(found))
            # A stream that was stopped before its first start has neither attribute.
            started = [entry for entry in entries if "generation" in entry or "execution" in entry]
            found += [_stream_id(entry) for entry in started if not is_group(_stream_id(entry))]
            if not after:
                break
        return found

    def held_pages(self, after: str) -> Iterator[tuple[dict[str, str], str]]:
        """Yields the ids after `after` of streams and groups that executions hold, in order, each with its execution.

        Each item is a page of the index, with the id after which the next one begins, "" for none. A page may be empty.
        """
        for entries, next_after in self._pages(after, FilterExpression="attribute_exists(execution)"):
            yield {_stream_id(entry): read_text(entry, "execution") or "" for entry in entries}, next_after

    def ids(self) -> Iterator[str]:
        """Yields the ids of all streams and groups that have a lease, held or not, in their order."""
        return (_stream_id(entry) for entries, _ in self._pages("") for entry in entries)

    def read_items(self, ids: Sequence[str], *, consistent: bool = True, only: Sequence[str] = ()) -> dict[str, Item]:
        """Returns the leases that exist, as items, by the ids of their streams or groups."""
        keys = [typed_values.item_key(one, LEASE) for one in ids]
        return {_stream_id(item): item for item in self._table.batch_get(keys, consistent=consistent, only=only)}

    def read_for_watch(self, stream_ids: Sequence[str]) -> dict[str, Item]:
        """As `read_items`, but only the lease's own attributes, as they were a moment ago: for half the price."""
        return self.read_items(stream_ids, consistent=False, only=("PK", "group", "live", *ATTRIBUTES))

    def read_groups(self, group_ids: Sequence[str]) -> dict[str, Item]:
        """Returns the leases of groups, whole and as they were a moment ago; else as `read_items`."""
        return self.read_items(group_ids, consistent=False)

    def read_group(self, group_id: str) -> GroupLease:
        """Returns the lease of a group as it is now, read consistently; an empty one if there is none."""
        return group_lease(self._table.get(group_id, LEASE))

    def read(self, stream_id: str) -> Lease:
        """Returns the lease of a stream or a group as it is now, read consistently; an empty one if there is none."""
        item = self._table.get(stream_id, LEASE) or {}
        return lease_of_group(item) if is_group(stream_id) else control_record.lease_of(item)

    def _pages(self, after: str, **more: Any) -> Iterator[tuple[list[Item], str]]:
        """Yields all pages after an id."""
        is_first = True
        while after or is_first:
            entries, after = self._page(after, **more)
            is_first = False
            yield entries, after

    def _page(self, after: str, **more: Any) -> tuple[list[Item], str]:
        """Returns entries of the index after an id, and the id after which the next page begins, "" for none."""
        # A place is an id, so it stays valid even if that stream is deleted. DynamoDB refuses "", so there is no
        # condition then.
        condition = "SK = :lease AND PK > :after" if after else "SK = :lease"
        values = {":lease": LEASE} | ({":after": after} if after else {})
        response = self._table.query(condition, values, IndexName=BY_RECORD, **more)
        last = response.get("LastEvaluatedKey")
        return response["Items"], _stream_id(last) if last else ""


def batches(stream_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the ids in batches that one request reads."""
    for first in range(0, len(stream_ids), KEYS):
        yield stream_ids[first : first + KEYS]


def _stream_id(entry: Item) -> str:
    stream_id: str = entry["PK"]["S"]
    return stream_id


NEWEST = 4
# This many streams share a request; the fifth record is the holder's, if that is older.
_STREAMS = KEYS // (NEWEST + 1)


class RecentConnections:
    """The newest connections of the streams with these leases, read when they are needed, in the order of `leases`."""

    def __init__(self, table: Table, leases: Mapping[str, Item]) -> None:
        self._table = table
        self._leases = leases
        self._order = {stream_id: number for number, stream_id in enumerate(leases)}
        self._rows: dict[str, list[Item]] = {}

    def records_of(self, stream_id: str) -> list[Item] | None:
        """Returns the stream's records except the one in its lease, newest first; None if they are not enough."""
        if stream_id not in self._rows:
            number = self._order[stream_id]
            self._load(list(self._order)[number : number + _STREAMS])
        rows, lease = self._rows.pop(stream_id), self._leases[stream_id]
        return rows if _is_enough(rows, lease) else None

    def _load(self, stream_ids: Sequence[str]) -> None:
        keys = [
            typed_values.item_key(stream_id, ledger_records.connection_key(fence))
            for stream_id in stream_ids
            for fence in sorted(
                {*_newest_fences(self._leases[stream_id]), *_holder_fence(self._leases[stream_id])}, reverse=True
            )
        ]
        self._rows |= {stream_id: [] for stream_id in stream_ids}
        for row in self._table.batch_get(keys, consistent=True):
            self._rows[row["PK"]["S"]].append(row)
        for stream_id in stream_ids:
            self._rows[stream_id].sort(key=lambda row: row["SK"]["S"], reverse=True)


def _newest_fences(lease: Item) -> range:
    fence = control_record.lease_of(lease).fence
    return range(max(1, fence - NEWEST + 1), fence + 1)


def _holder_fence(lease: Item) -> list[int]:
    connected = control_record.lease_of(lease).connected_token
    return [connected] if connected else []


def _is_enough(rows: Sequence[Item], lease: Item) -> bool:
    """Returns whether the newest records are complete, and the oldest was answered, which ends any row of failures."""
    wanted, live = _newest_fences(lease), ledger_records.live_record(lease)
    read = {typed_values.read_int(row, "fence"): row for row in ledger_records.with_live_record(rows, live)}
    # A claim has no record until the upstream has answered or failed.
    if not set(wanted[:-1]) <= set(read):
        return False
    if not wanted or wanted[0] == 1:
        return True
    oldest = read.get(wanted[0])
    return oldest is not None and typed_values.read_int(oldest, "opened_ms") is not None


def silence_of(item: Item) -> Silence:
    """Returns the pauses between new events, by the record of the newest connection, which the control record shows."""
    live: Item = item.get("live", {}).get("M", {})
    return Silence(read_int(live, "event_ms"), read_int(live, "pause_ms"), read_int(live, "expect_ms"))


def quiet_alert(item: Item, now_ms: int) -> str:
    """Returns the alert about a connected stream whose profile expects events; "" if it is not quiet."""
    silence, started_ms = silence_of(item), instant_ms(read_text(item, "started_at")) or 0
    return "" if silence.expect_ms is None else silence.describe(started_ms, now_ms, is_late="group" in item)


def budget_alert(item: Item, now_ms: int) -> str:
    """Returns the alert about a stream that has used most of its budget; "" if it has not, or has none."""
    live: Item = item.get("live", {}).get("M", {})
    spending = spending_of(read_text(live, "spending") or "")
    return "" if spending is None else spending.describe(now_ms)
