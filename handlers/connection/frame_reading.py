"""Reads decoded frames by the rules of a profile: which are events, how far the stream has come, what ends it.

Pure. Invariant: nothing behind a frame that ends the connection is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from handlers.framing.events import (
    LEFT_OUT,
    StreamEvent,
    cursor_after,
    cursor_of_last_id,
    forget_parsed,
    is_unread,
    parse_json,
    to_event,
    value_at_path,
)
from handlers.framing.frames import Decoded, Frame, as_frames
from handlers.framing.marks import ANYTHING, Kind, Mark
from handlers.profile.behaviour import Profile
from handlers.values import dataclass

if TYPE_CHECKING:
    from handlers.framing.splitting import Split
    from handlers.profile.messages import Numbering

# Frames that announce an end or a loss are events as well: what the upstream said is stored. A comment never is.
STORED = frozenset({Kind.EVENT, Kind.END, Kind.LOSS, Kind.SNAPSHOT})
_STOPS = frozenset({Kind.END, Kind.DISCONNECT, Kind.EXPIRED, Kind.REFUSAL})
# Frames of these kinds are not events, but may have a cursor.
_BESIDE = frozenset({Kind.HEARTBEAT, Kind.DISCONNECT})
# An element of a batch that fits a mark of these kinds is not an event; the other elements are.
_NO_EVENTS = frozenset({Kind.HEARTBEAT, Kind.ANSWER})

# Each value at the profile's `by` has a row of its own; one that was forgotten begins anew.
MOST_ROWS = 10_000
# Text with more digits than this is a name, not a number.
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: `frames` counts all but comments, `stop` is what ends the connection, if anything does.

    `losses` has the number of events of each announced loss, None if the upstream did not say. `oldest` is the oldest
    place that can be requested, if the frame that ends the connection names one. `left_out` counts the events that the
    profile does not keep.
    """

    events: tuple[StreamEvent, ...]
    cursor: str | None
    frames: int
    losses: Sequence[int | None]
    stop: Kind | None = None
    oldest: str | None = None
    left_out: int = 0


def read_frames(
    profile: Profile,
    frames: Decoded,
    last_id: str | None,
    now_ms: int,
    place: str,
    first: int,
    *,
    is_resumed: bool,
    numbers: HoleFinder | None = None,
) -> Reading:
    """Reads `frames` by the rules of `profile`; `place` and its number `first` name an event if nothing else does.

    `last_id` is the last event ID after them, as the decoder has it. `is_resumed` is whether the connection requested
    what came after a cursor. A hole in `numbers` is a loss, announced by the event after it.
    """
    events: list[StreamEvent] = []
    cursor: str | None = None
    count = left_out = 0
    losses: list[int | None] = []
    splits = profile.split is not None
    key = profile.frame_key if splits else profile.key
    # Looked up once a chunk, and not for each of its frames.
    marks, path, keeps, is_each = profile.marks, profile.cursor, profile.keep, profile.key == "each"
    # Most framings return frames already; checking it here saves a call for each chunk.
    whole = cast(Sequence[Frame], frames) if frames and isinstance(frames[0], Frame) else as_frames(frames)
    for frame in whole:
        kind, batch = split_frame(profile, frame, now_ms) if splits else (marks.kind(frame), ())
        count += not frame.is_comment
        holes: list[int] = []
        if numbers is not None:
            holes = numbers.find_holes(frame, begins=kind is Kind.SNAPSHOT) if kind in STORED else numbers.skip(frame)
        losses += [_reported_loss(marks.lost_count(frame), holes)] if kind is Kind.LOSS else holes
        if kind is Kind.SNAPSHOT and frame.name is None:
            frame = frame._replace(name=kind.value)
        if keeps and kind is Kind.EVENT and not batch and not frame.is_comment and not profile.should_keep(frame):
            left_out += 1
            after = cursor_after(frame, path)
            cursor = after if after is not None else cursor
        elif batch or (kind in STORED and not frame.is_comment):
            for event in batch or (to_event(frame, now_ms, key=key, cursor=path),):
                cursor = event.cursor if event.cursor is not None else cursor
                if event.key == LEFT_OUT:
                    left_out += 1
                    continue
                if is_each:
                    event = event._replace(key=f"{place}-{first + len(events):09d}")
                events.append(event)
        elif kind in _BESIDE and not frame.is_comment:
            after = profile.cursor_of_mark(kind, frame, is_resumed=is_resumed)
            cursor = after if after is not None else cursor
        if kind in _STOPS:
            oldest = profile.oldest_place(frame) if kind is Kind.EXPIRED else None
            return Reading(tuple(events), cursor, count, losses, kind, oldest, left_out)
    forget_parsed()
    after = cursor_of_last_id(last_id, path)
    cursor = after if after is not None else cursor
    return Reading(tuple(events), cursor, count, losses, left_out=left_out)


def _reported_loss(lost: int | None, holes: Sequence[int]) -> int | None:
    """Returns how many events a frame reports as lost, None if that is unknown."""
    # A hole before it is the loss that it reports.
    return sum(holes) or None if lost is None else max(lost, sum(holes))


def split_frame(profile: Profile, frame: Frame, now_ms: int) -> tuple[Kind, Sequence[StreamEvent]]:
    """Returns the kind of `frame` for a profile that splits, and its elements' events; none if it is not a batch."""
    # This comes first: it parses the frame as `kind` does, and also notes where its elements are.
    batch = profile.batch_events(frame, now_ms)
    kind = profile.marks.kind(frame)
    if not batch:
        is_empty = batch is not None and kind is Kind.EVENT
        return (Kind.HEARTBEAT if is_empty else kind), ()
    if kind is Kind.REFUSAL:
        return kind, ()
    split, beside = profile.split, _names_of_elements(profile)
    mark = profile.marks.first(kind, frame) if kind in _NO_EVENTS else None
    if mark is not None and mark not in beside:
        # { "$.revision" = "*" } fits frames with elements too, which are events; { "$.channel" = "status" } names them.
        if kind is Kind.ANSWER or mark.has_required_value:
            return kind, ()
        kind = Kind.EVENT
    if split is None or not beside:
        return kind, batch
    # An answer may come in one frame with the first events, so each element is judged as if it came alone.
    alone = zip(batch, split.single_element_bodies(parse_json(frame.data)), strict=True)
    events = [event for event, body in alone if not any(one.fits(frame, body) for one in beside)]
    if not events:
        return (kind if kind in _NO_EVENTS else Kind.HEARTBEAT), ()
    return (Kind.EVENT if kind in _NO_EVENTS else kind), events


def _names_of_elements(profile: Profile) -> list[Mark]:
    """Returns the marks that name one element, such as `[0]`, by a value: they do not concern those beside it."""
    split = profile.split
    return [
        mark
        for kind, mark in profile.marks.pairs
        if kind in _NO_EVENTS
        and any(value != ANYTHING and split is not None and split.is_of_element(path) for path, value in mark.json)
    ]


class HoleFinder:
    """Finds holes in the numbers of events, which are the events that a numbered feed has not delivered.

        41, 42, 45      2 are missing before 45
        45, 43, 44, 45  nothing: a number that is not larger begins the row again, as after a restart or a repetition
        45, …, 47       nothing: the event between them is too long to be read

    Without `by`, the only row continues after `after`, if that is a number and the upstream was asked to resume there.
    Each element of a batch may have a number, and a heartbeat or an answer may take the next one; any other number in
    those two may belong to another row.

    `goes_on` is whether the first event continued it: then the upstream still had all that came after the cursor, or
    nothing else had come.
    """

    def __init__(
        self, numbering: Numbering, after: str | None = None, split: Split | None = None, *, is_asked: bool = True
    ) -> None:
        self._numbering = numbering
        self._split = split if split is not None and split.is_of_element(numbering.path) else None
        self._last: dict[object, int] = {}
        self._after: int | None = None
        self._unread = 0  # how many events have come whose numbers are unknown
        self.goes_on = False
        if after is not None and numbering.by is None and (number := _number(after)) is not None:
            self._after = number
            if is_asked:
                self._last[None] = number

    def find_holes(self, frame: Frame, *, begins: bool) -> list[int]:
        """Returns how many numbers are missing before each event of `frame` that comes after a hole.

        None are missing if the event `begins` its row, as a snapshot does.
        """
        losses = []
        self._unread += is_unread(frame.data)
        for row, number in self.numbers_of(frame):
            last = self._last.pop(row, None)
            if self._after is not None:
                # The event of the cursor itself may come once more if it was asked for; if not, each connection may
                # have numbers of its own.
                self.goes_on = not begins and int(last is None) <= number - self._after <= 1 + self._unread
                self._after = None
            self._last[row] = number
            if len(self._last) > MOST_ROWS:
                del self._last[next(iter(self._last))]
            if not begins and last is not None and number > last + 1:
                hole, unread = number - last - 1, self._unread
                self._unread = max(0, unread - hole)
                losses += [hole - unread] if hole > unread else []
            if self._numbering.by is None:
                self._unread = 0
        return losses

    def skip(self, frame: Frame) -> list[int]:
        """Takes the number of a frame that is no event if it is the next of its row; returns no loss."""
        for row, number in self.numbers_of(frame):
            if self._last.get(row) == number - 1:
                self._last[row] = number
                self._after = number if self._after is not None else None
        return []

    def numbers_of(self, frame: Frame) -> Iterator[tuple[object, int]]:
        """Yields the row and the number of each event of a frame."""
        body: Any = parse_json(frame.data)
        path, by = self._numbering.path, self._numbering.by
        for one in (body,) if self._split is None else self._split.single_element_bodies(body):
            number = _number(value_at_path(one, path)[1])
            if number is not None:
                yield None if by is None else str(value_at_path(one, by)[1]), number


def _number(value: object) -> int | None:
    if type(value) is int:
        return value
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
    return int(str(value)) if is_number else None
