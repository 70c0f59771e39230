"""Takes the fields of a profile's table one by one, and collects everything that is wrong with them.

It knows what a number, a text or a choice is; the modules beside it know what the fields mean. Invariant: every problem
is one sentence that names the profile, the field and what would be right. It never repeats an address, a header or a
body, for any of them may hold a secret.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from handlers.framing.events import parse_path
from handlers.profile.addresses import ProfileError
from handlers.values import dataclass

# RFC 9110, section 5.6.2 and 5.5: a field's name is a token; its value visible characters, spaces and tabs.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")
# These are the client's own to write: a second one, or another length, would begin another request.
_RESERVED = frozenset(
    {"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"}
    | {f"sec-websocket-{name}" for name in ("accept", "extensions", "key", "version")}
)


def is_header(name: str) -> bool:
    """Returns whether this is the name of a header that a profile may set."""
    return _TOKEN.fullmatch(name) is not None and name.lower() not in _RESERVED


# A longer number of any unit is beyond every limit.
_DIGITS = 12
_UNIT_S = {"s": 1, "m": 60, "h": 3600}
PATH = 'a JSON path such as "$.meta.id" or "$.items[0]"'
_TYPES = {"string": str, "boolean": bool, "integer": int, "number": int | float}


@dataclass(frozen=True, slots=True)
class Form:
    """What a field may be, as a JSON Schema and in words; `convert` reads values that are spelled as text."""

    schema: Mapping[str, Any]
    must_be: str
    convert: Callable[[Any], Any] | None = None

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(self.schema.get("enum", ()))

    def read(self, value: Any) -> Any:
        """Returns what the value means; None for a wrong one."""
        if self.convert is not None:
            return self.convert(value)
        return value if _fits(self.schema, value) else None


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    if not isinstance(value, _TYPES[schema["type"]]) or isinstance(value, bool) != (schema["type"] == "boolean"):
        return False
    if "maximum" not in schema:
        return True
    return bool(schema.get("exclusiveMinimum", -1) < value <= schema["maximum"] and value >= schema.get("minimum", 0))


def number(*, above: float, most: float, unit: str = "of seconds ") -> Form:
    """Returns the form of a number above `above` (at least 0 if that is negative) and at most `most`."""
    least = {"minimum": 0} if above < 0 else {"exclusiveMinimum": above}
    words = f"from 0 to {most:g}" if above < 0 else f"above {above:g} and at most {most:g}"
    return Form({"type": "number", **least, "maximum": most}, f"must be a number {unit}{words}")


def integer(most: int, *, least: int = 1) -> Form:
    """Returns the form of a whole number from `least` to `most`."""
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Form(schema, f"must be a whole number from {least} to {most}")


def choice(words: tuple[str, ...]) -> Form:
    return Form({"enum": list(words)}, f"must be one of {', '.join(words)}")


def duration(most_s: int) -> Form:
    """Returns the form of a time from 0 to `most_s`: a number of seconds, or a text such as "90s", "5m" or "1h"."""
    seconds: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": most_s}

    def convert(value: Any) -> Any:
        if isinstance(value, str) and value[:-1].isascii() and value[:-1].isdigit() and value[-1] in _UNIT_S:
            value = int(value[:-1][:_DIGITS]) * _UNIT_S[value[-1]]
        return value if _fits(seconds, value) else None

    words = f'must be a number of seconds from 0 to {most_s}, or such a time as "90s", "5m" or "1h"'
    return Form({"anyOf": [seconds, {"type": "string", "pattern": "^[0-9]+[smh]$"}]}, words, convert)


_EVERY: dict[str, Any] = {"type": "number", "minimum": 1, "maximum": 604_800}
# How often an event is expected: "usual" is read as 0.
EXPECTED = Form(
    {"anyOf": [_EVERY, {"enum": ["usual"]}]},
    'must be a number of seconds from 1 to 604800, or "usual"',
    lambda value: 0 if value == "usual" else value if _fits(_EVERY, value) else None,
)
TEXT = Form({"type": "string"}, "must be a text")
FLAG = Form({"type": "boolean"}, "must be true or false")
A_PATH = Form(
    {"type": "string", "pattern": r"^\$", "description": 'a JSON path such as "$.meta.id"'},
    f"must be {PATH}",
    lambda value: parse_path(value) if isinstance(value, str) else None,
)


def element_hint(path: object) -> str:
    """Returns an explanation of `[*]` that ends the sentence about a wrong path; "" if the path has no `[*]`."""
    return '; "[*]" stands for an element of the list that split names' if "[*]" in str(path) else ""


class BadProfile(ProfileError):
    """A profile with problems; the message is the first of them."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems[0])


class Fields:
    """The fields of one table. A method notes a wrong value and returns the default in its place.

    `within` is the field whose table this is, "" for the profile itself.
    """

    def __init__(self, name: str, table: Mapping[str, Any], problems: list[str], within: str = "") -> None:
        self._name = name
        self._table = dict(table)
        self._within = within
        self._known: list[str] = []
        self.problems = problems

    def add_problem(self, field: str, problem: str) -> None:
        """Notes the first problem of `field`; "" is this table itself. A later one may follow from the first."""
        where = ".".join(part for part in (self._within, field) if part)
        begin = f"the profile {self._name!r}: {where} "
        if not any(noted.startswith(begin) for noted in self.problems):
            self.problems.append(begin + problem)

    def refuse_unknown(self, known: str) -> None:
        """Notes a problem for each field that was not taken; `known` lists the valid ones."""
        for field in self._table:
            self.add_problem(str(field), f"is not a field of {known}{did_you_mean(field, self._known)}")

    def take(self, field: str) -> Any:
        """Takes the field and returns its value as it is; None if it is absent."""
        return self._pop(field, None)

    def has(self, field: str) -> bool:
        """Returns whether the field is there and was not taken yet."""
        return field in self._table

    def fields_of(self, field: str, value: Mapping[str, Any]) -> "Fields":
        """Returns the fields of a table that is the value of a field."""
        within = ".".join(part for part in (self._within, field) if part)
        return Fields(self._name, value, self.problems, within)

    def read(self, field: str, form: Form, default: Any = None) -> Any:
        """Returns the value as its form reads it, or `default`. A choice without a default is required."""
        value = self._pop(field, default)
        if value is None and default is None and not form.choices:
            return None
        read = form.read(value)
        if read is not None:
            return read
        problem = "is missing" if value is None else f"{form.must_be}{did_you_mean(value, form.choices)}"
        self.add_problem(field, problem)
        return form.choices[0] if default is None and form.choices else default

    def read_required(self, field: str, form: Form) -> Any:
        """Returns the value of a required field as its form reads it; None, with a note, if it is missing or wrong."""
        if self.has(field):
            return self.read(field, form)
        self.add_problem(field, f"is missing: it {form.must_be}")
        return None

    def read_checked(self, field: str, check: Callable[[str], str]) -> str:
        """Returns what `check` returns for a required text; `check` raises ProfileError for a wrong one."""
        value = self._pop(field, None)
        if not isinstance(value, str):
            self.add_problem(field, "must be a text" if value is not None else "is missing")
            return ""
        try:
            return check(value)
        except ProfileError as error:
            self.add_problem(field, str(error))
            return ""

    def table(self, field: str, shape: str) -> "Fields | None":
        """Returns the fields of a field that is a table; None if it is absent or, with a note, not a table."""
        value = self._pop(field, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.add_problem(field, f"must be {shape}")
            return None
        return self.fields_of(field, value)

    def take_rest(self) -> dict[str, Any]:
        """Takes and returns all remaining fields."""
        left, self._table = self._table, {}
        return left

    def _pop(self, field: str, default: Any) -> Any:
        """Takes the field and returns its value; a field that is taken is known."""
        self._known.append(field)
        return self._table.pop(field, default)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Returns the end of a problem that suggests the known word closest to a misspelt one; "" if none is close."""
    names = {name.lower(): name for name in known}
    if not isinstance(word, str) or word in names.values():
        return ""
    # Imported here: only a profile with a mistake needs it, and each import lengthens the cold start.
    from difflib import get_close_matches

    lower = word.lower().replace("-", "_")
    near = [lower] if lower in names else get_close_matches(lower, names, 1, 0.7)
    near = near or [name for name in names if len(lower) > 3 and lower in name]
    return f"; did you mean {names[near[0]]}?" if near else ""
