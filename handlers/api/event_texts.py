"""Writes a page of events as what the client accepts: JSON, a line of JSON for each event, or an event stream.

    application/json       the page with `events` and `next`
    application/x-ndjson   an event a line; the header Link has the next page (RFC 8288)
    text/event-stream      an event a message, its position the id; then the time after which the client comes again

A Lambda function answers once, so an event stream of it is a page: an EventSource comes again by itself, with the last
id in Last-Event-ID, and goes on behind it. Invariant: each representation has the same events in the same order.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from handlers.api.instants import at
from handlers.api.layout import laid_out
from handlers.api.queries import FOR_EVER, PageRequest

JSON, NDJSON, EVENT_STREAM = "application/json", "application/x-ndjson", "text/event-stream"
CONTENT_TYPES = {JSON: JSON, NDJSON: NDJSON, EVENT_STREAM: f"{EVENT_STREAM}; charset=utf-8"}
# After how long a client comes again where more is there, and where nothing more was there.
MORE_MS, NO_MORE_MS = 100, 3000


def representation(accept: str) -> str:
    """The first of the three media types that an Accept header names; JSON where it names none.

    RFC 9110, section 12.5.1: a weight of 0 means "not acceptable".
    """
    for part in accept.split(","):
        kind, *parameters = (text.strip().lower() for text in part.split(";"))
        if kind in CONTENT_TYPES and not any(text in ("q=0", "q=0.0", "q=0.00", "q=0.000") for text in parameters):
            return kind
    return JSON


def answer(kind: str, page: Mapping[str, Any], request: PageRequest) -> tuple[dict[str, str], str]:
    """The headers and the text of the answer to `request`, whose media type is `kind`."""
    headers = {"Content-Type": CONTENT_TYPES[kind], "Vary": "Accept"}
    if kind == JSON:
        return headers, f"{laid_out(page)}\n"
    if kind == EVENT_STREAM:
        return headers, event_stream(page)
    if page["next"] is not None:
        headers["Link"] = f'<{_next(page["next"], request)}>; rel="next"'
    return headers, "".join(f"{json.dumps(event, ensure_ascii=False)}\n" for event in page["events"])


def event_stream(page: Mapping[str, Any]) -> str:
    """The page as messages, behind the time after which the client comes again."""
    last = page["events"][-1]["position"] if page["events"] else ""
    retry_ms = NO_MORE_MS if page["next"] is None else MORE_MS
    return f"retry: {retry_ms}\n\n{messages(page['events'], page['next'] or last, '')}"


def messages(events: Sequence[Mapping[str, Any]], place: str, before: str) -> str:
    """A message for each event, the JSON of it; nothing in JSON is a line end. At the end a client stands at `place`.

    `before` is where it stood: an event that was written late has the place of those that were before it.
    """
    lines = []
    for event in events:
        before = max(before, event["position"])
        lines.append(f"id: {before}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n")
    if place > before:
        # What was there has expired, or is of another time: an id alone is kept, and no message comes of it.
        lines.append(f"id: {place}\n\n")
    return "".join(lines)


def _next(place: str, request: PageRequest) -> str:
    """The next page, relative to this one."""
    times = {"from": request.from_ms or None, "to": request.to_ms if request.to_ms != FOR_EVER else None}
    chosen = {name: at(instant_ms) for name, instant_ms in times.items() if instant_ms is not None}
    return "?" + urlencode({"after": place, "limit": request.limit, **chosen})
