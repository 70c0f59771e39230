"""Puts a stream's events into the order in which they happened, for `GET …/events?order=time`.

For each page all requested events (`from` and `to`, by arrival) are read, and those after the place in the order of
time are kept, as many as fit a page. So events that a repair brought hours later are in their places.

    arrived      9  10  14  15  11 (repaired)  12 (repaired)
    in order     9  10  11  12  14  15

An event without its own time is sorted by its arrival. A place is "time.", the instant in 15 digits of milliseconds, a
dot, and the event's position. Invariants: at most MOST places are read; more are refused; no more than a page is held
at once; an event that is stored meanwhile, and happened before the place, is on no later page.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any

from handlers.api.answers import Problem, to_iso
from handlers.api.event_pages import PAGE_BYTES, TIME, event_json_within_page
from handlers.api.known_profiles import fields_of
from handlers.api.queries import BadQuery, PageRequest
from handlers.profile.checked_fields import Fields
from handlers.profile.time_field import OwnTime, own_time
from handlers.store.event_items import Entry

MOST = 10_000
ORDER = "by the events' own time"


@lru_cache(100)
def own_time_of(profile: str) -> OwnTime:
    """Returns where events have their own time, by a profile's text: its `time`, or its repair's; raises Problem."""
    table = fields_of(profile)
    for place in (table, table.get("repair")):
        time = own_time(Fields("", place, [])) if isinstance(place, Mapping) else OwnTime()
        if time.path is not None:
            return time
    raise Problem("no-time", "the stream's profile does not name the events' own time", "order")


def page(
    stream_id: str, entries: Iterable[Entry], request: PageRequest, time: OwnTime, is_late: Callable[[], bool]
) -> dict[str, Any]:
    """Returns the answer: {"stream", "order", "events", "next"}; raises BadQuery if there are too many to sort.

    `entries` are all requested ones, wherever the page begins.
    """
    kept: list[tuple[str, int, dict[str, Any]]] = []
    size, is_more = 0, False
    for number, entry in enumerate(entries):
        if number >= MOST or is_late():
            words = f"order=time sorts at most {MOST:,} events; this time has more, or sorting them takes too long"
            raise BadQuery("order", words, "Request a shorter time with from and to.")
        if entry.event is None:
            continue
        own_ms = time.event_ms(entry.event.data)
        happened_ms = entry.event.received_at_ms if own_ms is None else max(0, own_ms)
        place = f"{TIME}{happened_ms:015d}.{entry.position}"
        if place <= request.after or (is_more and place > kept[-1][0]):
            continue
        body, body_bytes = event_json_within_page(entry.event)
        insort(kept, (place, body_bytes, body | {"position": place, "happened_at": to_iso(own_ms)}), key=itemgetter(0))
        size += body_bytes
        while len(kept) > request.limit or (size > PAGE_BYTES and len(kept) > 1):
            size -= kept.pop()[1]
            is_more = True
    events = [body for _, _, body in kept]
    return {"stream": stream_id, "order": ORDER, "events": events, "next": kept[-1][0] if is_more else None}
