"""Records of the events table's stream as Lambda gets them, written by the code that writes the table."""

import base64
from collections.abc import Sequence
from typing import Any

from handlers.deliver.contract import Message
from handlers.deliver.feed import message_of
from handlers.framing.events import StreamEvent
from handlers.segments.log_requests import Segment
from handlers.store.event_items import event_item, to_stored_event
from handlers.store.segment_writer import segment_item

NOW_MS = 1_700_000_000_000


def event(key: str, data: str | bytes = "x", at_ms: int = NOW_MS, name: str | None = None) -> StreamEvent:
    """Return an event that arrived at this instant."""
    return StreamEvent(key, data, key, name, None, at_ms)


def message(stream_id: str, one: StreamEvent) -> Message:
    """Return an item's event on its way to a sink."""
    return message_of(stream_id, to_stored_event(event_item(stream_id, 1, 1, one), lambda _: None), {})


def record(item: dict[str, Any], number: int, at_ms: int = NOW_MS, kind: str = "INSERT") -> dict[str, Any]:
    image = {
        name: {kind: base64.b64encode(one).decode() if kind == "B" else one for kind, one in value.items()}
        for name, value in item.items()
    }
    written = {
        "Keys": {name: image[name] for name in ("PK", "SK")},
        "NewImage": image,
        "SequenceNumber": f"{number:021d}",
        "ApproximateCreationDateTime": at_ms / 1000,
    }
    return {"eventName": kind, "eventSource": "aws:dynamodb", "dynamodb": written}


def item_record(stream_id: str, one: StreamEvent, number: int) -> dict[str, Any]:
    """Return the record of an event that is an item."""
    return record(event_item(stream_id, 1, number, one), number)


def segment_record(stream_id: str, events: Sequence[StreamEvent], number: int) -> dict[str, Any]:
    """Return the record of a segment with these events."""
    return record(segment_item(stream_id, Segment(number, 1, 0, NOW_MS, b"", None), events, 0), number)
