"""Runs Lambda functions in this process, usually on the virtual clock.

Invariant: a killed function is never resumed, and none of its `except` and `finally` blocks runs, not even when the
process ends. (Cancelling would run them.)
"""

import asyncio
import ctypes
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

from states_language.clock import Clock, uuid4
from states_language.failures import TaskFailure
from states_language.tasks import stubs
from states_language.tasks.callbacks import Tokens
from states_language.tasks.calls import Perform, TaskCall
from states_language.tasks.lambda_answers import await_result, marshal_result, missing_function_failure, raised_failure
from states_language.tasks.resources import ACTIVITY, TOKEN
from states_language.values import compact, copy_json
from states_language.virtual_loop import owner

Function = Callable[[Any, Any], Any]
"""Called with the payload and a lambda_context; returns the result, or an awaitable of it."""

_RUNNING_TASKS: set[asyncio.Task[Any]] = set()
"""Tasks of functions that have not ended. Without this reference Python would close the coroutine and run `finally`."""
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_RUNNING_TASKS))  # keeps the set even while the interpreter shuts down


class LambdaContext:
    """The lambda_context of an invocation; the names are those of AWS's Python runtime.

    It also has the calling Task's state (its name), input (the state's) and attempt (from 1); None without a Task.
    """

    memory_limit_in_mb = "128"
    function_version = "$LATEST"

    def __init__(
        self, clock: Clock, name: str, request_id: str, deadline_ms: int, call: TaskCall | None = None
    ) -> None:
        self.function_name = name
        self.invoked_function_arn = f"arn:aws:lambda:us-east-1:111111111111:function:{name}"
        self.aws_request_id = request_id
        self.log_group_name = f"/aws/lambda/{name}"
        self.log_stream_name = request_id
        self.deadline_ms = deadline_ms
        self.clock = clock
        self.state = None if call is None else call.state
        self.input = None if call is None else call.input
        self.attempt = None if call is None else call.attempt

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds left until the function is killed, at least 0."""
        return max(0, self.deadline_ms - self.clock.now_ms())


class Invocation:
    """One run of a function; it owns all code that the function starts."""

    def __init__(self, name: str, request_id: str, answered: asyncio.Future[Any]) -> None:
        self.name = name
        self.request_id = request_id
        self.answered = answered
        self.killed = False

    def kill(self, error: str, message: str) -> None:
        """Stop the function for ever and fail its caller with the error."""
        if not self.answered.done():
            self.killed = True
            payload = {"errorType": error, "errorMessage": f"RequestId: {self.request_id} Error: {message}"}
            self.answered.set_result(TaskFailure(error, compact(payload)))


class Functions:
    """Virtual Lambda functions and prepared answers by name; a machine calls `perform`.

    An answer under a state's name answers all calls of the state; one under `service:action` answers these calls.

    function_timeout_s: after how long a function is killed. other: performs the calls of other services. tokens: the
    Tasks that wait for a token. running: invocations that have not ended, for tests that kill one.
    """

    def __init__(
        self,
        clock: Clock,
        functions: Mapping[str, stubs.Answer],
        *,
        function_timeout_s: float = 900,
        other: Perform | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self.clock = clock
        self.functions = functions
        self.function_timeout_s = function_timeout_s
        self.other = other
        self.tokens = tokens or Tokens()
        self.running: list[Invocation] = []
        self._turns: Counter[str] = Counter()

    async def perform(self, call: TaskCall) -> Any:
        """Return what the function returned; raises TaskFailure with AWS's Error and Cause."""
        self.tokens.watch(call.pending)
        name = stubs.answer_name(call, self.functions)
        if name not in self.functions and call.function is None:
            if self.other is None and call.service == ACTIVITY:
                raise TaskFailure("ActivityDoesNotExist", f"The activity {call.resource} does not exist.")
            if self.other is None:
                raise TaskFailure("States.TaskFailed", f"nothing here performs {call.resource}")
            return await self.other(call)
        if name not in self.functions:
            raise missing_function_failure(call, uuid4(self.clock.random))
        answer = self.next_answer(name)
        if call.pending is None or (call.pattern == TOKEN and callable(answer)):
            return await self.answer(name, answer, call)
        return await stubs.complete_pending(call, call.pending, self.answer(name, answer, call))

    def next_answer(self, name: str) -> stubs.Answer:
        """Return the answer under a name; of answers in turn, the next one."""
        answer = self.functions[name]
        if isinstance(answer, stubs.InTurn):
            self._turns[name] += 1
            return answer.answers[min(self._turns[name], len(answer.answers)) - 1]
        return answer

    async def answer(self, name: str, answer: stubs.Answer, call: TaskCall) -> Any:
        """Return an answer's result; raises TaskFailure, and LookupError if a Mock does not answer the attempt."""
        if not callable(answer) and not isinstance(answer, TaskFailure):
            return await stubs.behave(call, stubs.behaviour_of(answer, call), self.clock, self.function_timeout_s)
        if call.pending is not None and call.pattern != TOKEN:
            call.pending.start("function")
        if isinstance(answer, TaskFailure):
            raise TaskFailure(answer.error, answer.cause)
        return await self.invoke(name, answer, stubs.event_of(call), call)

    async def invoke(self, name: str, function: Function, payload: Any, call: TaskCall | None = None) -> Any:
        """Return the function's result, passed through JSON as AWS does; raises TaskFailure.

        call: the Task's call, which the lambda_context describes.
        """
        loop = asyncio.get_running_loop()
        invocation = Invocation(name, uuid4(self.clock.random), loop.create_future())
        limit_ms = round(self.function_timeout_s * 1000)
        deadline_ms = self.clock.now_ms() + limit_ms
        lambda_context = LambdaContext(self.clock, name, invocation.request_id, deadline_ms, call)
        context = copy_context()
        context.run(owner.set, invocation)
        work = loop.create_task(
            _run_function(invocation, function, copy_json(payload), lambda_context), context=context
        )
        _RUNNING_TASKS.add(work)
        work.add_done_callback(_RUNNING_TASKS.discard)
        message = f"Task timed out after {self.function_timeout_s:.2f} seconds"
        limit = self.clock.call_at(deadline_ms, lambda: invocation.kill(stubs.KILLED, message))
        self.running.append(invocation)
        try:
            answer = await invocation.answered
        finally:
            limit.cancel()
            self.running.remove(invocation)
        if isinstance(answer, TaskFailure):
            raise answer
        return answer


class StandIns(Functions):
    """Functions that answer any name: an unknown function answers its input, any other unknown call {}.

    unknown: called once with each unknown name.
    """

    def __init__(
        self, clock: Clock, functions: Mapping[str, stubs.Answer], unknown: Callable[[str], object] = lambda _name: None
    ) -> None:
        super().__init__(clock, functions)
        self.unknown = unknown

    async def perform(self, call: TaskCall) -> Any:
        """Return the answer; raises TaskFailure, and LookupError if a Mock does not answer the attempt."""
        name = stubs.answer_name(call, self.functions)
        if name not in self.functions:
            self.unknown(name)
            self.functions = {
                **self.functions,
                name: stubs.Behaviour() if call.function else stubs.Behaviour(answer={}),
            }
        return await super().perform(call)


async def _run_function(
    invocation: Invocation, function: Function, payload: Any, lambda_context: LambdaContext
) -> None:
    """Run the function and set the invocation's answer: its result, or its exception as AWS's runtime reports it."""
    try:
        result = function(payload, lambda_context)
        if inspect.isawaitable(result):
            result = await await_result(result)
        answer = marshal_result(result, invocation.request_id)
    except (SystemExit, asyncio.CancelledError, GeneratorExit) as left:
        # Each ends the runtime itself; only the function can have raised it here.
        status = left.code if isinstance(left, SystemExit) and isinstance(left.code, int) else 1
        error = f"Runtime exited with error: exit status {status}"
        invocation.kill("Runtime.ExitError", error)
        return
    except Exception as raised:
        answer = raised_failure(raised, invocation.request_id)
    if not invocation.answered.done():
        invocation.answered.set_result(answer)
