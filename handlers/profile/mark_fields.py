"""Parses the marks of a profile: which frames are about the stream itself, such as its end or a heartbeat.

Each mark that is returned without a note in `Fields` is valid. For example `end = { json = { "$.type" = "BYE" } }` is
one mark of `Kind.END`, and `end = [{ event = "bye" }, { data = "[DONE]" }]` is two. The mark of a heartbeat or a
disconnect may also have the path of a cursor in the frame, and that of a loss the path of the number of events.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from handlers.framing.events import JsonPath, parse_path
from handlers.framing.marks import Kind, Mark, Value
from handlers.profile.addresses import ProfileError
from handlers.profile.checked_fields import PATH, Fields, did_you_mean

_MARK = (
    '{ event = "..." }, { data = "..." }, { comment = "..." }, { "$.type" = "..." } or '
    '{ absent = ["$.items"] }, or a list of such'
)
_PARTS = frozenset({"event", "data", "comment", "json", "absent"})
# Which kinds may have paths of their own: to a cursor, or to a number of events.
_PLACES = {Kind.HEARTBEAT: ("cursor", "first_cursor"), Kind.DISCONNECT: ("cursor",), Kind.LOSS: ("count",)}
# A mark is the same for all streams of a profile, so a placeholder in it would never match.
NOT_FILLED = "no placeholder and no reference to a secret, which nothing fills in there"
_FILLED = re.compile(r"\$\{|\{(?:streamId|name|cursor|token|ticket)[}|.]")
_WHO = ("only a heartbeat may, and a disconnect may contain cursor", "only a loss may")


def read_marks(fields: Fields, field: str, kind: Kind) -> list[tuple[Kind, Mark]]:
    """Returns the marks of one kind: none, one or a list of them."""
    return [(kind, one) for one in read_list(fields, field, lambda value: read_mark(value, _PLACES.get(kind, ())))]


def read_list(fields: Fields, field: str, read: Callable[[Any], Mark]) -> list[Mark]:
    """Returns the marks of a field, none, one or a list; notes the ProfileError that `read` raises."""
    value, found = fields.take(field), []
    for one in value if isinstance(value, list) else [] if value is None else [value]:
        try:
            found.append(read(one))
        except ProfileError as error:
            fields.add_problem(field, str(error))
    return found


def read_mark(value: Any, places: Sequence[str] = ()) -> Mark:
    """Returns the mark of a table, which may also have paths of these names; raises ProfileError."""
    table = dict(value) if isinstance(value, dict) else {}
    if table and all(str(name).startswith("$") for name in table):
        table = {"json": table}
    paths: dict[str, Any] = {
        name: _one_path(table, name) for name in ("cursor", "first_cursor", "count") if name in table
    }
    for name in paths:
        if name not in places:
            raise ProfileError(f"must not contain {name}: {_WHO[name == 'count']}")
    unknown = [part for part in table if part not in _PARTS]
    if not table or unknown:
        raise ProfileError(
            f"must be {_MARK}{did_you_mean(unknown[0] if unknown else None, (*sorted(_PARTS), *places))}"
        )
    json, absent = _values(table), _absent(table)
    if not all(isinstance(text, str) for text in table.values()) or ("comment" in table and len(value) > 1):
        raise ProfileError(f"must be {_MARK}; a mark with comment must contain nothing else")
    if any(is_filled(text) for text in (*table.values(), *(one for _, one in json))):
        raise ProfileError(f'must contain {NOT_FILLED}; in json, "*" is any value')
    return Mark(json=json, absent=absent, **paths, **table)


def is_filled(value: Any) -> bool:
    """Whether the value has a placeholder, which only other fields fill in for each stream."""
    return isinstance(value, str) and _FILLED.search(value) is not None


def _values(table: dict[str, Any]) -> tuple[tuple[JsonPath, Value], ...]:
    """Returns the places of `json` with their values, taken out of the mark's table."""
    wanted = table.pop("json", None)
    if wanted is None:
        return ()
    if not isinstance(wanted, dict) or not wanted:
        raise ProfileError('must contain json as a table of paths and values, such as { "$.type" = "ERROR" }')
    places: list[tuple[JsonPath, Value]] = []
    for text, value in wanted.items():
        path = parse_path(text)
        if path is None or not isinstance(value, str | int | float | bool):
            raise ProfileError(
                f'may contain in json only {PATH}, each with a text, a number, true, false or "*" (any value)'
            )
        places.append((path, value))
    return tuple(places)


def _absent(table: dict[str, Any]) -> tuple[JsonPath, ...]:
    """Returns the places of `absent`, taken out of the mark's table."""
    wanted = table.pop("absent", None)
    if wanted is None:
        return ()
    paths = [parse_path(one) if isinstance(one, str) else None for one in wanted] if isinstance(wanted, list) else []
    sound = tuple(path for path in paths if path is not None)
    if not sound or len(sound) < len(paths):
        raise ProfileError(f"must contain absent as a list of paths, each {PATH}")
    return sound


def _one_path(table: dict[str, Any], name: str) -> JsonPath | None:
    wanted = table.pop(name, None)
    path = parse_path(wanted) if isinstance(wanted, str) else None
    if wanted is not None and path is None:
        raise ProfileError(f"must contain {name} as {PATH}")
    return path
