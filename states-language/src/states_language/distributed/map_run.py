"""The run of a distributed Map: each item, or batch of items, is an execution of its own.

Decides how many of them run at once, what they are called, how many may fail, and what the history of the execution
above says of it all, which is four events however many items there are. Invariant: when it ends, or is cut off, none
of its executions runs on.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from states_language.clock import uuid4
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError, StateError
from states_language.history import failure
from states_language.states.amounts import Amount
from states_language.states.iterations import ItemSight

if TYPE_CHECKING:
    from states_language.branch import Branch
    from states_language.execution import Execution
    from states_language.states.map_ import Map

MOST_AT_ONCE = 10_000
"""Executions of one run at a time, whatever MaxConcurrency says (Developer Guide)."""

THRESHOLD = "States.ExceedToleratedFailureThreshold"
THRESHOLD_CAUSE = "The specified tolerated failure threshold was exceeded"


class Tolerance:
    """How many items may fail, as the definition says it; without a word, none."""

    def __init__(self, fields: Fields) -> None:
        self._count = Amount(fields, "ToleratedFailureCount", 0)
        self._share = Amount(fields, "ToleratedFailurePercentage", 0, 100, whole=False)

    def numbers(self, raw: Any, narrowed: Any, branch: "Branch") -> tuple[float | None, float | None]:
        """Return how many may fail, and how many of a hundred; None where the definition does not say."""
        count = self._count.bounded(raw, narrowed, branch, whole=True)
        return count, self._share.bounded(raw, narrowed, branch, whole=False, most=100)

    def find(self, raw: Any, narrowed: Any, branch: "Branch") -> Callable[[int, int], bool]:
        """Return the function that says whether so many failures among so many items are too many."""
        count, share = self.numbers(raw, narrowed, branch)
        if count is None and share is None:
            return lambda failed, _total: failed > 0
        # "If you specify both …, the Map Run fails when either threshold is exceeded" (Developer Guide)
        return lambda failed, total: (
            (count is not None and failed > count) or (share is not None and failed * 100 > share * total)
        )


class MapRun:
    """One attempt of a distributed Map. arn, status, started_ms, stopped_ms, executions: as ListMapRuns tells them."""

    def __init__(self, state: "Map", branch: "Branch", raw: Any, narrowed: Any, at_once: int) -> None:
        self.state = state
        self.branch = branch
        self.at_once = min(at_once or MOST_AT_ONCE, MOST_AT_ONCE)
        self.max_concurrency = at_once
        self.raw, self.narrowed = raw, narrowed
        above = branch.execution
        self.too_many = state.tolerance.find(raw, narrowed, branch)
        self.tolerated = state.tolerance.numbers(raw, narrowed, branch)
        self.most_items = state.reader.most(raw, narrowed, branch) if state.reader else None
        self.label = state.label or uuid4(branch.random)
        self.name = uuid4(branch.random)
        prefix = above.machine_arn.rpartition(":stateMachine:")[0]
        self.machine_name = f"{above.machine_name}/{self.label}"
        self.machine_arn = f"{prefix}:stateMachine:{self.machine_name}"
        self.arn = f"{prefix}:mapRun:{self.machine_name}:{self.name}"
        self.status = "RUNNING"
        self.started_ms = branch.clock.now_ms()
        self.stopped_ms: int | None = None
        self.executions: list[Execution] = []
        self.total = 0
        self.failed = 0
        above.map_runs.append(self)

    async def run(self, items: list[Any], select: Callable[[Any, Any], Any]) -> Any:
        """Return the outputs, or what was written of them; a StateError, returned, says why the run failed."""
        branch, state = self.branch, self.state
        branch.add("MapRunStarted", {"mapRunArn": self.arn})
        branch.children = [self]
        try:
            if state.reader is not None:
                items = await state.reader.read(self.raw, self.narrowed, branch, self.most_items)
            chosen = [select(ItemSight(branch, index, item), item) for index, item in enumerate(items)]
            batches = [(item, 1) for item in chosen]
            if state.batcher is not None:
                batches = state.batcher.batches(chosen, self.raw, self.narrowed, branch)
            self.total = len(items)
            outputs = await self._all(batches)
            if state.writer is not None:
                outputs = await state.writer.write(self, self.raw, self.narrowed, branch)
        except (StateError, EvaluationError) as problem:
            self._end("FAILED")
            refusal = branch.refused(problem) if isinstance(problem, EvaluationError) else problem
            if not isinstance(refusal, StateError):
                raise refusal from None
            branch.add("MapRunFailed", failure(refusal.error, refusal.cause))
            return refusal
        self._end("SUCCEEDED")
        branch.add("MapRunSucceeded")
        return outputs

    async def _all(self, batches: list[tuple[Any, int]]) -> list[Any]:
        outputs: list[Any] = [None] * len(batches)
        waiting = iter(enumerate(batches))
        workers = [self._work(waiting, outputs) for _ in range(min(self.at_once, len(batches)))]
        await asyncio.gather(*workers)
        if self.too_many(self.failed, self.total):
            raise StateError(THRESHOLD, THRESHOLD_CAUSE)
        # What failed and was tolerated has no output. (Each output is wrapped, for null is one.)
        return [output[0] for output in outputs if output is not None]

    async def _work(self, waiting: Iterator[tuple[int, tuple[Any, int]]], outputs: list[Any]) -> None:
        for index, (data, size) in waiting:
            execution = self._start(data)
            await execution.wait()
            if execution.status == "SUCCEEDED":
                outputs[index] = (execution.output,)
            else:
                self.failed += size
            if self.too_many(self.failed, self.total):
                self.kill()
                return

    def _start(self, data: Any) -> "Execution":
        above = self.branch.execution
        execution = self.state.machine.start(
            data,
            clock=above.clock,
            perform=above.perform,
            name=uuid4(self.branch.random),
            machine_name=self.machine_name,
            machine_arn=self.machine_arn,
            role_arn=above.role_arn,
            latencies=above.latencies,
        )
        self.executions.append(execution)
        return execution

    def _end(self, status: str) -> None:
        self.status = status
        self.stopped_ms = self.branch.clock.now_ms()

    # ---- as what runs below a branch ----

    def abort_state(self, previous_id: int) -> None:
        """Return nothing; AWS has an event for a run that is aborted."""
        self.branch.aside("MapRunAborted", previous_id=previous_id)

    def kill(self) -> None:
        """Return nothing; the executions that still run are aborted."""
        if self.status == "RUNNING" and self.branch.dead:
            self._end("ABORTED")
        for execution in self.executions:
            execution.stop()
