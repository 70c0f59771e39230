"""Guards the edges of the local service: records each role's requests to AWS, and refuses what it does not allow.

The edges are: the AWS endpoint, where each function has its own access key id; the Tasks of a machine; the API, when it
starts an execution. A request with another key comes from a person, for whom the template has no role; a machine that
was created at the endpoint has no role either. Invariants: a refused request reaches no service; every request is
recorded, with a line for each role, action and resource.
"""

import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from botocore.exceptions import ClientError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from local.aws_endpoints import credential_of, endpoint_variables
from local.permissions import needs
from local.permissions.needs import Need, Role
from local.stack import Function
from local.template import ACCOUNT
from local.terminal import UserError
from states_language import TaskCall, TaskFailure
from states_language.server import Refusal, sdk

SETTING = "STREAMKEEPER_PERMISSIONS"
RECORD = "permissions.jsonl"
# Keys of objects and names of executions are unlimited; the record is not.
MOST_LINES = 10_000
# IAM's name of a service, if the Resource of a Task has another.
_SERVICES = {"sfn": "states"}
_CODE = "AccessDeniedException"

CallStates = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
Perform = Callable[[TaskCall], Awaitable[Any]]


@dataclass(frozen=True)
class Principal:
    """A session of a role."""

    role: Role
    session: str

    def refusal(self, need: Need) -> str:
        """Returns AWS's sentence for a request that is not allowed, or ""."""
        reason = self.role.refusal(need)
        user = f"arn:aws:sts::{ACCOUNT}:assumed-role/{self.role.name}/{self.session}"
        wish = f"User: {user} is not authorized to perform: {need.action} on resource: {need.resource}"
        return reason and f"{wish} {reason}"


class PermissionGuard:
    """The edges; `say` prints a line. Without a template nothing is recorded or refused."""

    def __init__(self, template: Mapping[str, Any] | None, record: Path, say: Callable[[str], None]) -> None:
        self.is_enforcing = template is not None
        self._roles = needs.read(template or {"Resources": {}})
        self._record = record
        self._say = say
        self._recorded: set[tuple[str, Need, bool]] = set()
        self._keys: dict[str, str] = {}
        if self.is_enforcing:
            with contextlib.suppress(OSError):
                record.unlink(missing_ok=True)

    def use_template(self, template: Mapping[str, Any]) -> list[str]:
        """Reads the roles of another template; returns the names of those that changed."""
        if not self.is_enforcing:
            return []
        before = set(self._roles.all())
        self._roles = needs.read(template)
        return [role.name for role in self._roles.all() if role not in before]

    def with_access_keys(self, functions: Iterable[Function]) -> list[Function]:
        """Returns the functions, each with an access key id that identifies its requests."""
        if not self.is_enforcing:
            return list(functions)
        # The key ids of an assumed role begin with this. Source: IAM user guide, "Understanding unique ID prefixes".
        keyed = {f"ASIA-{function.name}": function for function in functions}
        self._keys |= {key: function.name for key, function in keyed.items()}
        return [
            replace(function, environment={**function.environment, "AWS_ACCESS_KEY_ID": key})
            for key, function in keyed.items()
        ]

    def guard_endpoint(self, app: ASGIApp) -> ASGIApp:
        """Returns the AWS endpoint, behind a check of the calling function's permissions."""

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive) if scope["type"] == "http" else None
            credential = None if request is None else credential_of(request)
            if request is None or credential is None or credential.key not in self._keys:
                await app(scope, receive, send)
                return
            name = self._keys[credential.key]
            principal = Principal(self._roles.functions[name], name)
            await self._check_and_serve(app, principal, credential.service, request, send)

        return serve

    def guard_tasks(self, perform: Perform, client: Callable[[str], Any]) -> Perform:
        """Returns the performer of the machines' Tasks, behind a check of the machine's permissions.

        `client` makes a client of a service. A machine without a role, made by a person, may do everything.
        """

        async def check_and_perform(call: TaskCall) -> Any:
            # arn:aws:states:<region>:<account>:execution:<machine>:<name>, and of an Express one express:<machine>:...
            machine = call.execution_arn.split(":")[6]
            role = self._roles.machines.get(machine)
            if role is not None and (sentence := self._refusal(Principal(role, machine), needs_of_task(call))):
                raise _task_failure(call, client, sentence)
            return await perform(call)

        return check_and_perform

    def guard_api_calls(self, call: CallStates) -> CallStates:
        """Returns the API's way to Step Functions, behind a check of its role's permissions."""
        if not self.is_enforcing:
            return call

        async def check_and_call(action: str, parameters: dict[str, Any]) -> dict[str, Any]:
            if self._roles.api is None:
                raise Refusal(_CODE, "The integration has no role.")
            principal = Principal(self._roles.api, "BackplaneAssumeRoleSession")
            if sentence := self._refusal(principal, needs.needs_of_call("states", action, parameters)):
                raise Refusal(_CODE, sentence)
            return await call(action, parameters)

        return check_and_call

    async def _check_and_serve(
        self, app: ASGIApp, principal: Principal, service: str, request: Request, send: Send
    ) -> None:
        body = await request.body()
        path = request.scope["raw_path"].decode("ascii", "replace")
        query = request.scope["query_string"].decode("ascii", "replace")
        target = request.headers.get("x-amz-target", "")
        needed = needs.needs_of_http_request(service, request.method, path, query, target, body)
        if sentence := self._refusal(principal, needed):
            await _denial_response(service, sentence)(request.scope, request.receive, send)
            return
        unread = [body]

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await request.receive()

        if service == "s3" and needed[0].action == "s3:GetObject":
            send = _hide_missing_object(principal, needed[0], request, send)
        await app(request.scope, receive, send)

    def _refusal(self, principal: Principal, needed: list[Need]) -> str:
        """Records what is needed, and returns the sentence about the first action that is not allowed."""
        first = ""
        for need in needed:
            sentence = principal.refusal(need)
            first = first or sentence
            line = (principal.role.name, need, not sentence)
            if line in self._recorded or len(self._recorded) >= MOST_LINES:
                continue
            self._recorded.add(line)
            seen = {"role": line[0], "action": need.action, "resource": need.resource, "allowed": line[2]}
            with contextlib.suppress(OSError), self._record.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(seen)}\n")
            if sentence:
                self._say(f"ALERT: refused: {sentence}")
        return first


def make_guard(
    environment: Mapping[str, str], template: Mapping[str, Any], data: Path, say: Callable[[str], None]
) -> PermissionGuard:
    """Returns the guard; raises UserError as `is_enforced` does."""
    return PermissionGuard(template if is_enforced(environment) else None, data / RECORD, say)


def is_enforced(environment: Mapping[str, str]) -> bool:
    """Returns whether calls are refused; raises UserError for a value of STREAMKEEPER_PERMISSIONS but enforce."""
    value = environment.get(SETTING, "")
    if value not in ("", "enforce"):
        raise UserError(f"{SETTING} must be enforce, or not set, not {value!r}.")
    if value and (others := sorted(endpoint_variables(environment))):
        raise UserError(f"{SETTING} needs the embedded services: unset {others[0]}, whose service has its own roles.")
    return bool(value)


def needs_of_task(call: TaskCall) -> list[Need]:
    parameters = call.parameters if isinstance(call.parameters, dict) else {}
    if call.function is not None:
        return needs.needs_of_invocation(
            str(parameters.get("FunctionName", call.function)), str(parameters.get("Qualifier", ""))
        )
    operation = f"{call.action[:1].upper()}{call.action[1:]}"
    return needs.needs_of_call(_SERVICES.get(call.service, call.service), operation, parameters)


def _hide_missing_object(principal: Principal, need: Need, request: Request, send: Send) -> Send:
    """S3's answer about a missing object to a caller who may not list the bucket.

    Source: GetObject in the S3 API reference: without s3:ListBucket "Amazon S3 returns an HTTP status code 403".
    """
    bucket = need.resource.partition("/")[0]
    sentence = principal.refusal(Need("s3:ListBucket", bucket))
    hidden = False

    async def hide(message: Message) -> None:
        nonlocal hidden
        if sentence and message["type"] == "http.response.start" and message["status"] == 404:
            hidden = True
            await _denial_response("s3", sentence)(request.scope, request.receive, send)
        elif not hidden:
            await send(message)

    return hide


def _denial_response(service: str, sentence: str) -> Response:
    """A service's refusal of a request, in the service's protocol."""
    request_id = str(uuid.uuid4())
    if service in ("s3", "sns"):
        # S3 speaks REST with XML, SNS the Query protocol; each has its own code.
        code = "AccessDenied" if service == "s3" else "AuthorizationError"
        error = f"<Code>{code}</Code><Message>{escape(sentence)}</Message>"
        identity = f"<RequestId>{request_id}</RequestId>"
        body = (
            f"<Error>{error}{identity}</Error>"
            if service == "s3"
            else f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error>{identity}</ErrorResponse>"
        )
        return Response(body, 403, media_type="application/xml")
    headers = {"x-amzn-RequestId": request_id, "x-amzn-ErrorType": _CODE}
    if service == "sqs":
        # Source: SQS API reference, "Making Query API requests": the code of the former protocol stays the client's.
        headers["x-amzn-query-error"] = "AccessDenied;Sender"
    text = json.dumps({"__type": f"com.amazon.coral.service#{_CODE}", "message": sentence})
    return Response(text, 403 if service == "lambda" else 400, headers=headers, media_type="application/x-amz-json-1.0")


def _task_failure(call: TaskCall, client: Callable[[str], Any], sentence: str) -> TaskFailure:
    """The failure of a Task that the machine's role does not allow; `client` makes a client of a service."""
    metadata = {"HTTPStatusCode": 403 if call.function is not None else 400, "RequestId": str(uuid.uuid4())}
    answer: Any = {"Error": {"Code": _CODE, "Message": sentence}, "ResponseMetadata": metadata}
    model = client(sdk.client_name(call.service)).meta.service_model if call.sdk else None
    service = "lambda" if call.function is not None else call.service
    return TaskFailure(
        *sdk.error_of_refusal(service, sdk=call.sdk, model=model, refusal=ClientError(answer, call.action))
    )
