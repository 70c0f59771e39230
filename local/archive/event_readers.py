"""The sources of an archive's events: the HTTP API of a stage, or its tables, read by boto3.

Both give the same events, because the tables are read by the API's own code. A stream in parts is read as one here too;
the tables do not list its parts, so the profile on this machine does. Invariant: only one page is in memory, one of
each part at most, however much is read.
"""

import heapq
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

from handlers.api import event_pages, queries
from handlers.api.queries import FOR_EVER, PageRequest
from handlers.connection.inputs import Layout
from handlers.profile.addresses import tag_of
from handlers.redrive.redriving import Stage
from handlers.store.event_reader import EventReader
from handlers.store.stream_records import StreamRecords
from local.profiles import folders, profile_files
from local.streams.api_session import ApiSession
from local.terminal import UserError
from streamkeeper.bulk import Page, api_instant, instant_ms
from streamkeeper.following import instants_by_api_clock
from streamkeeper.instants import NOW, instant
from streamkeeper.transport import path_of

# The number of entries that are read from a table for a page.
ENTRIES = 1000
# More than any table holds.
MOST = 10**12


class ApiReader:
    def __init__(self, streams: ApiSession) -> None:
        self._streams = streams

    def pages(self, stream_id: str, from_ms: int, to_ms: int, limit: int | None = None) -> Iterator[Page]:
        """See Tables."""
        query = {"from": api_instant(from_ms), "to": api_instant(to_ms) if to_ms < FOR_EVER else None}
        for page in self._streams.pages(path_of(stream_id, "/events"), query, limit):
            yield page["events"]

    def at_ms(self, written: str) -> int:
        """An instant by the API's clock: this machine's may be hours ahead, and an hour that is not over has no end."""
        [at] = self._streams.perform(instants_by_api_clock(written))
        return instant_ms(at or "")

    def is_by_key(self, stream_id: str) -> bool:
        """See Tables."""
        return "order" in self._streams.request("GET", path_of(stream_id, "/events"), {"limit": 1})


class TableReader:
    """Reads the tables of a deployed stage, or of the run on this machine; `environment` names the user's profiles.

    Every method may raise StoreUnavailable.
    """

    def __init__(self, stage: Stage, environment: Mapping[str, str]) -> None:
        self._records = StreamRecords(stage.dynamodb, stage.control_table)
        self._reader = EventReader(stage.dynamodb, stage.events.table, stage.events.objects.find)
        self._environment = environment

    def pages(self, stream_id: str, from_ms: int, to_ms: int, limit: int | None = None) -> Iterator[Page]:
        """See Tables."""
        layouts = self._layouts(stream_id)
        if stream_id in layouts:
            events = self._events(stream_id, layouts[stream_id], from_ms, to_ms)
        else:
            events = _merge_parts({one: self._events(one, layout, from_ms, to_ms) for one, layout in layouts.items()})
        chosen = itertools.islice(events, limit)
        while page := list(itertools.islice(chosen, ENTRIES)):
            yield page

    def at_ms(self, written: str) -> int:
        """An instant by this machine's clock: AWS refuses requests if that differs by more than five minutes."""
        return instant_ms(instant(written))

    def is_by_key(self, stream_id: str) -> bool:
        """See Tables."""
        return any(layout.order == "none" for layout in self._layouts(stream_id).values())

    def _events(self, stream_id: str, layout: Layout, from_ms: int, to_ms: int) -> Iterator[dict[str, Any]]:
        after = self._reader.place_at(stream_id, layout, from_ms)
        entries = self._reader.entries(stream_id, layout, self.at_ms(NOW), after, MOST)
        wanted = event_pages.entries_within(entries, PageRequest("", ENTRIES, from_ms, to_ms), layout)
        return (event_pages.event_json(one.event) for one in wanted if one.event is not None)

    def _layouts(self, stream_id: str) -> dict[str, Layout]:
        """The layout of the stream, or of each of its parts that was ever started."""
        known = folders.known_profiles(self._environment)
        parts = profile_files.parts_of(stream_id, known)
        read = ((one, self._records.layout(one)) for one in parts or (stream_id,))
        layouts = {one: layout for one, layout in read if layout is not None}
        if not layouts:
            words = f"The stream {stream_id!r} was never started in this stage."
            if stream_id not in known and ":" not in stream_id:
                words += f" If it is read in parts, {folders.VARIABLE} must name the folder of its profile."
            raise UserError(words)
        return layouts


def _merge_parts(parts: Mapping[str, Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """The events of the parts in the order of arrival, each with its part and its position in the whole."""

    def with_sort_key(number: int, part_id: str) -> Iterator[tuple[str, int, str, dict[str, Any]]]:
        latest = ""
        for event in parts[part_id]:
            latest = max(latest, event["received_at"])
            yield latest, number, part_id, event

    every, places = (with_sort_key(*one) for one in enumerate(parts)), dict[str, str]()
    for _, _, part_id, event in heapq.merge(*every, key=lambda one: one[:2]):
        places[tag_of(part_id)] = event["position"]
        yield event | {"position": queries.places_text(places, tag_of(part_id)), "stream": part_id}


def reader_of_stage(name: str) -> TableReader:
    """The tables of a stage, "local" for the run on this machine, for the client; raises UserError."""
    from local.redrive.stage import connect_redrive_stage

    return TableReader(connect_redrive_stage(None if name == "local" else name), os.environ)
