"""Serves the HTTP API: the template's routes, answered as API Gateway answers them.

A route that starts a stream checks the profile first; the deployed API only knows the names of profiles, from its
request template. Invariants: an execution's input is the request template applied to path and query, so it contains no
header unless the template requires one; a refused request starts nothing; an answer without an integration is the
gateway response of its kind, or of its class (DEFAULT_4XX, DEFAULT_5XX), or API Gateway's own.
"""

import asyncio
import base64
import json
import os
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Path

from handlers.api.answers import JSON, Problem
from local import listener
from local.api_client import live_tail
from local.service import lambda_proxy
from local.service.capacity import Room
from local.service.lambda_proxy import Call, TemplateFailure, render
from local.service.signature_check import SignatureCheck, SignedRequest
from local.stack import DEFAULT_TEMPLATE, START_SYNC, GatewayResponse, ProxyRoute, Route
from local.template import ACCOUNT
from states_language.server import Executions, Refusal, TooManyRequests, is_name

_METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"]
# The end of a stream cannot be predicted, so more requests are useless.
_RETRY_AFTER_S = 60
# API Gateway's own status and words of each kind that occurs here.
_OWN = {
    "MISSING_AUTHENTICATION_TOKEN": (403, "Missing Authentication Token"),
    "INVALID_SIGNATURE": (403, "The request signature is invalid."),
    "UNSUPPORTED_MEDIA_TYPE": (415, "Unsupported Media Type"),
    # A template that cannot be rendered.
    "API_CONFIGURATION_ERROR": (500, "Internal server error"),
    # A malformed Lambda proxy response, which has no own kind.
    "DEFAULT_5XX": (502, "Internal server error"),
}
_VARIABLE = re.compile(r"\$context((?:\.[A-Za-z_]+)+)")
# Returns a stream id's problem, None if the stream may be started.
CheckStream = Callable[[str], Problem | None]
# Answers an action of Step Functions with these parameters; raises Refusal.
CallStates = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class _AnyPath(StringConvertor):
    """Any path; Starlette's own matches none whose decoded text has a line end."""

    regex = "(?s:.*)"


register_url_convertor("anything", _AnyPath())


class Gateway:
    """Serves the routes of the stack.

    Source of what is answered without an integration: "Gateway response types for API Gateway" of its developer guide.
    """

    def __init__(
        self,
        routes: Iterable[Route | ProxyRoute],
        responses: Iterable[GatewayResponse],
        executions: Executions,
        check_stream: CheckStream,
        states: CallStates,
        invoke: lambda_proxy.Invoke,
        room: Room,
        signature: SignatureCheck,
    ) -> None:
        self.set_routes(routes, responses)
        self._signature = signature
        self._executions = executions
        self._room = room
        self._check_stream = check_stream
        self._states = states
        self._starting = asyncio.Lock()
        self._invoke = invoke
        self.app = Starlette(
            routes=[Path("/health", self._health), Path("/{path:anything}", self._handle, methods=_METHODS)]
        )

    def set_routes(self, routes: Iterable[Route | ProxyRoute], responses: Iterable[GatewayResponse]) -> None:
        """Replaces the routes, and the answers without an integration."""
        self._responses_by_kind = {response.kind: response for response in responses}
        # A method of its own comes before ANY.
        ordered = sorted(routes, key=lambda route: route.method == "ANY")
        self._routes = [(route, route.path.strip("/").split("/")) for route in ordered]

    async def _health(self, _: Request) -> Response:
        running = self._executions.running()
        return JSONResponse({"status": "ok", "running": [known.opening.arn for known in running]})

    async def _handle(self, request: Request) -> Response:
        # The path is split before decoding, so an encoded slash stays within its part; parts are decoded later.
        parts = lambda_proxy.raw_path(request).strip("/").split("/")
        for route, pattern in self._routes:
            values = _match_path(pattern, parts)
            if values is not None and route.method in (request.method, "ANY"):
                context = _context(route.path, request)
                content = await request.body()
                if route.needs_signature:
                    signed = SignedRequest(request.method, lambda_proxy.raw_target(request), request.headers, content)
                    if problem := self._signature.problem(signed, datetime.now(UTC)):
                        return self._answer(problem[0], context, problem[1])
                body = content.decode("utf-8", "replace")
                if isinstance(route, Route):
                    return await self._call_state_machine(route, values, request, body, context)
                event = lambda_proxy.proxy_event(request, route.path, values, context, body)
                if (
                    route.method == "GET"
                    and route.path.endswith("/events")
                    and live_tail.accepts_event_stream(request.headers)
                ):
                    return await live_tail.stream_pages(*self._page_reader(route, event))
                return await self._invoke_proxy(route, event)
        # API Gateway's answer for a route that does not exist.
        return self._answer("MISSING_AUTHENTICATION_TOKEN", _context("", request))

    def _answer(self, kind: str, context: Mapping[str, Any], sentence: str = "") -> Response:
        """Returns the answer of this kind; `context` has the names of `$context`, `sentence` replaces API Gateway's."""
        status, own = _OWN[kind]
        message = sentence or own
        generated = GatewayResponse(kind, None, {}, DEFAULT_TEMPLATE)
        chosen = self._responses_by_kind.get(kind) or self._responses_by_kind.get(
            f"DEFAULT_{status // 100}XX", generated
        )
        error = {"message": message, "messageString": json.dumps(message), "responseType": kind}

        def value(match: re.Match[str]) -> str:
            value: Any = {**context, "error": error}
            for name in match[1].split(".")[1:]:
                value = value.get(name, "") if isinstance(value, Mapping) else ""
            return str(value)

        text = _VARIABLE.sub(value, chosen.template)
        return Response(text, chosen.status or status, chosen.headers, media_type=JSON)

    async def _invoke_proxy(self, route: ProxyRoute, event: Any) -> Response:
        try:
            return lambda_proxy.proxy_response(await self._invoke(route.function, json.dumps(event).encode()))
        except (lambda_proxy.MalformedResult, TooManyRequests):
            return self._answer("DEFAULT_5XX", event["requestContext"])

    def _page_reader(self, route: ProxyRoute, event: Any) -> tuple[live_tail.Page, str]:
        """Returns what reads a page of events in JSON from behind any position, and the requested position."""
        query = event["queryStringParameters"] or {}

        async def page(after: str) -> Response:
            return await self._invoke_proxy(
                route, event | {"headers": {"Accept": JSON}, "queryStringParameters": query | {"after": after}}
            )

        return page, event["headers"].get("Last-Event-ID") or query.get("after", "")

    async def _call_state_machine(
        self, route: Route, path: Mapping[str, str], request: Request, body: str, context: dict[str, Any]
    ) -> Response:
        problem = self._check_stream(unquote(path["streamId"])) if "streamId" in path else None
        kind = request.headers.get("content-type", JSON).split(";")[0].strip().lower()
        template = route.request_templates.get(kind)
        if template is None and route.passthrough != "WHEN_NO_MATCH":
            return self._answer("UNSUPPORTED_MEDIA_TYPE", context)
        call = Call(body, path, dict(lambda_proxy.query_parameters(request)), dict(request.headers), context)
        try:
            start = json.loads(render(template, call) if template is not None else body or "{}")
            if problem is not None and is_name(start.get("name") or "-"):
                # The template accepted it, but its profile is wrong, or has changed since the template was compiled.
                return listener.problem_response(problem, context["extendedRequestId"])
            if problem is None and "streamId" in path:
                return await self._start_stream(route, unquote(path["streamId"]), start, call)
            return _integration_response(route, 200, await self._states(START_SYNC, start), call)
        except (TemplateFailure, ValueError, KeyError, TypeError, AttributeError):
            return self._answer("API_CONFIGURATION_ERROR", context)
        except Refusal as refusal:
            return _integration_response(route, 400, {"__type": refusal.code, "message": str(refusal)}, call)

    async def _start_stream(self, route: Route, stream_id: str, start: dict[str, Any], call: Call) -> Response:
        # One at a time: nothing else may start between the check of the room and the start.
        async with self._starting:
            parts = json.loads(start.get("input") or "{}").get("parts", [stream_id])
            if not await asyncio.to_thread(self._room.can_hold, *parts):
                retry = {"Retry-After": str(_RETRY_AFTER_S)}
                problem = Problem("full", self._room.refusal, headers=retry)
                return listener.problem_response(problem, call.context["extendedRequestId"])
            answer = await self._states(START_SYNC, start)
        streams = {"streams": {"running": self._room.count_running(), "most": self._room.capacity.most}}
        if isinstance(output := json.loads(answer.get("output", "null")), dict):
            answer["output"] = json.dumps(output | streams)
        return _integration_response(route, 200, answer, call)


def _match_path(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    values: dict[str, str] = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{") and expected.endswith("}"):
            if not part:
                return None
            values[expected[1:-1].rstrip("+")] = part
        elif expected != unquote(part):
            return None
    return values


def _context(resource_path: str, request: Request) -> dict[str, Any]:
    client = request.client.host if request.client is not None else ""
    return {
        "requestId": str(uuid.uuid4()),
        # API Gateway's own headers, which a client cannot choose.
        "extendedRequestId": base64.b64encode(os.urandom(11)).decode(),
        "accountId": ACCOUNT,
        "apiId": "local",
        "stage": "local",
        "httpMethod": request.method,
        "path": lambda_proxy.raw_path(request),
        "resourcePath": resource_path,
        "protocol": "HTTP/1.1",
        "requestTimeEpoch": int(time.time() * 1000),
        "identity": {"sourceIp": client, "userAgent": request.headers.get("user-agent", "")},
    }


def _integration_response(route: Route, status: int, answer: Mapping[str, Any], call: Call) -> Response:
    """The integration response whose pattern matches the integration's status, or else the default, 200."""
    text = json.dumps(answer)
    patterns = [(str(one.get("SelectionPattern") or ""), one) for one in route.responses]
    found = [one for pattern, one in patterns if pattern and re.fullmatch(pattern, str(status))]
    chosen = [*found, *(one for pattern, one in patterns if not pattern), {}][0]
    template = chosen.get("ResponseTemplates", {}).get(JSON)
    # Source: "Use a mapping template to override an API's request and response parameters and status codes".
    override: dict[str, Any] = {"header": {}}
    if template:
        context = {**call.context, "responseOverride": override}
        text = render(template, Call(text, call.path, call.query, {}, context)).strip()
    chosen_status = int(override.get("status") or chosen.get("StatusCode", 200))
    return Response(text, chosen_status, override["header"], media_type=JSON)
