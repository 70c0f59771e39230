"""Serves the AWS endpoint: answers Step Functions and Lambda, and forwards everything else.

Invariant: every answer, an error too, has the shape that boto3 and the AWS command line read.
"""

import asyncio
import json
from typing import Any

import urllib3
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from local import signatures
from local.aws_endpoints import Endpoints
from local.functions.function_pool import Pool, function_name
from local.functions.function_versions import Versions
from local.service import lambda_functions, lambda_versions, query_errors, stacks
from local.service.lambda_answers import FUNCTIONS, lambda_error
from local.template import REGION
from states_language.server import StepFunctions, TooManyRequests, UnknownFunction
from states_language.tasks.lambdas import EVENT_LIMIT_BYTES, REQUEST_LIMIT_BYTES
from states_language.values import parsed

_TARGET = "AWSStepFunctions."
# Headers that belong to one connection. Source: RFC 9110, section 7.6.1.
_HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-connection"}
# What a browser says of a page. It was judged where the request came in (own_hosts); the next one has another port.
_OF_A_PAGE = {"origin", "sec-fetch-site"}
_METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"]
_INVOKE_TYPES = ("RequestResponse", "Event", "DryRun")
# An address that a person follows, whoever led there, is sent as if it were typed (own_hosts). It has no such header.
_ACTION_OF_A_LINK = "A GET with an Action must be signed in the header Authorization."


# Why a function is throttled of which no more may run; source: Invoke in the AWS Lambda API reference.
RESERVED = "ReservedFunctionConcurrentInvocationLimitExceeded"
AGAIN_S = 1.0


class AwsServer:
    """One address for every AWS service of the run."""

    def __init__(
        self, step_functions: StepFunctions, functions: Pool, endpoints: Endpoints, versions: Versions | None = None
    ) -> None:
        self._step_functions = step_functions
        self._functions = functions
        self._endpoints = endpoints
        self._http = urllib3.PoolManager(maxsize=8, retries=False, timeout=urllib3.Timeout(connect=5, read=60))
        self._invocations: set[asyncio.Task[Any]] = set()
        self.app = Starlette(
            routes=[
                Route(f"{FUNCTIONS}/{{name}}/invocations", self._invoke, methods=["POST"]),
                *lambda_functions.routes(functions),
                *lambda_versions.routes(functions, versions),
                Route("/{path:path}", self._other, methods=_METHODS),
            ]
        )

    def close(self) -> None:
        """Cancels invocations that nobody waits for, and closes the connections to other endpoints."""
        for task in self._invocations:
            task.cancel()
        self._step_functions.close()
        self._http.clear()

    async def _invoke(self, request: Request) -> Response:
        """Lambda's Invoke; source: its page in the AWS Lambda API reference."""
        name = request.path_params["name"]
        if qualifier := request.query_params.get("Qualifier"):
            name = f"{name}:{qualifier}"
        kind = request.headers.get("x-amz-invocation-type", "RequestResponse")
        if function_name(name) not in self._functions:
            return lambda_error(404, "ResourceNotFoundException", f"Function not found: {name}", "User")
        if kind not in _INVOKE_TYPES:
            return lambda_error(400, "InvalidParameterValueException", f"Unknown invocation type: {kind}", "User")
        payload = await request.body() or b"{}"
        most = EVENT_LIMIT_BYTES if kind == "Event" else REQUEST_LIMIT_BYTES
        if len(payload) > most:
            message = f"Request must be smaller than {most} bytes for the InvokeFunction operation"
            return lambda_error(413, "RequestTooLargeException", message, "User")
        try:
            parsed(payload)
        except ValueError:
            message = "Could not parse request body into json: the payload is not valid JSON."
            return lambda_error(400, "InvalidRequestContentException", message, "User")
        if kind == "DryRun":
            return Response(status_code=204)
        try:
            if kind == "Event":
                self._run_in_background(asyncio.create_task(self._invoke_later(name, payload)))
                return Response(status_code=202)
            answer = await self._functions.invoke(name, payload)
        except UnknownFunction:
            return lambda_error(404, "ResourceNotFoundException", f"Function not found: {name}", "User")
        except TooManyRequests as refused:
            return lambda_error(429, "TooManyRequestsException", str(refused), "User", Reason=RESERVED)
        headers = {"X-Amz-Executed-Version": "$LATEST", "x-amzn-RequestId": answer.request_id}
        if answer.function_error is not None:
            headers["X-Amz-Function-Error"] = answer.function_error
        return Response(answer.payload, media_type="application/json", headers=headers)

    async def _invoke_later(self, name: str, payload: bytes) -> None:
        """Invokes what nobody waits for, again after a while where there is no room, as Lambda's own queue does."""
        while True:
            try:
                await self._functions.invoke(name, payload)
                return
            except TooManyRequests:
                await asyncio.sleep(AGAIN_S)

    async def _other(self, request: Request) -> Response:
        target = request.headers.get("x-amz-target", "")
        if target.startswith(_TARGET):
            region = signatures.region(request, REGION)
            return await self._step_functions.answer(target.removeprefix(_TARGET), await request.body(), region)
        if request.method == "GET" and "Action" in request.query_params and "authorization" not in request.headers:
            return JSONResponse({"message": _ACTION_OF_A_LINK}, 403)
        body = await request.body()
        service = signatures.scope(request)[1]
        if await asyncio.to_thread(stacks.unable, service, request.url.query, body, self._endpoints):
            return query_errors.error_response(400, "ValidationError", stacks.REASON)
        answer = await asyncio.to_thread(self._forward, request, body)
        return query_errors.readable(answer) if query_errors.is_query(request) else answer

    def _forward(self, request: Request, body: bytes) -> Response:
        origin = self._endpoints.of(signatures.scope(request)[1])
        path = request.scope["raw_path"].decode("ascii")
        query = request.scope["query_string"].decode("ascii")
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP | _OF_A_PAGE}
        try:
            answer = self._http.request(
                request.method, f"{origin}{path}{'?' + query if query else ''}", body=body, headers=headers,
                redirect=False, decode_content=False,
            )  # fmt: skip
        except urllib3.exceptions.HTTPError as problem:
            text = json.dumps({"message": f"The endpoint {origin} does not answer: {type(problem).__name__}."})
            return Response(text, 502, media_type="application/json")
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
        kept.pop("content-length", None)
        return Response(answer.data, answer.status, headers=kept)

    def _run_in_background(self, task: "asyncio.Task[Any]") -> None:
        self._invocations.add(task)
        task.add_done_callback(self._invocations.discard)
