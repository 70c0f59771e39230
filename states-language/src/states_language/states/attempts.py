"""What Task and Parallel share: an attempt, its Retriers, its Catchers.

Decides that Retriers are used up before Catchers are asked, and that each new visit of the state counts afresh.
"""

from collections.abc import Iterator
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError, Oversized, QueryFailure, StateError
from states_language.jsonata.dataflow import QueryFlow
from states_language.jsonpath.dataflow import Dataflow, Flow
from states_language.limits import FEW, LARGEST_BETWEEN
from states_language.states.base import Flowing, Step
from states_language.states.retry import Attempts, caught, compile_catch, compile_retry
from states_language.values import weight


class Retrying(Flowing):
    """A state with Retry and Catch."""

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = self.compile_flow(fields)
        self.retriers = compile_retry(fields)
        self.catchers = compile_catch(fields)
        self.assigns = [*self.flow.assigns, *(each for catcher in self.catchers for each in catcher.assigns)]

    def compile_flow(self, fields: Fields) -> Flow:
        """Return what the state does with its data."""
        if fields.queries:
            return QueryFlow(fields, arguments=True, result=True)
        return Dataflow(fields, parameters=True, selector=True, result=True)

    async def attempt(self, branch: Branch, data: Any) -> Any:
        """Return the result of one attempt; raises StateError or EvaluationError."""
        raise TypeError(f"{type(self).__name__} has no attempt at {data} ({branch})")  # each such type has its own

    def failed(self, branch: Branch) -> None:
        """Return nothing; tell in the history that the state failed, where the type has an event for it."""

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return Next and the output, or a Catcher's Next and the error output; raises StateError if none catches."""
        attempts = Attempts(self.retriers)
        branch.retries = 0
        while True:
            done = told = False
            try:
                result = await self.attempt(branch, data)
                done = True
                _bound(result)
                return self.next, self.flow.finish(data, result, branch)
            except EvaluationError as problem:
                refusal = branch.refused(problem)
                if not isinstance(refusal, StateError):
                    raise refusal from None
                told = isinstance(problem, QueryFailure) and not done
                error = refusal
            except StateError as failure:
                told, error = True, failure
            delay_ms = attempts.next_delay_ms(error, branch.random)
            if delay_ms is None:
                break
            await branch.pause_ms(delay_ms)
            branch.retries = attempts.retries
            branch.execution.transitions += 1
        # A failure that is retried is not told: ParallelStateStarted alone is repeated (measured by others).
        if told:
            self.failed(branch)
        catcher = caught(self.catchers, error)
        if catcher is None:
            raise error
        try:
            return catcher.next, catcher.output(data, error, branch)
        except QueryFailure as problem:
            refusal = branch.refused(problem)
            self.failed(branch)
            raise refusal from None

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield the state of Next, and those of the Catchers."""
        yield from super().targets()
        for index, catcher in enumerate(self.catchers):
            yield catcher.next, f"{self.pointer}/Catch/{index}/Next"


def _bound(result: Any) -> None:
    """What branches or iterations gave is within the payload limit one by one; together they may be too large."""
    if isinstance(result, list) and len(result) > FEW and weight(result, {}) > LARGEST_BETWEEN:
        raise Oversized
