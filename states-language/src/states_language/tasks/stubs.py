"""Answers calls of functions and services with prepared behaviours, the same each time or in turn.

Invariant: the same calls in the same order get the same answers, and each answer is a copy that the machine may keep.
"""

import asyncio
import copy
from collections.abc import Container, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from states_language.clock import Clock
from states_language.failures import TaskFailure
from states_language.tasks.callbacks import Pending
from states_language.tasks.calls import TaskCall
from states_language.tasks.resources import ACTIVITY
from states_language.values import compact


class _Echo:
    """The answer that equals the input; its repr is ECHO."""

    def __repr__(self) -> str:
        return "ECHO"


ECHO: Any = _Echo()
KILLED = "Sandbox.Timedout"
"""The error of a function that was killed because it took too long."""
YEAR_MS = 366 * 24 * 3600 * 1000
"""Longer than any execution lives."""


@dataclass(frozen=True)
class Behaviour:
    """One answer after delay_ms: a JSON value (ECHO: the input) or an error; with `never`, no answer."""

    answer: Any = ECHO
    error: str | None = None
    cause: str | None = None
    delay_ms: int = 0
    never: bool = False


@dataclass(frozen=True)
class Mock:
    """A mocked response: a behaviour for each range of attempts, from 0."""

    name: str
    attempts: Mapping[range, Behaviour]

    def behaviour(self, call: TaskCall) -> Behaviour:
        """Return the behaviour for the attempt of a call; raises LookupError if there is none."""
        for attempts, behaviour in self.attempts.items():
            if call.attempt - 1 in attempts:
                return behaviour
        there = ", ".join(map(format_attempts, self.attempts))
        raise LookupError(
            f"'{call.state}' makes attempt {call.attempt - 1}, and the response '{self.name}' has {there}"
        )


def format_attempts(attempts: range) -> str:
    """Return a range of attempts in the form of the file: 0 or 1-2."""
    return str(attempts.start) if len(attempts) == 1 else f"{attempts.start}-{attempts.stop - 1}"


Answer = Any
"""A JSON value, a callable(payload, context), a TaskFailure, a Behaviour, several of them `in_turn`, or a Mock."""


@dataclass(frozen=True)
class InTurn:
    """Answers of one function, one for each call; the last repeats."""

    answers: tuple[Answer, ...]


def in_turn(*answers: Answer) -> InTurn:
    """Return an answer that gives each call the next of these answers; the last one repeats."""
    if not answers:
        raise ValueError("in_turn needs at least one answer")
    return InTurn(answers)


def behaviour_of(answer: Answer, call: TaskCall) -> Behaviour:
    """Return the behaviour of a value, a Behaviour or a Mock; raises LookupError as `Mock.behaviour` does."""
    if isinstance(answer, Mock):
        return answer.behaviour(call)
    return answer if isinstance(answer, Behaviour) else Behaviour(answer=answer)


def key_of(call: TaskCall) -> str:
    """Return the name of a call: the function's name, service:action, aws-sdk:service:action or activity:name."""
    if call.service == ACTIVITY:
        return f"{ACTIVITY}:{call.resource.rpartition(':')[2]}"
    return call.function or f"{'aws-sdk:' if call.sdk else ''}{call.service}:{call.action}"


def event_of(call: TaskCall) -> Any:
    """Return the data of a call: a function's payload, or the parameters of another service."""
    return call.payload if call.function else call.parameters


def answer_name(call: TaskCall, names: Container[str]) -> str:
    """Return the name under which a call is answered: its state's if it is among the names, otherwise `key_of`."""
    return call.state if call.state in names else key_of(call)


_WORKERS: set[asyncio.Task[None]] = set()


async def complete_pending(call: TaskCall, pending: Pending, answer: Coroutine[Any, Any, Any]) -> dict[str, Any]:
    """Complete a Task that waits with this answer, and return the answer of the call itself.

    An activity's worker answers later: the Task is scheduled first, and its time-outs count meanwhile.
    """

    async def work() -> None:
        try:
            pending.succeed(await answer)
        except TaskFailure as failure:
            if failure.error == KILLED and call.function:
                raise
            pending.fail(failure.error, failure.cause)

    if call.service != ACTIVITY:
        await work()
        return {}
    worker = asyncio.get_running_loop().create_task(work())
    _WORKERS.add(worker)
    worker.add_done_callback(_WORKERS.discard)
    worker.add_done_callback(lambda ended: None if ended.cancelled() else pending.crash(ended.exception()))
    return {}


async def behave(call: TaskCall, behaviour: Behaviour, clock: Clock, function_timeout_s: float) -> Any:
    """Return the behaviour's answer after its delay; raises TaskFailure.

    A function that never answers is killed after function_timeout_s, as AWS does.
    """
    if call.pending is not None and not behaviour.never:  # where an activity is never answered, nobody polls
        call.pending.start("worker")
    limit_ms = round(function_timeout_s * 1000) if call.function else YEAR_MS
    delay_ms = YEAR_MS if behaviour.never else behaviour.delay_ms
    if delay_ms > 0:
        await clock.sleep_until(clock.now_ms() + min(delay_ms, limit_ms))
    if delay_ms >= limit_ms:
        message = f"Error: Task timed out after {function_timeout_s:.2f} seconds"
        raise TaskFailure(KILLED, compact({"errorType": KILLED, "errorMessage": message}))
    if behaviour.error is not None:
        raise TaskFailure(behaviour.error, behaviour.cause)
    if behaviour.answer is ECHO:
        return event_of(call)
    return copy.deepcopy(behaviour.answer)
