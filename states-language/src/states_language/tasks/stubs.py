"""Answers calls of functions and services with prepared behaviours, the same each time or in turn.

Invariant: the same calls in the same order get the same answers, and an answer is a copy that the machine may keep.
"""

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


class Stubs:
    """Performs calls by name; each name's behaviours are used in turn, and the last repeats.

    A name without behaviours answers its input if it is a function, and {} if it is a service; `unknown` is called once
    with each such name. A function that never answers is killed after function_timeout_s, as AWS does.
    """

    def __init__(
        self,
        clock: Clock,
        behaviours: Mapping[str, Sequence[Behaviour]],
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
        name = key_of(call)
        behaviours = self.behaviours.get(name)
        self.calls[name] += 1
        if behaviours:
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
            return call.payload if call.function else call.parameters
        return copy.deepcopy(behaviour.answer)
