"""Reads from records of the events table's stream where events are: an item has one, a segment several.

A record is as Lambda has it: {"eventName": "INSERT", "dynamodb": {"NewImage": …, "SequenceNumber": …}}, with bytes in
Base64. Pure. Invariants: a removal, by a person or by time, has no events; nor has the mark of an event in the
dead-letter queue, which arrives when it is put back, nor anything restored or moved here, which was sent on where it
came from; no body is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.deliver.arrivals import Entry
from handlers.store.event_items import PLACES, PROMISED, stream_of
from handlers.store.segment_reader import LOG_SUFFIX, is_segment
from handlers.store.typed_values import count

Record = Mapping[str, Any]


# What an item has that is a mark, or was restored, or is promised to a log.
_IS_NO_NEW_EVENT = {"dead_letter", "restored", PROMISED}


def sequence_number(record: Record) -> str:
    """Returns the record's name in its stream."""
    number: str = record["dynamodb"]["SequenceNumber"]
    return number


def by_stream(records: Sequence[Record]) -> dict[str, tuple[list[Entry], str]]:
    """Returns the entries of each stream in order, and the mark of the stream's records.

    A batch of INSERTs lands in no order, so what one call brings is put in the order of positions.
    """
    found: dict[str, list[tuple[str, Entry, str]]] = {}
    for record in records:
        image = record["dynamodb"].get("NewImage")
        if record["eventName"] == "REMOVE" or image is None or _IS_NO_NEW_EVENT & image.keys():
            continue
        if image["PK"]["S"].endswith(LOG_SUFFIX):
            if not is_segment(image):
                continue
            # Numbers of segments have leading zeros.
            place, events, at = image["SK"]["S"], count(image, "events"), count(image, "at_ms")
        else:
            place = next((image[name]["S"] for name in PLACES.values() if name in image), "")
            events, at = 1, count(image, "received_at_ms")
        entry = Entry(image["PK"]["S"], image["SK"]["S"], events or 1, at or 0)
        found.setdefault(stream_of(image), []).append((place, entry, sequence_number(record)))
    return {
        stream_id: ([entry for _, entry, _ in sorted(several)], f"{several[0][2]}-{several[-1][2]}")
        for stream_id, several in found.items()
    }
