"""Completes Tasks later: by a task token, or at the end of the execution that states:startExecution.sync started.

Invariant: a Task is completed once; an answer after its end, its time-out or its execution's end is refused.
Source: AWS Step Functions Developer Guide, "Start a new AWS Step Functions workflow"; the failure's shape is recorded.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from states_language.clock import Clock, Timer
from states_language.failures import TaskFailure
from states_language.tasks.resources import SYNC_2
from states_language.values import compact

TIMED_OUT: Any = object()
NO_HEARTBEAT: Any = object()

_PREFIX = "task-token"


def new_token(execution_arn: str, number: str) -> str:
    """Return the token of one attempt; `number` makes it unique."""
    return base64.b64encode(f"{_PREFIX} {execution_arn} {number}".encode()).decode()


def is_token(text: str) -> bool:
    """Return whether the text has the form of a task token; its Task may no longer wait."""
    try:
        return base64.b64decode(text, validate=True).startswith(_PREFIX.encode() + b" ")
    except (binascii.Error, ValueError):
        return False


class Pending:
    """One attempt of a Task that completes later; `token` is $$.Task.Token, if it waits for one.

    goes_on: returns whether the Task's line of states goes on; a stopped execution closes its Tasks some passes later.
    """

    def __init__(self, token: str | None, goes_on: Callable[[], bool] = lambda: True) -> None:
        self.token = token
        self._goes_on = goes_on
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.on_heartbeat: Callable[[], object] | None = None
        self._on_start: Callable[[str | None], object] | None = None
        self._started: tuple[str | None] | None = None

    @property
    def open(self) -> bool:
        """Return whether the Task still waits for its result."""
        return not self.outcome.done() and self._goes_on()

    def succeed(self, result: Any) -> bool:
        """Complete the Task with a JSON value; return False if it was completed before."""
        if not self.open:
            return False
        self.outcome.set_result(result)
        return True

    def fail(self, error: str | None, cause: str | None) -> bool:
        """Fail the Task; both parts may be absent. Return False if it was completed before."""
        return self.succeed(TaskFailure(error, cause))

    def heartbeat(self) -> bool:
        """Restart the heartbeat time; return False if the Task no longer runs."""
        if self.open and self.on_heartbeat is not None:
            self.on_heartbeat()
        return self.open

    def start(self, worker: str | None) -> bool:
        """Record that a worker of this name has taken the activity; return False if the Task no longer waits."""
        if self.open:
            self._started = (worker,)
            if self._on_start is not None:
                self._on_start(worker)
        return self.open

    def when_started(self, callback: Callable[[str | None], object]) -> None:
        """Call back with the worker's name when the worker begins; at once if it has begun already."""
        self._on_start = callback
        if self._started is not None:
            callback(self._started[0])

    def crash(self, problem: BaseException | None) -> None:
        """Raise an exception of the answering code in the Task that waits; do nothing for None."""
        if problem is not None and self.open:
            self.outcome.set_exception(problem)

    def close(self) -> None:
        """Stop waiting."""
        self.outcome.cancel()


class TaskTimers:
    """The time-outs of a Task: in all, and from one heartbeat to the next; None for no time-out.

    silent: whether the heartbeat time begins only with the first `heartbeat`, because no worker has begun.
    """

    def __init__(self, clock: Clock, timeout_s: int | None, heartbeat_s: int | None, *, silent: bool = False) -> None:
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._future: asyncio.Future[Any] | None = None
        self._expired_with: Any = None
        self._timeout_timer = self._start_timer(timeout_s, TIMED_OUT)
        self._heartbeat_timer = None if silent else self._start_timer(heartbeat_s, NO_HEARTBEAT)

    async def wait(self, future: "asyncio.Future[Any]") -> Any:
        """Return the future's result, TIMED_OUT or NO_HEARTBEAT; raises the result if it is a TaskFailure."""
        self._future = future
        if self._expired_with is not None and not future.done():
            future.set_result(self._expired_with)
        answer = await future
        if isinstance(answer, TaskFailure):
            raise answer
        return answer

    def heartbeat(self) -> None:
        """Restart the heartbeat time."""
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
        self._heartbeat_timer = self._start_timer(self._heartbeat_s, NO_HEARTBEAT)

    def cancel(self) -> None:
        """Cancel both time-outs."""
        for timer in (self._timeout_timer, self._heartbeat_timer):
            if timer is not None:
                timer.cancel()

    def _start_timer(self, after_s: int | None, verdict: Any) -> Timer | None:
        if after_s is None:
            return None
        return self._clock.call_at(self._clock.now_ms() + after_s * 1000, lambda: self._expire(verdict))

    def _expire(self, verdict: Any) -> None:
        self._expired_with = verdict
        if self._future is not None and not self._future.done():
            self._future.set_result(verdict)


class TokenClosed(Exception):
    """No Task waits for this token any more."""


class TokenUnknown(Exception):
    """The text is not a task token."""


class Tokens:
    """The Tasks that wait for a token, and the three calls that a token's holder can make."""

    def __init__(self) -> None:
        self._waiting: dict[str, Pending] = {}

    def watch(self, pending: Pending | None) -> None:
        """Keep the Task by its token, if it waits for one, until it is completed."""
        if pending is not None and pending.token is not None:
            token = pending.token
            self._waiting[token] = pending
            pending.outcome.add_done_callback(lambda _: self._waiting.pop(token, None))

    def succeed(self, token: str, result: Any) -> None:
        """SendTaskSuccess with a JSON value. Raises TokenClosed or TokenUnknown."""
        self._require_accepted(self._find(token).succeed(result))

    def fail(self, token: str, error: str | None = None, cause: str | None = None) -> None:
        """SendTaskFailure. Raises TokenClosed or TokenUnknown."""
        self._require_accepted(self._find(token).fail(error, cause))

    def heartbeat(self, token: str) -> None:
        """SendTaskHeartbeat. Raises TokenClosed or TokenUnknown."""
        self._require_accepted(self._find(token).heartbeat())

    def check(self, token: str) -> None:
        """Raises TokenUnknown for a text that is not a task token."""
        if token not in self._waiting and not is_token(token):
            raise TokenUnknown

    def _find(self, token: str) -> Pending:
        if token in self._waiting:
            return self._waiting[token]
        raise TokenClosed if is_token(token) else TokenUnknown

    def _require_accepted(self, taken: bool) -> None:
        if not taken:
            raise TokenClosed


@dataclass(frozen=True)
class Ended:
    """An execution that has ended; `input` and `output` are JSON texts, times are milliseconds since 1970."""

    arn: str
    machine_arn: str
    name: str
    status: str
    input: str
    started_ms: int
    stopped_ms: int
    output: str | None = None
    error: str | None = None
    cause: str | None = None


def complete_from_execution(pending: Pending, pattern: str, ended: Ended) -> None:
    """Complete the Task that waits for the execution, with the execution's success or failure."""
    if ended.status == "SUCCEEDED":
        pending.succeed(_describe_execution(ended, parse=pattern == SYNC_2))
    else:
        # A failed execution's input is a text in both forms (measured by others).
        pending.fail("States.TaskFailed", compact(_describe_execution(ended, parse=False)))


def _describe_execution(ended: Ended, *, parse: bool) -> dict[str, Any]:
    result: dict[str, Any] = {
        "Cause": ended.cause,
        "Error": ended.error,
        "ExecutionArn": ended.arn,
        "Input": json.loads(ended.input) if parse else ended.input,
        "InputDetails": {"Included": True},
        "Name": ended.name,
    }
    if ended.output is not None:
        result["Output"] = json.loads(ended.output) if parse else ended.output
        result["OutputDetails"] = {"Included": True}
    result |= {
        "StartDate": ended.started_ms,
        "StateMachineArn": ended.machine_arn,
        "Status": ended.status,
        "StopDate": ended.stopped_ms,
    }
    return {name: value for name, value in result.items() if value is not None or name in ("Input", "Output")}
