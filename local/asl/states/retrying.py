"""What Task and Parallel share: an attempt, its Retriers, its Catchers.

Decides that Retriers are used up before Catchers are asked, and that each new visit of the state counts afresh.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local.asl.check import Fields
from local.asl.dataflow import Dataflow
from local.asl.errors import EvaluationError, StateError
from local.asl.retry import Attempts, caught, compile_catch, compile_retry
from local.asl.states.base import Flowing, Step

if TYPE_CHECKING:
    from local.asl.branch import Branch


class Retrying(Flowing):
    """A state with Retry and Catch."""

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow = Dataflow(fields, parameters=True, selector=True, result=True)
        self.retriers = compile_retry(fields)
        self.catchers = compile_catch(fields)

    async def attempt(self, branch: "Branch", data: Any) -> Any:
        """Return the state's output after one attempt; raises StateError or EvaluationError."""
        raise TypeError(f"{type(self).__name__} has no attempt at {data} ({branch})")  # each such type has its own

    async def run(self, branch: "Branch", data: Any) -> Step:
        """Return Next and the output, or a Catcher's Next and the error output; raises StateError if none catches."""
        attempts = Attempts(self.retriers)
        branch.retries = 0
        while True:
            try:
                return self.next, await self.attempt(branch, data)
            except EvaluationError as problem:
                refusal = branch.refused(problem)
                if not isinstance(refusal, StateError):
                    raise refusal from None
                error = refusal
            except StateError as failure:
                error = failure
            delay_ms = attempts.next_delay_ms(error, branch.random)
            if delay_ms is None:
                break
            await branch.pause_ms(delay_ms)
            branch.retries = attempts.retries
            branch.execution.transitions += 1
        catcher = caught(self.catchers, error)
        if catcher is None:
            raise error
        return catcher.next, catcher.output(data, error)

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield the state of Next, and those of the Catchers."""
        yield from super().targets()
        for index, catcher in enumerate(self.catchers):
            yield catcher.next, f"{self.pointer}/Catch/{index}/Next"
