"""Builds the body of a refusal: a problem of RFC 9457, with the field that is at fault and what to do.

`problems.json` has the kinds. API Gateway's own answers are made from the same file (packaging/problems.cjs), so a
client always gets the same shape. Invariants: a problem has every member that MEMBERS names, and never quotes AWS.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

CONTENT_TYPE = "application/problem+json"
# RFC 9457, section 3.1.1: the type is a URI, by which consumers tell problems apart.
TYPE = "urn:problem-type:streamkeeper:"
MEMBERS = ("type", "title", "status", "detail", "field", "fix", "request_id")


class Problem(Exception):
    """The request is answered with a problem of this kind; `detail` is a sentence, with or without its full stop.

    `field` names the part of the request that is at fault, None if none is; `fix` is what to do, None for the usual fix
    of the kind.
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
        """The HTTP status."""
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
