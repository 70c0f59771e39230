"""Parses the sections of a profile: marks, resume, back-off, statuses, headers, body, and the rules for keys.

Each function takes its section out of `Fields`, returns what it means, and notes there what is wrong. Invariant: what
is returned without a note is sound.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, cast
from urllib.parse import parse_qsl

from handlers.connection.backoff import KINDS, FailureKind, Pace
from handlers.framing.events import JsonPath, Rule, parse_path
from handlers.framing.marks import Kind, Mark, Value
from handlers.profile.addresses import ProfileError
from handlers.profile.checked_fields import Fields
from handlers.profile.secret_references import is_bare, references, without

# RFC 9110, section 5.6.2 and 5.5: a field's name is a token; its value visible characters, spaces and tabs.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")
# These are the client's own to write: a second one, or another length, would begin another request.
_RESERVED = frozenset({"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"})
_POINTER = re.compile(r"(?:/[A-Za-z0-9_.-]+)+")
_PATH = 'a JSON path such as "$.meta.id" or "$.items[0]"'
_MARK = '{ event = "..." }, { data = "..." }, { comment = "..." } or { json = { "$.type" = "..." } }, or a list of such'
Meaning = Literal["success", "ended", "expired", "throttled", "dropped", "rejected"]
MEANINGS: tuple[Meaning, ...] = ("success", "ended", "expired", "throttled", "dropped", "rejected")


@dataclass(frozen=True, slots=True)
class Resume:
    """How to ask for what came after the cursor: in the header, the query parameter or the body's place `name`.

    `pattern` holds {cursor}, or is a text that asks by itself; `add` is added to a cursor that is a number; `back_s` is
    taken from one that is an instant; `fallback` is asked for when the upstream no longer knows the cursor.
    `reach_s` is how far back the upstream goes without saying where it stops, 0 where it says so or forgets nothing.
    `confirmed_by` is a header of the answer that repeats the cursor: another value there means that events were lost.
    """

    place: Literal["header", "query", "body"]
    name: str
    pattern: str = "{cursor}"
    add: int = 0
    back_s: int = 0
    reach_s: int = 0
    fallback: str = ""
    confirmed_by: str = ""

    def spelled(self, cursor: str) -> str:
        """What is sent for `cursor`."""
        # The fallback is the upstream's own word, and no place of an event that was seen.
        if cursor == self.fallback:
            return cursor
        moved = cursor
        if self.add and cursor.isascii() and cursor.isdigit():
            moved = str(int(cursor) + self.add)
        if self.back_s:
            moved = _earlier(cursor, self.back_s)
        return self.pattern.replace("{cursor}", moved)


def _earlier(cursor: str, back_s: int) -> str:
    """The instant `back_s` seconds before the cursor's, in its own offset; the cursor where it is not an instant."""
    try:
        return (datetime.fromisoformat(cursor) - timedelta(seconds=back_s)).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return cursor


def resume(fields: Fields) -> tuple[Resume | None, list[tuple[Kind, Mark]]]:
    """How to go on from a cursor, and the marks of an answer that says that the cursor is too old."""
    inner = fields.table("resume", '{ header = "..." }, { query = "..." } or { body = "/..." }')
    if inner is None:
        return None, []
    places = {place: value for place in ("header", "query", "body") if (value := inner.take(place)) is not None}
    if len(places) != 1 or not all(isinstance(value, str) and value for value in places.values()):
        inner.wrong("", 'must be { header = "..." }, { query = "..." } or { body = "/..." }')
        places = {"query": "x"}
    ((place, name),) = places.items()
    if place == "header" and not _is_header(name):
        inner.wrong("header", "is not the name of an HTTP header that may be set")
    if place == "body" and not _POINTER.fullmatch(name):
        inner.wrong("body", 'must be a place in the body such as "/create_request/start_revision"')
    parsed = Resume(
        cast(Literal["header", "query", "body"], place),
        name,
        pattern=inner.text("pattern", "{cursor}"),
        add=inner.whole("add", 0, least=0, most=1_000_000),
        back_s=inner.whole("back_s", 0, least=0, most=86_400),
        reach_s=inner.whole("reach_s", 0, least=0, most=31_536_000),
        fallback=inner.text("fallback", ""),
        confirmed_by=inner.text("confirmed_by", "").lower(),
    )
    expired = marks(inner, "expired", Kind.EXPIRED)
    inner.refuse_the_rest(
        "resume: header, query or body, pattern, add, back_s, reach_s, fallback, confirmed_by, expired"
    )
    if parsed.add and parsed.back_s:
        inner.wrong("back_s", "is for a cursor that is an instant, add for one that is a number: give one of them")
    return parsed, expired


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
            raise ProfileError(f'must give {_PATH} a text, a number, true, false or "*" (anything at all) in json')
        places.append((path, wanted))
    return Mark(json=tuple(places), **texts)


def backoff(fields: Fields) -> tuple[tuple[FailureKind, Pace], ...]:
    """The paces of the kinds of failure that the profile names."""
    inner = fields.table("backoff", "a table with network, http and throttled")
    if inner is None:
        return ()
    paces: list[tuple[FailureKind, Pace]] = []
    for kind in KINDS:
        pace = inner.table(kind, "{ start_s = 1, factor = 2, max_s = 60 }")
        if pace is None:
            continue
        start_s = pace.number("start_s", 1, above=0, most=900)
        max_s = pace.number("max_s", max(start_s, 60), above=0, most=3600)
        step_s = pace.number("step_s", 0, above=-1, most=900)
        factor = pace.number("factor", 1, above=0, most=10, unit="")
        if factor < 1 or max_s < start_s:
            pace.wrong("", "must not shrink: factor is at least 1, and max_s at least start_s")
        pace.refuse_the_rest("a pace: start_s, step_s, factor, max_s")
        paces.append((kind, Pace(start_s, step_s, factor, max_s)))
    inner.refuse_the_rest(f"backoff: {', '.join(KINDS)}")
    return tuple(paces)


def statuses(fields: Fields) -> tuple[tuple[int, Meaning], ...]:
    """What the statuses mean that the profile names."""
    inner = fields.table("statuses", 'a table such as { 416 = "expired" }')
    meanings: list[tuple[int, Meaning]] = []
    for status, meaning in (inner.rest() if inner is not None else {}).items():
        number = int(status) if re.fullmatch(r"[1-5][0-9][0-9]", str(status)) else 0
        if number < 200 or meaning not in MEANINGS:
            fields.wrong(f"statuses.{status}", f"must be a status from 200 to 599 with one of {', '.join(MEANINGS)}")
        else:
            meanings.append((number, meaning))
    return tuple(meanings)


def headers(fields: Fields) -> tuple[tuple[str, str], ...]:
    """The headers to send besides, secrets still as references."""
    inner = fields.table("headers", "a table of texts")
    pairs = []
    for header, value in (inner.rest() if inner is not None else {}).items():
        if not _is_header(header):
            fields.wrong(f"headers.{header}", "is not the name of an HTTP header that may be set")
        elif not isinstance(value, str) or not FIELD_VALUE.fullmatch(without(value)):
            fields.wrong(f"headers.{header}", "must be a text of visible ASCII characters")
        else:
            _check_references(fields, f"headers.{header}", value)
            _check_bare(fields, f"headers.{header}", [(header, value)])
            pairs.append((header, value))
    return tuple(pairs)


def body(fields: Fields, method: str, resumes: Resume | None) -> str | None:
    """The body as JSON text, secrets still as references; None where none is sent."""
    at = resumes.name if resumes is not None and resumes.place == "body" else ""
    value = fields.take("body")
    if value is None:
        if at:
            fields.wrong("resume.body", "needs a body to stand in")
        return None
    if method != "POST":
        fields.wrong("body", 'needs method = "POST"')
    try:
        parsed = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(value, str) or not isinstance(parsed, dict):
        fields.wrong("body", "must be the text of a JSON object, such as '{\"stream\": true}'")
        return None
    for name in at.split("/")[1:-1]:
        parsed = parsed.get(name, {})
        if not isinstance(parsed, dict):
            fields.wrong("resume.body", "must lead through objects of the body")
            break
    _check_references(fields, "body", value)
    _check_bare(fields, "body", _texts(json.loads(value)))
    return value


def query(fields: Fields, address: str) -> None:
    """Notes a secret that stands in plain text in the query of the address."""
    _check_bare(fields, "address", parse_qsl(address.partition("?")[2]))


def rule(fields: Fields, field: str, words: tuple[str, ...], has_ids: bool) -> Rule | None:
    """The dedup key's or the cursor's rule; None where it is absent."""
    value = fields.take(field)
    if value is None:
        return None
    if value == "id" and not has_ids:
        fields.wrong(field, 'can be "id" only where framing is "sse"')
        return None
    if isinstance(value, str) and value in words:
        return cast(Literal["id", "hash", "each"], value)
    several = isinstance(value, list) and len(value) > 0 and "hash" in words
    paths = [parse_path(one) if isinstance(one, str) else None for one in (value if several else [value])]
    if None in paths:
        spelled = ", ".join(f'"{word}"' for word in words)
        more = ", or a list of such paths" if "hash" in words else ""
        fields.wrong(field, f"must be {spelled} or {_PATH}{more}")
        return None
    sound = tuple(path for path in paths if path is not None)
    return sound if several else sound[0]


def _check_references(fields: Fields, field: str, text: str) -> None:
    try:
        references(text)
    except ProfileError as error:
        fields.wrong(field, str(error))


def _check_bare(fields: Fields, field: str, pairs: Iterable[tuple[str, str]]) -> None:
    for name, text in pairs:
        if is_bare(name, text):
            fields.wrong(
                field,
                f"holds {name!r} in plain text; put the secret into Secrets Manager and refer to it, "
                "${secret:/streamkeeper/name}",
            )


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """Each text within, with the name that it has."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str):
                yield name, inner
            else:
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _is_header(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None and name.lower() not in _RESERVED
