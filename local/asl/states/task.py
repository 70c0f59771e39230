"""The Task state: one unit of work that somebody else does.

Decides when the work is asked for, how long the answer is awaited and what the history says of it. Invariant: it never
cancels the work; after a time-out, a stop or a failing sibling it only stops listening.
"""

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from local.asl.calls import TaskCall, TaskFailure
from local.asl.check import Fields
from local.asl.dataflow import compiled
from local.asl.errors import EvaluationError, StateError
from local.asl.functions import compact
from local.asl.history import failure, fits, payload
from local.asl.jsonpath import MISSING, Path
from local.asl.limits import too_large
from local.asl.resources import Resource, function_name, payload_of, read_resource, wrapped
from local.asl.states.retrying import Retrying
from local.asl.timestamps import http_date
from local.clock import uuid4

if TYPE_CHECKING:
    from local.asl.branch import Branch

TIMED_OUT: Any = object()


class Task(Retrying):
    """A Task state."""

    type = "Task"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        fields.require("Resource")
        resource = read_resource(fields.string("Resource") or "")
        if isinstance(resource, str):
            raise fields.fail("Resource", resource)
        self.resource = resource
        if resource.invokes:
            given = fields.get("Parameters")
            if not isinstance(given, dict) or not {"FunctionName", "FunctionName.$"} & given.keys():
                raise fields.fail("Parameters", "the field 'FunctionName' is required but was missing")
        self.timeout_s = _seconds(fields, "TimeoutSeconds")
        self.heartbeat_s = _seconds(fields, "HeartbeatSeconds")
        if isinstance(self.timeout_s, int) and isinstance(self.heartbeat_s, int) and self.heartbeat_s >= self.timeout_s:
            raise fields.fail("HeartbeatSeconds", "must be smaller than TimeoutSeconds")
        self.voice = _FunctionEvents(resource) if resource.function else _ServiceEvents(resource)
        fields.close("a Task state")

    async def attempt(self, branch: "Branch", data: Any) -> Any:
        """Return the state's output after one call; raises StateError when it fails or its time-out passes."""
        narrowed = self.flow.narrowed(data, branch)
        timeout_s = _value("TimeoutSecondsPath", self.timeout_s, narrowed, branch)
        heartbeat_s = _value("HeartbeatSecondsPath", self.heartbeat_s, narrowed, branch)
        parameters = self.flow.effective(data, branch)
        limits = {"timeoutInSeconds": timeout_s, "heartbeatInSeconds": heartbeat_s}
        given = {name: value for name, value in limits.items() if value is not None}
        self.voice.scheduled(branch, branch.text(parameters), given)
        self.voice.started(branch)
        try:
            call = self._call(branch, parameters, timeout_s)
            # "If … more time than the specified heartbeat elapses between heartbeats from the task, then the
            # interpreter fails the state with a States.Timeout": a call that waits for its answer cannot send one.
            result = await _answer(branch, call, min(given.values(), default=None))
            if result is TIMED_OUT:
                self.voice.timed_out(branch)
                raise StateError("States.Timeout", None)
            result, text = self._sized(branch, result)
        except TaskFailure as problem:
            self.voice.failed(branch, problem.error, problem.cause)
            raise StateError(problem.error, problem.cause) from None
        self.voice.succeeded(branch, text)
        return self.flow.output(data, self.flow.selected(result, branch), branch)

    def _call(self, branch: "Branch", parameters: Any, timeout_s: int | None) -> TaskCall:
        resource, function, given = self.resource, self.resource.function, parameters
        if resource.invokes:
            if not isinstance(parameters, dict) or not isinstance(parameters.get("FunctionName"), str):
                raise EvaluationError("The value of the field 'FunctionName' has an invalid format")
            function = function_name(parameters["FunctionName"])
            given = payload_of(parameters)
        return TaskCall(
            resource=resource.text,
            service=resource.service,
            action=resource.action,
            sdk=resource.sdk,
            function=function,
            parameters=parameters,
            payload=given if function else None,
            execution_arn=branch.execution.arn,
            state=self.name,
            entered_ms=branch.entered_ms,
            timeout_ms=None if timeout_s is None else timeout_s * 1000,
        )

    def _sized(self, branch: "Branch", result: Any) -> tuple[Any, str]:
        """An answer over the payload limit fails the Task, and a Catcher of States.ALL sees it (recorded)."""
        text = compact(result)
        if self.resource.invokes:
            request_id = uuid4(branch.random)
            result = wrapped(result, text, request_id, http_date(branch.clock.now_ms()))
            text = compact(result)
        if not fits(text):
            what = self.resource.text if self.resource.function else self.resource.type
            raise TaskFailure("States.DataLimitExceeded", too_large(what))
        return result, text


async def _answer(branch: "Branch", call: TaskCall, limit_s: int | None) -> Any:
    """Return the work's answer, or TIMED_OUT after limit_s; raises TaskFailure."""
    execution = branch.execution
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    work = asyncio.ensure_future(execution.perform(call))
    execution.background.add(work)
    work.add_done_callback(functools.partial(execution.deliver, branch, answered))
    timer = None
    if limit_s is not None:
        due_ms = branch.clock.now_ms() + limit_s * 1000
        timer = branch.clock.call_at(due_ms, functools.partial(_expire, answered))
    try:
        answer = await answered
    finally:
        if timer is not None:
            timer.cancel()
    if isinstance(answer, TaskFailure):
        raise answer
    return answer


def _expire(answered: asyncio.Future[Any]) -> None:
    if not answered.done():
        answered.set_result(TIMED_OUT)


class _ServiceEvents:
    """TaskScheduled, TaskStarted and so on."""

    def __init__(self, resource: Resource) -> None:
        self.named = {"resourceType": resource.type, "resource": resource.action}

    def scheduled(self, branch: "Branch", text: str, limits: dict[str, int]) -> None:
        branch.add("TaskScheduled", {**self.named, "region": branch.execution.region, "parameters": text, **limits})

    def started(self, branch: "Branch") -> None:
        branch.add("TaskStarted", self.named)

    def succeeded(self, branch: "Branch", text: str) -> None:
        branch.add("TaskSucceeded", {**self.named, **payload("output", text)})

    def failed(self, branch: "Branch", error: str, cause: str | None) -> None:
        branch.add("TaskFailed", {**self.named, **failure(error, cause)})

    def timed_out(self, branch: "Branch") -> None:
        branch.add("TaskTimedOut", {**self.named, "error": "States.Timeout"})


class _FunctionEvents(_ServiceEvents):
    """LambdaFunctionScheduled and so on, for a function's own ARN."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self.arn = resource.text

    def scheduled(self, branch: "Branch", text: str, limits: dict[str, int]) -> None:
        branch.add("LambdaFunctionScheduled", {"resource": self.arn, **payload("input", text), **limits})

    def started(self, branch: "Branch") -> None:
        branch.add("LambdaFunctionStarted")

    def succeeded(self, branch: "Branch", text: str) -> None:
        branch.add("LambdaFunctionSucceeded", payload("output", text))

    def failed(self, branch: "Branch", error: str, cause: str | None) -> None:
        branch.add("LambdaFunctionFailed", failure(error, cause))

    def timed_out(self, branch: "Branch") -> None:
        branch.add("LambdaFunctionTimedOut", {"error": "States.Timeout"})


def _seconds(fields: Fields, name: str) -> int | Path | None:
    if fields.exclusive(name, name + "Path") == [name + "Path"]:
        return compiled(fields.get(name + "Path"), fields.at(name + "Path"), reference=True)
    return fields.integer(name, 1)


def _value(field: str, given: int | Path | None, data: Any, branch: "Branch") -> int | None:
    if given is None or isinstance(given, int):
        return given
    found = given.find(branch.context() if given.context else data)
    if found is MISSING:
        raise EvaluationError(f"The {field} parameter does not reference an input value: {given.text}")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise EvaluationError(
            f"The {field} parameter cannot be parsed as a positive long value: {given.text} == {found}"
        )
    return found
