"""The Task state: calls a function, a service or an activity, and waits for its result.

Invariant: a call is never cancelled; after a time-out its answer is ignored. The history records the role that
Credentials name, but nothing uses it: permissions are not checked.
"""

import contextlib
import math
from collections.abc import Mapping
from typing import Any

from states_language.branch import Branch
from states_language.clock import uuid4
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError, Halted, HeartbeatMissed, StateError, TaskFailure
from states_language.history import failure_details, is_within_limit, payload_details
from states_language.jsonata.evaluation import is_query
from states_language.states.base import NumberField, StateWithRetry, compile_filler
from states_language.tasks.callbacks import NO_HEARTBEAT, TIMED_OUT, Pending, TaskTimers, new_token
from states_language.tasks.calls import TaskCall, Whole
from states_language.tasks.resources import TOKEN, Resource, function_name, invoke_response, payload_of, read_resource
from states_language.timestamps import http_date
from states_language.values import MISSING, compact, too_large_cause, well_formed_with_text


class Task(StateWithRetry):
    type = "Task"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        fields.require("Resource")
        resource = read_resource(fields.string("Resource") or "")
        if isinstance(resource, str):
            raise fields.error_for("Resource", resource)
        self.resource = resource
        if resource.is_lambda_invoke:
            where = "Arguments" if fields.is_jsonata else "Parameters"
            parameters = fields.get(where)
            named = isinstance(parameters, dict) and {"FunctionName", "FunctionName.$"} & parameters.keys()
            if not named and not is_query(parameters):
                raise fields.error_for(where, "the field 'FunctionName' is required but was missing")
        self.timeout_s = NumberField(fields, "TimeoutSeconds", 1)
        self.heartbeat_s = NumberField(fields, "HeartbeatSeconds", 1)
        if (self.heartbeat_s.value or 0) >= (self.timeout_s.value or math.inf):
            raise fields.error_for("HeartbeatSeconds", "must be smaller than TimeoutSeconds")
        self.credentials = Credentials(fields) if "Credentials" in fields else None
        self.events = TaskEvents(resource)
        fields.refuse_unread("a Task state")

    async def attempt(self, branch: Branch, data: Any) -> Any:
        """Make one call and return its result; raises StateError if it fails or times out."""
        pattern, token = self.resource.pattern, None
        if pattern == TOKEN or self.resource.is_activity:
            token = new_token(branch.execution.identity.arn, uuid4(branch.random))
        if pattern == TOKEN:
            branch.token = token
        pending = Pending(token, lambda: branch.is_alive) if pattern or token else None
        try:
            return await self._attempt(branch, data, pending)
        finally:
            branch.token = None
            if pending is not None:
                pending.close()

    async def _attempt(self, branch: Branch, data: Any, pending: Pending | None) -> Any:
        narrowed = self.flow.narrow_input(data, branch)
        timeout_s = _evaluate_seconds(self.timeout_s, data, narrowed, branch)
        heartbeat_s = _evaluate_seconds(self.heartbeat_s, data, narrowed, branch)
        parameters = self.flow.effective_input(data, branch)
        details: dict[str, Any] = {} if timeout_s is None else {"timeoutInSeconds": timeout_s}
        if heartbeat_s is not None:
            details["heartbeatInSeconds"] = heartbeat_s
        if self.credentials is not None:
            details["taskCredentials"] = self.credentials.details(data, narrowed, branch)
        if self.resource.is_activity and pending is not None:
            call = self._make_call(branch, data, parameters, timeout_s, pending)
            return await self._await_worker(branch, call, pending, details)
        self.events.add_scheduled(branch, branch.payload_text(parameters), details)
        self.events.add_started(branch)
        timers = TaskTimers(branch.clock, timeout_s, heartbeat_s)
        with _FailureRecorder(self.events, branch, timers):
            call = self._make_call(branch, data, parameters, timeout_s, pending)
            result, text = await self._await_result(branch, call, timers)
        self.events.add(branch, "Succeeded", payload_details("output", text))
        return result

    async def _await_worker(self, branch: Branch, call: TaskCall, pending: Pending, details: dict[str, Any]) -> Any:
        """Return the result of an activity, whose worker polls for the task and answers through its token."""
        try:
            await TaskTimers(branch.clock, None, None).wait(branch.execution.start_call(branch, call))
        except TaskFailure as problem:
            # For an activity that does not exist nothing is scheduled, and no Catcher is asked (recorded).
            raise EvaluationError(problem.cause or "") from None
        heartbeat_s = details.get("heartbeatInSeconds")
        timers = TaskTimers(branch.clock, details.get("timeoutInSeconds"), heartbeat_s, silent=True)

        def begun(worker: str | None) -> None:
            with contextlib.suppress(Halted):
                self.events.add_started(branch, worker)
            timers.heartbeat()

        self.events.add_scheduled(branch, branch.payload_text(call.parameters), details)
        pending.on_heartbeat = timers.heartbeat
        pending.when_started(begun)
        with _FailureRecorder(self.events, branch, timers):
            result, text = self._check_result_size(self._check_timeout(branch, await timers.wait(pending.outcome)))
        self.events.add(branch, "Succeeded", payload_details("output", text))
        return result

    async def _await_result(self, branch: Branch, call: TaskCall, timers: TaskTimers) -> tuple[Any, str]:
        """Return the result and its text; raises TaskFailure, or StateError if the event is already recorded."""
        pending = call.pending
        if pending is None:
            return self._wrap_answer(
                self._check_timeout(branch, await self._await_answer(branch, call, timers)), branch
            )
        pending.on_heartbeat = timers.heartbeat
        try:
            submitted = await self._await_answer(branch, call, timers)
            _, text = self._wrap_answer(self._check_timeout(branch, submitted), branch)
        except TaskFailure as problem:
            # "TaskSubmitFailed: … a task that failed to submit" (API reference, HistoryEvent); not recorded.
            self.events.add(branch, "SubmitFailed", failure_details(problem.error, problem.cause))
            raise problem.of_state() from None
        self.events.add(branch, "Submitted", payload_details("output", text))
        return self._check_result_size(self._check_timeout(branch, await timers.wait(pending.outcome)))

    async def _await_answer(self, branch: Branch, call: TaskCall, timers: TaskTimers) -> Any:
        """Return the answer; a call that no service takes fails with States.Runtime and without TaskFailed."""
        try:
            return await timers.wait(branch.execution.start_call(branch, call))
        except TaskFailure as problem:
            if problem.error == "States.Runtime" and call.function is None:
                raise EvaluationError(problem.cause or "") from None
            raise

    def _check_timeout(self, branch: Branch, answer: Any) -> Any:
        if answer is TIMED_OUT or answer is NO_HEARTBEAT:
            self.events.add(branch, "TimedOut", {"error": "States.Timeout"})
            raise HeartbeatMissed if answer is NO_HEARTBEAT else StateError("States.Timeout", None)
        return answer

    def _make_call(
        self, branch: Branch, data: Any, parameters: Any, timeout_s: int | None, pending: Pending | None
    ) -> TaskCall:
        resource, function, payload = self.resource, self.resource.function, parameters
        if resource.is_lambda_invoke:
            if not isinstance(parameters, dict) or not isinstance(parameters.get("FunctionName"), str):
                raise EvaluationError("The value of the field 'FunctionName' has an invalid format")
            function = function_name(parameters["FunctionName"])
            payload = payload_of(parameters)
        return TaskCall(
            resource=resource.text,
            service=resource.service,
            action=resource.action,
            sdk=resource.sdk,
            function=function,
            parameters=parameters,
            payload=payload if function else None,
            execution_arn=branch.execution.identity.arn,
            state=self.name,
            entered_ms=branch.entered_ms,
            timeout_ms=None if timeout_s is None else timeout_s * 1000,
            pattern=resource.pattern,
            pending=pending,
            attempt=1 + (branch.retries or 0),
            input=data,
        )

    def _wrap_answer(self, result: Any, branch: Branch) -> tuple[Any, str]:
        """Return the answer as the state sees it, and its text."""
        if self.resource.is_lambda_invoke and not isinstance(result, Whole):
            request_id = uuid4(branch.random)
            result = invoke_response(result, compact(result), request_id, http_date(branch.clock.now_ms()))
        return self._check_result_size(result)

    def _check_result_size(self, result: Any) -> tuple[Any, str]:
        """Return the result and its text; a result over the limit fails the Task.

        States.ALL catches this failure for a Lambda function (recorded), and for no other Task (Developer Guide, "Error
        names").
        """
        result, text = well_formed_with_text(result.value if isinstance(result, Whole) else result)
        if not is_within_limit(text):
            what = self.resource.text if self.resource.function else self.resource.type
            of_lambda = self.resource.is_lambda_invoke or self.resource.function is not None
            raise TaskFailure("States.DataLimitExceeded", too_large_cause(what), terminal=not of_lambda)
        return result, text


class _FailureRecorder:
    """Records a TaskFailure of its body and raises it as StateError; cancels the time-outs at its end."""

    __slots__ = ("_branch", "_events", "_timers")

    def __init__(self, events: "TaskEvents", branch: Branch, timers: TaskTimers) -> None:
        self._events, self._branch, self._timers = events, branch, timers

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        try:
            if isinstance(problem, TaskFailure):
                self._events.add(self._branch, "Failed", failure_details(problem.error, problem.cause))
                raise problem.of_state() from None
        finally:
            self._timers.cancel()


def _evaluate_seconds(limit: NumberField, data: Any, narrowed: Any, branch: Branch) -> int | None:
    value = limit.evaluate(data, narrowed, branch)
    if value is None and not limit.is_present:
        return None
    if value is MISSING and limit.path:
        limit.path.read(narrowed, branch)  # raises, in the words for an InputPath that leads nowhere
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 1 << 63:
        return value
    raise limit.refusal("cannot be parsed as a positive long value", value)


class Credentials:
    def __init__(self, fields: Fields) -> None:
        self._fill = compile_filler(fields, "Credentials", "Credentials")
        inner = fields.child_fields(fields.get("Credentials"), fields.pointer_of("Credentials"))
        role = {"RoleArn"} if fields.is_jsonata else {"RoleArn", "RoleArn.$"}
        if not any(name in inner for name in role):
            raise fields.error_for("Credentials", "The field 'RoleArn' is required but was missing")  # recorded
        for name in role:
            inner.string(name)
        inner.refuse_unread("Credentials")

    def details(self, raw: Any, narrowed: Any, branch: Branch) -> dict[str, Any]:
        """Return the role as a detail of TaskScheduled; {} if there is none."""
        credentials = self._fill(raw, narrowed, branch)
        if not isinstance(credentials["RoleArn"], str):
            raise EvaluationError(
                f"The value of the field 'RoleArn' has an invalid format: {compact(credentials['RoleArn'])}"
            )
        return {"roleArn": credentials["RoleArn"]}


class TaskEvents:
    """Adds the events of a Task's work, which differ for services, functions by their ARN, and activities."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._kind = "LambdaFunction" if resource.function else "Activity" if resource.is_activity else "Task"
        is_service = self._kind == "Task"
        self._resource_details = {"resourceType": resource.type, "resource": resource.name} if is_service else {}

    def add(self, branch: Branch, what: str, details: Mapping[str, Any]) -> None:
        """Add an event such as TaskSucceeded."""
        branch.add(f"{self._kind}{what}", {**self._resource_details, **details})

    def add_scheduled(self, branch: Branch, text: str, more: Mapping[str, Any]) -> None:
        """Add the event of the call, with its parameters as text."""
        if self._resource_details:
            self.add(branch, "Scheduled", {"region": branch.execution.identity.region, "parameters": text, **more})
        else:
            self.add(branch, "Scheduled", {"resource": self._resource.text, **payload_details("input", text), **more})

    def add_started(self, branch: Branch, worker: str | None = None) -> None:
        """Add the event that the work started; an activity starts when a worker takes it."""
        if self._kind == "LambdaFunction":
            branch.add("LambdaFunctionStarted")
        else:
            self.add(branch, "Started", {} if worker is None else {"workerName": worker})
