"""Parses the sections of a profile: back-off, statuses, headers, body, and the rules for keys.

Each function takes its section out of `Fields`, returns what it means, and notes its problems there. Invariant:
whatever is returned without a note is valid.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args
from urllib.parse import parse_qsl

from handlers.connection.backoff import KINDS, FailureKind, Pace
from handlers.framing.events import Rule, parse_path
from handlers.profile import addresses
from handlers.profile.addresses import ProfileError
from handlers.profile.checked_fields import FIELD_VALUE, PATH, Fields, did_you_mean, element_hint, is_header, number
from handlers.profile.resume import Resume
from handlers.profile.secret_references import Reference, is_bare, mask_references, references

if TYPE_CHECKING:
    from handlers.framing.splitting import Split

Meaning = Literal["success", "ended", "expired", "throttled", "dropped", "refused", "rejected"]
MEANINGS: tuple[Meaning, ...] = get_args(Meaning)
_STATUS = re.compile(r"[2-5][0-9][0-9]"), "a status from 200 to 599"


def usual_meaning(status: int) -> Meaning:
    """Returns what an answer of this status means by HTTP."""
    if status == 204:  # WHATWG, "processing model": 204 tells the client to stop reconnecting
        return "ended"
    if 200 <= status < 300:
        return "success"
    if status in (420, 429):
        return "throttled"
    if status >= 500 or status in (408, 425):
        return "dropped"
    return "expired" if status == 410 else "refused"


def backoff(fields: Fields) -> tuple[tuple[FailureKind, Pace], ...]:
    """Returns the paces of the kinds of failure that the profile names."""
    inner = fields.table("backoff", "a table with network, http, throttled and refused")
    if inner is None:
        return ()
    paces: list[tuple[FailureKind, Pace]] = []
    for kind in KINDS:
        pace = inner.table(kind, "{ start_s = 1, factor = 2, max_s = 60 }")
        if pace is None:
            continue
        start_s = pace.read("start_s", number(above=0, most=900), 1)
        max_s = pace.read("max_s", number(above=0, most=3600), max(start_s, 60))
        step_s = pace.read("step_s", number(above=-1, most=900), 0)
        factor = pace.read("factor", number(above=0, most=10, unit=""), 1)
        if factor < 1 or max_s < start_s:
            pace.add_problem("", "must not shrink: factor must be at least 1, and max_s at least start_s")
        pace.refuse_unknown("a pace: start_s, step_s, factor, max_s")
        paces.append((kind, Pace(start_s, step_s, factor, max_s)))
    inner.refuse_unknown(f"backoff: {', '.join(KINDS)}")
    return tuple(paces)


def statuses(fields: Fields) -> tuple[tuple[int, Meaning], ...]:
    """Returns the statuses that the profile names, with their meanings."""
    found = meanings(fields, "statuses", '{ 416 = "expired" }', _STATUS, MEANINGS)
    return cast(tuple[tuple[int, Meaning], ...], found)


def meanings(
    fields: Fields, field: str, example: str, code: tuple[re.Pattern[str], str], words: Sequence[str]
) -> tuple[tuple[int, str], ...]:
    """Returns a table's codes with their meanings, each one of `words`; `code` is a pattern and its description."""
    inner = fields.table(field, f"a table such as {example}")
    found: list[tuple[int, str]] = []
    for name, meaning in (inner.take_rest() if inner is not None else {}).items():
        if not code[0].fullmatch(str(name)) or meaning not in words:
            known = f"{', '.join(words)}{did_you_mean(meaning, words)}"
            fields.add_problem(f"{field}.{name}", f"must be {code[1]}, with one of these values: {known}")
        else:
            found.append((int(name), meaning))
    return tuple(found)


def headers(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Returns the profile's own headers, secrets still as references."""
    inner = fields.table("headers", "a table of texts")
    pairs = []
    for header, value in (inner.take_rest() if inner is not None else {}).items():
        if not is_header(header):
            fields.add_problem(f"headers.{header}", "is not the name of an HTTP header that may be set")
        elif not isinstance(value, str) or not FIELD_VALUE.fullmatch(mask_references(value)):
            fields.add_problem(f"headers.{header}", "must be a text of visible ASCII characters")
        else:
            check_references(fields, f"headers.{header}", value)
            _check_bare(fields, f"headers.{header}", [(header, value)])
            pairs.append((header, value))
    return tuple(pairs)


def body(fields: Fields, method: str, resumes: Resume | None) -> str | None:
    """Returns the body as JSON text, secrets still as references; None if no body is sent."""
    at = resumes.name if resumes is not None and resumes.place == "body" else ""
    if not fields.has("body"):
        if at:
            fields.add_problem("resume.body", "needs the field body: it names a place in the body")
        return None
    text = json_text(fields, method, "a JSON object, such as '{\"stream\": true}'", dict)
    parsed = json.loads(text) if text is not None else {}
    for name in at.split("/")[1:-1]:
        parsed = parsed.get(name, {})
        if not isinstance(parsed, dict):
            fields.add_problem("resume.body", "must lead only through JSON objects of the body")
            break
    return text


def json_text(fields: Fields, method: str, words: str, kinds: type | UnionType) -> str | None:
    """Returns the field `body`, the text of JSON of these kinds, with its secrets as references; None if absent."""
    value = fields.take("body")
    if value is None:
        return None
    if method != "POST":
        fields.add_problem("body", 'needs method = "POST"')
    try:
        parsed = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(value, str) or not isinstance(parsed, kinds):
        fields.add_problem("body", f"must be the text of {words}")
        return None
    if misspelt := addresses.misspelt_placeholder(value):
        fields.add_problem("body", f"contains {misspelt}, which is unknown; the placeholders are {addresses.KNOWN}")
    check_references(fields, "body", value)
    _check_bare(fields, "body", _texts(parsed))
    return value


def check_message(fields: Fields, field: str, message: Any) -> None:
    """Notes unreadable references in a message, and a secret in plain text."""
    check_references(fields, field, json.dumps(message))
    _check_bare(fields, field, _texts(message))


def query(fields: Fields, address: str) -> None:
    """Notes a secret in plain text in the query of the address."""
    _check_bare(fields, "address", parse_qsl(address.partition("?")[2]))


def rule(fields: Fields, field: str, words: tuple[str, ...], has_ids: bool, split: "Split | None") -> Rule | None:
    """Returns the dedup key's or the cursor's rule; None if it is absent."""
    value = fields.take(field)
    if value is None:
        return None
    if value == "id" and not has_ids:
        fields.add_problem(field, 'can be "id" only with framing = "sse"')
        return None
    if isinstance(value, str) and value in words:
        return cast(Literal["id", "hash", "each"], value)
    several = isinstance(value, list) and len(value) > 0 and "hash" in words
    read = parse_path if split is None else split.path_of
    paths = [read(one) if isinstance(one, str) else None for one in (value if several else [value])]
    if None in paths:
        listed = ", ".join(f'"{word}"' for word in words)
        more = f"{', or a list of such paths' if 'hash' in words else ''}{element_hint(value)}"
        fields.add_problem(field, f"must be {listed} or {PATH}{more}{did_you_mean(value, words)}")
        return None
    sound = tuple(path for path in paths if path is not None)
    return sound if several else sound[0]


def check_references(fields: Fields, field: str, text: str) -> list[Reference] | None:
    """Returns the references in the text of a field; None, with a note, if one cannot be read."""
    try:
        return references(text)
    except ProfileError as error:
        fields.add_problem(field, str(error))
        return None


def check_hidden(fields: Fields, field: str, text: str) -> None:
    """Notes a secret in plain text."""
    if text and mask_references(text) == text:
        fields.add_problem(
            field, "must refer to a secret, as ${secret:name}: a profile never contains it in plain text"
        )


def _check_bare(fields: Fields, field: str, pairs: Iterable[tuple[str, str]]) -> None:
    for name, text in pairs:
        if is_bare(name, text):
            fields.add_problem(
                field,
                f"contains {name!r} in plain text; put the secret into Secrets Manager and write ${{secret:name}}",
            )


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str):
                yield name, inner
            else:
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
