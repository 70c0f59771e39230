"""Reads which streams should be connected and which not, from a document or from lines, and decides for any stream id.

    connected = ["prices:eur-usd", "sensors:{001..250}", "orders:*"]
    stopped = ["orders:test-*"]

An entry is an id, a range that becomes a list of ids, or a pattern, which matches streams that were ever started. In a
file of lines each line is an id, a range or a pattern; `!` begins one that should not be connected, `#` a comment. An
id decides before a pattern, and a pattern with more characters besides `*` and `?` before one with fewer; if both have
as many, `stopped` decides. Pure. Invariant: a document that was read is written as a text that reads the same.
"""

import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any

from handlers.profile.addresses import shown_id, stream_id_problem
from handlers.values import dataclass

# The most streams and bytes of a document, less than Lambda takes in one request, and the most patterns, each of which
# is compared with every stream.
MOST_STREAMS, MOST_BYTES, MOST_PATTERNS = 200_000, 5_000_000, 1_000
LINES, JSON, TOML = "text/plain", "application/json", "application/toml"
_NAMES = ("connected", "stopped")
# A comment begins a line, or follows a space: an id may have a `#`.
_COMMENT = re.compile(r"(?:^|\s)#")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")


class DocumentError(ValueError):
    """The document is invalid; the message is one sentence, `place` is the field or line at fault, "" for the whole."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


@dataclass(frozen=True)
class Pattern:
    """A pattern of ids, for streams that were ever started."""

    text: str
    is_connected: bool

    def matches(self, stream_id: str) -> bool:
        """Returns whether the stream's id matches, in a time that many `*` do not multiply."""
        return fnmatchcase(stream_id, self.text.replace("[", "[[]"))

    @property
    def rank(self) -> tuple[int, bool]:
        """The rank: of the patterns that match, the one with the greatest decides."""
        return sum(one not in "*?" for one in self.text), not self.is_connected


@dataclass(frozen=True)
class Wanted:
    """The content of a document: whether each id should be connected, and patterns."""

    ids: Mapping[str, bool]
    patterns: Sequence[Pattern] = field(default=())

    def should_connect(self, stream_id: str) -> bool | None:
        """Returns whether the stream should be connected; None if the document does not name it."""
        if stream_id in self.ids:
            return self.ids[stream_id]
        matching = [one for one in self.patterns if one.matches(stream_id)]
        return max(matching, key=lambda one: one.rank).is_connected if matching else None

    def counts(self) -> tuple[int, int, int]:
        """Returns how many ids should be connected and how many not, and how many patterns there are."""
        connected = sum(self.ids.values())
        return connected, len(self.ids) - connected, len(self.patterns)

    def text(self) -> str:
        """Returns the document in its shortest form."""
        found: dict[str, list[str]] = {name: [] for name in _NAMES}
        for name, is_connected in self.ids.items():
            found[_NAMES[not is_connected]].append(name)
        for one in self.patterns:
            found[_NAMES[not one.is_connected]].append(one.text)
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def read(text: str, kind: str = TOML) -> Wanted:
    """Returns the document; `kind` is its media type. Raises DocumentError."""
    if len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise DocumentError(f"the document has more than {MOST_BYTES:,} bytes: use ranges and patterns")
    found: dict[str, bool] = {}
    # Some editors begin a file with a byte order mark.
    text, size_bytes, patterns = text.removeprefix("\ufeff"), 0, 0
    for place, entry, is_connected in _lines(text) if kind == LINES else _table(text, kind):
        for one in _expand(entry, place):
            _check(one, place)
            size_bytes, patterns = size_bytes + len(one.encode()), patterns + _is_pattern(one)
            if found.setdefault(one, is_connected) != is_connected:
                raise DocumentError(f"{one!r} is listed as connected and as stopped", place)
            if len(found) > MOST_STREAMS:
                raise DocumentError(f"the document names more than {MOST_STREAMS:,} streams: apply it in parts", place)
            if patterns > MOST_PATTERNS:
                raise DocumentError(f"the document has more than {MOST_PATTERNS:,} patterns: apply it in parts", place)
            if size_bytes > MOST_BYTES:
                words = f"the document's ranges stand for more than {MOST_BYTES:,} bytes: apply it in parts"
                raise DocumentError(words, place)
    if not found:
        raise DocumentError("the document names no stream: write connected = [...] or stopped = [...]")
    return _to_wanted(found)


def read_saved(text: str) -> Wanted:
    """Returns the document whose `Wanted.text` this is; nothing is checked again."""
    table = json.loads(text)
    return _to_wanted({one: name == "connected" for name in _NAMES for one in table[name]})


def _to_wanted(found: Mapping[str, bool]) -> Wanted:
    patterns = tuple(Pattern(one, is_connected) for one, is_connected in found.items() if _is_pattern(one))
    ids = sorted((one for one in found if not _is_pattern(one)), key=str.encode)
    return Wanted({one: found[one] for one in ids}, patterns)


def _is_pattern(entry: str) -> bool:
    return "*" in entry or "?" in entry


def _lines(text: str) -> Iterator[tuple[str, str, bool]]:
    # Not `splitlines`, which ends a line at characters that an id may have, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        if entry := _COMMENT.split(line, 1)[0].strip():
            yield f"line {number}", entry.removeprefix("!").strip(), not entry.startswith("!")


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the object. It refuses a field that is there twice, because only one of its lists would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DocumentError("the document has a field twice: give each list once")
    return found


def _table(text: str, kind: str) -> Iterator[tuple[str, str, bool]]:
    try:
        table = json.loads(text, object_pairs_hook=_object_without_repeats) if kind == JSON else tomllib.loads(text)
    except DocumentError:
        raise
    except (ValueError, RecursionError) as error:
        line = re.search(r"(?<= )line [0-9]+", str(error))
        place = f" at {line[0]}" if line else ""
        raise DocumentError(f"the document is not valid {'JSON' if kind == JSON else 'TOML'}{place}") from None
    if not isinstance(table, dict):
        raise DocumentError("the document must be a table with connected and stopped")
    if unknown := sorted(set(table) - set(_NAMES)):
        raise DocumentError(f"there is no field {unknown[0]!r}; the fields are connected and stopped", unknown[0])
    for name in _NAMES:
        listed = table.get(name, [])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise DocumentError(f"{name} must be a list of stream ids, ranges and patterns", name)
        yield from ((name, entry, name == "connected") for entry in listed)


def _expand(entry: str, place: str) -> Iterator[str]:
    """Returns the ids and patterns of an entry: each `{a,01..30}` is one of 31."""
    parts = _BRACES.split(entry)
    if any("{" in part or "}" in part for part in parts):
        raise DocumentError(f"{entry[:80]!r} has a brace that is not closed, or braces within braces", place)
    choices = [[part] if number % 2 == 0 else _choices(part, place) for number, part in enumerate(parts)]
    if math.prod(map(len, choices)) > MOST_STREAMS:
        raise DocumentError(f"{entry[:80]!r} stands for more than {MOST_STREAMS:,} streams", place)
    return ("".join(one) for one in itertools.product(*choices))


def _choices(inner: str, place: str) -> list[str]:
    found: list[str] = []
    for choice in inner.split(","):
        match = _RANGE.fullmatch(choice)
        if match is None and ".." not in choice:
            found.append(choice)
            continue
        if match is None or not 0 <= int(match[2]) - int(match[1]) < MOST_STREAMS or len(found) > MOST_STREAMS:
            words = f"{{{choice[:80]}}} must go from a number up to a greater one, {MOST_STREAMS:,} at most"
            raise DocumentError(words, place)
        width = len(match[1]) if match[1].startswith("0") else 0
        found += [f"{number:0{width}d}" for number in range(int(match[1]), int(match[2]) + 1)]
    return found


def _check(one: str, place: str) -> None:
    # A pattern may begin with a wildcard; the streams that it matches were checked when they were started.
    if problem := stream_id_problem(one.replace("*", "x").replace("?", "x")):
        what = "pattern" if _is_pattern(one) else "stream id"
        raise DocumentError(f"the {what} {shown_id(one)} is malformed: {problem}", place)
