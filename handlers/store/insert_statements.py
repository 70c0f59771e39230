"""Spells an event as the INSERT of a batch: PartiQL with parameters, as the JSON text of a request.

Nearly every event is a short text. Its statement is filled into a template, which is the statement of such an item with
holes in the places that differ. Pure. Invariant: the text is that of the event's item, whichever way it was made.
"""

import json
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from handlers.dynamodb.client import binary, encode
from handlers.framing.events import StreamEvent
from handlers.store.event_items import COMPRESS_FROM_BYTES, PLACES, StoragePolicy, event_item, partition_key, place_of
from handlers.store.typed_values import Item

# Data, id and name of a short event have fewer characters together: its item is far below every limit.
SHORT = COMPRESS_FROM_BYTES
# Stands in an item where a text goes that differs from event to event; no id of a stream holds it.
_HOLE = "\0"
_COUNT_DIGITS = 12


class Inserts:
    """The INSERTs of one stream's events into `table`, by one connection."""

    def __init__(self, table: str, stream_id: str, fence: int, policy: StoragePolicy) -> None:
        self._table = table
        self._stream_id = stream_id
        self._fence = fence
        self._policy = policy
        self._patterns: dict[tuple[int, bool, bool], str] = {}

    def item(self, number: int, event: StreamEvent) -> Item:
        """The item of an event, the `number`th of its connection."""
        return event_item(self._stream_id, self._fence, number, event, self._policy)

    def of_item(self, item: Item) -> str:
        """The INSERT of an item: it adds the item where none has its key, and is refused else."""
        places = ", ".join([f"'{name}': ?" for name in item])
        statement = f'INSERT INTO "{self._table}" VALUE {{{places}}}'
        return encode({"Statement": statement, "Parameters": list(item.values())})

    def of_short(self, number: int, event: StreamEvent) -> str | None:
        """The INSERT of `item(number, event)`; None where the event is not short."""
        key, data, own_id, name, _, received_at_ms = event
        if not isinstance(data, str) or len(data) + len(own_id or "") + len(name or "") >= SHORT:
            return None
        shape = (received_at_ms, own_id is None, name is None)
        pattern = self._patterns.get(shape) or self._pattern(event)
        values: tuple[str | int, ...] = (quoted(key), number)
        if own_id is not None:
            values += (quoted(own_id),)
        if name is not None:
            values += (quoted(name),)
        values += (quoted(data),)
        if self._policy.partitions > 1:
            values = (quoted(partition_key(self._stream_id, key, self._policy.partitions)), *values)
        return pattern % values

    def _pattern(self, like: StreamEvent) -> str:
        """The INSERT of a short event that came when `like` did and has what it has, with places for `%` to fill."""
        own_id, name = (None if text is None else _HOLE for text in (like.id, like.name))
        item = self.item(0, like._replace(key=_HOLE, data=_HOLE, id=own_id, name=name))
        if self._policy.partitions > 1:
            item["PK"] = {"S": _HOLE}
        before = place_of(item)[:-_COUNT_DIGITS]
        item[PLACES[self._policy.order]] = {"S": before + _HOLE}
        text = self.of_item(item).replace("%", "%%")
        number = quoted(before + _HOLE)
        pattern = text.replace(number, f'{quoted(before)[:-1]}%0{_COUNT_DIGITS}d"').replace(quoted(_HOLE), "%s")
        self._patterns[like.received_at_ms, like.id is None, like.name is None] = pattern
        return pattern


def as_parameters(insert: str) -> dict[str, Any]:
    """The INSERT as boto3's client takes a statement, which writes the JSON of a request itself."""
    statement: dict[str, Any] = json.loads(insert, object_hook=binary)
    return statement
