"""Runs a distributed Map: each item, or batch of items, is an execution of its own.

It bounds how many run at once, names them, counts failures, and adds four events to the history of the parent
execution, however many items there are. Invariant: when it ends or is aborted, none of its executions runs on.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from states_language.branch import Branch
from states_language.clock import uuid4
from states_language.definition.fields import Fields
from states_language.distributed.item_batcher import Batcher
from states_language.distributed.item_reader import Reader
from states_language.distributed.report import MapRunReport
from states_language.distributed.result_writer import Writer
from states_language.execution import Execution
from states_language.failures import EvaluationError, StateError
from states_language.history import failure
from states_language.machine import Machine
from states_language.states.amounts import Amount
from states_language.states.iterations import ItemEnvironment

MOST_AT_ONCE = 10_000
"""Executions of one run at a time, whatever MaxConcurrency says (Developer Guide)."""

THRESHOLD = "States.ExceedToleratedFailureThreshold"
THRESHOLD_CAUSE = "The specified tolerated failure threshold was exceeded"


class Tolerance:
    """How many items may fail: ToleratedFailureCount and ToleratedFailurePercentage; none where both are absent."""

    def __init__(self, fields: Fields) -> None:
        self._count = Amount(fields, "ToleratedFailureCount", 0)
        self._share = Amount(fields, "ToleratedFailurePercentage", 0, 100, whole=False)

    def numbers(self, raw: Any, narrowed: Any, branch: Branch) -> tuple[float | None, float | None]:
        """Return the count and the percentage that may fail; None for an absent one."""
        count = self._count.bounded(raw, narrowed, branch, whole=True)
        return count, self._share.bounded(raw, narrowed, branch, whole=False, most=100)

    def find(self, raw: Any, narrowed: Any, branch: Branch) -> Callable[[int, int], bool]:
        """Return the function that decides whether so many failures among so many items are too many."""
        count, share = self.numbers(raw, narrowed, branch)
        if count is None and share is None:
            return lambda failed, _total: failed > 0
        # "If you specify both …, the Map Run fails when either threshold is exceeded" (Developer Guide)
        return lambda failed, total: (
            (count is not None and failed > count) or (share is not None and failed * 100 > share * total)
        )


@dataclass(frozen=True)
class Distribution:
    """The fields of a distributed Map. machine: what each execution runs."""

    machine: Machine
    label: str | None
    tolerance: Tolerance
    reader: Reader | None
    batcher: Batcher | None
    writer: Writer | None


class MapRun:
    """One attempt of a distributed Map, with its report."""

    def __init__(self, distribution: Distribution, branch: Branch, raw: Any, narrowed: Any, at_once: int) -> None:
        self.distribution = distribution
        self.branch = branch
        self.at_once = min(at_once or MOST_AT_ONCE, MOST_AT_ONCE)
        self.raw, self.narrowed = raw, narrowed
        above = branch.execution.identity
        self.too_many = distribution.tolerance.find(raw, narrowed, branch)
        count, percentage = distribution.tolerance.numbers(raw, narrowed, branch)
        reader = distribution.reader
        self.most_items = reader.most(raw, narrowed, branch) if reader else None
        label = distribution.label or uuid4(branch.random)
        name = uuid4(branch.random)
        prefix = above.machine_arn.rpartition(":stateMachine:")[0]
        machine_name = f"{above.machine_name}/{label}"
        self.report = MapRunReport(
            name=name,
            arn=f"{prefix}:mapRun:{machine_name}:{name}",
            machine_name=machine_name,
            machine_arn=f"{prefix}:stateMachine:{machine_name}",
            max_concurrency=at_once,
            tolerated_count=count,
            tolerated_percentage=percentage,
            batched=distribution.batcher is not None,
            started_ms=branch.clock.now_ms(),
        )
        branch.execution.map_runs.append(self.report)

    async def run(self, items: list[Any], select: Callable[[Any, Any], Any]) -> Any:
        """Return the outputs, the ResultWriter's result, or, not raised, the StateError of a run that failed."""
        branch, parts = self.branch, self.distribution
        branch.add("MapRunStarted", {"mapRunArn": self.report.arn})
        branch.children = [self]
        try:
            if parts.reader is not None:
                items = await parts.reader.read(self.raw, self.narrowed, branch, self.most_items)
            chosen = [select(ItemEnvironment(branch, index, item), item) for index, item in enumerate(items)]
            batches = [(item, 1) for item in chosen]
            if parts.batcher is not None:
                batches = parts.batcher.batches(chosen, self.raw, self.narrowed, branch)
            self.report.total = len(items)
            outputs = await self._all(batches)
            if parts.writer is not None:
                outputs = await parts.writer.write(self.report, self.raw, self.narrowed, branch)
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
        if self.too_many(self.report.failed, self.report.total):
            raise StateError(THRESHOLD, THRESHOLD_CAUSE)
        # A tolerated failure has no output. (Each output is in a tuple, because null is one.)
        return [output[0] for output in outputs if output is not None]

    async def _work(self, waiting: Iterator[tuple[int, tuple[Any, int]]], outputs: list[Any]) -> None:
        for index, (data, size) in waiting:
            execution = self._start(data)
            await execution.wait()
            if execution.status == "SUCCEEDED":
                outputs[index] = (execution.output,)
            else:
                self.report.failed += size
            if self.too_many(self.report.failed, self.report.total):
                self.kill()
                return

    def _start(self, data: Any) -> Execution:
        above = self.branch.execution
        execution = self.distribution.machine.start(
            data,
            clock=above.clock,
            perform=above.perform,
            name=uuid4(self.branch.random),
            machine_name=self.report.machine_name,
            machine_arn=self.report.machine_arn,
            role_arn=above.identity.role_arn,
            latencies=above.latencies,
            lanes=above.lanes,
        )
        self.report.executions.append(execution)
        return execution

    def _end(self, status: str) -> None:
        self.report.status = status
        self.report.stopped_ms = self.branch.clock.now_ms()

    # ---- abortion, as a child of the branch ----

    def abort_state(self, previous_id: int) -> None:
        """Add MapRunAborted."""
        self.branch.aside("MapRunAborted", previous_id=previous_id)

    def kill(self) -> None:
        """Abort the executions that still run."""
        if self.report.status == "RUNNING" and self.branch.dead:
            self._end("ABORTED")
        for execution in self.report.executions:
            execution.stop()
