"""Keeps the stream of a run's events table: a record of each write, in shards that split.

Invariant: each write is in one shard, and a shard's writes come after those of its parent ("Lambda processes parent
shards before child shards").
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from handlers.store.segment_reader import LOG_SUFFIX
from local.simulation.dynamodb_expressions import Item
from local.simulation.tables import Key
from states_language.clock import Clock

Record = dict[str, Any]


def as_event(record: Record) -> Record:
    """Returns the record as Lambda passes it to a function."""
    written = dict(record["dynamodb"])
    written["ApproximateCreationDateTime"] = written["ApproximateCreationDateTime"].timestamp()
    return {**record, "dynamodb": with_base64(written)}


def with_base64(value: Any) -> Any:
    """Returns the value with bytes in Base64, at any depth."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: with_base64(inner) for name, inner in value.items()}
    return [with_base64(inner) for inner in value] if isinstance(value, list) else value


class Write(NamedTuple):
    """One write, with the item as it was then."""

    number: int
    at_ms: int
    kind: str
    key: Key
    item: Item

    def record(self) -> Record:
        """Returns the record that a function gets."""
        names = {"PK": {"S": self.key[0]}, "SK": {"S": self.key[1]}}
        written = {
            "Keys": names,
            "NewImage": self.item,
            "SequenceNumber": f"{self.number:021d}",
            # "to the second".
            "ApproximateCreationDateTime": datetime.fromtimestamp(self.at_ms // 1000, UTC),
        }
        return as_event({"eventName": self.kind, "eventSource": "aws:dynamodb", "dynamodb": written})


@dataclass(eq=False)
class Shard:
    """A shard with its number and its writes."""

    number: int
    parent: Shard | None = None
    writes: list[Write] = field(default_factory=list)
    children: tuple[Shard, ...] = ()
    by_sort_key: bool = False

    @property
    def lineage(self) -> tuple[int, ...]:
        """The numbers of its ancestors and its own."""
        return (*(self.parent.lineage if self.parent is not None else ()), self.number)

    def child_of(self, key: Key) -> Shard:
        """Returns the child that gets the key's writes after the split."""
        if self.by_sort_key and key[0].endswith(LOG_SUFFIX):
            return self.children[1]  # the sort keys of a log only grow, so all later ones are in the upper half
        text = key[1] if self.by_sort_key else f"{self.number}{key[0]}"
        return self.children[zlib.crc32(text.encode()) % 2]


class TableStream:
    """All writes to one table."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: set[Key] = set()
        self.writes: list[Write] = []

    def add_write(self, key: Key, item: Item) -> None:
        """Adds a write of the item."""
        kind = "MODIFY" if key in self._keys else "INSERT"
        self._keys.add(key)
        self.writes.append(Write(len(self.writes) + 1, self._clock.now_ms(), kind, key, item))

    def shards(self, splits: Iterable[tuple[int, int]]) -> list[Shard]:
        """Returns the shards, two at first; `splits` has instants, each with a number that chooses the split shard."""
        shards = [Shard(0), Shard(1)]
        waiting = sorted(splits)
        for write in self.writes:
            while waiting and waiting[0][0] <= write.at_ms:
                _split(shards, waiting.pop(0)[1])
            shard = shards[zlib.crc32(write.key[0].encode()) % 2]
            while shard.children:
                shard = shard.child_of(write.key)
            shard.writes.append(write)
        return shards


def _split(shards: list[Shard], value: int) -> None:
    living = [shard for shard in shards if not shard.children]
    shard = living[value % len(living)]
    shard.children = tuple(Shard(len(shards) + n, shard) for n in range(2))
    shard.by_sort_key = bool(value >> 8 & 1)
    shards += shard.children
