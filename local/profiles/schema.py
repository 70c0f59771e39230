"""The JSON Schema of a profile, made by running the parser and recording the fields that it reads.

So each field of the parser is in the schema, with its bounds, its choices and its default. Tables that the parser takes
as a whole (a mark, a key's rule) are described here. The result is `env/profile.schema.json`. `#:schema` in the first
line of a profile names it: editors with Taplo (Even Better TOML) complete and check with it. Invariant: a profile that
the parser accepts is valid.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from handlers.api.answers import format_json
from handlers.profile.checked_fields import A_PATH, FLAG, TEXT, Fields, Form
from handlers.profile.columns_field import KINDS as COLUMN_KINDS
from handlers.profile.columns_field import MOST_COLUMNS, RESERVED
from handlers.profile.columns_field import NAME as COLUMN_NAME
from handlers.profile.deliver_field import BATCH, FROM, LABEL, MORE, MOST_TARGETS, NAMES, WAIT_S
from handlers.profile.keep_field import MOST_VALUES
from handlers.profile.message_fields import CODE
from handlers.profile.messages import CLOSE_MEANINGS
from handlers.profile.parse import read
from handlers.profile.sections import MEANINGS

Schema = dict[str, Any]
FILE, WIDTH = "profile.schema.json", 120
_PATH: Schema = dict(A_PATH.schema)
_VALUE: Schema = {"type": ["string", "number", "boolean"]}
_TEXT: Schema = dict(TEXT.schema)


# Schemas that are used in several places, by name.
_DEFINITIONS: dict[str, Schema] = {}


def _define(name: str, schema: Schema) -> Schema:
    """Returns a reference to the schema, which is written once."""
    _DEFINITIONS[name] = schema
    return {"$ref": f"#/definitions/{name}"}


def _one_or_several(name: str, schema: Schema) -> Schema:
    one = _define(name, schema)
    return {"anyOf": [one, {"type": "array", "items": one}]}


def _mark(*paths: str) -> Schema:
    places: Schema = {"type": "object", "additionalProperties": _VALUE, "minProperties": 1}
    absent: Schema = {"type": "array", "items": _PATH, "minItems": 1}
    parts: Schema = {"event": _TEXT, "data": _TEXT, "comment": _TEXT, "json": places, "absent": absent}
    parts |= dict.fromkeys(paths, _PATH)
    mark = {"type": "object", "properties": parts, "patternProperties": {r"^\$": _VALUE}, "minProperties": 1}
    name = "_".join(("mark", *paths))
    return _define(f"{name}s", _one_or_several(name, mark | {"additionalProperties": False}))


def _targets() -> Schema:
    flag = dict(FLAG.schema) | {"default": False}
    kinds: dict[str, Schema] = {"unordered": flag, "allow_private": flag, "prefix": _TEXT, "secret": _TEXT}
    kinds["label"] = {"type": "string", "pattern": f"^{LABEL.pattern}$"}
    kinds |= {"from": dict(FROM.schema), "batch": dict(BATCH.schema), "wait_s": dict(WAIT_S.schema)}
    one = [
        {
            "type": "object",
            "properties": {
                kind: {"type": "string", "pattern": f"^{pattern}$", "description": words},
                **{name: kinds[name] for name in MORE[kind]},
            },
            "required": [kind],
            "additionalProperties": False,
        }
        for kind, (pattern, words) in NAMES.items()
    ]
    target = _define("target", {"anyOf": one})
    return {"anyOf": [target, {"type": "array", "items": target, "minItems": 1, "maxItems": MOST_TARGETS}]}


def _keep() -> Schema:
    values = {"type": "array", "minItems": 1, "maxItems": MOST_VALUES}
    names = {"anyOf": [_TEXT, {**values, "items": _TEXT}]}
    rule = {
        "type": "object",
        "properties": {"name": names, "path": _PATH, "is": {"anyOf": [_VALUE, {**values, "items": _VALUE}]}},
        "additionalProperties": False,
        "minProperties": 1,
        "dependencies": {"is": ["path"]},
    }
    one = _define("keep", rule)
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


_ANSWER: Schema = _define("answers", _one_or_several("answer", {"anyOf": [_TEXT, {"$ref": "#/definitions/mark"}]}))
_SEND: Schema = {"type": ["string", "object", "array"], "description": "a text, or what is sent as JSON"}
_WITHIN: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 60, "default": 10}


def _message_schema(required: list[str], **more: Schema) -> Schema:
    """A message on a socket."""
    properties = {"send": _SEND, **more}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_NUMBERING = {"path": _PATH, "by": _PATH}
# Fields that the parser takes as a whole, by their places.
_WHOLE_FIELDS: dict[str, Schema] = {
    "body": {"type": "string", "description": "the text of a JSON object"},
    "key": {"anyOf": [{"enum": ["id", "hash", "each"]}, _PATH, {"type": "array", "items": _PATH, "minItems": 1}]},
    "cursor": {"anyOf": [{"enum": ["id"]}, _PATH]},
    "disconnect": _mark("cursor"),
    "end": _mark(),
    "loss": _mark("count"),
    "snapshot": _mark(),
    "subscribe": _one_or_several(
        "subscribe", _message_schema([], expect=_ANSWER, refuse=_ANSWER, reason=_PATH, within_s=_WITHIN)
    ),
    "ping.send": _SEND,
    "ping.answer": _ANSWER,
    "leave.send": _SEND,
    "reply": _one_or_several("reply", _message_schema(["to", "send"], to=_ANSWER)),
    "sequence": {
        "anyOf": [
            _PATH,
            {"type": "object", "properties": _NUMBERING, "required": ["path"], "additionalProperties": False},
        ]
    },
    "heartbeat": _mark("cursor", "first_cursor"),
    "resume.expired": _mark(),
    "resume.header": _TEXT,
    "resume.query": _TEXT,
    "resume.body": {"type": "string", "pattern": "^/"},
    "deliver": _targets(),
    "keep": _keep(),
    "columns": {
        "type": "object",
        "propertyNames": {"pattern": f"^{COLUMN_NAME.pattern}$", "not": {"enum": sorted(RESERVED)}},
        "additionalProperties": {
            "anyOf": [
                _PATH,
                {
                    "type": "object",
                    "properties": {"path": _PATH, "type": {"enum": list(COLUMN_KINDS)}},
                    "required": ["path", "type"],
                    "additionalProperties": False,
                },
            ]
        },
        "minProperties": 1,
        "maxProperties": MOST_COLUMNS,
    },
    "repair.key": {"anyOf": [_PATH, {"type": "array", "items": _PATH, "minItems": 1}]},
    "ticket.body": {"type": "string", "description": "the text of a JSON object or array"},
    "split.keep": _one_or_several("path", _PATH),
    "split.unfinished": _mark(),
}
# A stand-in for the value of such a field, so that the parser reads the fields in it.
_SAMPLES = {"resume": {"query": "after"}}
# Fields whose absence the parser reports by itself.
_REQUIRED = {"ping": ["every_s"], "leave": ["send"]}
# Tables with names of the user's choice.
_OPEN_TABLES: dict[str, Schema] = {
    "headers": {"type": "object", "additionalProperties": _TEXT},
    "places": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {"path": _PATH, "header": _TEXT},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        },
    },
    "statuses": {
        "type": "object",
        "patternProperties": {"^[2-5][0-9][0-9]$": {"enum": list(MEANINGS)}},
        "additionalProperties": False,
    },
    "close_codes": {
        "type": "object",
        "patternProperties": {f"^({CODE[0].pattern})$": {"enum": list(CLOSE_MEANINGS)}},
        "additionalProperties": False,
    },
}


class FieldRecorder(Fields):
    """Fields that record what is read, and answer like an empty table."""

    def __init__(self, place: str = "") -> None:
        super().__init__("schema", {}, [])
        self.place = place
        self.properties: dict[str, Schema] = {}
        self.required = list(_REQUIRED.get(place, ()))

    def _place_of(self, field: str) -> str:
        return f"{self.place}.{field}" if self.place else field

    def _record(self, field: str, schema: Schema, default: Any = None) -> None:
        self.properties[field] = schema if default in (None, "") else schema | {"default": default}

    def schema(self) -> Schema:
        """The schema of what was read so far."""
        more: Schema = {"required": self.required} if self.required else {}
        return {"type": "object", "properties": self.properties, "additionalProperties": False, **more}

    def take(self, field: str) -> Any:
        place = self._place_of(field)
        if place not in _SAMPLES or place in _WHOLE_FIELDS:
            self._record(field, _WHOLE_FIELDS[place])
        return _SAMPLES.get(place)

    def has(self, field: str) -> bool:  # noqa: ARG002
        return True

    def fields_of(self, field: str, value: Mapping[str, Any]) -> Fields:  # noqa: ARG002
        inner = FieldRecorder(self._place_of(field))
        self.properties[field] = {"anyOf": [{"const": "none"}, inner.schema()]}
        return inner

    def table(self, field: str, shape: str) -> Fields:  # noqa: ARG002
        inner = FieldRecorder(self._place_of(field))
        self.properties[field] = _OPEN_TABLES.get(field) or inner.schema()
        return inner

    def read(self, field: str, form: Form, default: Any = None) -> Any:
        self._record(field, dict(form.schema), default)
        if default is None and form.choices:
            self.required.append(field)
            return form.choices[0]
        return default

    def read_required(self, field: str, form: Form) -> None:
        self.required += [] if field in self.required else [field]
        self.read(field, form)

    def read_checked(self, field: str, check: Callable[[str], str]) -> str:  # noqa: ARG002
        self.read_required(field, TEXT)
        return ""


@functools.cache
def profile_schema() -> Schema:
    """Returns the JSON Schema of a profile; callers share it."""
    fields = FieldRecorder()
    # The parser reads these only if they are present.
    table: Schema = {name: {} for name in ("split", "repair", "token", "ticket", "tls", "columns", "time")}
    table |= {"budget": {}, "deliver": [], "keep": [], "parts": [], "subscribe": [], "sequence": ""}
    read(fields, "schema", table, {}, 0)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A stream profile of Streamkeeper",
        "description": "docs/profiles.md has every field.",
        **fields.schema(),
        "definitions": _DEFINITIONS,
    }


def schema_text() -> str:
    """The schema's file."""
    return f"{format_json(profile_schema(), width=WIDTH)}\n"


if __name__ == "__main__":
    from local.checkout import ROOT

    (ROOT / "env" / FILE).write_text(schema_text(), encoding="utf-8")
