"""Plays providers on real sockets, each as its row of `behaviours` says.

Invariants: event n is the same for everyone and happens at n times the interval, so a reader that resumes misses only
what is announced as lost; a provider that refuses a second connection serves one at a time.
"""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from local.upstreams.behaviours import BEHAVIOURS, Behaviour
from local.upstreams.clockwork import KEPT_MS, Clockwork, now_ms
from local.upstreams.presence import Presence

# The time between the newer connection's answer and the older one's end.
EVICT_AFTER_S = 0.1
_LAST_NUMBER = re.compile(r"[0-9]{1,18}(?=[^0-9]*$)")


@dataclass(eq=False)
class _Slot:
    """One connection; `last_words` are sent when its end is set."""

    end: asyncio.Event = field(default_factory=asyncio.Event)
    last_words: str = ""

    def leave(self, last_words: str) -> None:
        self.last_words = last_words
        self.end.set()


class Players:
    """All providers; `presence` counts the connections, by provider and place."""

    def __init__(self, presence: Presence, behaviours: Mapping[str, Behaviour] = BEHAVIOURS) -> None:
        self._presence = presence
        self._behaviours = behaviours
        self._seats: dict[str, list[_Slot]] = {}

    def close(self) -> None:
        """Ends every connection without last words."""
        for slots in self._seats.values():
            for slot in slots:
                slot.leave("")

    async def answer(self, request: Request) -> Response:
        """Returns the provider's answer; its name is the first part of the path."""
        behaviour = self._behaviours.get(request.path_params["provider"])
        if behaviour is None:
            return JSONResponse({"message": "There is no such provider here."}, 404)
        if request.method != behaviour.method:
            return JSONResponse({"message": f"Only {behaviour.method} is answered."}, 405)
        if behaviour.has_key and not request.headers.get("authorization"):
            return JSONResponse({"message": "Who are you?"}, 401)
        if behaviour.status != 200:
            headers = {"Retry-After": str(behaviour.retry_after_s)} if behaviour.retry_after_s else None
            return JSONResponse({"message": "Not now."}, behaviour.status, headers)
        try:
            cursor = await _cursor(request, behaviour)
            if cursor and behaviour.by_instant:
                datetime.fromisoformat(cursor)
        except ValueError:
            return JSONResponse({"message": "That is not a request of mine."}, 400)
        # Nothing is awaited between this check and the new connection's entry, so that two requests cannot both pass.
        name = _name(request, behaviour)
        if behaviour.second == "refuses" and self._presence.clients(name):
            return JSONResponse({"title": "ConnectionException", "connection_issue": "TooManyConnections"}, 429)
        return self._stream(request, behaviour, name, cursor)

    def _stream(self, request: Request, behaviour: Behaviour, name: str, cursor: str | None) -> Response:
        clockwork = Clockwork(behaviour.interval_ms, behaviour.heartbeat_ms)
        at_ms = now_ms()
        oldest = (at_ms - KEPT_MS) // behaviour.interval_ms + 1
        first_wanted = _first_number(behaviour, cursor, at_ms // behaviour.interval_ms)
        is_known = first_wanted is None or first_wanted >= oldest
        if not is_known and behaviour.expired:
            if isinstance(behaviour.expired, int):
                return JSONResponse({"message": "That is too long ago."}, behaviour.expired)
            return Response(_rendered(behaviour, behaviour.expired, oldest), media_type=behaviour.media_type)
        confirms = cursor is not None and behaviour.confirms
        headers = {behaviour.confirms: cursor if cursor and is_known else "earliest"} if confirms else None
        first = at_ms // behaviour.interval_ms + 1 if first_wanted is None else max(first_wanted, oldest)
        body = self._body(behaviour, clockwork, name, first)
        return self._presence.answer(request, body, behaviour.media_type, name, headers)

    async def _body(self, behaviour: Behaviour, clockwork: Clockwork, name: str, first: int) -> AsyncIterator[bytes]:
        slots, slot = self._seats.setdefault(name, []), _Slot()
        later = asyncio.get_running_loop().call_later
        if behaviour.second == "evicts":
            for older in slots:
                later(EVICT_AFTER_S, older.leave, behaviour.evicted)
        slots.append(slot)
        cut = later(behaviour.life_s, slot.leave, behaviour.cut) if behaviour.life_s else None
        last = first - 1
        try:
            yield _rendered(behaviour, behaviour.greeting or behaviour.heartbeat, last)
            async for numbers in clockwork.run(first, slot.end):
                if behaviour.length:
                    numbers = range(numbers.start, min(numbers.stop, first + behaviour.length))
                last = numbers[-1] if numbers else last
                chunk = b"".join(_frame(behaviour, number) for number in numbers)
                yield chunk or _rendered(behaviour, behaviour.heartbeat, last)
                if last == first + behaviour.length - 1 and behaviour.length:
                    slot.leave(behaviour.ending)
            yield _rendered(behaviour, slot.last_words, last)
        finally:
            slots.remove(slot)
            if cut is not None:
                cut.cancel()


def _name(request: Request, behaviour: Behaviour) -> str:
    session = request.query_params.get(behaviour.session, "") if behaviour.session else ""
    return f"{request.url.path.removeprefix('/')}{':' if session else ''}{session}"


async def _cursor(request: Request, behaviour: Behaviour) -> str | None:
    """The cursor in the request, or None."""
    place, name = behaviour.resume
    if place == "header":
        return request.headers.get(name)
    if place == "query":
        return request.query_params.get(name)
    if place == "body":
        value = json.loads(await request.body())
        for step in name.split("/")[1:]:
            value = value.get(step) if isinstance(value, dict) else None
        return None if value is None else str(value)
    return None


def _first_number(behaviour: Behaviour, cursor: str | None, newest: int) -> int | None:
    """The number of the first event that the request asks for; None where it asks for new events only."""
    match = _LAST_NUMBER.search(cursor) if cursor is not None else None
    if cursor is None or match is None:
        return None
    if behaviour.by_instant:
        since_ms = datetime.fromisoformat(cursor).timestamp() * 1000
        return min(math.ceil(since_ms / behaviour.interval_ms), newest + 1)
    if behaviour.backfill:
        return newest - behaviour.backfill + 1
    return min(int(match[0]) + (not behaviour.inclusive), newest + 1)


def _frame(behaviour: Behaviour, number: int) -> bytes:
    is_lost = behaviour.loses_every and number % behaviour.loses_every == 0
    return _rendered(behaviour, behaviour.loss if is_lost else behaviour.event, number)


def _rendered(behaviour: Behaviour, text: str, number: int) -> bytes:
    if "<at>" in text:
        instant = datetime.fromtimestamp(number * behaviour.interval_ms / 1000, UTC)
        text = text.replace("<at>", instant.isoformat(timespec="milliseconds"))
    return text.replace("<n>", str(number)).encode()
