"""Runs the attempts of a Task, Parallel or Map state, with Retry and Catch.

Catchers are asked once the Retriers are used up; each new visit of the state counts afresh.
"""

from collections.abc import Iterator
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError, Oversized, QueryFailure, StateError
from states_language.jsonata.query_flow import QueryFlow
from states_language.jsonpath.dataflow import Dataflow, Flow
from states_language.states.base import Flowing, Step
from states_language.states.retry import Attempts, caught, compile_catch, compile_retry
from states_language.values import FEW, LARGEST_BETWEEN, weight


class Retrying(Flowing):
    """A state with Retry and Catch."""

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = self.compile_flow(fields)
        self.retriers = compile_retry(fields)
        self.catchers = compile_catch(fields)
        self.assigns = [*self.flow.assigns, *(each for catcher in self.catchers for each in catcher.assigns)]

    def compile_flow(self, fields: Fields) -> Flow:
        """Return the state's data flow."""
        if fields.queries:
            return QueryFlow(fields, arguments=True, result=True)
        return Dataflow(fields, parameters=True, selector=True, result=True)

    async def attempt(self, branch: Branch, data: Any) -> Any:
        """Make one attempt and return its result; raises StateError or EvaluationError."""
        raise NotImplementedError(f"{type(self).__name__}.attempt({branch}, {data})")

    def failed(self, branch: Branch) -> None:
        """Add the event that the state failed, where its type has one."""

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return Next and the output, or a Catcher's Next and the error output; raises StateError if none catches."""
        attempts = Attempts(self.retriers)
        branch.retries = 0
        while True:
            done = failed = False
            try:
                result = await self.attempt(branch, data)
                done = True
                _bound(result)
                return self.next, self.flow.finish(data, result, branch)
            except EvaluationError as problem:
                refusal = branch.refused(problem)
                if not isinstance(refusal, StateError):
                    raise refusal from None
                failed = isinstance(problem, QueryFailure) and not done
                error = refusal
            except StateError as failure:
                failed, error = True, failure
            delay_ms = attempts.next_delay_ms(error, branch.random)
            if delay_ms is None:
                break
            await branch.pause_ms(delay_ms)
            branch.retries = attempts.retries
            branch.execution.transitions += 1
        # A retried failure has no event: ParallelStateStarted alone is repeated (measured by others).
        if failed:
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
    """Raise Oversized where outputs of branches or iterations, each within the payload limit, are too large in sum."""
    if isinstance(result, list) and len(result) > FEW and weight(result, {}) > LARGEST_BETWEEN:
        raise Oversized
