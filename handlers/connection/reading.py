"""Decides what the frames of one chunk come to: which are events to be stored, where to resume, what they announce.

A frame that is a batch is its elements, whatever else it says: they are stored though the frame also ends the stream,
and where it has any it is not a heartbeat. A batch of none is a heartbeat, where it says nothing else. It knows no
lease, no clock and no store. Invariants: nothing behind an end, a disconnect or an expired cursor counts; the cursor is
that of the last frame or block that has one, so it counts only when all the events are stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from handlers.framing.events import StreamEvent, forget_parsed
from handlers.framing.frames import Decoded, Frame, as_frames
from handlers.framing.marks import Kind
from handlers.profile.behaviour import Profile

# An end and a loss are events as well: what the upstream said is stored. A comment never is.
_STORED = frozenset({Kind.EVENT, Kind.END, Kind.LOSS})
_STOPS = frozenset({Kind.END, Kind.DISCONNECT, Kind.EXPIRED})
# They are not events, and may say how far the stream has come.
_BESIDE = frozenset({Kind.HEARTBEAT, Kind.DISCONNECT})


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: `frames` counts those that are no comments, `stop` is what ends the connection, if anything.

    `oldest` is the oldest place that can be asked for, where the frame that stops it names one.
    """

    events: tuple[StreamEvent, ...]
    cursor: str | None
    frames: int
    losses: int
    stop: Kind | None = None
    oldest: str | None = None


def read(
    profile: Profile, frames: Decoded, last_id: str | None, now_ms: int, place: str, first: int, *, is_resumed: bool
) -> Reading:
    """What `frames` are to `profile`; `place` and `first`, its number, name an event where nothing else does.

    `last_id` is the last event ID behind them, as the decoder has it. `is_resumed` is whether the connection asked for
    what came after a cursor.
    """
    events: list[StreamEvent] = []
    cursor: str | None = None
    count = losses = 0
    splits = profile.split is not None
    batch: Sequence[StreamEvent] = ()
    for frame in as_frames(frames):
        if not splits:
            kind = profile.kind(frame)
        else:
            kind, batch = taken_apart(profile, frame, now_ms)
        count += not frame.is_comment
        losses += kind is Kind.LOSS
        if batch or (kind in _STORED and not frame.is_comment):
            for event in batch or (profile.event(frame, now_ms),):
                if profile.key == "each":
                    event = event._replace(key=f"{place}-{first + len(events):09d}")
                events.append(event)
                cursor = event.cursor if event.cursor is not None else cursor
        elif kind in _BESIDE and not frame.is_comment:
            after = profile.cursor_beside(kind, frame, is_resumed=is_resumed)
            cursor = after if after is not None else cursor
        if kind in _STOPS:
            oldest = profile.oldest_after(frame) if kind is Kind.EXPIRED else None
            return Reading(tuple(events), cursor, count, losses, kind, oldest)
    forget_parsed()
    after = cursor_behind(profile, last_id)
    cursor = after if after is not None else cursor
    return Reading(tuple(events), cursor, count, losses)


def taken_apart(profile: Profile, frame: Frame, now_ms: int) -> tuple[Kind, Sequence[StreamEvent]]:
    """What `frame` is to a profile that splits, and the events of its elements; none where it is not a batch."""
    # First, for it parses the frame as `kind` does, and notes besides where in it the elements stand.
    batch = profile.events(frame, now_ms)
    kind = profile.kind(frame)
    if batch:
        return (Kind.EVENT if kind is Kind.HEARTBEAT else kind), batch
    is_empty = batch is not None and kind is Kind.EVENT
    return (Kind.HEARTBEAT if is_empty else kind), ()


def cursor_behind(profile: Profile, last_id: str | None) -> str | None:
    """Where to resume behind all that was read; None where the last event ID says nothing about that.

    WHATWG, "dispatch the event": it is set before it is seen that a block has no data, so a block that is no event
    counts as well.
    """
    return profile.cursor_after(Frame("", last_id=last_id)) if profile.cursor == "id" else None
