"""Finds a unique value in the JSON of events, and whether the upstream resumes behind that value; finds heartbeats.

Invariants: a heartbeat's mark fits no message that is taken for an event; a guess is called a guess, and is written so
that no event is lost if it is wrong: another body under a known key is stored too.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from handlers.framing.decoders import FRAMINGS
from handlers.framing.events import parse_json
from handlers.framing.frames import Frame
from local.profiles.address_probe import MEMBER, ProbedAddress, ProbeResult, probe
from local.profiles.profile_files import quote

# Names of places in which upstreams put an event's key, and of the parameters with which they resume.
_LIKELY = ("seq", "sequence", "cursor", "offset", "position", "revision", "id", "_id", "event_id", "eventId", "uuid")
_PARAMETERS = ("since", "after", "cursor", "offset", "from")
_DEPTH = 3
# How long a request for one place waits at most, and how many are made.
_WAIT_S, _QUESTIONS = 3.0, 8
# Safe for counted ids: with "first", events of a restarted server would be taken for earlier ones.
_COUNTED_LINE = (
    'on_conflict = "epoch"  # the ids are counted: if they begin with 1 again, all is stored, as a new epoch'
)
_COUNT_DIGITS = 9
_GUESS = 'on_conflict = "both"  # the key is a guess: another body under it is stored too, until you write "first"'


def key_lines(address: ProbedAddress, framing: str, seen: ProbeResult, seconds: float) -> list[str]:
    """Returns the lines of a profile about the key of events, and how to resume."""
    ids, count = seen.ids if FRAMINGS[framing].has_ids else [], len(seen.frames)  # type: ignore[index]
    # A few events without an id, such as a greeting, do not matter: their hash is their key.
    if len(set(ids)) == len(ids) > count / 2:
        but = f" but {count - len(ids)}, known by hash," if count > len(ids) else ""
        lines = [f"# Each event{but} has a different id, which is the dedup key and the cursor."]
        lines += [_COUNTED_LINE] if _are_counted(ids) else []
        return lines + _resumption_lines(address, framing, seen, seconds)
    why = "the others have none" if len(set(ids)) == len(ids) else "but the ids are not all different"
    about_ids = [f"# {len(ids)} of the {count} events have an id, {why}."] if ids else []
    return about_ids + _body_key_lines(address, framing, seen, seconds)


def _are_counted(ids: list[str]) -> bool:
    """Whether the ids are consecutive numbers and not instants; then a restart may begin with 1 again."""
    are_numbers = all(one.isdecimal() and len(one) <= _COUNT_DIGITS for one in ids)
    return are_numbers and all(int(later) == int(earlier) + 1 for earlier, later in pairwise(ids))


def _resumption_lines(address: ProbedAddress, framing: str, seen: ProbeResult, seconds_: float) -> list[str]:
    """Whether the upstream resumes behind an id, found by a request with one in the middle."""
    if len(seen.ids) < 2:
        return ["# One event is too few to see whether it resumes behind an id: read for longer (--seconds)."]
    middle = (len(seen.ids) - 1) // 2
    asked, later = seen.ids[middle], seen.ids[middle + 1]
    # A greeting may come before the first event, as in the answer before.
    greetings = next(place for place, frame in enumerate(seen.frames) if frame.id)
    again = probe(address, framing, seconds_, asked, most_frames=greetings + 1)
    asking = "# Requested with the id of an event (Last-Event-ID)"
    resume = 'resume = { header = "Last-Event-ID" }'
    if again.ids[:1] == [later]:
        return [f"{resume}  # requested with the id of an event, it sent those after it"]
    if again.ids[:1] == [asked] and middle:
        return [f"{resume}  # requested with the id of an event, it began with that event, which is stored once"]
    if not 200 <= again.status < 300:
        return [f"{asking}, it answered {again.status or 'nothing'}; a function then requests it without."]
    if again.ids:
        return [f"{asking}, it sent other events; whether any in between are missing is unknown."]
    return [f"{asking}, it sent nothing."]


def _body_key_lines(address: ProbedAddress, framing: str, seen: ProbeResult, seconds: float) -> list[str]:
    """Returns the lines about a key in the bodies, and how to resume."""
    if len(seen.frames) < 2:
        return ['key = "hash"  # one event is too few to find its key: read for longer (--seconds)']
    usual = seen if unique_places(seen.bodies) else _without_other_members(seen)
    found, others = unique_places(usual.bodies), len(seen.frames) - len(usual.frames)
    if not found and (batched := _split_lines(usual.bodies)):
        return batched
    if not found and len({str(frame.data) for frame in seen.frames}) < len(seen.frames):
        why = "equal bodies came more than once: each one is stored, and at a handover some of them twice"
        return [f'key = "each"  # {why}']
    if not found:
        return ['key = "hash"  # no value is unique: equal bodies are one event']
    why = "it was different in each event that came" + (f" but {others}, known by their hashes" if others else "")
    names = {place: place.rpartition(".")[2] for place in found}
    increasing = [place for place in found if _is_increasing([value_at(body, place) for body in usual.bodies])]
    likely = sorted(found, key=lambda one: _LIKELY.index(names[one]) if names[one] in _LIKELY else len(_LIKELY))
    for place in [one for one in likely if one in increasing or names[one] in _LIKELY][:2]:
        if (parameter := _find_resume_parameter(address, framing, usual, place, min(seconds, _WAIT_S))) is not None:
            reason = f"requested with {parameter} of an event, it sent those after it"
            return [
                f'key = "{place}"  # {why}',
                _GUESS,
                f'cursor = "{place}"',
                f'resume = {{ query = "{parameter}" }}  # {reason}',
            ]
    place = next((one for one in likely if names[one] in _LIKELY), next(iter([*increasing, *likely])))
    return [
        f'key = "{place}"  # {why}',
        _GUESS,
        '# cursor = "$..." and resume = { query = "..." } if the upstream can resume from a place',
    ]


def _without_other_members(seen: ProbeResult) -> ProbeResult:
    """Returns the probe without the few events that have other members than most, such as a greeting or an answer."""
    members = [frozenset(body) for body in seen.bodies]
    usual, count = Counter(members).most_common(1)[0] if members else (frozenset[str](), 0)
    if count < 3 or 2 * count <= len(members):
        return seen
    return replace(seen, frames=[frame for frame, own in zip(seen.frames, members, strict=True) if own == usual])


def _split_lines(bodies: list[Mapping[str, Any]]) -> list[str]:
    """Returns the lines for messages that each contain a list of objects with a unique value; [] for other messages."""
    for path in _places(bodies[0] if bodies else {}, "$", 0, list):
        lists = [value_at(body, path) for body in bodies]
        elements: list[Any] = [one for each in lists for one in (each if isinstance(each, list) else [None])]
        if len(elements) > 1 and all(isinstance(one, dict) for one in elements) and (found := unique_places(elements)):
            key = next((one for one in found if _is_increasing([value_at(body, one) for body in elements])), found[0])
            return [
                f'split = {{ path = "{path}" }}  # each message has a list there, whose elements are the events',
                f'key = "{path}[*]{key[1:]}"  # it was different in each event that came',
                _GUESS,
            ]
    return []


def unique_places(bodies: list[Mapping[str, Any]]) -> list[str]:
    """Returns the places whose values are present and different in all bodies."""
    first = bodies[0] if bodies else {}
    return [place for place in _places(first, "$", 0) if _is_unique([value_at(body, place) for body in bodies])]


def _places(body: Mapping[str, Any], above: str, depth: int, kind: Any = str | int) -> Iterator[str]:
    for name, value in body.items():
        if not MEMBER.fullmatch(name):
            continue
        if isinstance(value, dict) and depth < _DEPTH:
            yield from _places(value, f"{above}.{name}", depth + 1, kind)
        elif isinstance(value, kind) and not isinstance(value, bool):
            yield f"{above}.{name}"


def value_at(body: Any, place: str) -> Any:
    """Returns the value at a place of a body; None if it has none."""
    for name in place.split(".")[1:]:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def _is_unique(values: list[Any]) -> bool:
    sound = all(isinstance(value, str | int) and not isinstance(value, bool) for value in values)
    try:
        return sound and len({str(value).encode() for value in values}) == len(values)
    except UnicodeEncodeError:  # half of a surrogate pair, which no address and no table can carry
        return False


def _is_increasing(values: list[Any]) -> bool:
    if not all(isinstance(value, int) for value in values):
        return False
    return all(earlier < later for earlier, later in pairwise(values))


def _find_resume_parameter(
    address: ProbedAddress, framing: str, seen: ProbeResult, place: str, seconds: float
) -> str | None:
    """Returns the parameter with which the upstream resumes behind an event in the middle, or None.

    Three events are needed to exclude an upstream that always begins at the same place.
    """
    if len(seen.frames) < 3 or address.body is not None:
        return None
    middle = (len(seen.bodies) - 1) // 2
    value = value_at(seen.bodies[middle], place)
    name = place.rpartition(".")[2]
    asked = re.findall(r"[?&]([^=&#]+)", address.url)
    for parameter in [one for one in dict.fromkeys((*_PARAMETERS, name)) if one not in asked][:_QUESTIONS]:
        text = value if isinstance(value, str) else json.dumps(value)
        again = probe(address.with_query(parameter, text), framing, seconds, most_frames=1)
        if [frame.data for frame in again.frames[:1]] == [seen.frames[middle + 1].data]:
            return parameter
    return None


_NAMES = re.compile(r"ping|heart-?beat|keep-?alive", re.IGNORECASE)


def find_heartbeats(frames: list[Frame]) -> tuple[list[str], str, list[Frame]]:
    """Returns the marks of the heartbeats, how they were found, and the other frames.

    A heartbeat has a name that upstreams give them, or the same body as others again and again.
    """
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
    """The marks of bodies that repeat and lack the place that differs in all others, by body; {} if one has no mark."""
    times = Counter(str(frame.data) for frame in frames)
    bodies = {str(frame.data): parse_json(frame.data) for frame in frames}
    events = [body for text, body in bodies.items() if times[text] == 1]
    if len(events) < 2 or not all(isinstance(body, dict) for body in bodies.values()):
        return {}
    again = {text: body for text, body in bodies.items() if times[text] > 1}
    if not any(all(value_at(body, one) is None for body in again.values()) for one in unique_places(events)):
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
