"""Writes what all answers share: instants, layout, headers, and the tag by which a client learns whether one has
changed; and refusals.

An instant is ISO 8601 in UTC with milliseconds. The JSON is laid out for people in a terminal: a value that fits is on
one line, else each of its members has a line of its own, indented by two blanks:

    {
      "stream": "demo",
      "lanes": {
        "A": {"phase": "waiting"},
        "B": {"phase": "connected", "fence": 1, ...}
      }
    }

Invariants: two instants compare as their texts do; a line is longer than `width` only if a text in it is; a tag (RFC
9110) is made of the answer's own text, so two answers with one tag are the same to the byte.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

JSON = "application/json"
# RFC 9111, section 5.2.2: no-cache means that a stored answer is checked before it is used, no-store that none is
# stored. A status of a minute ago is wrong, and an event is only for its reader.
CACHE_CONTROL = "no-cache, no-store"
# A gap or a lane, with its instants, is one row on a wide terminal, and two lines on one of 80 columns.
WIDTH = 200


# Section 8.8.3: an opaque tag in quotes; a weak one begins with W/.
_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
# Section 15.4.5: the headers that a 304 keeps of those that the 200 would have had.
_KEPT = ("Cache-Control", "ETag", "Vary", "Link")


def to_iso(instant_ms: int | None) -> str | None:
    """Returns the instant as a text; None for None, and for an impossible one, which a damaged record may have."""
    if instant_ms is None:
        return None
    try:
        text = datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None
    return text.replace("+00:00", "Z")


def format_json(value: Any, indent: int = 0, before: int = 0, width: int = WIDTH) -> str:
    """Returns the value as JSON, without a line end; `indent` blanks and `before` more characters precede it."""
    line = json.dumps(value, ensure_ascii=False)
    # One for the comma after it.
    if not value or not isinstance(value, dict | list) or indent + before + len(line) + 1 <= width:
        return line
    inner = indent + 2
    if isinstance(value, dict):
        names = [f"{json.dumps(name, ensure_ascii=False)}: " for name in value]
        lines = [
            name + format_json(one, inner, len(name), width) for name, one in zip(names, value.values(), strict=True)
        ]
    else:
        lines = [format_json(one, inner, 0, width) for one in value]
    blanks = "\n" + " " * inner
    return f"{line[0]}{blanks}{f',{blanks}'.join(lines)}\n{' ' * indent}{line[-1]}"


def conditional_answer(answer: Mapping[str, Any], if_none_match: str) -> dict[str, Any]:
    """Returns the answer to a GET with its tag; a 304 without a body where `if_none_match` has that tag."""
    if answer["statusCode"] != 200:
        return dict(answer)
    digest = hashlib.sha256(answer["body"].encode("utf-8", "surrogatepass")).digest()[:18]
    tag = f'"{base64.urlsafe_b64encode(digest).decode()}"'
    headers = {**answer["headers"], "ETag": tag}
    # Section 13.1.2: the comparison is weak; * matches any existing answer.
    if if_none_match.strip() != "*" and tag not in _TAG.findall(if_none_match):
        return {**answer, "headers": headers}
    return {"statusCode": 304, "headers": {name: headers[name] for name in _KEPT if name in headers}, "body": ""}


def reply(code: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the answer with this status and JSON, as the Lambda proxy takes it."""
    return text_answer(code, f"{format_json(body)}\n", {"Content-Type": JSON, **(headers or {})})


def text_answer(code: int, body: str, headers: Mapping[str, str]) -> dict[str, Any]:
    return {"statusCode": code, "headers": {"Cache-Control": CACHE_CONTROL, **headers}, "body": body}


CONTENT_TYPE = "application/problem+json"
# RFC 9457, section 3.1.1: the type is a URI, by which consumers tell problems apart.
TYPE = "urn:problem-type:streamkeeper:"
MEMBERS = ("type", "title", "status", "detail", "field", "fix", "request_id")


class Problem(Exception):
    """The request is answered with a problem of this kind; `detail` is a sentence, with or without its full stop.

    `field` names the part of the request that is at fault, None if none is; `fix` is what to do, None for the usual fix
    of the kind.

    It is a problem of RFC 9457. `problems.json` has the kinds; API Gateway's own answers are made from the same file
    (packaging/problems.cjs), so a client always gets the same shape. Invariants: a problem has every member that
    MEMBERS names, and never quotes AWS.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        field: str | None = None,
        fix: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.field, self.fix = kind, detail, field, fix
        self.headers = dict(headers or {})

    @property
    def status(self) -> int:
        return int(kinds()[self.kind]["status"])

    def body(self, request_id: str) -> dict[str, Any]:
        """Returns the members; `request_id` is API Gateway's id of the request, "" if it has none."""
        known = kinds()[self.kind]
        return {
            "type": f"{TYPE}{self.kind}",
            "title": known["title"],
            "status": known["status"],
            "detail": sentence(self.detail),
            "field": self.field,
            "fix": sentence(known["fix"] if self.fix is None else self.fix),
            "request_id": request_id or None,
        }


@cache
def kinds() -> dict[str, dict[str, Any]]:
    """Status, title and usual fix of each kind of problem."""
    known: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("problems.json").read_text("utf-8"))
    return known


def sentence(text: str) -> str:
    """Returns the text as a sentence: it begins with a capital letter and ends with a full stop or a question mark."""
    whole = f"{text[:1].upper()}{text[1:]}".rstrip(".")
    return whole if whole.endswith("?") else f"{whole}."
