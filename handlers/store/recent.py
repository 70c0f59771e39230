"""Reads the newest connections of many streams by their keys, many in a request.

The key of a connection's record is its fencing token, and the lease has the newest token and that of the holder. So the
newest four of twenty streams are one request, where a query would be one for each stream.

Invariant: what these few do not tell is None, and is to be read by a query: a row of failures that is longer, a record
that is missing. Any answer of AWS that is none raises `StoreUnavailable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from handlers.store import control_items
from handlers.store.batch_get import KEYS, BatchGet
from handlers.store.control_items import Item

NEWEST = 4
# So many streams are a request; the fifth record is the holder's, where it is older.
_STREAMS = KEYS // (NEWEST + 1)


class Recent:
    """The newest connections of the streams with these leases, read as they are asked for in the order of `leases`."""

    def __init__(self, batches: BatchGet, leases: Mapping[str, Item]) -> None:
        self._batches = batches
        self._leases = leases
        self._order = {stream_id: number for number, stream_id in enumerate(leases)}
        self._rows: dict[str, list[Item]] = {}

    def of(self, stream_id: str) -> list[Item] | None:
        """The stream's records but that in its lease, the newest first; None where they are not enough."""
        if stream_id not in self._rows:
            number = self._order[stream_id]
            self._load(list(self._order)[number : number + _STREAMS])
        rows, lease = self._rows.pop(stream_id), self._leases[stream_id]
        return rows if _is_enough(rows, lease) else None

    def _load(self, stream_ids: Sequence[str]) -> None:
        keys = [
            control_items.key(stream_id, control_items.connection_key(fence))
            for stream_id in stream_ids
            for fence in sorted(_fences(self._leases[stream_id]), reverse=True)
        ]
        self._rows |= {stream_id: [] for stream_id in stream_ids}
        for row in self._batches.items(keys, consistent=True) if keys else ():
            self._rows[row["PK"]["S"]].append(row)
        for stream_id in stream_ids:
            self._rows[stream_id].sort(key=lambda row: row["SK"]["S"], reverse=True)


def _newest(lease: Item) -> range:
    fence = control_items.lease(lease).fence
    return range(max(1, fence - NEWEST + 1), fence + 1)


def _fences(lease: Item) -> set[int]:
    connected = control_items.lease(lease).connected_token
    return {*_newest(lease), *([connected] if connected else [])}


def _is_enough(rows: Sequence[Item], lease: Item) -> bool:
    """Whether all of the newest are there, and the oldest of them ends any row of failures: it was answered."""
    wanted, live = _newest(lease), control_items.live_record(lease)
    read = {control_items.count(row, "fence"): row for row in control_items.with_live(rows, live)}
    # A claim has no record until the upstream has answered it, or failed.
    if not set(wanted[:-1]) <= set(read):
        return False
    if not wanted or wanted[0] == 1:
        return True
    oldest = read.get(wanted[0])
    return oldest is not None and control_items.count(oldest, "opened_ms") is not None
