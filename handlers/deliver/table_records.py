"""Finds the places of events in records of the events table's stream: an item has one event, a segment several.

Lambda brings a record as {"eventName": "INSERT", "dynamodb": {"NewImage": …, "SequenceNumber": …}}, with bytes in
Base64. Pure. Invariants: these bring no events: a removal, by a person or by time; the mark of an event in the
dead-letter queue, which arrives once it is put back; anything restored or moved here, which was delivered where it came
from. No body is read.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from handlers.deliver.arrivals import Entry
from handlers.store.event_items import PLACES, PROMISED, stream_of
from handlers.store.segment_reader import LOG_SUFFIX, is_segment
from handlers.store.typed_values import Item, read_int

Record = Mapping[str, Any]
# The attributes that say when an item came, and how many events a segment has.
TIMED = ("received_at_ms", "at_ms", "events")
# Those of an item that is a mark, was restored, or is promised to a log.
NO_NEW_EVENT = ("dead_letter", "restored", PROMISED)


class Brought(NamedTuple):
    """The events of one stream that a call brought: entries in order, the records' mark, each entry's image."""

    entries: Sequence[Entry]
    mark: str
    images: Sequence[Mapping[str, Any]]


def oldest_ms(records: Sequence[Record]) -> int:
    """Returns when the oldest of the records was written."""
    oldest_s: float = min(record["dynamodb"]["ApproximateCreationDateTime"] for record in records)
    return round(oldest_s * 1000)


def group_by_stream(records: Sequence[Record]) -> dict[str, Brought]:
    """Returns what the records brought, by stream.

    The items of a batch are written in no order, so what one call brings is sorted by position.
    """
    found: dict[str, list[tuple[str, Entry, str, Mapping[str, Any]]]] = {}
    for record in records:
        image = record["dynamodb"].get("NewImage")
        if record["eventName"] == "REMOVE" or image is None or (entry := entry_of(image)) is None:
            continue
        # Numbers of segments have leading zeros.
        is_log = image["PK"]["S"].endswith(LOG_SUFFIX)
        place = entry.key if is_log else next((image[name]["S"] for name in PLACES.values() if name in image), "")
        found.setdefault(stream_of(image), []).append((place, entry, record["dynamodb"]["SequenceNumber"], image))
    brought = {}
    for stream_id, several in found.items():
        mark = f"{several[0][2]}-{several[-1][2]}"
        several.sort(key=lambda one: one[:3])
        brought[stream_id] = Brought([one[1] for one in several], mark, [one[3] for one in several])
    return brought


def entry_of(image: Item) -> Entry | None:
    """Returns the entry of an item of the events table; None if it is no new event."""
    is_log = image["PK"]["S"].endswith(LOG_SUFFIX)
    if image.keys() & NO_NEW_EVENT or (is_log and not is_segment(image)):
        return None
    events, at_ms = (
        (read_int(image, "events"), read_int(image, "at_ms")) if is_log else (1, read_int(image, "received_at_ms"))
    )
    return Entry(image["PK"]["S"], image["SK"]["S"], events or 1, at_ms or 0)


def decode_image(image: Mapping[str, Any]) -> Item:
    """Returns the item of an image, whose bytes are in Base64."""
    return {
        name: {kind: base64.b64decode(one) if kind == "B" else one for kind, one in value.items()}
        for name, value in image.items()
    }
