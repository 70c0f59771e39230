"""Builds one page of a stream's events for the control API.

Invariants: a page fits Lambda's limit however its bodies are written; it ends with `next` where there may be more, and
the next page begins there, so no event is skipped and none comes twice.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from handlers.api.instants import at
from handlers.api.queries import BadQuery, Listing
from handlers.connection.inputs import Order
from handlers.store.event_items import StoredEvent
from handlers.store.event_reader import Entry
from handlers.store.key_reader import key_at

LIMIT, MOST = 100, 1000
# Lambda's limit for an answer is "6 MB", 6,291,556 bytes; the rest is for what surrounds the events.
PAGE_BYTES = 6_000_000
# A body of more than this is left out before it is unpacked.
BODY_BYTES = 5_000_000
_POSITION = re.compile(r"[0-9]{15}/[0-9]{12}/[0-9]{12}|key\.[A-Za-z0-9_-]{2,1366}")
_POSITION_IS = "a position as an event has it: 15 digits/12 digits/12 digits, or key. and 2 to 1366 characters"
LISTING = Listing(_POSITION, _POSITION_IS, LIMIT, MOST)
# What a page says of its order where that is not the order in which the events came.
BY_KEY = "by key, not by arrival"


def check_place(after: str, order: Order) -> None:
    """Raises BadQuery where a stream of this order has no such position."""
    if after and order == "none":
        try:
            key_at(after)
        except ValueError:
            raise BadQuery(
                "the parameter after must be a position as an event of this stream has it, whose events are read by "
                "key; without it the page begins at the first key"
            ) from None
    elif after.startswith("key."):
        raise BadQuery("the parameter after is of a stream that is read by key, and this one is in order of arrival")


def page(
    stream_id: str, entries: Iterable[Entry], limit: int, is_late: Callable[[], bool], order: Order = "index"
) -> dict[str, Any]:
    """The answer: {"stream", "events", "next"}; `next` is None where nothing more was there.

    It holds the entries up to `limit`, and fewer where they would not fit or where it is late; one at least. Where
    `order` is "none" it says so under "order".
    """
    events: list[dict[str, Any]] = []
    count = size = 0
    last: str | None = None
    for entry in entries:
        if entry.event is not None:
            body = shown(entry.event)
            body_bytes = _bytes(body)
            if body_bytes > PAGE_BYTES:
                body = _left_out(entry.event)
                body_bytes = _bytes(body)
            if size + body_bytes > PAGE_BYTES:
                break
            size += body_bytes
            events.append(body)
        count, last = count + 1, entry.position
        if count == limit or is_late():
            break
    else:
        last = None
    said = {"order": BY_KEY} if order == "none" else {}
    return {"stream": stream_id, **said, "events": events, "next": last}


def shown(event: StoredEvent) -> dict[str, Any]:
    """An event as JSON takes it: a body that is text as `data`, one that is bytes as `data_base64`."""
    if event.data is None:
        return _left_out(event)
    if isinstance(event.data, str):
        return _head(event) | {"data": event.data}
    return _head(event) | {"data_base64": base64.b64encode(event.data).decode()}


def _head(event: StoredEvent) -> dict[str, Any]:
    return {
        "position": event.position,
        "received_at": at(event.received_at_ms),
        "id": event.id,
        "name": event.name,
        "key": event.key,
        **({} if event.conflict_of is None else {"conflict_of": event.conflict_of}),
    }


def _left_out(event: StoredEvent) -> dict[str, Any]:
    """The event without its body, and where the body is."""
    if event.dead_letter is not None:
        return _head(event) | {"dead_letter": event.dead_letter}
    return _head(event) | {"left_out": "table" if event.object is None else event.object}


def _bytes(body: Mapping[str, Any]) -> int:
    """At most how many bytes it takes in the function's answer, whose body is JSON as a text within JSON."""
    return len(json.dumps(json.dumps(body, ensure_ascii=False)))
