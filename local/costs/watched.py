"""Counts what a run of the watch reads of the control table, with the code that it reads it with."""

from typing import Any

from handlers.rounds import Rounds, Turn
from handlers.store.leases import Leases
from local.costs.tables import control_table
from local.costs.units import Item, item_bytes
from local.costs.units import read_units as billed_units

TABLE = "control"
_NOW_MS = 1_767_225_600_000


class _Leases:
    """A client of a control table that has so many leases and nothing else; `units` are of each read."""

    def __init__(self, streams: int) -> None:
        ids = [f"stream-{number:06d}" for number in range(streams)]
        self._items: dict[str, Item] = {stream_id: _lease(stream_id) for stream_id in ids}
        self.units: list[float] = []

    def query(self, *, IndexName: str, **_: Any) -> dict[str, Any]:
        """Every entry of the index, which is read with what may be stale."""
        table = control_table()
        entries = [table.indexes[IndexName].entry(item, table.keys) or {} for item in self._items.values()]
        self.units.append(billed_units([item_bytes(entry) for entry in entries], consistent=False, together=True))
        return {"Items": entries}

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:
        """The leases of the keys."""
        wanted = RequestItems[TABLE]
        items = [self._items[key["PK"]["S"]] for key in wanted["Keys"]]
        self.units.append(billed_units(map(item_bytes, items), consistent=wanted["ConsistentRead"]))
        return {"Responses": {TABLE: items}}


def read_units(streams: int) -> float:
    """The units of a run where so many streams are connected."""
    client = _Leases(streams)
    seen = Rounds(Leases(client, TABLE), 1, Turn(1)).look(_NOW_MS, lambda: False)
    assert (seen.wanted, seen.missing, seen.damage) == (streams, 0, {})
    return sum(client.units)


def _lease(stream_id: str) -> Item:
    """A lease as a machine and a connection write it."""
    arn = "arn:aws:states:us-east-1:000000000000:execution:streamkeeper-prod-connections:" + "0" * 36
    texts = {"PK": stream_id, "SK": "lease", "execution": arn, "holder": "A/" + "0" * 36}
    texts["started_at"] = "2026-01-01T00:00:00.000Z"
    numbers = {"generation": 1, "fence": 1, "connected": 1, "expires_at_ms": _NOW_MS + 60_000}
    return {name: {"S": text} for name, text in texts.items()} | {
        name: {"N": str(number)} for name, number in numbers.items()
    }
