"""Writes large JSON values part by part, so that other executions have turns in between.

Invariant: it writes about VALUES_PER_TURN values between two turns.
"""

from collections.abc import Iterator
from typing import Any

from states_language.scheduling.lanes import Lane, current_lane
from states_language.values import compact, has_more_values

VALUES_PER_TURN = 1_000
"""How many values are written in one turn, as `has_more_values` counts."""
LEAST_STEPS = 100
"""The least steps of one turn: to count the parts and to write them."""


def text_in_turns(value: Any, most: int) -> str:
    """Return a value as JSON text; for more than `most` characters, only a beginning that is longer than `most`."""
    host = current_lane()
    if host is None or not has_more_values(value, VALUES_PER_TURN):
        return compact(value)
    parts, length = [], 0
    for part in _text_parts(value, host):
        parts.append(part)
        length += len(part)
        if length > most:
            break
    return "".join(parts)


def _text_parts(value: Any, host: Lane) -> Iterator[str]:
    if not isinstance(value, dict | list):
        yield compact(value)
        return
    begin, end = "{}" if isinstance(value, dict) else "[]"
    yield begin
    yield from _member_texts(value, host)
    yield end


def _member_texts(value: Any, host: Lane) -> Iterator[str]:
    """Yield the text of the members of an object or array that has at least one."""
    if not has_more_values(value, VALUES_PER_TURN):
        host.wait_for_turn()
        text = compact(value)[1:-1]
        host.spend(max(LEAST_STEPS, len(text) >> 7))
        yield text
    elif len(value) == 1:
        if isinstance(value, dict):
            ((name, member),) = value.items()
            yield f"{compact(name)}:"
        else:
            (member,) = value
        yield from _text_parts(member, host)
    else:
        for count, half in enumerate(_halves(value)):
            if count:
                yield ","
            yield from _member_texts(half, host)


def _halves(value: Any) -> tuple[Any, Any]:
    middle = len(value) // 2
    if isinstance(value, list):
        return value[:middle], value[middle:]
    members = list(value.items())
    return dict(members[:middle]), dict(members[middle:])
