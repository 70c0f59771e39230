"""Translates Lambda's proxy integration: an HTTP request to the function's event, and its result to the HTTP response.

Invariants: a function gets only HEADERS of the request, because ours read no others and a log might keep them; a
malformed result is a MalformedResult, never half an answer.
"""

import base64
import binascii
import functools
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

import airspeed
from starlette.requests import Request
from starlette.responses import Response

from local.functions.sandbox import Answer

# The headers that the control function reads: the form of the answer, where to go on, and the answer that the client
# already has.
HEADERS = ("Accept", "Last-Event-ID", "If-None-Match", "Content-Type")
# Calls the function of this name with this payload.
Invoke = Callable[[str, bytes], Awaitable[Answer]]


class MalformedResult(Exception):
    """The function failed, or its result is not a response."""


def proxy_event(request: Request, resource: str, path: Mapping[str, str], context: Mapping[str, Any], body: str) -> Any:
    """Returns the event; source: "Input format of a Lambda function for proxy integration" of API Gateway's guide.

    `path` has the values of the path's parameters. They and the whole path stay encoded, as in a REST API of AWS; the
    query is decoded. Absent values are None, where the guide says null.
    """
    pairs = query_parameters(request)
    headers = {name: request.headers[name] for name in HEADERS if name in request.headers}
    several: dict[str, list[str]] = {}
    for name, value in pairs:
        several.setdefault(name, []).append(value)
    return {
        "resource": resource,
        "path": raw_path(request),
        "httpMethod": request.method,
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": dict(pairs) or None,
        "multiValueQueryStringParameters": several or None,
        "pathParameters": dict(path) or None,
        "stageVariables": None,
        "requestContext": dict(context),
        "body": body or None,
        "isBase64Encoded": False,
    }


def raw_path(request: Request) -> str:
    """Returns the path as the client has encoded it."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("ascii", "replace")


def raw_target(request: Request) -> str:
    """Returns path and query as the client has encoded them."""
    query = request.scope["query_string"].decode("ascii", "replace")
    return raw_path(request) + (f"?{query}" if query else "")


def query_parameters(request: Request) -> list[tuple[str, str]]:
    """Returns the parameters of the query in their order, decoded."""
    return parse_qsl(request.scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)


def proxy_response(answer: Answer) -> Response:
    """Returns the HTTP response; raises MalformedResult."""
    try:
        if answer.function_error is not None:
            raise ValueError
        result = json.loads(answer.payload)
        headers = {name: str(value) for name, value in (result.get("headers") or {}).items()}
        several = result.get("multiValueHeaders") or {}
        text = result.get("body") or ""
        body = base64.b64decode(text, validate=True) if result.get("isBase64Encoded") else text.encode()
        http_response = Response(body, int(result["statusCode"]), headers)
        for name, values in several.items():
            for value in values:
                http_response.headers.append(name, str(value))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as problem:
        raise MalformedResult from problem
    # API Gateway's default.
    http_response.headers.setdefault("content-type", "application/json")
    return http_response


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
    """Returns `template` rendered with `call`; raises TemplateFailure.

    These are API Gateway's mapping templates: Velocity with `$context` and the parts of `$input` and `$util` that we
    use. Invariant: a template sees only what is passed in; one that cannot be rendered is a TemplateFailure, never half
    an answer.
    """
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
    def escapeJavaScript(self, text: Any) -> str:
        """As Commons Lang's StringEscapeUtils.escapeJavaScript, which also escapes ', / and everything beyond ASCII."""
        return _ESCAPED.sub(_escape, str(text))

    def urlDecode(self, text: str) -> str:
        """As Java's URLDecoder, for which "+" is a space and a single percent sign is a failure."""
        if re.search(r"%(?![0-9A-Fa-f]{2})", str(text)):
            raise ValueError("URLDecoder: Illegal hex characters in escape (%) pattern")
        return unquote_plus(str(text))
