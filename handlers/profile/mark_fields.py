"""Parses the marks of a profile: which frames say something about the stream, such as its end or a heartbeat.

Each mark that is returned without a note in `Fields` is sound. For example `end = { json = { "$.type" = "BYE" } }` is
one mark of `Kind.END`, and `end = [{ event = "bye" }, { data = "[DONE]" }]` is two.
"""

from typing import Any

from handlers.framing.events import JsonPath, parse_path
from handlers.framing.marks import Kind, Mark, Value
from handlers.profile.addresses import ProfileError
from handlers.profile.checked_fields import PATH, Fields

_MARK = '{ event = "..." }, { data = "..." }, { comment = "..." } or { json = { "$.type" = "..." } }, or a list of such'


def marks(fields: Fields, field: str, kind: Kind) -> list[tuple[Kind, Mark]]:
    """The marks of one kind: none, one or a list of them."""
    value = fields.take(field)
    if value is None:
        return []
    named = []
    for one in value if isinstance(value, list) else [value]:
        try:
            named.append((kind, _mark(one)))
        except ProfileError as error:
            fields.wrong(field, str(error))
    return named


def _mark(value: Any) -> Mark:
    if not isinstance(value, dict) or not value or not set(value) <= {"event", "data", "comment", "json"}:
        raise ProfileError(f"must be {_MARK}")
    texts = {name: text for name, text in value.items() if name != "json"}
    if not all(isinstance(text, str) for text in texts.values()) or ("comment" in value and len(value) > 1):
        raise ProfileError(f"must be {_MARK}; a comment stands alone")
    table = value.get("json", {})
    if not isinstance(table, dict) or ("json" in value and not table):
        raise ProfileError('must give json a table of places and values such as { "$.type" = "ERROR" }')
    places: list[tuple[JsonPath, Value]] = []
    for spelled, wanted in table.items():
        path = parse_path(spelled)
        if path is None or not isinstance(wanted, str | int | float | bool):
            raise ProfileError(f'must give {PATH} a text, a number, true, false or "*" (anything at all) in json')
        places.append((path, wanted))
    return Mark(json=tuple(places), **texts)
