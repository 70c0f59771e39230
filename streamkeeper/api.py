"""The client of an API: deployed with `api_auth: key`, or of the run on this machine."""

import logging
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from datetime import timedelta
from os import PathLike
from typing import Any, Self, cast
from urllib.parse import quote, urlencode

from streamkeeper.checkpoint import Checkpoint, FileCheckpoint
from streamkeeper.event import Event
from streamkeeper.exceptions import InvalidRequest
from streamkeeper.follower import Place, follow
from streamkeeper.instants import Instant, instant
from streamkeeper.replies import Gap, Started, Status, Stopped, StreamRow
from streamkeeper.retrying import Outcome, Wait, asking
from streamkeeper.stored import MOST, StoredEvents, pages
from streamkeeper.transport import Transport

_LOG = logging.getLogger("streamkeeper")


class Client:
    """The streams of the API at `url`; threads may share it.

    `key` is that of a stage with `api_auth: key`. An API that is throttled or away is asked again for `patient_s` a
    request, and an answer is waited for `timeout_s`. Every method raises a StreamkeeperError.
    """

    def __init__(
        self, url: str, key: str | None = None, *, patient_s: float = 60.0, timeout_s: float = 35.0
    ) -> None:  # fmt: skip
        self._transport = Transport(url, key, timeout_s)
        self._patient_s = patient_s

    def __repr__(self) -> str:
        return f"Client({self._transport.url!r})"

    def streams(self) -> Iterator[StreamRow]:
        """All streams that were ever started, by their ids."""
        for page in self._pages("/connections", {}):
            yield from page["streams"]

    def status(self, stream_id: str) -> Status:
        """How a stream stands."""
        return cast(Status, self._asked("GET", _path(stream_id)))

    def start(self, stream_id: str) -> Started:
        """Has a stream connected; may be repeated."""
        return cast(Started, self._asked("POST", _path(stream_id)))

    def stop(self, stream_id: str) -> Stopped:
        """Requests the stop of a stream; may be repeated."""
        return cast(Stopped, self._asked("DELETE", _path(stream_id)))

    def gaps(self, stream_id: str, since: Instant | None = None, until: Instant | None = None) -> Iterator[Gap]:
        """The gaps of a stream, those that lie in this time."""
        path, query = _path(stream_id, "/gaps"), _times(since, until)
        return (gap for page in self._pages(path, query) for gap in page["gaps"])

    def events(
        self, stream_id: str, since: Instant | None = None, until: Instant | None = None, *, after: str = "",
        limit: int | None = None,
    ) -> StoredEvents:  # fmt: skip
        """The stored events in their order: received from `since` on and before `until`, behind the position `after`.

        An instant is "2026-11-21T06:25:19Z", "2026-11-21", "1h" (ago), a datetime or a timedelta.
        """
        if limit is not None and limit < 0:
            raise InvalidRequest("limit must be 0 or more, or None for all events.")
        path, query = _path(stream_id, "/events"), {**_times(since, until), "after": after}
        return StoredEvents(lambda: self._pages(path, query, limit))

    def follow(
        self, stream_id: str, after: str = "", *, since: Instant | None = None,
        checkpoint: "Checkpoint | str | PathLike[str] | None" = None, every_s: float = 1.0,
    ) -> AsyncGenerator[Event, None]:  # fmt: skip
        """Each event as it is stored, for as long as the consumer iterates; it polls every `every_s`.

        It begins where the checkpoint stands, else behind `after`, else at `since`, else now. It waits out an outage of
        an API that has answered, and warns in the log `streamkeeper`. With a checkpoint each event comes at least once,
        though the consumer is killed: what came within 25 s before the kill may come again. See `once`.
        """
        begin = _times(since or (None if after else timedelta()), None).get("from")
        known = FileCheckpoint(checkpoint) if isinstance(checkpoint, str | PathLike) else checkpoint
        base = _path(stream_id, "/events")

        def path(after: str, since: str | None) -> str:
            return _with(base, {"after": after, "from": since, "limit": MOST})

        return follow(self._transport.send, path, Place(stream_id, known, after, begin), every_s)

    def close(self) -> None:
        """Closes the connections that are kept."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pages(self, path: str, query: Mapping[str, Any], left: int | None = None) -> Iterator[dict[str, Any]]:
        return pages(lambda asked: self._asked("GET", _with(path, asked)), query, left)

    def _asked(self, method: str, path: str) -> dict[str, Any]:
        steps, outcome = asking(method, path, self._patient_s), cast(Outcome, None)
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                answer: dict[str, Any] = end.value
                return answer
            outcome = None
            if isinstance(step, Wait):
                _LOG.warning("%s Trying again in %g s.", step.reason, step.seconds)
                time.sleep(step.seconds)
            else:
                outcome = self._transport.send(step)


def _path(stream_id: str, below: str = "") -> str:
    if not stream_id:
        raise InvalidRequest("The stream id is empty: write a profile's name, optionally with a colon and any text.")
    segment = quote(stream_id, safe="")
    # A segment of dots alone would lead to another path.
    return f"/connections/{segment if segment.strip('.') else segment.replace('.', '%2E')}{below}"


def _with(path: str, query: Mapping[str, Any]) -> str:
    chosen = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(chosen)}" if chosen else path


def _times(since: Instant | None, until: Instant | None) -> dict[str, str]:
    try:
        times = {name: instant(at) for name, at in (("from", since), ("to", until)) if at is not None}
    except ValueError as mistake:
        raise InvalidRequest(f"{mistake}.") from None
    if len(times) == 2 and times["from"] >= times["to"]:
        raise InvalidRequest(f"Nothing lies between {times['from']} and {times['to']}: until must be the later one.")
    return times
