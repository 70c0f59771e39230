"""Rings a bell for a stream and a sink when there are events to send. At most one bell is out for each pair.

A bell that is out is an item of the delivery table, and an invocation of the function that answers it. The item says
until when a worker has it, or until when the sink is left alone; after that instant it is *due*, and a sweep rings
again. So if a bell was lost, or its function died, the next sweep rings it again; a sweep reads nothing if no bell is
out. A worker that is done deletes it and reads once more, because anything noted before the deletion found the bell out
and rang none. If it is killed in between, Lambda's second try of the call rings.

Invariant: while a sink has not taken something noted, its bell is out, unless the sink is paused, or a call is running
or about to be tried again; were both tries killed at that place, the stream's next event would ring.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from handlers.store.control_table import Table, WaitBeforeRetry
from handlers.store.typed_values import Item, item_key, number_value, read_int

# A bell without an answer is due after this time. A worker that needs longer extends it.
ANSWERED_MS = 10_000
# One partition takes 1,000 writes a second.
PARTITIONS = 4
_PAGE = 200
# No label begins like this.
LATER = "~"


class Place(NamedTuple):
    """A stream and one of its sinks."""

    stream_id: str
    label: str

    @property
    def resend_place(self) -> "Place":
        """The place of the bell that rings for the sink when it is sent again what was set apart."""
        return Place(self.stream_id, f"{LATER}{self.label}")


class Bell(NamedTuple):
    """A bell that is out until `until_ms`; a new sink begins with `arrival`.

    `rung_ms` is the end of its first time out, so it has the order in which bells were rung; 0 if it was not read.
    """

    place: Place
    until_ms: int
    arrival: int
    rung_ms: int = 0


class Bells:
    def __init__(self, table: Table) -> None:
        self._table = table

    def ring(self, bells: Sequence[Bell], wait_before_retry: WaitBeforeRetry | None = None) -> list[Bell]:
        """Returns the bells that were not out, and are now, with waits as in Arrivals.note. Raises StoreUnavailable."""
        is_new = self._table.insert([_item(bell) for bell in bells], wait_before_retry)
        return [bell for bell, is_out in zip(bells, is_new, strict=True) if is_out]

    def hold(self, bell: Bell, until_ms: int) -> Bell | None:
        """Returns the bell, now out until another instant; None if it was rung again since.

        If the answer is lost, the client sends the request again, and finds what the first one wrote.
        """
        condition = "#until_ms = :mine OR #until_ms = :until_ms"
        is_held = self._table.set_attributes(_key(bell.place), {"until_ms": until_ms}, condition, mine=bell.until_ms)
        return bell._replace(until_ms=until_ms) if is_held else None

    def force(self, bell: Bell) -> Bell:
        """Returns a new bell, even if one was out; a worker at the old one stops."""
        self._table.put(_item(bell))
        return bell

    def end(self, bell: Bell) -> None:
        """Takes the bell back, unless it was rung again since."""
        self._table.delete(_key(bell.place), "#until_ms = :mine", {":mine": number_value(bell.until_ms)})

    def find(self, place: Place) -> Bell | None:
        """Returns the bell of a place; None if none is out."""
        key_ = _key(place)
        item = self._table.get(key_["PK"]["S"], key_["SK"]["S"])
        return None if item is None else _bell(item)

    def read_all(self) -> Iterator[Bell]:
        """Yields every bell that is out; raises StoreUnavailable."""
        for partition in range(PARTITIONS):
            values = {":bells": _partition(partition)}
            yield from map(_bell, self._table.query_items("PK = :bells", values, ConsistentRead=True, Limit=_PAGE))


def _partition(number: int) -> str:
    # No stream's id begins like this.
    return f"#bells#{number}"


def _key(place: Place) -> Item:
    # Neither part can hold a line end.
    name = f"{place.label}\n{place.stream_id}"
    return item_key(_partition(zlib.crc32(name.encode()) % PARTITIONS), name)


def _item(bell: Bell) -> Item:
    until = number_value(bell.until_ms)
    return {**_key(bell.place), "until_ms": until, "arrival": number_value(bell.arrival), "rung_ms": until}


def _bell(item: Item) -> Bell:
    label, _, stream_id = item["SK"]["S"].partition("\n")
    return Bell(Place(stream_id, label), *(read_int(item, name) or 0 for name in ("until_ms", "arrival", "rung_ms")))
