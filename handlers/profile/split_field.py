"""Parses the profile's field `split`: the path, in a frame, of the list whose elements are events.

In the profile's other paths, `[*]` after the path of the list is the element: with `split = { path = "$.items" }` the
path `$.items[*].id` is the element's own id. Invariant: a `Split` that is returned without a note in `Fields` is valid.
"""

from typing import Any

from handlers.framing.events import JsonPath, parse_path
from handlers.framing.splitting import ELEMENT, Split
from handlers.profile.checked_fields import A_PATH, Fields, Form
from handlers.profile.mark_fields import read_list, read_mark

_NAMES = 'a JSON path of names alone, such as "$.result.events"'


def split(fields: Fields) -> Split | None:
    """Returns how a frame is taken apart; None if a frame is one event."""
    inner = fields.table("split", 'a table such as { path = "$.items" }')
    if inner is None:
        return None
    path = inner.read_required("path", list_path(f'must be {_NAMES}, or "$" if the frame is the list')) or JsonPath(
        "$", ()
    )
    whole = Split(path)
    of_name = Form(
        A_PATH.schema,
        f'must be a JSON path such as "{path.text}{ELEMENT}.type"',
        lambda value: whole.path_of(value) if isinstance(value, str) else None,
    )
    parsed = Split(
        path, _kept_paths(inner, path), inner.read("name", of_name), tuple(read_list(inner, "unfinished", read_mark))
    )
    inner.refuse_unknown("split: path, keep, name, unfinished")
    return parsed


def list_path(must_be: str) -> Form:
    """Returns the form of the path of a list: of names alone, or "$" for the whole."""
    return Form(A_PATH.schema, must_be, _names_path)


def _names_path(value: Any) -> JsonPath | None:
    if value == "$":
        return JsonPath("$", ())
    path = parse_path(value) if isinstance(value, str) else None
    return path if path is not None and all(isinstance(step, str) for step in path.steps) else None


def _kept_paths(inner: Fields, path: JsonPath) -> tuple[JsonPath, ...]:
    value = inner.take("keep")
    if value is None:
        return ()
    paths = [_names_path(one) for one in (value if isinstance(value, list) else [value])]
    kept = [one for one in paths if one is not None and one.steps]
    if not kept or len(kept) < len(paths):
        inner.add_problem("keep", f"must be a list of paths, each {_NAMES}")
    elif any(_is_within(one, other) for one in kept for other in (path, *kept) if one is not other):
        inner.add_problem("keep", "must list members outside the list at path, none of them within another")
    elif not path.steps:
        inner.add_problem(
            "keep", 'must be left out if path is "$": a frame that is itself the list has no other members'
        )
    else:
        return tuple(kept)
    return ()


def _is_within(one: JsonPath, other: JsonPath) -> bool:
    length = min(len(one.steps), len(other.steps))
    return one.steps[:length] == other.steps[:length]
