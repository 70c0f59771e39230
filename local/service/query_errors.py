"""Writes errors as clients of AWS's Query protocol read them, CloudFormation's among them: as XML.

Invariant: an error that such a client is sent is an ErrorResponse, whoever wrote it and in whatever form.
"""

import contextlib
import json
import uuid
from typing import Any
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import Response

_FORM = "application/x-www-form-urlencoded"
_MESSAGES = ("message", "Message", "error")
_CODES = ("__type", "code", "Code")


def is_query(request: Request) -> bool:
    """Returns whether a request is of the Query protocol: an action in a form or in the address."""
    return "Action" in request.query_params or request.headers.get("content-type", "").startswith(_FORM)


def error_response(status: int, code: str, message: str) -> Response:
    """Returns an error of the Query protocol."""
    kind = "Sender" if status < 500 else "Receiver"
    error = f"<Type>{kind}</Type><Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    body = f"<ErrorResponse><Error>{error}</Error><RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>"
    return Response(body, status, media_type="text/xml")


def readable(answer: Response) -> Response:
    """Returns the answer to a request of the Query protocol; an error that is no XML as an ErrorResponse."""
    body = bytes(answer.body)
    if answer.status_code < 400 or "content-encoding" in answer.headers or body.lstrip().startswith(b"<"):
        return answer
    text, value = body.decode("utf-8", "replace"), None
    with contextlib.suppress(ValueError):
        value = json.loads(text)
    members: dict[str, Any] = value if isinstance(value, dict) else {}
    message = next((str(members[name]) for name in _MESSAGES if name in members), text)
    fallback = "ValidationError" if answer.status_code < 500 else "ServiceUnavailable"
    code = next((str(members[name]).rpartition("#")[2] for name in _CODES if name in members), fallback)
    return error_response(answer.status_code, code, message)
