"""Performs Task states: the host runs Lambda functions, botocore calls every other AWS service.

Invariant: any failure is raised as a TaskFailure with AWS's name for it.
"""

import asyncio
import functools
import json
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.model import OperationModel

from states_language import TaskCall, TaskFailure
from states_language.server import sdk
from states_language.server.actions import StepFunctions
from states_language.server.http_task import Connections, HttpTask, invocation
from states_language.server.requests import Refusal
from states_language.server.requests import api_model as states_model
from states_language.tasks.callbacks import NO_HEARTBEAT, TIMED_OUT, complete_from_execution
from states_language.tasks.lambda_answers import missing_function_failure, throttled_failure
from states_language.tasks.resources import ACTIVITY, SYNC, http_metadata
from states_language.values import compact, parse_external_json

_AT_ONCE = 4
"""How many requests to one service may be in flight."""


class UnknownFunction(Exception):
    """No function has this name."""


class TooManyRequests(Exception):
    """The function already runs as often as its reserved concurrency allows; the message is Lambda's."""


class Answer(Protocol):
    """A function's answer; `function_error` is Lambda's, None if the function returned."""

    @property
    def payload(self) -> bytes: ...
    @property
    def function_error(self) -> str | None: ...


Invoke = Callable[[str, bytes], Awaitable[Answer]]
"""Invokes a function by its name or ARN, qualified or not; raises UnknownFunction, TooManyRequests, TaskFailure, and
botocore's own errors."""


class TaskPerformer:
    """Performs Task states: `invoke` runs a function, `client` returns botocore's client of a service.

    connections: those of EventBridge; without one, http:invoke sends no request.
    """

    def __init__(
        self,
        invoke: Invoke,
        client: Callable[[str], Any],
        states: StepFunctions,
        connections: Connections = lambda _arn: None,
    ) -> None:
        self._invoke_function = invoke
        self._http = HttpTask(connections)
        self._connections = connections
        self._client = client
        self._states = states
        # Each service, and each connection of http:invoke, has threads of its own: one that hangs blocks no other.
        self._threads = defaultdict[str, ThreadPoolExecutor](lambda: ThreadPoolExecutor(_AT_ONCE, "integration"))
        self._stopping: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def perform(self, call: TaskCall) -> Any:
        """Returns the result of one Task in its service's form; raises TaskFailure."""
        self._states.tokens.watch(call.pending)
        if call.function is not None:
            return await self._invoke(call, call.function)
        if call.service == ACTIVITY:
            return self._states.activities.offer(call)
        if not isinstance(call.parameters or {}, dict):
            raise TaskFailure("States.Runtime", sdk.cause_of_unusable(call.parameters, "they must be a JSON object"))
        if call.service in ("states", "sfn"):
            return await self._call_states(call)
        if self._closed:
            raise asyncio.CancelledError  # like what waits for a thread when they end
        service, request = sdk.client_name(call.service), self._call_service
        if (service, call.sdk) == ("http", False):
            request, service = self._http.perform, self._thread_pool_name(call)
        elif not sdk.is_service(service):
            raise TaskFailure("States.Runtime", f"There is no AWS service {call.service!r}.")
        answer = await asyncio.get_running_loop().run_in_executor(self._threads[service], request, call)
        if (call.service, call.action, call.sdk) == ("events", "putEvents", False) and answer.get("FailedEntryCount"):
            # A refused entry fails the Task, and the cause is the whole answer (recorded).
            cause = {name: answer[name] for name in ("Entries", "FailedEntryCount")}
            raise TaskFailure("EventBridge.FailedEntry", compact(cause))
        return answer

    def _thread_pool_name(self, call: TaskCall) -> str:
        """Return the name of the threads that all calls by a connection share; "http" if the connection is unknown."""
        named = invocation(call.parameters or {})
        arn = named.get("ConnectionArn") if isinstance(named, dict) else None
        return f"http {arn}" if isinstance(arn, str) and self._connections(arn) is not None else "http"

    def close(self) -> None:
        """Ends the threads, without waiting for requests in flight."""
        self._closed = True
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    async def _invoke(self, call: TaskCall, function: str) -> Any:
        try:
            named = call.parameters if isinstance(call.parameters, dict) and call.service == "lambda" else {}
            name = str(named.get("FunctionName", function))
            if qualifier := named.get("Qualifier"):
                name = f"{name}:{qualifier}"
            answer = await self._invoke_function(name, json.dumps(call.payload).encode())
        except UnknownFunction:
            raise missing_function_failure(call, str(uuid.uuid4())) from None
        except TooManyRequests:
            raise throttled_failure(str(uuid.uuid4())) from None
        except (ClientError, BotoCoreError) as refusal:
            raise TaskFailure(*sdk.error_of_refusal("lambda", sdk=False, refusal=refusal)) from None
        text = answer.payload.decode(errors="replace")
        if answer.function_error is None:
            try:
                return parse_external_json(answer.payload or "null")
            except ValueError as problem:
                raise TaskFailure("Lambda.Unknown", f"The function's answer is not valid JSON: {problem}") from None
        try:
            error = json.loads(text).get("errorType") or "Lambda.Unknown"
        except (ValueError, AttributeError):
            error = "Lambda.Unknown"
        raise TaskFailure(error, text)

    async def _call_states(self, call: TaskCall) -> Any:
        operation = self._operation("stepfunctions", call.action)
        arguments = sdk.to_arguments(call.parameters or {}, operation.input_shape)
        if operation.name == "StartExecution" and not call.sdk and (call.parameters or {}).get("Input") is None:
            arguments["input"] = "{}"  # an Input of null is an empty one (recorded)
        try:
            if call.pattern.startswith(SYNC):
                await self._require_standard(arguments)
            answer = await self._states.call(operation.name, arguments)
        except Refusal as refusal:
            raise TaskFailure(*_states_failure(call, operation, refusal)) from None
        if call.pending is not None and call.pattern.startswith(SYNC):
            pending = call.pending
            listener = functools.partial(complete_from_execution, pending, call.pattern)
            self._states.executions.on_end(answer["executionArn"], listener)
            pending.outcome.add_done_callback(lambda outcome: self._stop_if_abandoned(outcome, answer["executionArn"]))
        result = sdk.result(answer, operation.output_shape)
        return result if call.sdk else result | http_metadata({}, 200, str(uuid.uuid4()))

    async def _require_standard(self, arguments: dict[str, Any]) -> None:
        """Raise Refusal for an Express machine: its executions cannot be described, so a Task cannot wait for them."""
        machine_arn = {"stateMachineArn": arguments.get("stateMachineArn")}
        if (await self._states.call("DescribeStateMachine", machine_arn))["type"] == "EXPRESS":
            message = "This operation is not supported by this type of state machine"
            raise Refusal("StateMachineTypeNotSupported", message)

    def _stop_if_abandoned(self, outcome: "asyncio.Future[Any]", execution_arn: str) -> None:
        """Stops a nested execution when the Task that waits for it is aborted or timed out.

        Source: AWS Step Functions Developer Guide, "Run a Job (.sync)": "if a Step Functions states:startExecution.sync
        task is aborted, it will call the Step Functions StopExecution API action". It does not mention time-outs.
        """
        if self._closed or not (
            outcome.cancelled() or any(outcome.result() is one for one in (TIMED_OUT, NO_HEARTBEAT))
        ):
            return
        stopping = asyncio.ensure_future(self._states.call("StopExecution", {"executionArn": execution_arn}))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._forget_stop)

    def _forget_stop(self, stopping: "asyncio.Future[Any]") -> None:
        # A best effort, as on AWS: its failure fails nothing else.
        self._stopping.discard(stopping)
        _ = stopping.cancelled() or stopping.exception()

    def _call_service(self, call: TaskCall) -> Any:
        try:
            operation = self._operation(sdk.client_name(call.service), call.action)
            client = self._client(sdk.client_name(call.service))
            arguments = sdk.to_arguments(_add_event_resources(call), operation.input_shape)
            answer = getattr(client, xform_name(operation.name))(**arguments)
        except ClientError as refusal:
            model = operation.service_model
            failure = sdk.error_of_refusal(call.service, sdk=call.sdk, refusal=refusal, model=model)
            raise TaskFailure(*failure) from None
        except ParamValidationError as refusal:
            raise TaskFailure("States.Runtime", sdk.cause_of_unusable(call.parameters, str(refusal))) from None
        except BotoCoreError as refusal:
            raise TaskFailure(*sdk.error_of_refusal(call.service, sdk=call.sdk, refusal=refusal)) from None
        metadata = answer.pop("ResponseMetadata", {})
        body = answer.pop("Body").read() if call.reads and "Body" in answer else None
        result = sdk.result(answer, operation.output_shape)
        if body is not None:
            return result | {"Body": body}
        if call.sdk:
            return result
        headers = {str(name): str(value) for name, value in metadata.get("HTTPHeaders", {}).items()}
        return result | http_metadata(headers, metadata.get("HTTPStatusCode", 200), metadata.get("RequestId", ""))

    def _operation(self, client_name: str, action: str) -> OperationModel:
        model = states_model() if client_name == "stepfunctions" else self._client(client_name).meta.service_model
        name = sdk.pascal(action)
        if name not in model.operation_names:
            raise TaskFailure("States.Runtime", f"The service {client_name} has no action {action}.")
        operation: OperationModel = model.operation_model(name)
        return operation


def _add_event_resources(call: TaskCall) -> Any:
    """Returns the parameters; events:putEvents gets the execution and its machine in the Resources of each entry.

    Source: AWS Step Functions Developer Guide, "Add EventBridge events with Step Functions".
    """
    parameters = call.parameters or {}
    entries = parameters.get("Entries")
    if (call.service, call.action, call.sdk) != ("events", "putEvents", False) or not isinstance(entries, list):
        return parameters
    machine_arn = call.execution_arn.rpartition(":")[0].replace(":execution:", ":stateMachine:")
    named = [call.execution_arn, machine_arn]

    def completed(entry: Any) -> Any:
        known = entry.get("Resources", []) if isinstance(entry, dict) else None
        return entry | {"Resources": known + named} if isinstance(known, list) else entry  # botocore refuses the others

    return parameters | {"Entries": [*map(completed, entries)]}


def _states_failure(call: TaskCall, operation: OperationModel, refusal: Refusal) -> tuple[str, str]:
    answer: Any = {
        "Error": {"Code": refusal.code, "Message": str(refusal)},
        "ResponseMetadata": {"HTTPStatusCode": 400, "RequestId": str(uuid.uuid4())},
    }
    # botocore raises an exception of the service's model as a class of its own.
    error = type(refusal.code, (ClientError,), {})(answer, operation.name)
    return sdk.error_of_refusal(call.service, sdk=call.sdk, refusal=error, model=operation.service_model)
