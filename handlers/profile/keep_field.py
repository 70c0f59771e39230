"""Parses the profile's field `keep`: which events are stored, by name, by a place in the body, or by both.

Invariant: a `Keep` that is returned without a note in `Fields` is valid.
"""

from typing import Any

from handlers.framing.events import JsonPath, parse_path
from handlers.framing.selection import Keep
from handlers.framing.splitting import Split
from handlers.profile.checked_fields import PATH, Fields, element_hint
from handlers.profile.mark_fields import NOT_FILLED, is_filled

_SHAPE = '{ name = ["trade"] } or { path = "$.type", is = ["trade", "quote"] }, or a list of such'
MOST_VALUES = 1000


def keep(fields: Fields, split: Split | None, *, has_names: bool) -> tuple[Keep, ...]:
    """Returns the rules, none if all events are kept; `has_names` is whether the framing's events may have names."""
    value = fields.take("keep")
    if value is None:
        return ()
    rules = value if isinstance(value, list) else [value]
    if not rules or not all(isinstance(one, dict) and one for one in rules):
        fields.add_problem("keep", f"must be {_SHAPE}")
        return ()
    return tuple(_rule(fields.fields_of("keep", one), split, has_names or bool(split and split.name)) for one in rules)


def _rule(inner: Fields, split: Split | None, has_names: bool) -> Keep:
    names = _values(inner, "name", str)
    if names and not has_names:
        inner.add_problem("name", 'works only with framing = "sse", or with split.name: no other event has a name')
    path = _path(inner, split)
    values = _values(inner, "is", str | int | float)
    if values and path is None:
        inner.add_problem("is", "needs path, which says where the value is")
    inner.refuse_unknown("keep: name, path, is")
    return Keep(frozenset(names), path, frozenset((isinstance(value, bool), value) for value in values))


def _path(inner: Fields, split: Split | None) -> JsonPath | None:
    text = inner.take("path")
    if text is None:
        return None
    read = parse_path if split is None else split.path_of
    path = read(text) if isinstance(text, str) else None
    if path is None:
        inner.add_problem("path", f"must be {PATH}{element_hint(text)}")
    return path


def _values(inner: Fields, field: str, kind: Any) -> list[Any]:
    value = inner.take(field)
    if value is None:
        return []
    values = value if isinstance(value, list) else [value]
    if not 0 < len(values) <= MOST_VALUES or not all(isinstance(one, kind) for one in values):
        words = "texts" if kind is str else "texts, numbers, true or false"
        inner.add_problem(field, f"must be a list of 1 to {MOST_VALUES} {words}")
        return []
    if any(is_filled(one) for one in values):
        inner.add_problem(field, f"must contain {NOT_FILLED}")
    return values
