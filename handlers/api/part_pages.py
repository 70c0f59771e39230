"""Makes one page of the pages of a stream's parts: of their events, or of their gaps.

    part 1, share of the page   10:00:01  10:00:04 | more        page   10:00:01 (1)  10:00:02 (2)  10:00:04 (1)
    part 2                      10:00:02  10:00:07               next page begins behind these

It reads a share of each part, from the part's own place on, and stops at the last entry of the part that is furthest
behind. So the page is in the order of arrival as far as each part's own pages are. Invariants: every entry of a part is
on one page of a walk, in the part's order, however late it was stored and wherever the walk was interrupted, because a
place holds each part's own. While there is more, a page moves on in at least one part.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from handlers.api import queries
from handlers.api.event_pages import PAGE_BYTES, answer_bytes
from handlers.api.queries import PageRequest
from handlers.profile.addresses import tag_of
from handlers.values import dataclass

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
