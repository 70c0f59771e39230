"""Models the log's protocol: writers that overlap, freeze, die and lose answers, and requests that arrive late.

Each writer is an `Appender`, the deployed one. It claims the next token, reads where the log ends, and resumes after
the cursor there. It receives events one at a time, and appends the received ones at any time; a frozen writer does
nothing for long. The upstream resumes (it sends each event to every connection that requested it) or does not (it sends
an event to the connections open at that moment). This module has the steps and the invariants. Invariant: two
explorations visit the same states.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from handlers.framing.events import StreamEvent
from handlers.segments.appending import Appender
from handlers.segments.known_keys import KnownKeys
from handlers.segments.log_requests import Anchor, Answer, Appended, LookBack, Page, Put, ReadOn, Request, Segment
from tests.chaos.explorer import Model, Step, Violation

FOREVER_MS = 10**12


class Stored(NamedTuple):
    """A segment of the log, with the numbers of its events."""

    segment: Segment
    events: tuple[int, ...]


@dataclass(frozen=True)
class Writer:
    """One connection: `place` is the last received event, `waiting` are the events that it has not begun to append.

    `counted` is how many events it reports as stored.
    """

    appender: Appender
    request: Request | None = None
    place: int = 0
    is_open: bool = False
    is_over: bool = False
    waiting: tuple[int, ...] = ()
    appending: tuple[int, ...] = ()
    begun: int = 0
    counted: int = 0
    received: tuple[int, ...] = ()


OVER = Writer(Appender(0, 0, anchors=False), is_over=True)


@dataclass(frozen=True)
class World:
    """The log, its writers in the order of their tokens, requests on their way to the table, the remaining faults."""

    log: tuple[Stored, ...] = ()
    writers: tuple[Writer, ...] = ()
    late: frozenset[Put] = frozenset()
    emitted: int = 0
    kills: int = 0
    losses: int = 0
    lates: int = 0


@dataclass(frozen=True)
class Search(Model[World]):
    """The size of an exploration: the number of events, of connections, and of faults of each kind.

    `at_once` is how many connections may live at a time, `page` how many segments one read returns.
    """

    events: int = 3
    connections: int = 3
    kills: int = 1
    losses: int = 1
    lates: int = 1
    resumes: bool = True
    at_once: int = 2
    page: int = 1
    appender: type[Appender] = Appender
    is_conditional: bool = True

    def first(self) -> World:
        """Returns the first state: an empty log without writers."""
        return World(kills=self.kills, losses=self.losses, lates=self.lates)

    def key(self, world: World) -> Hashable:
        """Returns the part of the state that decides everything that follows."""
        return _key(world)

    def steps(self, world: World) -> Iterator[Step]:
        """Yields every step that may come next; raises Violation, also if none follows and something was lost."""
        is_last = True
        for label, after in _steps(self, world):
            is_last = False
            yield Step(label, after, free=False)
        if is_last:
            _check_final_log(self, world)


def event_of(number: int) -> StreamEvent:
    """Returns the event with this number, whose resume place is the number, as in a stream with ids."""
    return StreamEvent(f"k{number}", "", None, None, str(number), 0)


# --- steps ------------------------------------------------------------------------------------------------------------


def _steps(search: Search, world: World) -> Iterator[tuple[str, World]]:
    alive = sum(not writer.is_over for writer in world.writers)
    if len(world.writers) < search.connections and alive < search.at_once:
        yield "claims", _claim(search, world)
    if not search.resumes and world.emitted < search.events:
        yield "emits", _emit(world)
    for put in sorted(world.late, key=lambda put: put.segment[:3]):
        landed, _ = _put(search, replace(world, late=world.late - {put}), put)
        yield f"{put.segment.fence} lands late", landed
    for at, writer in enumerate(world.writers):
        if not writer.is_over:
            for name, after in _steps_of(search, world, at, writer):
                yield f"{at + 1} {name}", after


def _claim(search: Search, world: World) -> World:
    appender = search.appender(len(world.writers) + 1, FOREVER_MS, anchors=False)
    return replace(world, writers=(*world.writers, Writer(appender, appender.find_end(1))))


def _emit(world: World) -> World:
    number = world.emitted + 1
    writers = tuple(
        replace(one, waiting=(*one.waiting, number), received=(*one.received, number))
        if one.is_open and not one.is_over
        else one
        for one in world.writers
    )
    return replace(world, emitted=number, writers=writers)


def _steps_of(search: Search, world: World, at: int, writer: Writer) -> Iterator[tuple[str, World]]:
    if world.kills:
        dead = _with_writer(replace(world, kills=world.kills - 1), at, OVER)
        yield "is killed", dead
        if isinstance(writer.request, Put):
            yield "is killed and its request goes on", replace(dead, late=dead.late | {writer.request})
    request = writer.request
    if request is not None:
        after, answer = _perform(search, world, request)
        yield type(request).__name__, _answer(after, at, writer, answer)
        if isinstance(request, Put):
            # The client sends the request again and gets the answer to the second one.
            if world.losses:
                yield "loses an answer", replace(after, losses=world.losses - 1)
            if world.lates:
                yield "is slow", replace(world, lates=world.lates - 1, late=world.late | {request})
        return
    if writer.waiting:
        yield "appends", _begin_append(world, at, writer)
    if writer.is_open and search.resumes and writer.place < search.events:
        sent = writer.place + 1
        moved = replace(writer, place=sent, waiting=(*writer.waiting, sent), received=(*writer.received, sent))
        yield "is sent an event", _with_writer(world, at, moved)
    if writer.is_open and not writer.waiting:
        yield "leaves", _leave(world, at, writer)


def _leave(world: World, at: int, writer: Writer) -> World:
    """Checks a writer that ended by itself: all its events are in the log, and it knows what it wrote."""
    there = {number for stored in world.log for number in stored.events}
    own = sum(len(stored.events) for stored in world.log if stored.segment.fence == at + 1)
    if writer.counted != own:
        raise Violation("counts")
    if not there.issuperset(writer.received):
        raise Violation("nothing is lost")
    return _with_writer(world, at, OVER)


def _perform(search: Search, world: World, request: Request) -> tuple[World, Answer]:
    segments = [stored.segment for stored in world.log]
    match request:
        case LookBack(before):
            older = [one for one in reversed(segments) if before is None or one.number < before]
            return world, Page(older[: search.page], len(older) <= search.page)
        case ReadOn(number):
            newer = [one for one in segments if one.number >= number]
            return world, Page(newer[: search.page], len(newer) <= search.page)
        case Anchor():
            return world, None
    return _put(search, world, request)


def _put(search: Search, world: World, put: Put) -> tuple[World, bool]:
    if search.is_conditional and any(stored.segment.number == put.segment.number for stored in world.log):
        return world, False
    numbers = tuple(int(event.key[1:]) for event in put.events)
    kept = tuple(stored for stored in world.log if stored.segment.number != put.segment.number)
    log = tuple(sorted((*kept, Stored(put.segment, numbers))))
    _check_log(search, world, log)
    # A late request for a taken number will change nothing.
    number = put.segment.number if search.is_conditional else None
    late = frozenset(one for one in world.late if one.segment.number != number)
    return replace(world, log=log, late=late), True


def _answer(world: World, at: int, writer: Writer, answer: Answer) -> World:
    appender = _copy(writer.appender)
    following = appender.answered(answer)
    if isinstance(following, Appended):
        counted = writer.counted + following.stored
        if following.stored + following.duplicates != len(writer.appending):
            raise Violation("counts")
        return _with_writer(world, at, replace(writer, appender=appender, request=None, appending=(), counted=counted))
    if following is None:
        place = int(appender.cursor.text) if appender.cursor is not None else 0
        return _with_writer(world, at, replace(writer, appender=appender, request=None, place=place, is_open=True))
    return _with_writer(world, at, replace(writer, appender=appender, request=following))


def _begin_append(world: World, at: int, writer: Writer) -> World:
    appender = _copy(writer.appender)
    following = appender.append(1, writer.begun, [event_of(number) for number in writer.waiting])
    begun = replace(
        writer, appender=appender, waiting=(), appending=writer.waiting, begun=writer.begun + len(writer.waiting)
    )
    if isinstance(following, Appended):
        return _with_writer(world, at, replace(begun, appending=(), counted=writer.counted + following.stored))
    return _with_writer(world, at, replace(begun, request=following))


def _with_writer(world: World, at: int, writer: Writer) -> World:
    return replace(world, writers=(*world.writers[:at], writer, *world.writers[at + 1 :]))


def _copy(appender: Appender) -> Appender:
    """Returns a copy that shares no mutable part."""
    known: KnownKeys = appender.__dict__["_known"]
    other, keys = copy.copy(appender), copy.copy(known)
    keys.__dict__.update(_came=dict(known.__dict__["_came"]), _segments=known.__dict__["_segments"].copy())
    other.__dict__["_known"] = keys
    return other


def _key(world: World) -> tuple[object, ...]:
    """Returns the part of the state that decides everything that follows; a writer that is over decides nothing."""
    writers = tuple(
        None
        if one.is_over
        else (
            one.request,
            *one.appender.__dict__["_known"].__dict__["_came"],
            *(one.appender.__dict__[name] for name in ("_next", "_back_to", "_anchor", "cursor")),
            *(one.place, one.is_open, one.waiting, one.appending, one.begun, one.counted, one.received),
        )
        for one in world.writers
    )
    return (world.log, writers, world.late, world.emitted, world.kills, world.losses, world.lates)


# --- invariants -------------------------------------------------------------------------------------------------------


def _check_log(search: Search, world: World, log: tuple[Stored, ...]) -> None:
    """Checks the invariants after each write to the log."""
    numbers = [number for stored in log for number in stored.events]
    if len(set(numbers)) < len(numbers):
        raise Violation("once")
    if {number for one in world.log for number in one.events} - set(numbers):
        raise Violation("stays")
    if search.resumes and numbers != sorted(numbers):
        raise Violation("in order")
    for fence in range(1, search.connections + 1):
        own = [number for stored in log if stored.segment.fence == fence for number in stored.events]
        if own != sorted(own):
            raise Violation("in order")
    tokens = [0]
    there: set[int] = set()
    for stored in log:
        there |= set(stored.events)
        cursor = stored.segment.cursor
        tokens.append(0 if cursor is None else cursor.fence)
        passed = range(1, 0 if cursor is None else int(cursor.text) + 1)
        if search.resumes and not there.issuperset(passed):
            raise Violation("the cursor passes nothing")
    if tokens != sorted(tokens):
        raise Violation("the cursor stays")


def _check_final_log(search: Search, world: World) -> None:
    """Checks the log when all connections are over: events that it lacks will be sent after its cursor."""
    there = {number for stored in world.log for number in stored.events}
    if search.resumes:
        last = world.log[-1].segment.cursor if world.log else None
        behind = range(int(last.text) + 1 if last is not None else 1, search.events + 1)
        if there | set(behind) != set(range(1, search.events + 1)):
            raise Violation("nothing is lost")
