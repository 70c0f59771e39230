"""The client of an API that is deployed with `api_auth: key`, or of the run on this machine."""

import logging
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from datetime import timedelta
from os import PathLike
from typing import Any, Self, cast

from streamkeeper.checkpoint import Checkpoint, FileCheckpoint
from streamkeeper.event import Event
from streamkeeper.exceptions import InvalidRequest
from streamkeeper.follower import Place, follow
from streamkeeper.instants import Instant, instant
from streamkeeper.replies import Gap, Started, Status, Stopped, StreamRow
from streamkeeper.retrying import Send, Wait, asking, performed
from streamkeeper.stored import MOST, StoredEvents, pages
from streamkeeper.transport import Transport, path_of, with_query

_LOG = logging.getLogger("streamkeeper")


class Client:
    """The streams of the API at `url`; threads may share it.

    `key` is that of a stage with `api_auth: key`. If the API throttles or is away, each request is repeated for up to
    `patient_s`; an answer is awaited for `timeout_s`. Every method may raise a StreamkeeperError.
    """

    def __init__(
        self, url: str, key: str | None = None, *, patient_s: float = 60.0, timeout_s: float = 35.0
    ) -> None:  # fmt: skip
        self._transport = Transport(url, key, timeout_s)
        self._patient_s = patient_s

    def __repr__(self) -> str:
        return f"Client({self._transport.url!r})"

    def streams(self) -> Iterator[StreamRow]:
        """All streams that were ever started, in the order of their ids."""
        for page in self._pages("/connections", {}):
            yield from page["streams"]

    def status(self, stream_id: str) -> Status:
        """The status of a stream."""
        return cast(Status, self._asked("GET", path_of(stream_id)))

    def start(self, stream_id: str) -> Started:
        """Starts a stream; may be repeated."""
        return cast(Started, self._asked("POST", path_of(stream_id)))

    def stop(self, stream_id: str) -> Stopped:
        """Requests that a stream stops; may be repeated."""
        return cast(Stopped, self._asked("DELETE", path_of(stream_id)))

    def gaps(self, stream_id: str, since: Instant | None = None, until: Instant | None = None) -> Iterator[Gap]:
        """The gaps of a stream in this time."""
        path, query = path_of(stream_id, "/gaps"), _times(since, until)
        return (gap for page in self._pages(path, query) for gap in page["gaps"])

    def events(
        self, stream_id: str, since: Instant | None = None, until: Instant | None = None, *, after: str = "",
        limit: int | None = None,
    ) -> StoredEvents:  # fmt: skip
        """The stored events in order: received at or after `since` and before `until`, behind the position `after`.

        An instant is "2026-11-21T06:25:19Z", "2026-11-21", "1h" (ago), a datetime or a timedelta.
        """
        if limit is not None and limit < 0:
            raise InvalidRequest("limit must be 0 or more, or None for all events.")
        path, query = path_of(stream_id, "/events"), {**_times(since, until), "after": after}
        return StoredEvents(lambda: self._pages(path, query, limit))

    def follow(
        self, stream_id: str, after: str = "", *, since: Instant | None = None,
        checkpoint: "Checkpoint | str | PathLike[str] | None" = None, every_s: float = 1.0,
    ) -> AsyncGenerator[Event, None]:  # fmt: skip
        """Each event as it is stored, for as long as the consumer iterates; it polls every `every_s`.

        It begins at the checkpoint, or else behind `after`, or else at `since`, or else now. It waits out an outage of
        an API that has answered before, and warns in the log `streamkeeper`. With a checkpoint, each event comes at
        least once even if the consumer is killed: those of the last 25 s before the kill may come again. See `once`.
        """
        begin = _times(since or (None if after else timedelta()), None).get("from")
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

    def _pages(self, path: str, query: Mapping[str, Any], left: int | None = None) -> Iterator[dict[str, Any]]:
        return pages(lambda asked: self._asked("GET", with_query(path, asked)), query, left)

    def _asked(self, method: str, path: str) -> dict[str, Any]:
        return performed(asking(Send(method, path), self._patient_s), self._transport.send, _wait)


def _wait(step: Wait) -> None:
    _LOG.warning("%s", step.why)
    time.sleep(step.seconds)


def _times(since: Instant | None, until: Instant | None) -> dict[str, str]:
    try:
        times = {name: instant(at) for name, at in (("from", since), ("to", until)) if at is not None}
    except ValueError as mistake:
        raise InvalidRequest(f"{mistake}.") from None
    if len(times) == 2 and times["from"] >= times["to"]:
        raise InvalidRequest(f"Nothing lies between {times['from']} and {times['to']}: until must be the later one.")
    return times
