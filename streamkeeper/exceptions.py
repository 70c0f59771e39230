"""The errors of the client. No message contains the key, a header, or a body other than the API's own problems."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus

from streamkeeper.instants import http_date

_TRANSIENT = (429, 500, 502, 503, 504)
# The stream was written by a later version: a retry cannot help, although the status is 503.
_LASTING = "unknown-layout"


class StreamkeeperError(Exception):
    """The base of all errors of the client."""

    may_pass = False
    retry_after_s = 0.0


class InvalidRequest(StreamkeeperError, ValueError):
    """An argument is wrong, or the API answered 400, 405, 413, 415 or 422: the same request will fail again."""


class Unreachable(StreamkeeperError, ConnectionError):
    """No answer came: no server listens, the connection broke, or TLS failed.

    It may pass if the API has answered before: until then the address may be wrong.
    """

    def __init__(self, sentence: str, *, may_pass: bool) -> None:
        super().__init__(sentence)
        self.may_pass = may_pass


class Refused(StreamkeeperError):
    """The API refused.

    `kind` is the last word of the problem's `type` (docs/api.md), or "" if the answer is not a problem; `field` names
    the wrong part of the request, and `fix` says what to do. `body` is the answer's text.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: str) -> None:
        self.status, self.body = status, body
        problem = _problem(body)
        self.kind = problem.get("type", "").rpartition(":")[2]
        self.detail, self.fix = problem.get("detail", ""), problem.get("fix", "")
        self.field, self.request_id = problem.get("field"), problem.get("request_id")
        self.may_pass = is_transient(status, self.kind)
        self.retry_after_s = wanted_rest_s(headers.get("retry-after", ""), headers.get("date", ""))
        words = phrase(status)
        # API Gateway's own answers, such as "Forbidden", end without a full stop.
        sentences = " ".join(one if one.endswith((".", "?")) else f"{one}." for one in (self.detail, self.fix) if one)
        super().__init__(f"{words}: {sentences}" if self.detail else f"{words}.")


class NotFound(Refused, LookupError):
    """404: no profile has the stream's name, it was never started, or the position is of another order."""


class NotAllowed(Refused):
    """401 or 403: the key is missing or wrong, or the stage requires a signature."""


class Invalid(Refused, InvalidRequest):
    """Another 4xx: the request is wrong."""


class Throttled(Refused):
    """429, for longer than the client waits."""


class Unavailable(Refused):
    """5xx, for longer than the client waits; or 503 `unknown-layout`, which no retry can mend."""


def refusal(status: int, headers: Mapping[str, str], body: str) -> Refused:
    """The error for an answer outside of 2xx; header names are in lower case."""
    known = {404: NotFound, 401: NotAllowed, 403: NotAllowed, 429: Throttled}
    other = Unavailable if status >= 500 else Invalid if status >= 400 else Refused
    return known.get(status, other)(status, headers, body)


def phrase(status: int) -> str:
    """The status with its name: 404 Not Found."""
    return f"{status} {HTTPStatus(status).phrase if status in set(HTTPStatus) else ''}".rstrip()


def is_transient(status: int, kind: str) -> bool:
    """Whether the same request may be answered later; `kind` is the problem's."""
    return status in _TRANSIENT and kind != _LASTING


def wanted_rest_s(text: str, sent_at: str = "") -> float:
    """The seconds to wait by a Retry-After, which is a number or a date (RFC 9110, 10.2.3); 0 if it is neither.

    A date is compared with the answer's own Date, `sent_at`, if it has one: this machine's clock may differ.
    """
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        rest = http_date(text) - (http_date(sent_at) if sent_at else datetime.now(UTC))
    except ValueError:
        return 0.0
    return max(0.0, rest.total_seconds())


def _problem(body: str) -> dict[str, str]:
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(problem, dict):
        return {}
    return {name: value for name, value in problem.items() if isinstance(value, str)}
