"""Decides what the frames of one chunk come to: which are events to be stored, where to resume, what they announce.

It knows no lease, no clock and no store. Invariants: nothing behind an end, a disconnect or an expired cursor counts;
the cursor is that of the last frame or block that has one, so it counts only when all the events are stored.
"""

from dataclasses import dataclass

from handlers.framing.events import StreamEvent
from handlers.framing.frames import Decoded, Frame, as_frames
from handlers.framing.marks import Kind
from handlers.profile.behaviour import Profile

# An end and a loss are events as well: what the upstream said is stored. A comment never is.
_STORED = frozenset({Kind.EVENT, Kind.END, Kind.LOSS})
_STOPS = frozenset({Kind.END, Kind.DISCONNECT, Kind.EXPIRED})
_SILENT = frozenset({Kind.COMMENT, Kind.DISCONNECT, Kind.EXPIRED})


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: `frames` counts those that are no comments, `stop` is what ends the connection, if anything."""

    events: tuple[StreamEvent, ...]
    cursor: str | None
    frames: int
    losses: int
    stop: Kind | None


def read(profile: Profile, frames: Decoded, last_id: str | None, now_ms: int, place: str, first: int) -> Reading:
    """What `frames` are to `profile`; `place` and `first`, its number, name an event where nothing else does.

    `last_id` is the last event ID behind them, as the decoder has it.
    """
    events: list[StreamEvent] = []
    cursor: str | None = None
    count = losses = 0
    for frame in as_frames(frames):
        kind = profile.kind(frame)
        count += not frame.is_comment
        losses += kind is Kind.LOSS
        if kind in _STORED and not frame.is_comment:
            event = profile.event(frame, now_ms)
            if profile.key == "each":
                event = event._replace(key=f"{place}-{first + len(events):09d}")
            events.append(event)
            cursor = event.cursor if event.cursor is not None else cursor
        elif kind not in _SILENT and not frame.is_comment:
            after = profile.cursor_after(frame)
            cursor = after if after is not None else cursor
        if kind in _STOPS:
            return Reading(tuple(events), cursor, count, losses, kind)
    after = cursor_behind(profile, last_id)
    cursor = after if after is not None else cursor
    return Reading(tuple(events), cursor, count, losses, None)


def cursor_behind(profile: Profile, last_id: str | None) -> str | None:
    """Where to resume behind all that was read; None where the last event ID says nothing about that.

    WHATWG, "dispatch the event": it is set before it is seen that a block has no data, so a block that is no event
    counts as well.
    """
    return profile.cursor_after(Frame("", last_id=last_id)) if profile.cursor == "id" else None
