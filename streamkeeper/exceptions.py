"""The errors of the client. No message holds the key, a header, or a body that is not a problem of the API's own."""

import email.utils
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus

_TRANSIENT = (429, 500, 502, 503, 504)
# Written by a later version: no retry helps, though the status is 503.
_LASTING = "unknown-layout"


class StreamkeeperError(Exception):
    """What all errors of the client are."""

    may_pass = False
    retry_after_s = 0.0


class InvalidRequest(StreamkeeperError, ValueError):
    """An argument is wrong, or the API answered 400, 405, 413, 415 or 422: the same request will fail again."""


class Unreachable(StreamkeeperError, ConnectionError):
    """No answer came: nobody listens, the connection broke, or TLS failed.

    It may pass where the API has answered before: until then the address may be wrong.
    """

    def __init__(self, sentence: str, *, may_pass: bool) -> None:
        super().__init__(sentence)
        self.may_pass = may_pass


class Refused(StreamkeeperError):
    """The API refused.

    `kind` is the last word of the problem's `type` (docs/api.md), "" where the answer is no problem; `field` names
    what of the request is wrong, and `fix` says what to do.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: str) -> None:
        self.status = status
        problem = _problem(body)
        self.kind = problem.get("type", "").rpartition(":")[2]
        self.detail, self.fix = problem.get("detail", ""), problem.get("fix", "")
        self.field, self.request_id = problem.get("field"), problem.get("request_id")
        self.may_pass = is_transient(status, self.kind)
        self.retry_after_s = wanted_rest_s(headers.get("retry-after", ""))
        name = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
        words = f"{status} {name}".rstrip()
        super().__init__(f"{words}: {self.detail} {self.fix}".rstrip() if self.detail else f"{words}.")


class NotFound(Refused, LookupError):
    """404: no profile has the stream's name, it was never started, or the position is of another order."""


class NotAllowed(Refused):
    """401 or 403: the key is missing or wrong, or the stage requires a signature."""


class Invalid(Refused, InvalidRequest):
    """Another 4xx: what was sent is wrong."""


class Throttled(Refused):
    """429, for longer than the client waits."""


class Unavailable(Refused):
    """5xx, for longer than the client waits; or 503 `unknown-layout`, which no retry helps."""


def refusal(status: int, headers: Mapping[str, str], body: str) -> Refused:
    """The error that an answer outside of 2xx is; the names of the headers are in small letters."""
    if status == 404:
        return NotFound(status, headers, body)
    if status in (401, 403):
        return NotAllowed(status, headers, body)
    if status == 429:
        return Throttled(status, headers, body)
    if status >= 500:
        return Unavailable(status, headers, body)
    return Invalid(status, headers, body) if status >= 400 else Refused(status, headers, body)


def is_transient(status: int, kind: str) -> bool:
    """Whether the same request may be answered later; `kind` is the problem's."""
    return status in _TRANSIENT and kind != _LASTING


def wanted_rest_s(text: str) -> float:
    """How long a Retry-After, of seconds or a date (RFC 9110, 10.2.3), asks to be left alone; 0 where it is neither."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _problem(body: str) -> dict[str, str]:
    try:
        problem = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(problem, dict):
        return {}
    return {name: value for name, value in problem.items() if isinstance(value, str)}
