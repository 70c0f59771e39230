"""Builds one page of a stream's events for the control API, in the representation that the client accepts.

    application/json       the page with `events` and `next`
    application/x-ndjson   an event a line; the header Link has the next page (RFC 8288)
    text/event-stream      an event a message, its position the id; then the time after which the client comes again

A Lambda function answers once, so its event stream is a page: an EventSource reconnects by itself, with the last id in
Last-Event-ID, and continues after it. Invariants: all representations have the same events in the same order; a page
fits Lambda's limit however its bodies are spelled; it ends with `next` if there may be more, and the next page begins
there, so no event is skipped and none comes twice.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from handlers.api.answers import JSON, Problem, format_json, to_iso
from handlers.api.queries import FOR_EVER, Listing, PageRequest, pattern_with_parts
from handlers.connection.inputs import LOG, LONGEST_WAIT_MS, Layout, Order
from handlers.store.event_items import Entry, StoredEvent
from handlers.store.event_reader import key_of_position

LIMIT, MOST = 100, 1000
# Lambda's limit for an answer is "6 MB", 6,291,556 bytes; the difference is for what surrounds the events.
PAGE_BYTES = 6_000_000
# A larger body is left out before it is unpacked.
BODY_BYTES = 5_000_000
# The beginning of a place in the order of the events' own times (`stream_pages.page_by_own_time`).
TIME = "time."
_ARRIVAL = r"[0-9]{15}/[0-9]{12}/[0-9]{12}"
_POSITION = rf"(time\.[0-9]{{15}}\.)?({_ARRIVAL}|key\.[A-Za-z0-9_-]{{2,1366}})"
_POSITION_IS = "an event's position: 15 digits/12 digits/12 digits, key. and 2 to 1366 characters, or parts~ and theirs"
LISTING = Listing(pattern_with_parts(_POSITION), _POSITION_IS, LIMIT, MOST, is_timed=True, orders=("time",))
# How a page names its order if that is not the order of arrival.
BY_KEY = "by key, not by arrival"


NDJSON, EVENT_STREAM = "application/x-ndjson", "text/event-stream"
CONTENT_TYPES = {JSON: JSON, NDJSON: NDJSON, EVENT_STREAM: f"{EVENT_STREAM}; charset=utf-8"}
# After how long a client comes again: if there is more, and if there was nothing more.
MORE_MS, NO_MORE_MS = 100, 3000


def check_place(after: str, order: Order, *, by_time: bool = False) -> None:
    """Raises Problem if a stream of this order has no such position, or if it is one of another order."""
    own = after[len(f"{TIME}{0:015d}.") :] if after.startswith(TIME) else after
    try:
        is_there = after.startswith(TIME) == by_time and own.startswith("key.") == (order == "none")
        if is_there and order == "none":
            key_of_position(own)
    except ValueError:
        is_there = False
    if after and not is_there:
        read = "in order of time" if by_time else "by key" if order == "none" else "in order of arrival"
        words = f"the position is not that of an event of this stream, which is read {read}"
        fix = "Use the position of an event of this stream, or leave out after to begin with its first."
        raise Problem("no-such-position", words, "after", fix)


def entries_within(entries: Iterable[Entry], request: PageRequest, layout: Layout) -> Iterator[Entry]:
    """Yields the entries with events of the requested time, until no more of them can follow.

    A log has events in the order in which they were appended, which was while their function lived.
    """
    by_arrival = layout.order == "index" and layout.partitions != LOG
    for entry in entries:
        event = entry.event
        if by_arrival and int(entry.position[:15]) >= request.to_ms:
            return
        if event is not None and not request.includes(event.received_at_ms):
            if layout.partitions == LOG and event.received_at_ms >= request.to_ms + LONGEST_WAIT_MS:
                return
            entry = Entry(entry.position, None)
        yield entry


def page(
    stream_id: str, entries: Iterable[Entry], limit: int, is_late: Callable[[], bool], order: Order = "index"
) -> dict[str, Any]:
    """Returns the answer: {"stream", "events", "next"}; `next` is None if nothing more was there.

    It has up to `limit` entries, and fewer if they would not fit or if it is late, but at least one. If `order` is
    "none", the answer says so under "order".
    """
    events: list[dict[str, Any]] = []
    count = size = 0
    last: str | None = None
    for entry in entries:
        if entry.event is not None:
            body, body_bytes = event_json_within_page(entry.event)
            if size + body_bytes > PAGE_BYTES:
                break
            size += body_bytes
            events.append(body)
        count, last = count + 1, entry.position
        if count == limit or is_late():
            break
    else:
        last = None
    order_field = {"order": BY_KEY} if order == "none" else {}
    return {"stream": stream_id, **order_field, "events": events, "next": last}


def event_json_within_page(event: StoredEvent) -> tuple[dict[str, Any], int]:
    """Returns an event for JSON, and an upper bound of its bytes; without its body if no page can hold that."""
    body = event_json(event)
    if (size := answer_bytes(body)) <= PAGE_BYTES:
        return body, size
    body = event_json(replace(event, data=None))
    return body, answer_bytes(body)


def event_json(event: StoredEvent) -> dict[str, Any]:
    """Returns an event for JSON: a text body as `data`, a binary one as `data_base64`.

    If the body is left out, the event names where the body is.
    """
    if isinstance(event.data, str):
        body = {"data": event.data}
    elif event.data is not None:
        body = {"data_base64": base64.b64encode(event.data).decode()}
    elif event.dead_letter is not None:
        body = {"dead_letter": event.dead_letter}
    else:
        body = {"left_out": "table" if event.object is None else event.object}
    return {
        "position": event.position,
        "received_at": to_iso(event.received_at_ms),
        "id": event.id,
        "name": event.name,
        "key": event.key,
        **({} if event.conflict_of is None else {"conflict_of": event.conflict_of}),
        **({"repaired": True} if event.is_repaired else {}),
        **body,
    }


def answer_bytes(body: Mapping[str, Any]) -> int:
    """Returns an upper bound of an entry's bytes in the function's answer, whose body is JSON as a text within JSON."""
    return len(json.dumps(json.dumps(body, ensure_ascii=False)))


def choose_media_type(accept: str) -> str:
    """Returns the first of the three media types that an Accept header names; JSON if it names none.

    RFC 9110, section 12.5.1: a weight of 0 means "not acceptable".
    """
    for part in accept.split(","):
        kind, *parameters = (text.strip().lower() for text in part.split(";"))
        if kind in CONTENT_TYPES and not any(text in ("q=0", "q=0.0", "q=0.00", "q=0.000") for text in parameters):
            return kind
    return JSON


def answer(kind: str, page: Mapping[str, Any], request: PageRequest) -> tuple[dict[str, str], str]:
    """Returns the headers and the text of the answer to `request`, whose media type is `kind`."""
    headers = {"Content-Type": CONTENT_TYPES[kind], "Vary": "Accept"}
    if kind == JSON:
        return headers, f"{format_json(page)}\n"
    if kind == EVENT_STREAM:
        last = page["events"][-1]["position"] if page["events"] else ""
        # The messages follow the time after which the client comes again.
        retry_ms = NO_MORE_MS if page["next"] is None else MORE_MS
        return headers, f"retry: {retry_ms}\n\n{messages(page['events'], page['next'] or last, '', _last)}"
    if page["next"] is not None:
        headers["Link"] = f'<{_next_link(page["next"], request)}>; rel="next"'
    return headers, "".join(f"{json.dumps(event, ensure_ascii=False)}\n" for event in page["events"])


def messages(events: Sequence[Mapping[str, Any]], place: str, before: str, later: Callable[[str, str], str]) -> str:
    """Returns a message for each event, its JSON on one line; after them a client has reached `place`.

    `before` is its place until then, and `later` returns the later one of a place and an event's position: an event
    that was written late gets the place of those before it.
    """
    lines = []
    for event in events:
        before = later(before, event["position"])
        lines.append(f"id: {before}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n")
    if place != before:
        # The events there have expired, or are of another time: a client keeps an id by itself, and sees no message.
        lines.append(f"id: {place}\n\n")
    return "".join(lines)


def _last(_place: str, position: str) -> str:
    """The events of one page, in their order."""
    return position


def _next_link(place: str, request: PageRequest) -> str:
    """Returns the next page, relative to this one."""
    from_at, to_at = (to_iso(request.from_ms or None), to_iso(request.to_ms if request.to_ms != FOR_EVER else None))
    query = {"after": place, "limit": request.limit, "from": from_at, "to": to_at, "order": request.order or None}
    return "?" + urlencode({name: value for name, value in query.items() if value is not None})
