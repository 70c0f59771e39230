"""Finds heartbeats among messages: by a name that upstreams give them, or because the same body comes again and again.

Invariant: a mark fits no message that is taken for an event.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from handlers.framing.events import parse_json
from handlers.framing.frames import Frame
from local.profiles import key_search
from local.profiles.address_probe import MEMBER
from local.profiles.profile_files import quote

_NAMES = re.compile(r"ping|heart-?beat|keep-?alive", re.IGNORECASE)


def find_heartbeats(frames: list[Frame]) -> tuple[list[str], str, list[Frame]]:
    """Returns the marks of the heartbeats, how they were found, and the other frames."""
    named = {mark for frame in frames if (mark := _mark_by_name(frame))}
    others = [frame for frame in frames if not _mark_by_name(frame)]
    repeated = _marks_of_repeated(others)
    why = "by its name" if named else "the same body came again and again, without what names an event"
    left = [frame for frame in others if str(frame.data) not in repeated]
    return sorted({*named, *repeated.values()}), why, left


def _mark_by_name(frame: Frame) -> str:
    """The mark of a frame that is a heartbeat by its name or by a member's value, or ""."""
    if frame.name:
        return f"{{ event = {quote(frame.name)} }}" if _NAMES.fullmatch(frame.name) else ""
    body = parse_json(frame.data)
    for name, value in body.items() if isinstance(body, dict) else ():
        if isinstance(value, str) and MEMBER.fullmatch(name) and _NAMES.fullmatch(value):
            return _json_mark(name, value)
    return ""


def _marks_of_repeated(frames: list[Frame]) -> dict[str, str]:
    """The marks of bodies that repeat and lack the place that is different in all others, by body; {} if one has no
    mark.
    """
    times = Counter(str(frame.data) for frame in frames)
    bodies = {str(frame.data): parse_json(frame.data) for frame in frames}
    events = [body for text, body in bodies.items() if times[text] == 1]
    if len(events) < 2 or not all(isinstance(body, dict) for body in bodies.values()):
        return {}
    again = {text: body for text, body in bodies.items() if times[text] > 1}
    if not any(
        all(key_search.value_at(body, one) is None for body in again.values())
        for one in key_search.unique_places(events)
    ):
        return {}
    marks = {text: _mark_of_own_member(body, events) for text, body in again.items()}
    return marks if all(marks.values()) else {}


def _mark_of_own_member(body: Mapping[str, Any], events: list[Mapping[str, Any]]) -> str:
    """The mark of a member whose value no event has, or ""."""
    for name, value in body.items():
        if isinstance(value, str) and MEMBER.fullmatch(name) and all(event.get(name) != value for event in events):
            return _json_mark(name, value)
    return ""


def _json_mark(name: str, value: str) -> str:
    return f'{{ json = {{ "$.{name}" = {quote(value)} }} }}'
