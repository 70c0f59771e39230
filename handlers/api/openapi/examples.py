"""Makes an example of each schema: every required member, with the value that `examples.json` has for its name.

There a name that begins with a capital letter is a schema's, with members that replace these. A member that is not
named there has the least value of its type, a text null if it may be.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from handlers.api.openapi.schemas import Schema, schemas

_LEAST: dict[str, Any] = {"integer": 0, "number": 0.0, "boolean": False, "string": ""}


@cache
def _known() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))
    return found


def example(name: str) -> Any:
    """Returns an example of the schema with this name."""
    return _value(schemas()[name], "") | _known().get(name, {})


def _value(schema: Schema, name: str) -> Any:
    if name in _known():
        return _known()[name]
    if "$ref" in schema:
        return example(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return _value(schema["anyOf"][0], "")
    if "const" in schema:
        return schema["const"]
    match schema["type"]:
        case "object":
            return {one: _value(schema["properties"][one], one) for one in schema.get("required", ())}
        case "array":
            return [_value(schema["items"], "")]
        case ["string", "null"]:
            return None
        case [kind, "null"]:
            return _LEAST[kind]
    return schema["enum"][0] if "enum" in schema else _LEAST[schema["type"]]
