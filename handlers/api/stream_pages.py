"""Reads a page of a stream's events or gaps, or the page that those of its parts come to; or its timeline.

Nothing is written.
"""

import heapq
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

from handlers.api import event_pages, gaps, queries, status_words, views
from handlers.api.answers import Problem, to_iso
from handlers.api.connection_records import Connections
from handlers.api.control_stage import ApiCall, ControlStage
from handlers.api.event_pages import PAGE_BYTES, TIME, answer_bytes, event_json_within_page
from handlers.api.known_profiles import fields_of
from handlers.api.queries import PARTS, BadQuery, PageRequest
from handlers.profile.addresses import tag_of
from handlers.profile.checked_fields import Fields
from handlers.profile.time_field import OwnTime, own_time
from handlers.store.event_items import Entry
from handlers.values import dataclass


def events(stage: ControlStage, call: ApiCall, request: PageRequest, is_late: Callable[[], bool]) -> dict[str, Any]:
    """Returns a page of events, as docs/store.md describes it, as far as it was read before `is_late`."""

    def at_ms(event: Mapping[str, Any]) -> str:
        return str(event.get("happened_at") or event["received_at"])

    return _page_or_merged(stage, call, request, "events", lambda one, part: _events(stage, one, part, is_late), at_ms)


def gap_list(stage: ControlStage, call: ApiCall) -> dict[str, Any]:
    """Returns a page of gaps, as handlers/api/gaps.py builds it."""
    request = gaps.LISTING.read(call.query)
    return _page_or_merged(stage, call, request, "gaps", partial(_gaps, stage), lambda gap: str(gap["from_at"]))


def timeline(stage: ControlStage, call: ApiCall) -> dict[str, Any]:
    """Returns the lanes of the last hour, and whether the stream's profile can repair gaps."""
    shown = views.timeline(call.stream_id, stage.readable_records(call), *stage.timing[:2])
    return shown | {"is_repairable": "repair" in stage.known.fields(call.profile)}


def _page_or_merged(
    stage: ControlStage,
    call: ApiCall,
    request: PageRequest,
    kind: str,
    page: Callable[[ApiCall, PageRequest], dict[str, Any]],
    at: Callable[[Mapping[str, Any]], str],
) -> dict[str, Any]:
    if request.after and request.after.startswith(PARTS) != bool(call.parts):
        words = f"the position is not one of {call.stream_id!r}, which is {'' if call.parts else 'not '}read in parts"
        raise Problem("no-such-position", words, "after")
    if not call.parts:
        return page(call, request)

    def read(part_id: str, of_part: PageRequest) -> dict[str, Any]:
        return page(call._replace(stream_id=part_id, parts=()), of_part)

    return merge_pages(call.stream_id, stage.started_streams(call), request, kind, read, at)


def _events(stage: ControlStage, call: ApiCall, request: PageRequest, is_late: Callable[[], bool]) -> dict[str, Any]:
    """Returns a page of the events of a stream that is connected itself."""
    stream_id, layout = call.stream_id, stage.layout(call)
    event_pages.check_place(request.after, layout.order, by_time=bool(request.order))
    by_time, after, limit = None, request.after, request.limit
    if request.order:
        by_time, after, limit = own_time_of(stage.known.text(call.profile)), "", MOST_SORTED + 1
    # A place was reached from the instant: the search for that, some ten reads in a log, is for the first page alone.
    begin = after or stage.reader.place_at(stream_id, layout, request.from_ms)
    entries = stage.reader.entries(stream_id, layout, stage.now_ms(), begin, limit, event_pages.BODY_BYTES)
    wanted = event_pages.entries_within(entries, request, layout)
    if by_time is not None:
        return page_by_own_time(stream_id, wanted, request, by_time, is_late)
    return event_pages.page(stream_id, wanted, request.limit, is_late, order=layout.order)


def _gaps(stage: ControlStage, call: ApiCall, request: PageRequest) -> dict[str, Any]:
    records = stage.readable_records(call)
    connections = Connections(records, stage.now_ms(), stage.dead_after_ms)
    written = stage.store.gaps(call.stream_id, gaps.sort_key(request.after), request.limit + 1)
    word = status_words.status(connections)
    return gaps.gap_page(call.stream_id, word, connections, written, records.repairs, request)


Page = dict[str, Any]
# Sorts after every instant that the API writes.
_LATEST = "~"


@dataclass(slots=True)
class _Part:
    """One part of the page: its entries with their sort keys, and how many of them are on the page."""

    stream_id: str
    tag: str
    entries: list[tuple[str, Page]] = field(default_factory=list)
    next: str | None = None
    shown: int = 0

    @property
    def horizon(self) -> str:
        """The instant up to which all entries of the part are known; "" for none, if its page had only empty places."""
        if self.next is None:
            return _LATEST
        return self.entries[-1][0] if self.entries else ""


def merge_pages(
    stream_id: str,
    part_ids: Sequence[str],
    request: PageRequest,
    kind: str,
    read: Callable[[str, PageRequest], Page],
    at: Callable[[Page], str],
) -> Page:
    """Returns {"stream", kind, "next"} with the entries of the parts.

    `read` returns a part's page, `at` when an entry came, as a text. Each entry says under "stream" which part it is
    of. One without a position, which has not ended, comes last and on the last page.

        part 1, share of the page   10:00:01  10:00:04 | more        page   10:00:01 (1)  10:00:02 (2)  10:00:04 (1)
        part 2                      10:00:02  10:00:07               next page begins behind these

    It reads a share of each part, from the part's own place on, and stops at the last entry of the part that is
    furthest behind. So the page is in the order of arrival as far as each part's own pages are. Invariants: every entry
    of a part is on one page of a walk, in the part's order, however late it was stored and wherever the walk was
    interrupted, because a place holds each part's own. While there is more, a page moves on in at least one part.
    """
    places, size, share = queries.read_places(request.after), 0, -(-request.limit // len(part_ids))
    parts, order_field = [], dict[str, Any]()
    for part_id in part_ids:
        part = _Part(part_id, tag_of(part_id))
        parts.append(part)
        # No more is read than fits: a page of each part would be too much for the function's memory. Then the page does
        # not hold all that was read either, so there is another one.
        if size > PAGE_BYTES:
            continue
        page = read(part_id, replace(request, after=places.get(part.tag, ""), limit=share))
        part.next = page.get("next")
        part.entries = list(_in_order(page.get(kind, []), at))
        size += sum(answer_bytes(entry) for _, entry in part.entries)
        order_field |= {name: value for name, value in page.items() if name == "order"}
    places = {part.tag: places[part.tag] for part in parts if part.tag in places}
    entries = _page(parts, places, request.limit)
    for part in parts:
        if part.shown == len(part.entries) and part.next is not None:
            places[part.tag] = part.next
    is_more = any(part.next is not None or part.shown < len(part.entries) for part in parts)
    return {"stream": stream_id, **order_field, kind: entries, "next": queries.places_text(places) if is_more else None}


def _in_order(entries: Sequence[Page], at: Callable[[Page], str]) -> Iterator[tuple[str, Page]]:
    """The entries in their order, each with a text that is never smaller than the one before it."""
    latest = ""
    for entry in entries:
        latest = max(latest, _LATEST if entry["position"] is None else at(entry))
        yield latest, entry


def _page(parts: Sequence[_Part], places: dict[str, str], limit: int) -> list[Page]:
    """The entries of the page; `places` are moved behind them."""
    horizon, size, entries = min(part.horizon for part in parts), 0, list[Page]()
    keyed = ([(key, number, entry) for key, entry in part.entries] for number, part in enumerate(parts))
    for key, number, entry in heapq.merge(*keyed, key=lambda one: one[:2]):
        part = parts[number]
        # A gap that lasts has no place, so only the last page has it.
        is_last = entry["position"] is None
        if key > horizon or (is_last and any(one.next is not None for one in parts)):
            break
        behind = places if is_last else places | {part.tag: entry["position"]}
        shown = entry | {"position": None if is_last else queries.places_text(behind, part.tag)}
        shown |= {"stream": part.stream_id}
        size += answer_bytes(shown)
        if entries and (size > PAGE_BYTES or (len(entries) >= limit and not is_last)):
            break
        # The place moves only with what is on the page.
        places |= behind
        part.shown += 1
        entries.append(shown)
    return entries


MOST_SORTED = 10_000
ORDER_BY_TIME = "by the events' own time"


@lru_cache(100)
def own_time_of(profile: str) -> OwnTime:
    """Returns where events have their own time, by a profile's text: its `time`, or its repair's; raises Problem."""
    table = fields_of(profile)
    for place in (table, table.get("repair")):
        time = own_time(Fields("", place, [])) if isinstance(place, Mapping) else OwnTime()
        if time.path is not None:
            return time
    raise Problem("no-time", "the stream's profile does not name the events' own time", "order")


def page_by_own_time(
    stream_id: str, entries: Iterable[Entry], request: PageRequest, time: OwnTime, is_late: Callable[[], bool]
) -> dict[str, Any]:
    """Returns the answer: {"stream", "order", "events", "next"}; raises BadQuery if there are too many to sort.

    `entries` are all requested ones, wherever the page begins.

    For each page all requested events (`from` and `to`, by arrival) are read, and those after the place in the order of
    time are kept, as many as fit a page. So events that a repair brought hours later are in their places.

        arrived      9  10  14  15  11 (repaired)  12 (repaired)
        in order     9  10  11  12  14  15

    An event without its own time is sorted by its arrival. A place is "time.", the instant in 15 digits of
    milliseconds, a dot, and the event's position. Invariants: at most MOST_SORTED places are read; more are refused; no
    more than a page is held at once; an event that is stored meanwhile, and happened before the place, is on no later
    page.
    """
    kept: list[tuple[str, int, dict[str, Any]]] = []
    size, is_more = 0, False
    for number, entry in enumerate(entries):
        if number >= MOST_SORTED or is_late():
            words = (
                f"order=time sorts at most {MOST_SORTED:,} events; this time has more, or sorting them takes too long"
            )
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
    return {"stream": stream_id, "order": ORDER_BY_TIME, "events": events, "next": kept[-1][0] if is_more else None}
