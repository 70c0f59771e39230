"""Reads a page of a stream's events or gaps, or the page that those of its parts come to; or its timeline.

Nothing is written.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from handlers.api import event_pages, gaps, status_words, views
from handlers.api.answers import Problem
from handlers.api.connection_records import Connections
from handlers.api.control_stage import ApiCall, ControlStage
from handlers.api.queries import PARTS, PageRequest


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
    from handlers.api import part_pages

    def read(part_id: str, of_part: PageRequest) -> dict[str, Any]:
        return page(call._replace(stream_id=part_id, parts=()), of_part)

    return part_pages.merge_pages(call.stream_id, stage.started_streams(call), request, kind, read, at)


def _events(stage: ControlStage, call: ApiCall, request: PageRequest, is_late: Callable[[], bool]) -> dict[str, Any]:
    """Returns a page of the events of a stream that is connected itself."""
    stream_id, layout = call.stream_id, stage.layout(call)
    event_pages.check_place(request.after, layout.order, by_time=bool(request.order))
    by_time, after, limit = None, request.after, request.limit
    if request.order:
        from handlers.api import own_time_order

        by_time, after, limit = own_time_order.own_time_of(stage.known.text(call.profile)), "", own_time_order.MOST + 1
    # A place was reached from the instant: the search for that, some ten reads in a log, is for the first page alone.
    begin = after or stage.reader.place_at(stream_id, layout, request.from_ms)
    entries = stage.reader.entries(stream_id, layout, stage.now_ms(), begin, limit, event_pages.BODY_BYTES)
    wanted = event_pages.entries_within(entries, request, layout)
    if by_time is not None:
        return own_time_order.page(stream_id, wanted, request, by_time, is_late)
    return event_pages.page(stream_id, wanted, request.limit, is_late, order=layout.order)


def _gaps(stage: ControlStage, call: ApiCall, request: PageRequest) -> dict[str, Any]:
    records = stage.readable_records(call)
    connections = Connections(records, stage.now_ms(), stage.dead_after_ms)
    written = stage.store.gaps(call.stream_id, gaps.sort_key(request.after), request.limit + 1)
    word = status_words.status(connections)
    return gaps.gap_page(call.stream_id, word, connections, written, records.repairs, request)
