"""Counts what a run of the watch reads of the control table, with the code that it reads it with."""

from typing import Any

from handlers.group import GROUP
from handlers.group.lease import Beat
from handlers.store.group_store import beat_name, beat_value
from handlers.store.leases import Leases
from handlers.watching.lease_rounds import Rounds, Turn
from local.costs.deployed_tables import control_table
from local.costs.units import Item, item_bytes
from local.costs.units import read_units as billed_units

TABLE = "control"
_NOW_MS = 1_767_225_600_000


class _Leases:
    """A client of a control table that has so many leases and nothing else; `units` are of each read."""

    def __init__(self, streams: int, per_function: int) -> None:
        self._items: dict[str, Item] = {}
        for number in range(streams):
            stream_id, group_id = f"stream-{number:06d}", f"{GROUP}{number // per_function}"
            if per_function == 1:
                self._items[stream_id] = _lease(stream_id)
            else:
                beat = Beat(1, _NOW_MS, _NOW_MS + 60_000, 2 * per_function)
                group = {**_lease(group_id), beat_name("0" * 36): beat_value(beat)}
                member = {"execution": group["execution"], "group": {"S": group_id}}
                self._items |= {group_id: group, stream_id: {**_lease(stream_id), **member}}
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


def read_units(streams: int, per_function: int = 1) -> float:
    """The units of a run where so many streams are connected, by so many functions."""
    client = _Leases(streams, per_function)
    seen = Rounds(Leases(client, TABLE), 1, Turn(1)).look(_NOW_MS, lambda: False)
    assert (seen.wanted, seen.missing, seen.damage) == (streams, 0, {})
    return sum(client.units)


def _lease(stream_id: str) -> Item:
    """A lease as a machine and a connection write it."""
    arn = f"arn:aws:states:us-east-1:000000000000:execution:streamkeeper-prod-connections:{stream_id:0>36}"
    texts = {"PK": stream_id, "SK": "lease", "execution": arn, "holder": "A/" + "0" * 36}
    texts["started_at"] = "2026-01-01T00:00:00.000Z"
    numbers = {"generation": 1, "fence": 1, "connected": 1, "expires_at_ms": _NOW_MS + 60_000}
    return {name: {"S": text} for name, text in texts.items()} | {
        name: {"N": str(number)} for name, number in numbers.items()
    }
