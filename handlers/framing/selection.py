"""Decides which events a profile keeps: by name, by the value at a place of the body, or by both.

    name trade                           an event of that name (`message` is one without a name)
    path $.type, is trade or quote       {"type": "trade", …}
    path $.price                         any body with a value there

Invariants: an event whose body cannot be read, because it is too long or has too many values, is kept unless its name
decides; nothing is raised, whatever the upstream sent.
"""

import json
from collections.abc import Iterable
from typing import Any

from handlers.framing.events import JsonPath, has_too_many_values, parse_json, value_at_path
from handlers.framing.frames import Body
from handlers.framing.marks import Value
from handlers.framing.oversize import Oversize
from handlers.values import dataclass


@dataclass(frozen=True, slots=True)
class Keep:
    """A rule whose parts must all hold: empty `names` fit any name, empty `values` any value.

    Each value is paired with whether it is a boolean, because in Python True equals 1.
    """

    names: frozenset[str] = frozenset()
    path: JsonPath | None = None
    values: frozenset[tuple[bool, Value]] = frozenset()

    def is_name_kept(self, name: str | None) -> bool:
        """Whether an event of this name may be kept."""
        return not self.names or (name or "message") in self.names

    def fits(self, name: str | None, body: Any) -> bool:
        """Whether an event of this name is kept; `body` is its JSON value, None if it is not JSON."""
        if not self.is_name_kept(name):
            return False
        if self.path is None:
            return True
        there, value = value_at_path(body, self.path)
        if not there or not self.values:
            return there
        return isinstance(value, str | int | float) and (isinstance(value, bool), value) in self.values


def is_kept(rules: Iterable[Keep], name: str | None, data: Body) -> bool:
    """Whether any of the rules keeps the event."""
    if any(rule.fits(name, None if rule.path is None else parse_json(data)) for rule in rules):
        return True
    is_undecided = any(rule.path is not None and rule.is_name_kept(name) for rule in rules)
    return is_undecided and parse_json(data) is None and is_beyond_reading(data)


def is_beyond_reading(data: Body) -> bool:
    """Whether a body that `parse_json` could not read may still be JSON."""
    if isinstance(data, Oversize) or has_too_many_values(data):
        return True
    try:
        json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return False
    except (ValueError, RecursionError):  # a number of thousands of digits, or thousands of nested values
        return True
    return False
