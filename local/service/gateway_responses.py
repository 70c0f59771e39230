"""Answers what no integration does, by the stack's gateway responses, as API Gateway does.

Invariant: a kind without a response of its own has that of its class, DEFAULT_4XX or DEFAULT_5XX, and else API
Gateway's. Source: "Gateway response types for API Gateway" of its developer guide.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from handlers.api import problems
from local.stack import GENERATED, GatewayResponse

# Of each kind that occurs here: API Gateway's own status and words.
_OWN = {
    "MISSING_AUTHENTICATION_TOKEN": (403, "Missing Authentication Token"),
    "INVALID_SIGNATURE": (403, "The request signature is invalid."),
    "UNSUPPORTED_MEDIA_TYPE": (415, "Unsupported Media Type"),
    # A template that cannot be rendered.
    "API_CONFIGURATION_ERROR": (500, "Internal server error"),
    # A malformed Lambda proxy response, which has no kind of its own.
    "DEFAULT_5XX": (502, "Internal server error"),
}
_VARIABLE = re.compile(r"\$context((?:\.[A-Za-z_]+)+)")


class GatewayResponses:
    """The gateway responses of a stack, by their kinds."""

    def __init__(self, responses: Iterable[GatewayResponse]) -> None:
        self._by_kind = {response.kind: response for response in responses}

    def answer(self, kind: str, context: Mapping[str, Any], sentence: str = "") -> Response:
        """Returns the answer of this kind; `context` has the names of `$context`, `sentence` replaces API Gateway's."""
        status, own = _OWN[kind]
        message = sentence or own
        generated = GatewayResponse(kind, None, {}, GENERATED)
        chosen = self._by_kind.get(kind) or self._by_kind.get(f"DEFAULT_{status // 100}XX", generated)
        error = {"message": message, "messageString": json.dumps(message), "responseType": kind}

        def value(match: re.Match[str]) -> str:
            value: Any = {**context, "error": error}
            for name in match[1].split(".")[1:]:
                value = value.get(name, "") if isinstance(value, Mapping) else ""
            return str(value)

        text = _VARIABLE.sub(value, chosen.template)
        return Response(text, chosen.status or status, chosen.headers, media_type="application/json")


def refused(problem: problems.Problem, context: Mapping[str, Any]) -> Response:
    """Returns the answer with a problem that the local run alone has; the deployed API has none of that kind."""
    text = json.dumps(problem.body(str(context.get("extendedRequestId", ""))))
    return Response(text, problem.status, problem.headers, media_type=problems.CONTENT_TYPE)
