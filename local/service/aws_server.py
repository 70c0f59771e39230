"""Serves the AWS endpoint: answers Step Functions and Lambda, and forwards everything else.

Invariant: every answer, an error too, has the shape that boto3 and the AWS command line read.
"""

import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import urllib3
from botocore.exceptions import BotoCoreError, ClientError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from local.aws_endpoints import Endpoints, credential_of
from local.functions.function_pool import FunctionPool, split_function_name
from local.service.lambda_functions import FUNCTIONS, LambdaFunctions, lambda_error, not_found
from local.service.lambda_proxy import raw_target
from local.template import REGION
from states_language.server import StepFunctions, TooManyRequests, UnknownFunction
from states_language.tasks.lambda_answers import EVENT_LIMIT_BYTES, REQUEST_LIMIT_BYTES
from states_language.values import parse_external_json

_TARGET = "AWSStepFunctions."
# Headers that belong to one connection. Source: RFC 9110, section 7.6.1.
_HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-connection"}
# A browser's headers about a page, which were checked on arrival (`host_refusal`); the next service has another port.
_PAGE_HEADERS = {"origin", "sec-fetch-site"}
_METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"]
_INVOKE_TYPES = ("RequestResponse", "Event", "DryRun")
# A link that a person follows is sent like a typed address (`host_refusal`), without this header.
_UNSIGNED_ACTION = "A GET with an Action must be signed in the header Authorization."
_FORM = "application/x-www-form-urlencoded"
_MESSAGES = ("message", "Message", "error")
_CODES = ("__type", "code", "Code")
# The beginnings of resource types that a template may not have, because nothing here could run them.
_UNSUPPORTED = ("AWS::StepFunctions::", "AWS::Lambda::Function", "AWS::Serverless::")
_CREATES = {"CreateStack", "UpdateStack", "CreateChangeSet", "CreateStackSet", "UpdateStackSet"}
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_BUCKET_HOST = re.compile(r"([a-z0-9.-]+?)\.(?:s3[a-z0-9.-]*\.amazonaws\.com.*|localhost|s3\.localhost.*)")
_REASON = (
    "This endpoint runs the state machines and functions of serverless.yml, and the machines of CreateStateMachine. "
    "Those of a CloudFormation template would not run, so a template with AWS::StepFunctions, AWS::Lambda::Function or "
    "AWS::Serverless resources is refused."
)
# Why a function is throttled at its reserved concurrency; source: Invoke in the AWS Lambda API reference.
RESERVED = "ReservedFunctionConcurrentInvocationLimitExceeded"
RETRY_S = 1.0


class AwsServer:
    """One address for every AWS service of the run."""

    def __init__(
        self,
        step_functions: StepFunctions,
        functions: FunctionPool,
        endpoints: Endpoints,
        can_hold: Callable[[str], bool],
    ) -> None:
        """`can_hold` returns whether this machine has room for a stream with that id."""
        self._can_hold = can_hold
        self._step_functions = step_functions
        self._functions = functions
        self._endpoints = endpoints
        self._http = urllib3.PoolManager(maxsize=8, retries=False, timeout=urllib3.Timeout(connect=5, read=60))
        self._invocations: set[asyncio.Task[Any]] = set()
        self.app = Starlette(
            routes=[
                Route(f"{FUNCTIONS}/{{name}}/invocations", self._invoke, methods=["POST"]),
                *LambdaFunctions(functions).routes,
                Route("/{path:path}", self._handle_other_service, methods=_METHODS),
            ]
        )

    def close(self) -> None:
        """Cancels asynchronous invocations, and closes the connections to other endpoints."""
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
        if split_function_name(name)[0] not in self._functions:
            return not_found(f"Function not found: {name}")
        if kind not in _INVOKE_TYPES:
            return lambda_error(400, "InvalidParameterValueException", f"Unknown invocation type: {kind}")
        payload = await request.body() or b"{}"
        most = EVENT_LIMIT_BYTES if kind == "Event" else REQUEST_LIMIT_BYTES
        if len(payload) > most:
            message = f"Request must be smaller than {most} bytes for the InvokeFunction operation"
            return lambda_error(413, "RequestTooLargeException", message)
        try:
            parse_external_json(payload)
        except ValueError:
            message = "Could not parse request body into json: the payload is not valid JSON."
            return lambda_error(400, "InvalidRequestContentException", message)
        if kind == "DryRun":
            return Response(status_code=204)
        try:
            if kind == "Event":
                task = asyncio.create_task(self._invoke_later(name, payload))
                self._invocations.add(task)
                task.add_done_callback(self._invocations.discard)
                return Response(status_code=202)
            answer = await self._functions.invoke(name, payload)
        except UnknownFunction:
            return not_found(f"Function not found: {name}")
        except TooManyRequests as refused:
            return lambda_error(429, "TooManyRequestsException", str(refused), Reason=RESERVED)
        headers = {"X-Amz-Executed-Version": "$LATEST", "x-amzn-RequestId": answer.request_id}
        if answer.function_error is not None:
            headers["X-Amz-Function-Error"] = answer.function_error
        return Response(answer.payload, media_type="application/json", headers=headers)

    async def _invoke_later(self, name: str, payload: bytes) -> None:
        """Invokes asynchronously, and again after a while if there is no room, like Lambda's own queue."""
        while True:
            try:
                await self._functions.invoke(name, payload)
                return
            except TooManyRequests:
                await asyncio.sleep(RETRY_S)

    async def _handle_other_service(self, request: Request) -> Response:
        target = request.headers.get("x-amz-target", "")
        if target.startswith(_TARGET):
            if target.endswith(".StartSyncExecution") and not await self._has_room(await request.body()):
                return JSONResponse({"__type": "ExecutionLimitExceeded", "message": "This machine is full."}, 400)
            action, region = target.removeprefix(_TARGET), credential_of(request).region or REGION
            return await self._step_functions.answer(action, await request.body(), region)
        if request.method == "GET" and "Action" in request.query_params and "authorization" not in request.headers:
            return JSONResponse({"message": _UNSIGNED_ACTION}, 403)
        body = await request.body()
        # The template may be in S3. Other services have none, and a function's requests need no second thread.
        if credential_of(request).service == "cloudformation" and await asyncio.to_thread(
            _has_unsupported_resource, request.url.query, body, self._endpoints
        ):
            return _query_error(400, "ValidationError", _REASON)
        answer = await asyncio.to_thread(self._forward, request, body)
        # A request of the Query protocol has its action in a form or in the address.
        is_form = request.headers.get("content-type", "").startswith(_FORM)
        return _as_query_error(answer) if is_form or "Action" in request.query_params else answer

    async def _has_room(self, body: bytes) -> bool:
        """Returns whether the stream of a StartSyncExecution, which starts it as a POST does, may be started."""
        try:
            stream_id = json.loads(json.loads(body)["input"])["pathParameters"]["streamId"]
        except (ValueError, RecursionError, KeyError, TypeError):
            return True
        return await asyncio.to_thread(self._can_hold, str(stream_id))

    def _forward(self, request: Request, body: bytes) -> Response:
        origin = self._endpoints.url_of(credential_of(request).service)
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP | _PAGE_HEADERS}
        try:
            answer = self._http.request(
                request.method,
                f"{origin}{raw_target(request)}",
                body=body,
                headers=headers,
                redirect=False,
                decode_content=False,
            )
        except urllib3.exceptions.HTTPError as problem:
            text = json.dumps({"message": f"The endpoint {origin} does not answer: {type(problem).__name__}."})
            return Response(text, 502, media_type="application/json")
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
        kept.pop("content-length", None)
        return Response(answer.data, answer.status, headers=kept)


def _query_error(status: int, code: str, message: str) -> Response:
    """An error of the Query protocol, which CloudFormation and others use, in XML."""
    kind = "Sender" if status < 500 else "Receiver"
    error = f"<Type>{kind}</Type><Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    body = f"<ErrorResponse><Error>{error}</Error><RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>"
    return Response(body, status, media_type="text/xml")


def _as_query_error(answer: Response) -> Response:
    """Returns the answer to a request of the Query protocol; an error without XML becomes an ErrorResponse."""
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
    return _query_error(answer.status_code, code, message)


def _has_unsupported_resource(query: str, body: bytes, endpoints: Endpoints) -> bool:
    """Returns whether a request to CloudFormation makes a stack with a resource that could not run.

    The embedded AWS accepts every template and would report a state machine or a function as created, but nothing here
    could run it.
    """
    members = parse_qs(query) | parse_qs(body.decode("utf-8", "replace"))
    if members.get("Action", [""])[0] not in _CREATES:
        return False
    template = members.get("TemplateBody", [""])[0]
    if "TemplateURL" in members:
        template = _template_in_bucket(members["TemplateURL"][0], endpoints.client("s3"))
    # JSON and YAML may escape any character.
    template = _ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)), template)
    return any(kind in template for kind in _UNSUPPORTED)


def _template_in_bucket(url: str, s3: Any) -> str:
    """Returns the template in a bucket, or "", because CloudFormation itself reports a missing one."""
    parts = urlsplit(url)
    host, path = _BUCKET_HOST.fullmatch(parts.hostname or ""), unquote(parts.path).lstrip("/")
    bucket, key = (host[1], path) if host else (path.partition("/")[0], path.partition("/")[2])
    try:
        return str(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8", "replace"))
    except (BotoCoreError, ClientError):
        return ""
