"""Functions and services that answer as they were told to, each time anew or in turn.

Decides what one call is answered with, and when. It does not know which machine calls, nor whether time is real.
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
from states_language.values import compact


class _Echo:
    """The answer that is what was given; it is named where a behaviour is shown."""

    def __repr__(self) -> str:
        return "ECHO"


ECHO: Any = _Echo()
YEAR_MS = 366 * 24 * 3600 * 1000


@dataclass(frozen=True)
class Behaviour:
    """One answer: a JSON value (ECHO: what was given), or an error, after delay_ms; or none at all (`never`)."""

    answer: Any = ECHO
    error: str | None = None
    cause: str | None = None
    delay_ms: int = 0
    never: bool = False


def key_of(call: TaskCall) -> str:
    """Return what a call is named by: the function's name, or service:action, or aws-sdk:service:action."""
    return call.function or f"{'aws-sdk:' if call.sdk else ''}{call.service}:{call.action}"


class Stubs:
    """What answers by name; each name's behaviours are used in turn, and the last repeats.

    A name without behaviours answers what it was given if it is a function, and {} if it is a service; `unknown` hears
    of each such name once. A function that never answers is killed after function_timeout_s, as AWS does.
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
        given = self.behaviours.get(name)
        self.calls[name] += 1
        if given:
            behaviour = given[min(self.calls[name], len(given)) - 1]
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
