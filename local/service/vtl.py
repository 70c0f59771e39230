"""Renders API Gateway's mapping templates: Velocity with `$context` and the parts of `$input` and `$util` that we use.

Invariant: a template sees only what is passed in; one that cannot be rendered is a TemplateFailure, never half an
answer.
"""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus

import airspeed

# What escapeJavaScript changes: everything except printable ASCII, and four of those.
_ESCAPED = re.compile(r"""[^ -\x7f]|["'/\\]""")
_NAMED = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"} | {mark: f"\\{mark}" for mark in "\"'/\\"}


class TemplateFailure(Exception):
    """The template cannot be rendered."""


@dataclass(frozen=True)
class Call:
    """What a template sees of a request or an answer; `context` has the names of `$context`."""

    body: str
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)


def render(template: str, call: Call) -> str:
    """Returns `template` rendered with `call`; raises TemplateFailure."""
    names = {"input": _Input(call), "util": _Util(), "context": dict(call.context), "stageVariables": {}}
    try:
        return str(_parse(template).merge(names))
    except Exception as problem:
        raise TemplateFailure(f"The mapping template cannot be rendered: {problem}") from problem


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return _NAMED.get(character) or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# Parsing a template takes far longer than rendering it.
@functools.lru_cache(maxsize=16)
def _parse(template: str) -> Any:
    return airspeed.Template(template)


class _Input:
    """`$input`; source: "Mapping template and access logging variable reference" of API Gateway's developer guide."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def params(self) -> Any:
        """The parameters of the path, the query and the headers."""
        call = self._call
        return {"path": dict(call.path), "querystring": dict(call.query), "header": dict(call.headers)}

    def path(self, expression: str) -> Any:
        """The value at a JSON path of names, such as `$.a.b`; or an empty text."""
        try:
            value = json.loads(self._call.body)
            for name in expression.split(".")[1:]:
                value = value[name]
        except (ValueError, KeyError, TypeError):
            return ""
        return value


class _Util:
    """`$util`."""

    def escapeJavaScript(self, text: Any) -> str:
        """As Commons Lang's StringEscapeUtils.escapeJavaScript, which also escapes ', / and everything beyond ASCII."""
        return _ESCAPED.sub(_escape, str(text))

    def urlDecode(self, text: str) -> str:
        """As Java's URLDecoder, for which "+" is a space and a single percent sign is a failure."""
        if re.search(r"%(?![0-9A-Fa-f]{2})", str(text)):
            raise ValueError("URLDecoder: Illegal hex characters in escape (%) pattern")
        return unquote_plus(str(text))
