"""The sources of an archive's events: the HTTP API of a stage, or its tables, read by boto3.

Both give the same events, because the tables are read by the API's own code. Invariant: only one page is in memory,
however much is read.
"""

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any, Protocol

from handlers.api import event_pages
from handlers.api.queries import FOR_EVER, PageRequest
from handlers.connection.inputs import Layout
from handlers.errors import StoreUnavailable
from handlers.redrive.redriving import Stage
from handlers.store.event_reader import EventReader
from handlers.store.stream_records import StreamRecords
from local.archive.hours import written
from local.streams.asking import Streams, path_of
from local.user_error import UserError

Page = list[dict[str, Any]]
# The number of entries that are read from a table for a page.
ENTRIES = 1000
# More than any table holds.
MOST = 10**12


class Source(Protocol):
    """The events of streams; several threads may share it."""

    def pages(self, stream_id: str, from_ms: int, to_ms: int, limit: int | None = None) -> Iterator[Page]:
        """The events that came at or after `from_ms` and before `to_ms`, at most `limit`; raises UserError."""

    def is_by_key(self, stream_id: str) -> bool:
        """Whether the stream has no order, so that each run reads all of its events."""


class ByApi:
    """Asks the API."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def pages(self, stream_id: str, from_ms: int, to_ms: int, limit: int | None = None) -> Iterator[Page]:
        """As Source has it."""
        query = {"from": written(from_ms), "to": written(to_ms) if to_ms < FOR_EVER else None}
        for page in self._streams.pages(path_of(stream_id, "/events"), query, limit):
            yield page["events"]

    def is_by_key(self, stream_id: str) -> bool:
        """As Source has it."""
        return "order" in self._streams.ask("GET", path_of(stream_id, "/events"), {"limit": 1})


class ByTables:
    """Reads the tables of a deployed stage, or of the run on this machine."""

    def __init__(self, stage: Stage) -> None:
        self._records = StreamRecords(stage.dynamodb, stage.control_table)
        self._reader = EventReader(stage.dynamodb, stage.events.table, stage.events.objects.find)

    def pages(self, stream_id: str, from_ms: int, to_ms: int, limit: int | None = None) -> Iterator[Page]:
        """As Source has it."""
        with _said():
            layout = self._layout(stream_id)
            after = self._reader.place_at(stream_id, layout, from_ms)
            now_ms = time.time_ns() // 1_000_000
            entries = self._reader.entries(stream_id, layout, now_ms, after, MOST)
            wanted = event_pages.within(entries, PageRequest("", ENTRIES, from_ms, to_ms), layout)
            events = (event_pages.shown(one.event) for one in wanted if one.event is not None)
            chosen = itertools.islice(events, limit)
            while page := list(itertools.islice(chosen, ENTRIES)):
                yield page

    def is_by_key(self, stream_id: str) -> bool:
        """As Source has it."""
        with _said():
            return self._layout(stream_id).order == "none"

    def _layout(self, stream_id: str) -> Layout:
        layout = self._records.layout(stream_id)
        if layout is None:
            raise UserError(f"The stream {stream_id!r} was never started in this stage.")
        return layout


def of_stage(name: str) -> ByTables:
    """The tables of a stage, "local" for the run on this machine, for the client; raises UserError."""
    from local.redrive.stage import connect

    return ByTables(connect(None if name == "local" else name))


@contextlib.contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable as failure:
        raise UserError(f"The tables cannot be read: {str(failure).rstrip('.')}.") from None
