"""Reads the events out of a record of the events table's stream: of an item one, of a segment all.

A record is as Lambda has it: {"eventName": "INSERT", "dynamodb": {"NewImage": …, "SequenceNumber": …}}, with bytes in
Base64. Pure. Invariants: a record of what a person or time removed has no events; nor has what stands for an event that
is in the dead-letter queue, which comes when it is put back; a body in the bucket is named and not read.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from handlers.api.event_pages import shown
from handlers.deliver.contract import Message
from handlers.errors import StoreUnavailable
from handlers.store.event_items import StoredEvent, stored_event, stream_of
from handlers.store.segment_reader import LOG_SUFFIX, is_segment, stored_events
from handlers.store.typed_values import Item

Record = Mapping[str, Any]


def sequence_number(record: Record) -> str:
    """What names the record in its stream."""
    number: str = record["dynamodb"]["SequenceNumber"]
    return number


def created_at_ms(record: Record) -> int:
    """When it was written, to the second."""
    return round(float(record["dynamodb"]["ApproximateCreationDateTime"]) * 1000)


def stream_id(record: Record) -> str:
    """The stream whose record it is."""
    return stream_of(record["dynamodb"]["Keys"])


def messages(record: Record, place: int) -> list[Message]:
    """The events of the record in their order; raises ValueError, KeyError or TypeError where it cannot be read."""
    image = record["dynamodb"].get("NewImage")
    if record["eventName"] == "REMOVE" or image is None:
        return []
    item: Item = {name: _plain(value) for name, value in image.items()}
    stream = stream_of(item)
    try:
        return [_message(stream, event, place) for event in _events(item) if event.dead_letter is None]
    except StoreUnavailable as problem:
        # Nothing is asked for here, so it is the record that this version cannot read.
        raise ValueError(str(problem)) from None


def _events(item: Item) -> Iterator[StoredEvent]:
    if not item["PK"]["S"].endswith(LOG_SUFFIX):
        yield stored_event(item, _absent)
    elif is_segment(item):
        yield from stored_events(item, _absent)


def _absent(_key: str) -> None:
    return None


def _message(stream: str, event: StoredEvent, place: int) -> Message:
    text = json.dumps({"stream": stream, **shown(event)}, ensure_ascii=False, separators=(",", ":"))
    return Message(stream, event.key, event.position, event.name, event.received_at_ms, text, place)


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    ((kind, content),) = value.items()
    is_coded = kind == "B" and isinstance(content, str)
    return {kind: base64.b64decode(content, validate=True) if is_coded else content}
