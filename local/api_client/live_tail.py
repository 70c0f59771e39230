"""Keeps an event stream of a stream's events open, as the deployed API cannot, by reading page after page.

It reads pages of JSON and writes each new event as a message, late ones included; the message's id is the place from
which to go on. As at the deployed API, a client that returns with Last-Event-ID does not get events that were written
late before that place. Invariants: if the first page is refused, that refusal is the answer; nothing more is read for a
client that has gone.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.responses import Response, StreamingResponse

from handlers.api import event_pages
from streamkeeper.following import Following, passed_ms

# How often new events are polled on this machine, and after what silence a comment keeps the connection alive.
EVERY_S, SILENT_S = 0.5, 15.0
# Returns the function's answer in JSON: the page behind this position.
Page = Callable[[str], Awaitable[Response]]


async def stream_pages(page: Page, after: str, every_s: float = EVERY_S) -> Response:
    """Returns the open answer, or the refusal of the first page; `every_s` is the time between two pages."""
    first = await page(after)
    if first.status_code != 200:
        return first
    headers = {"Cache-Control": first.headers["cache-control"], "Vary": "Accept"}
    return StreamingResponse(
        _messages(page, after, bytes(first.body), every_s),
        headers=headers,
        media_type=event_pages.CONTENT_TYPES[event_pages.EVENT_STREAM],
    )


async def _messages(page: Page, after: str, body: bytes, every_s: float) -> AsyncIterator[str]:
    following = Following(after)
    yield f"retry: {event_pages.NO_MORE_MS}\n\n"
    said_s = time.monotonic()
    while True:
        answer = json.loads(body)
        before = following.place
        text = event_pages.messages(following.take(answer, passed_ms()), following.place, before, following.later)
        if text or time.monotonic() - said_s >= SILENT_S:
            said_s = time.monotonic()
            yield text or ": still here\n\n"
        while True:
            if not following.is_behind:
                await asyncio.sleep(every_s)
            answered = await page(following.after(passed_ms()))
            if answered.status_code == 200:
                break
            # The table refuses, or no sandbox is free: nothing is lost, and the same page is tried again later.
            await asyncio.sleep(SILENT_S / 5)
        body = bytes(answered.body)


def accepts_event_stream(headers: Any) -> bool:
    return event_pages.choose_media_type(headers.get("accept", "")) == event_pages.EVENT_STREAM
