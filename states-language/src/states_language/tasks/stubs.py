"""Answers calls of functions and services with prepared behaviours, the same each time or in turn.

Invariant: the same calls in the same order get the same answers, and an answer is a copy that the machine may keep.
"""

import copy
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from states_language.clock import Clock
from states_language.failures import TaskFailure
from states_language.tasks.calls import TaskCall
from states_language.tasks.resources import ACTIVITY
from states_language.values import compact


class _Echo:
    """The answer that equals the input; its repr is ECHO."""

    def __repr__(self) -> str:
        return "ECHO"


ECHO: Any = _Echo()
YEAR_MS = 366 * 24 * 3600 * 1000


@dataclass(frozen=True)
class Behaviour:
    """One answer: a JSON value (ECHO: the input), or an error, after delay_ms; or none at all (`never`)."""

    answer: Any = ECHO
    error: str | None = None
    cause: str | None = None
    delay_ms: int = 0
    never: bool = False


def key_of(call: TaskCall) -> str:
    """Return the name of a call: the function's name, service:action, aws-sdk:service:action or activity:name."""
    if call.service == ACTIVITY:
        return f"{ACTIVITY}:{call.resource.rpartition(':')[2]}"
    return call.function or f"{'aws-sdk:' if call.sdk else ''}{call.service}:{call.action}"


def event_of(call: TaskCall) -> Any:
    """Return what a call passes on: a function's payload, or the parameters of another service."""
    return call.payload if call.function else call.parameters


def named(call: TaskCall, names: Container[str]) -> str:
    """Return by which of the names a call is answered: by its state's where that is among them, else by `key_of`."""
    return call.state if call.state in names else key_of(call)


class Mocked(Protocol):
    """Answers the attempts of a state, each by its number."""

    def behaviour(self, call: TaskCall) -> Behaviour:
        """Return the behaviour for the attempt; raises LookupError where there is none."""


class Stubs:
    """Performs calls by name or by state; each name's behaviours are used in turn, and the last repeats.

    A name without behaviours answers its input if it is a function, and {} if it is a service; `unknown` is called once
    with each such name. A function that never answers is killed after function_timeout_s, as AWS does.
    """

    def __init__(
        self,
        clock: Clock,
        behaviours: Mapping[str, Sequence[Behaviour] | Mocked],
        *,
        function_timeout_s: float = 900,
        unknown: Callable[[str], object] | None = None,
    ) -> None:
        self.clock = clock
        self.behaviours = behaviours
        self.function_timeout_s = function_timeout_s
        self.unknown = unknown or (lambda _name: None)
        self.calls: Counter[str] = Counter()

    async def perform(self, call: TaskCall) -> Any:
        """Return the answer; raises TaskFailure. A call that is answered later is answered by its `pending`."""
        name = named(call, self.behaviours)
        behaviours = self.behaviours.get(name)
        self.calls[name] += 1
        if behaviours is not None and not isinstance(behaviours, Sequence):
            behaviour = behaviours.behaviour(call)
        elif behaviours:
            behaviour = behaviours[min(self.calls[name], len(behaviours)) - 1]
        else:
            behaviour = Behaviour() if call.function else Behaviour(answer={})
            if self.calls[name] == 1:
                self.unknown(name)
        try:
            answer = await self.answer(call, behaviour)
        except TaskFailure as failure:
            if call.pending is None or failure.error == "Sandbox.Timedout":
                raise
            call.pending.fail(failure.error, failure.cause)
            return {}
        if call.pending is not None:
            call.pending.succeed(answer)
            return {}
        return answer

    async def answer(self, call: TaskCall, behaviour: Behaviour) -> Any:
        """Return the answer that the behaviour says, when it says; raises TaskFailure."""
        limit_ms = round(self.function_timeout_s * 1000) if call.function else YEAR_MS
        delay_ms = YEAR_MS if behaviour.never else behaviour.delay_ms
        if delay_ms > 0:
            await self.clock.sleep_until(self.clock.now_ms() + min(delay_ms, limit_ms))
        if delay_ms >= limit_ms:
            message = f"Error: Task timed out after {self.function_timeout_s:.2f} seconds"
            raise TaskFailure("Sandbox.Timedout", compact({"errorType": "Sandbox.Timedout", "errorMessage": message}))
        if behaviour.error is not None:
            raise TaskFailure(behaviour.error, behaviour.cause)
        if behaviour.answer is ECHO:
            return event_of(call)
        return copy.deepcopy(behaviour.answer)
