"""Takes the fields out of a profile's table one by one, and collects everything that is wrong with them.

It says what a number, a text or a choice is; the modules beside it say what the fields mean. Invariant: every problem
is one sentence that names the profile, the field and what would be right. It never repeats an address, a header or a
body, for any of them may hold a secret.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from handlers.framing.events import JsonPath, parse_path
from handlers.profile.addresses import ProfileError

# RFC 9110, section 5.6.2 and 5.5: a field's name is a token; its value visible characters, spaces and tabs.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")
# These are the client's own to write: a second one, or another length, would begin another request.
_RESERVED = frozenset({"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"})


def is_header(name: str) -> bool:
    """Whether this is the name of a header that a profile may set."""
    return _TOKEN.fullmatch(name) is not None and name.lower() not in _RESERVED


T = TypeVar("T")
# A longer number of any unit is beyond every limit.
_DIGITS = 12
_UNIT_S = {"s": 1, "m": 60, "h": 3600}
PATH = 'a JSON path such as "$.meta.id" or "$.items[0]"'


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

    def wrong(self, field: str, problem: str) -> None:
        """Notes a problem of `field`; "" is this table itself."""
        where = ".".join(part for part in (self._within, field) if part)
        self.problems.append(f"the profile {self._name!r}: {where} {problem}")

    def refuse_the_rest(self, known: str) -> None:
        """Notes each field that nobody has taken; `known` says which there are."""
        for field in self._table:
            self.wrong(str(field), f"is not a field of {known}{did_you_mean(field, self._known)}")

    def take(self, field: str) -> Any:
        """The value of the field as it stands, None where it is absent."""
        return self._pop(field, None)

    def inside(self, field: str, value: Mapping[str, Any]) -> "Fields":
        """The fields of a table that is the value of a field."""
        within = ".".join(part for part in (self._within, field) if part)
        return Fields(self._name, value, self.problems, within)

    def text(self, field: str, default: str) -> str:
        """A text."""
        value = self._pop(field, default)
        if isinstance(value, str):
            return value
        self.wrong(field, "must be a text")
        return default

    def path(self, field: str) -> JsonPath | None:
        """A JSON path; None where it is absent or, with a note, not a path."""
        value = self._table.pop(field, None)
        path = parse_path(value) if isinstance(value, str) else None
        if value is not None and path is None:
            self.wrong(field, f"must be {PATH}")
        return path

    def checked(self, field: str, check: Callable[[str], T], default: T) -> T:
        """What `check` returns for the text of a required field; `check` raises ProfileError where it is wrong."""
        value = self._pop(field, None)
        if not isinstance(value, str):
            self.wrong(field, "must be a text" if value is not None else "is missing")
            return default
        try:
            return check(value)
        except ProfileError as error:
            self.wrong(field, str(error))
            return default

    def choice(self, field: str, allowed: tuple[str, ...], default: str | None) -> str:
        """One of `allowed`; where the default is None the field is required."""
        value = self._pop(field, default)
        if isinstance(value, str) and value in allowed:
            return value
        wrong = f"must be one of {', '.join(allowed)}{did_you_mean(value, allowed)}"
        self.wrong(field, wrong if value is not None else "is missing")
        return default or allowed[0]

    def number(self, field: str, default: float, *, above: float, most: float, unit: str = "of seconds ") -> float:
        """A number above `above`, from 0 on where that is negative, and at most `most`."""
        value = self._pop(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value <= most or value < 0:
            least = "at least 0" if above < 0 else f"above {above:g}"
            self.wrong(field, f"must be a number {unit}{least} and at most {most:g}")
            return default
        return value

    def duration_s(self, field: str, default: float, *, most: float) -> float:
        """Seconds, from 0 to `most`: a number of them, or a text with its unit such as "90s", "5m" or "1h"."""
        value = seconds = self._pop(field, default)
        if isinstance(value, str) and value[:-1].isascii() and value[:-1].isdigit() and value[-1] in _UNIT_S:
            seconds = int(value[:-1][:_DIGITS]) * _UNIT_S[value[-1]]
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= most:
            self.wrong(field, f'must be a number of seconds from 0 to {most:g}, or such a time as "90s", "5m" or "1h"')
            return default
        return seconds

    def whole(self, field: str, default: int, *, least: int = 1, most: int) -> int:
        """A whole number."""
        value = self._pop(field, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.wrong(field, f"must be a whole number from {least} to {most}")
            return default
        return value

    def flag(self, field: str) -> bool:
        """True or false; false where it is absent."""
        value = self._pop(field, False)
        if not isinstance(value, bool):
            self.wrong(field, "must be true or false")
            return False
        return value

    def table(self, field: str, shape: str) -> "Fields | None":
        """The fields of a field that is a table; None where it is absent or, with a note, not a table."""
        value = self._pop(field, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.wrong(field, f"must be {shape}")
            return None
        return self.inside(field, value)

    def rest(self) -> dict[str, Any]:
        """What is left, taken."""
        left, self._table = self._table, {}
        return left

    def _pop(self, field: str, default: Any) -> Any:
        """The value, taken; whoever asks for a field knows it."""
        self._known.append(field)
        return self._table.pop(field, default)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """What to add to a problem: the one of `known` that a misspelt word may stand for, "" where none is near."""
    names = {name.lower(): name for name in known}
    if not isinstance(word, str) or word in names.values():
        return ""
    # Only a profile with a mistake needs it, and a function's start has no time to spare.
    from difflib import get_close_matches

    spelled = word.lower().replace("-", "_")
    near = [spelled] if spelled in names else get_close_matches(spelled, names, n=1)
    near = near or [name for name in names if len(spelled) > 3 and spelled in name]
    return f"; did you mean {names[near[0]]}?" if near else ""
