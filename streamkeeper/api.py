"""The client of an API that is deployed with `api_auth: key`, or of the run on this machine."""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from os import PathLike
from typing import Any, Literal, Self, cast

from streamkeeper import dataframes
from streamkeeper.bulk import FOR_EVER, Archive, Tables, api_instant, instant_ms, pages_from_tables, tables_of
from streamkeeper.event import Event, event_of
from streamkeeper.exceptions import InvalidRequest
from streamkeeper.follower import Checkpoint, FileCheckpoint, Place, follow
from streamkeeper.following import instants_by_api_clock
from streamkeeper.instants import NOW, Instant
from streamkeeper.replies import Gap, Started, Status, Stopped, StreamRow
from streamkeeper.transport import Send, Transport, Wait, path_of, perform, request_steps, with_query

# The most entries that the API puts into a page.
MOST = 1000


def pages(
    ask: Callable[[dict[str, Any]], dict[str, Any]], query: Mapping[str, Any], left: int | None = None
) -> Iterator[dict[str, Any]]:
    """The pages of a list, with at most `left` entries in all; `ask` sends the query and returns the answer's JSON."""
    after = query.get("after")
    while left is None or left > 0:
        page = ask({**query, "after": after, "limit": MOST if left is None else min(left, MOST)})
        yield page
        left = None if left is None else left - len(page["events"])
        after = page["next"]
        if after is None:
            return


class StoredEvents:
    """Events of a stream that each iteration fetches again, a page of at most 1,000 at a time.

    `pages` yields the events in order: lists of them in the API's JSON, and an archive's as Arrow's record batches.
    """

    def __init__(self, stream_id: str, pages: Callable[[], Iterator[Any]]) -> None:
        self._stream_id, self._pages = stream_id, pages

    def __iter__(self) -> Iterator[Event]:
        for page in self._event_lists():
            yield from (event_of(self._stream_id, raw) for raw in page)

    def batches(self) -> Iterator[Any]:
        """All events as pyarrow.RecordBatches of up to 1,000; only a few are in memory at a time."""
        dataframes.import_package("pyarrow")
        for page in self._pages():
            yield dataframes.batch(page) if isinstance(page, list) else page

    def to_arrow(self) -> Any:
        """All events as a pyarrow.Table, in memory; raises StreamkeeperError if pyarrow is not installed."""
        return dataframes.import_package("pyarrow").Table.from_batches(self.batches(), schema=dataframes.schema())

    def to_pandas(self) -> Any:
        """All events as a pandas.DataFrame, in memory; raises StreamkeeperError if pandas is not installed."""
        dataframes.import_package("pandas")
        return dataframes.pandas(self._event_lists())

    def _event_lists(self) -> Iterator[list[dict[str, Any]]]:
        for page in self._pages():
            yield page if isinstance(page, list) else [dataframes.event_json(row) for row in page.to_pylist()]


_LOG = logging.getLogger("streamkeeper")


class Client:
    """The streams of the API at `url`; threads may share it.

    `key` is that of a stage with `api_auth: key`. If the API throttles or is away, each request is repeated for up to
    `patient_s`; an answer is awaited for `timeout_s`. `events` reads events from an `archive` (s3://bucket/prefix or a
    folder) as far as it has them, and the rest from the `tables` of the stage with this name, or from the API. It reads
    `jobs` parts of the time at once from an archive or tables. Every method may raise a StreamkeeperError.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        patient_s: float = 60.0,
        timeout_s: float = 35.0,
        archive: str | PathLike[str] | None = None,
        tables: str | Tables | None = None,
        jobs: int = 4,
    ) -> None:
        if timeout_s <= 0:
            raise InvalidRequest("timeout_s must be more than 0.")
        if jobs < 1:
            raise InvalidRequest("jobs must be 1 or more.")
        self._transport = Transport(url, key, timeout_s)
        self._patient_s = patient_s
        self._archive = None if archive is None else Archive(str(archive))
        self._tables, self._jobs = tables, jobs

    def __repr__(self) -> str:
        return f"Client({self._transport.url!r})"

    def streams(self) -> Iterator[StreamRow]:
        """All streams that were ever started, in the order of their ids."""
        for page in self._pages("streams", "/connections", {}):
            yield from page["streams"]

    def status(self, stream_id: str) -> Status:
        """The status of a stream."""
        return cast(Status, self._request("GET", path_of(stream_id)))

    def start(self, stream_id: str) -> Started:
        """Starts a stream; may be repeated."""
        return cast(Started, self._request("POST", path_of(stream_id)))

    def stop(self, stream_id: str) -> Stopped:
        """Requests that a stream stops; may be repeated."""
        return cast(Stopped, self._request("DELETE", path_of(stream_id)))

    def gaps(self, stream_id: str, since: Instant | None = None, until: Instant | None = None) -> Iterator[Gap]:
        """The gaps of a stream in this time."""
        path, query = path_of(stream_id, "/gaps"), self._times(since, until)
        return (gap for page in self._pages("gaps", path, query) for gap in page["gaps"])

    def events(
        self,
        stream_id: str,
        since: Instant | None = None,
        until: Instant | None = None,
        *,
        after: str = "",
        limit: int | None = None,
        order: Literal["", "time"] = "",
    ) -> StoredEvents:
        """The stored events in order: received at or after `since` and before `until`, after the position `after`.

        An instant is "2026-11-21T06:25:19Z", "2026-11-21", "1h" (ago), a datetime or a timedelta. With `order="time"`
        events come in the order of their own time, so repaired events are where they happened; the API refuses this for
        a stream whose profile names no time (`no-time`).
        """
        if limit is not None and limit < 0:
            raise InvalidRequest("limit must be 0 or more, or None for all events.")
        path, times = path_of(stream_id, "/events"), self._times(since, until, is_asked=self._tables is None)
        if self._archive is None and self._tables is None:
            query = {**times, "after": after, "order": order}
            return StoredEvents(stream_id, lambda: (one["events"] for one in self._pages("events", path, query, limit)))
        if limit is not None or order or (after and self._tables is not None):
            raise InvalidRequest(
                "limit and order work only with the API, and after not with tables: give since and until."
            )
        from_ms, to_ms = (instant_ms(times[name]) if name in times else 0 for name in ("from", "to"))
        return StoredEvents(stream_id, lambda: self._archived_batches(stream_id, from_ms, to_ms or FOR_EVER, after))

    def _archived_batches(self, stream_id: str, from_ms: int, to_ms: int, after: str) -> Iterator[Any]:
        """The archive's batches, as far as it has all events; before and after that, pages from tables or the API."""
        at_ms = from_ms
        if self._archive is not None:
            begin_ms, end_ms = self._archive.span_ms(stream_id)
            if not end_ms:
                _LOG.warning("%s is no archive of %r: all is read elsewhere.", self._archive.address, stream_id)
            at_ms = min(max(from_ms, begin_ms), to_ms)
            yield from self._pages_beyond_archive(stream_id, from_ms, at_ms, after)
            # While a slow reader is in the archive, it grows, and events expire elsewhere.
            while (end_ms := min(self._archive.span_ms(stream_id)[1], to_ms)) > at_ms:
                yield from self._archive.batches(stream_id, at_ms, end_ms, after, self._jobs)
                at_ms = end_ms
        yield from self._pages_beyond_archive(stream_id, at_ms, to_ms, after)

    def _pages_beyond_archive(self, stream_id: str, from_ms: int, to_ms: int, after: str) -> Iterator[Any]:
        """The pages of the tables, or of the API."""
        if from_ms >= to_ms:
            return iter(())
        if self._tables is not None:
            if isinstance(self._tables, str):
                self._tables = tables_of(self._tables)
            return pages_from_tables(self._tables, stream_id, from_ms, to_ms, self._jobs)
        query = {"from": api_instant(from_ms), "to": api_instant(to_ms) if to_ms < FOR_EVER else None, "after": after}
        return (page["events"] for page in self._pages("events", path_of(stream_id, "/events"), query))

    def follow(
        self,
        stream_id: str,
        after: str = "",
        *,
        since: Instant | None = None,
        checkpoint: "Checkpoint | str | PathLike[str] | None" = None,
        every_s: float = 1.0,
    ) -> AsyncGenerator[Event, None]:
        """Each event as it is stored, for as long as the consumer iterates; it polls every `every_s`.

        It begins at the checkpoint, or else after `after`, or else at `since`, or else now. It waits out an outage of
        an API that has answered before, and warns in the log `streamkeeper`. With a checkpoint, each event comes at
        least once even if the consumer is killed: events of the last 25 s before the kill may come again. See `once`.
        """
        if every_s <= 0:
            raise InvalidRequest("every_s must be more than 0.")
        begin = instants_by_api_clock(since or (None if after else NOW))
        known = FileCheckpoint(checkpoint) if isinstance(checkpoint, str | PathLike) else checkpoint
        base = path_of(stream_id, "/events")

        def path(after: str, since: str | None) -> str:
            return with_query(base, {"after": after, "from": since, "limit": MOST})

        return follow(self._transport.send, path, Place(stream_id, known, after, begin), every_s)

    def close(self) -> None:
        """Closes the idle connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pages(self, of: str, path: str, query: Mapping[str, Any], left: int | None = None) -> Iterator[dict[str, Any]]:
        return pages(lambda asked: self._request("GET", with_query(path, asked), of), query, left)

    def _request(self, method: str, path: str, page_of: str = "") -> dict[str, Any]:
        return perform(request_steps(Send(method, path, page_of=page_of), self._patient_s), self._transport.send, _wait)

    def _times(self, since: Instant | None, until: Instant | None, *, is_asked: bool = True) -> dict[str, str]:
        """The times of a query, by the clock of the API; if that is not asked, by this machine's."""
        at, end = perform(
            instants_by_api_clock(since, until), self._transport.send if is_asked else _answer_nothing, _wait
        )
        if at and end and at >= end:
            raise InvalidRequest(f"until ({end}) must be later than since ({at}).")
        return {name: one for name, one in (("from", at), ("to", end)) if one}


def _answer_nothing(_request: Send) -> None:
    """No answer, because nothing is sent."""


def _wait(step: Wait) -> None:
    _LOG.warning("%s", step.why)
    time.sleep(step.seconds)
