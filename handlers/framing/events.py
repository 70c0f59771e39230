"""Derives two things from a frame: the dedup key, which makes two deliveries the same event, and the cursor.

The cursor is where to resume after the event. For example, with `key = "$.id"` the frame `{"id": 7}` has the key "7" on
every connection. If nothing names an event, its key is a hash of its canonical form, in which equal JSON values are
equal bytes: `{"b": 1.0, "a": 2}` and `{"a":2,"b":1}` have the same form. That is the form of RFC 8785 with one
difference, because two events must never be taken for one: a number keeps all its digits, while the RFC rounds it to a
double.

Invariants: the same frame has the same key on every connection. A key is 1 to 1024 bytes of UTF-8, whatever the
upstream sent; an event that lacks what the rule names is stored under its hash. Anything but a JSON object or array is
hashed as it is, and so is JSON that cannot be compared safely: with a name that occurs twice, half of a surrogate pair,
a number that no double holds exactly, thousands of nested values, hundreds of thousands of values, or more than 4 Mi
characters.
"""

import hashlib
import json
import re
from typing import Any, Literal, NamedTuple

from handlers.framing.frames import Body, Frame, new_tuple
from handlers.framing.numbers import LongNumber, is_exact, loads, normalized, raw_decode
from handlers.framing.oversize import Oversize
from handlers.values import dataclass

# Python takes up to 130 bytes for each bracket and comma of a JSON text, so this many take 50 MB.
MOST_MARKS = 400_000
# Making the form takes four times the memory of the text: the text, its values, the form as characters and as bytes.
MOST_CHARACTERS = 4 * 1024 * 1024


def has_too_many_values(data: str | bytes) -> bool:
    """Whether the JSON values in `data` would take more memory than the smallest function has for them."""
    if len(data) <= MOST_MARKS:  # each mark is a character
        return False
    if isinstance(data, bytes):
        return data.count(b",") + data.count(b"{") + data.count(b"[") > MOST_MARKS
    return data.count(",") + data.count("{") + data.count("[") > MOST_MARKS


def canonical_json(data: str | bytes) -> bytes:
    """Returns the canonical form of an object or array; anything else as its own bytes."""
    try:
        text = data if isinstance(data, str) else data.decode()
        # RFC 8259, section 2: a value may follow these four characters.
        is_short = len(text) <= MOST_CHARACTERS and not has_too_many_values(data)
        if is_short and text.lstrip(" \t\r\n")[:1] in ("{", "["):
            return _ENCODER.encode(_DECODER.decode(text)).encode()
    except (ValueError, RecursionError):
        pass
    return data.encode() if isinstance(data, str) else data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # RFC 8785, section 3.1: "JSON objects MUST NOT exhibit duplicate property names."
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members


def _number(text: str) -> int | float:
    double = float(text)
    if not is_exact(text, double):
        raise ValueError("a double cannot hold this number exactly")
    digits, power = normalized(text)
    # A whole number has one spelling, however large: all its digits, without a point or a power.
    return double if power < 0 else int(digits or "0") * 10**power


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not valid JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_refuse)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
# DynamoDB: "Sort key ... maximum length of 1024 bytes"; an empty one is refused.
MAX_KEY_BYTES = 1024
_MOST_BYTES_A_CHARACTER = 4  # of UTF-8
# Far more than any server takes in a header or an address, and far less than an item holds.
MAX_CURSOR_CHARACTERS = 65_536
_compact = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
_last_parsed: list[tuple[Body, Any]] = [(b"", None)]
_STEP = re.compile(r"""\.([A-Za-z_][A-Za-z0-9_-]*)|\[(0|-?[1-9][0-9]{0,8})\]|\[(["'])([^"'\\]+)\3\]""")
# If a known key comes with another body: the first stays and the later one is counted; or both are stored; or the later
# one may belong to a new epoch, in which ids start over (handlers/connection/epochs.py).
OnConflict = Literal["first", "both", "epoch"]
# The key of an event that the profile leaves out: only its cursor counts.
LEFT_OUT = ""


class StreamEvent(NamedTuple):
    """What the stream delivered in one frame, or in one element of a frame that is a batch: the thing that is stored.

    `key` is the dedup key. `cursor` is where to resume after this event: None if it has none, "" if the upstream asked
    to start afresh. `id` and `name` are as on the wire.
    """

    key: str
    data: Body
    id: str | None
    name: str | None
    cursor: str | None
    received_at_ms: int


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A place in a JSON text, of names and indices only: `$.a["@b"][0]`; [-1] is the last element of an array."""

    text: str
    steps: tuple[str | int, ...]


# "each" makes every delivery an event of its own; several places together name one event.
Rule = Literal["id", "hash", "each"] | JsonPath | tuple[JsonPath, ...]


def parse_path(text: str) -> JsonPath | None:
    """Returns the path that `text` spells; None if it spells none."""
    if not text.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return None
        steps.append(int(step[2]) if step[2] else step[1] or step[4])
        at = step.end()
    return JsonPath(text, tuple(steps)) if steps else None


def to_event(frame: Frame, received_at_ms: int, *, key: Rule, cursor: Rule | None) -> StreamEvent:
    """Returns the event of `frame`. The body is parsed as JSON once, and only if a rule is a path."""
    data, own_id, name, _, _ = frame
    named = own_id if key == "id" else None if isinstance(key, str) else key_text(parse_json(data), key)
    resume = cursor_after(frame, cursor)
    return new_tuple(StreamEvent, (fit_sort_key(named) or hash_key(frame), data, own_id, name, resume, received_at_ms))


def cursor_after(frame: Frame, rule: Rule | None) -> str | None:
    """Returns where to resume after `frame`; None if it has no cursor, or one that no request can carry."""
    if isinstance(rule, JsonPath):
        return cursor_at_path(parse_json(frame.data), rule)
    cursor = frame.last_id if rule == "id" else None
    return cursor if cursor is None or len(cursor) <= MAX_CURSOR_CHARACTERS else None


def cursor_of_last_id(last_id: str | None, rule: Rule | None) -> str | None:
    """Returns where to resume after everything that was read; None if the last event ID is no cursor.

    WHATWG, "dispatch the event": the ID is set before the check that a block has data, so a block without an event
    counts too.
    """
    return cursor_after(Frame("", last_id=last_id), rule) if rule == "id" else None


def cursor_at_path(body: Any, path: JsonPath) -> str | None:
    """Returns the value at `path` as a cursor; None if there is none that a request can carry."""
    cursor = text_at_path(body, path)
    return cursor if cursor is None or len(cursor) <= MAX_CURSOR_CHARACTERS else None


def key_text(body: Any, key: JsonPath | tuple[JsonPath, ...]) -> str | None:
    """Returns the text at the place; for several places their texts as a JSON array: no two lists have one key.

    None if one is missing.
    """
    if isinstance(key, JsonPath):
        return text_at_path(body, key)
    texts = [text_at_path(body, path) for path in key]
    return None if None in texts else compact_json(texts)


def compact_json(value: object) -> str:
    """The value as compact JSON: a key of several parts, or what is sent."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def canonical_bytes(frame: Frame) -> bytes:
    """The bytes to hash: a bare line in its canonical form, anything more as an event stream's block.

    A bare line has no line end and a block ends with one, so no two frames have the same bytes. Line ends, comments,
    the order of the fields and the spelling of JSON do not matter: they may differ between two deliveries.
    """
    assert not isinstance(frame.data, Oversize)
    data = canonical_json(frame.data)
    if frame.name is None and frame.id is None and b"\n" not in data:
        return data
    fields = [f"{field}: {value}\n" for field, value in (("event", frame.name), ("id", frame.id)) if value is not None]
    return "".join(fields).encode() + b"".join(b"data: " + line + b"\n" for line in data.split(b"\n"))


def hash_key(frame: Frame) -> str:
    """Returns the key of a frame without a name: the SHA-256 of its canonical bytes, or of all bytes if oversize."""
    if isinstance(frame.data, Oversize):
        return frame.data.sha256
    return hashlib.sha256(canonical_bytes(frame)).hexdigest()


def fit_sort_key(key: str | None) -> str | None:
    """Returns `key` if DynamoDB accepts it as a sort key, its hash if it is too long, None if it is empty."""
    if not key:
        return None
    if len(key) * _MOST_BYTES_A_CHARACTER <= MAX_KEY_BYTES:
        return key
    data = key.encode()
    return key if len(data) <= MAX_KEY_BYTES else hashlib.sha256(data).hexdigest()


def parse_json(data: Body) -> Any:
    """Returns the JSON value of `data`, or None; it is shared, so callers must not change it.

    The last value is remembered, because several rules of a profile may read one body. A number of thousands of digits,
    or thousands of nested values, count as invalid JSON.
    """
    seen, value = _last_parsed[0]
    if seen is not data:
        value = _parsed(data)
        remember(data, value)
    return value


def is_unread(data: Body) -> bool:
    """Whether `parse_json` does not read `data`, however valid it is: it is too long."""
    return isinstance(data, Oversize) or has_too_many_values(data)


def remember(data: Body, value: Any) -> None:
    """Makes the next `parse_json` of `data` return `value`, which is its content."""
    _last_parsed[0] = data, value


def forget_parsed() -> None:
    """Forgets the value that is remembered, which may be large."""
    _last_parsed[0] = b"", None


def _parsed(data: Body) -> Any:
    if isinstance(data, Oversize) or is_unread(data):
        return None
    try:
        if isinstance(data, str):
            # json.loads takes twice as long, because it skips blanks around the value, which are rare.
            value, end = raw_decode(data)
            if end == len(data):
                return value
    except ValueError:  # also if blanks precede the value
        pass
    except RecursionError:
        return None
    try:
        return loads(data)
    except (ValueError, RecursionError):
        return None


def value_at_path(value: Any, path: JsonPath) -> tuple[bool, Any]:
    """Returns whether there is anything but null at `path`, and what."""
    for step in path.steps:
        inside = step in value if isinstance(value, dict) else isinstance(value, list) and _is_index(step, value)
        if not inside:
            return False, None
        value = value[step]
    return value is not None, value


def text_at_path(body: Any, path: JsonPath) -> str | None:
    """Returns the value at `path` as text: a string as it is, any other as compact JSON; None if there is none."""
    there, value = value_at_path(body, path)
    if not there:
        return None
    if type(value) is int:
        return str(value)
    try:
        text = value if isinstance(value, str) else value.text if type(value) is LongNumber else _compact(value)
    except RecursionError:  # nested so deeply that it could be read but cannot be written
        return None
    # JSON may spell half of a surrogate pair, which is not text: neither DynamoDB nor a header can carry it.
    return text if _is_text(text) else None


def _is_index(step: str | int, values: list[Any]) -> bool:
    return isinstance(step, int) and -len(values) <= step < len(values)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
