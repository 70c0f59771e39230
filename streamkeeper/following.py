"""Decides what to request next while a stream is followed, and which of the answer's events are new. Pure.

An event may be written some seconds after it came, at a position before one that was read already (docs/store.md). So
the latest events are read again from time to time. Invariants: an event is new only once; the place from which to go on
after an interruption never moves back; a log, and events by key, are never read twice.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from streamkeeper.exceptions import InvalidRequest, Refused
from streamkeeper.instants import Instant, http_date, instant, is_ago
from streamkeeper.transport import Reply, Send, Steps, Wait, request_steps

# How long after its arrival an event may be written, and how often the latest events are read again.
LATE_MS, AGAIN_MS = 15_000, 10_000
# How long the execution may take to claim the stream after a POST, and how often that is checked.
STARTS_S, STARTS_EVERY_S = 15.0, 1.0
# A follower falls behind if there are always more events for this long, and those it got are of so much less time.
KEEPS_UP_MS, SLIPS_MS = 60_000, 6_000
# By how much the clock of the API may seem to differ from this machine's and still count as the same.
CLOCKS = timedelta(seconds=3)
# The first number of a log that a stream of items went over to (docs/store.md).
LOG_FROM = 10**14
_SLOW = (
    "The follower falls behind: in {} s it got the events of {} s. Take events from it faster, or use a stream with "
    '`store = "log"`, of which nothing is read twice.'
)
# How a position of a stream that is read in parts begins, and how many characters stand for a part.
_PARTS, _TAG = "parts~", 8


class Following:
    """How far a follower of one stream is; it begins after the position `after`, "" for the beginning.

    `is_behind` says whether there are more events already, so that the next page can be requested at once.
    """

    is_behind = True
    # Whether it has taken an answer.
    is_known = False

    def __init__(self, after: str = "") -> None:
        self._start = self._next = self.place = after
        self._by_arrival = False
        self._recent: set[tuple[str, str]] = set()
        # When the latest events are read again, when that began and where it ends.
        self._again_ms, self._until = 0, ""
        self._began_ms: int | None = None
        # All events that came LATE_MS before this time were written by then, and are read; the time of the last answer.
        self._sure_ms, self._answered_ms = 10**18, 0
        # Since when there were always more events, and when the newest that was taken by then came.
        self._busy: tuple[int, int] | None = None

    def slow(self, now_ms: int) -> tuple[int, int] | None:
        """For how long it has fallen behind, and the span of the events it got, in seconds; None if it keeps up.

        It is asked after each answer, and knows nothing of a log or of events by key.
        """
        if not (self.is_behind and self._by_arrival):
            self._busy = None
            return None
        newest_ms = max(int(place[:15]) for place in _places(self.place).values())
        began_ms, from_ms = self._busy = self._busy or (now_ms, newest_ms)
        passed_ms, got_ms = now_ms - began_ms, newest_ms - from_ms
        is_slow = passed_ms >= KEEPS_UP_MS and passed_ms - got_ms >= SLIPS_MS
        if is_slow or got_ms >= passed_ms:
            self._busy = now_ms, newest_ms
        return (round(passed_ms / 1000), round(got_ms / 1000)) if is_slow else None

    def after(self, now_ms: int) -> str:
        """The position after which to read; `now_ms` is the time of a clock such as `passed_ms`."""
        self._sure_ms = min(self._sure_ms, now_ms)
        if self._by_arrival and self._next == self.place:
            if self._began_ms is not None:
                # That is over. New events have their turn now; those that came meanwhile are read again next time.
                self._start = _later_position(self._start, _move_back(self._until, LATE_MS))
                self._sure_ms, self._again_ms, self._began_ms = self._began_ms, now_ms + AGAIN_MS, None
            if now_ms >= self._again_ms:
                self._began_ms, self._until = now_ms, self.place
                self._next = self._start = self.resume(self.place)
                oldest = _places(self._start)
                self._recent = {(part, place) for part, place in self._recent if place >= oldest.get(part, "")}
        return self._next

    def take(self, page: Mapping[str, Any], now_ms: int) -> list[dict[str, Any]]:
        """The new events of the answer; `place` is then after all events that were ever taken."""
        self.is_known = True
        self._sure_ms, self._answered_ms = min(self._sure_ms, now_ms), now_ms
        events: list[dict[str, Any]] = page["events"]
        fresh = [event for event in events if _part_and_place(event["position"]) not in self._recent]
        last = page["next"] or (events[-1]["position"] if events else "")
        if events and "order" not in page:
            self._by_arrival = any(map(_is_instant, events))
        self.place = self.later(self.place, last or self.place)
        self._next, self.is_behind = page["next"] or self.place, page["next"] is not None
        if self._by_arrival:
            self._recent |= {_part_and_place(one["position"]) for one in fresh}
        return fresh

    def later(self, place: str, position: str) -> str:
        """The later of a place and a position that was read after it; that position if nothing is ever read again."""
        # Positions of events by key cannot be compared as text.
        return _later_position(place, position) if self._by_arrival else position

    def resume(self, position: str) -> str:
        """Where another follower must begin to miss nothing, once all events up to `position` were taken."""
        if not (self._by_arrival and position):
            return position
        # After an outage, the events of before it are far behind the newest.
        return _later_position(self._start, _move_back(position, LATE_MS + self._answered_ms - self._sure_ms))


def passed_ms() -> int:
    """The time of a clock that does not go back and, on Linux, does not stand still while the machine sleeps."""
    ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns()
    return ns // 1_000_000


def instants_by_api_clock(*written: Instant | None) -> Steps[list[str | None]]:
    """The step to these instants in the API's form; raises InvalidRequest at once for any other value.

    "How long ago" is counted by the clock of the API, which the Date of an answer shows: if this machine's clock is
    hours ahead, a follower would begin in the future and wait in silence.
    """
    try:
        instants = [None if one is None else instant(one) for one in written]
    except ValueError as mistake:
        raise InvalidRequest(f"{mistake}.") from None
    return _correct_instants([(at, is_ago(one)) for at, one in zip(instants, written, strict=True)])


def _correct_instants(instants: Sequence[tuple[str | None, bool]]) -> Steps[list[str | None]]:
    """The step to these instants by the clock of the API; each comes with whether this machine's clock gave it."""
    ahead = timedelta()
    if any(is_given for _, is_given in instants):
        outcome = yield Send("GET", "/connections?limit=1")
        with contextlib.suppress(KeyError, ValueError):
            ahead = datetime.now(UTC) - http_date(outcome.headers["date"] if isinstance(outcome, Reply) else "")
    # A Date has no part of a second, and the answer was under way.
    is_same = abs(ahead) <= CLOCKS
    return [
        instant(datetime.fromisoformat(at) - ahead) if at and is_given and not is_same else at
        for at, is_given in instants
    ]


def poll_steps(following: Following, path: Callable[[str], str], every_s: float) -> Steps[list[dict[str, Any]]]:
    """The steps to the next page; returns its new events. `path` makes a path from the position after which to read.

    An API that has answered before is tried again however long it is away. A stream that was started a moment ago does
    not exist until its execution has claimed it, so the follower waits for it.
    """
    if not following.is_behind:
        yield Wait(every_s)
    left_s = STARTS_S
    while True:
        try:
            request = Send("GET", path(following.after(passed_ms())), page_of="events")
            page = yield from request_steps(request, math.inf, is_known=following.is_known)
            events = following.take(page, now_ms := passed_ms())
            if (slow := following.slow(now_ms)) is not None:
                yield Wait(0, _SLOW.format(*slow))
            return events
        except Refused as refusal:
            if refusal.kind != "never-started" or left_s <= 0:
                raise
        is_first = left_s == STARTS_S
        yield Wait(STARTS_EVERY_S, f"The stream has not started yet; waiting {left_s:g} s." if is_first else "")
        left_s -= STARTS_EVERY_S


def _places(position: str) -> dict[str, str]:
    """The place in each part of the stream, by the part's tag, which is "" for a stream that is not read in parts."""
    if not position.startswith(_PARTS):
        return {"": position} if position else {}
    return {one[:_TAG]: one[_TAG:] for one in position.removeprefix(_PARTS).split("~")}


def _part_and_place(position: str) -> tuple[str, str]:
    """The part and the place in it of an event with this position: they stand first."""
    return next(iter(_places(position).items()), ("", ""))


def _position_of(places: Mapping[str, str]) -> str:
    return places[""] if "" in places else _PARTS + "~".join(f"{part}{place}" for part, place in places.items())


def _later_position(one: str, other: str) -> str:
    """The later of two positions: in each part, the later place."""
    places, others = _places(one), _places(other)
    if not places or not others:
        return one or other
    return _position_of(others | {part: max(place, others.get(part, "")) for part, place in places.items()})


def _move_back(position: str, by_ms: int) -> str:
    """The position so long before."""
    return _position_of({part: _move_place_back(place, by_ms) for part, place in _places(position).items()})


def _move_place_back(place: str, by_ms: int) -> str:
    number = int(place[:15])
    # A stream that went over to a log has greater numbers than any instant, and a log is never read twice.
    return place if number >= LOG_FROM else f"{max(0, number - by_ms):015d}/{0:012d}/{0:012d}"


def _is_instant(event: Mapping[str, Any]) -> bool:
    """Whether its position begins with its time of arrival; in a log, a position begins with a segment's number."""
    received = datetime.fromisoformat(event["received_at"])
    return int(_part_and_place(event["position"])[1][:15]) == round(received.timestamp() * 1000)
