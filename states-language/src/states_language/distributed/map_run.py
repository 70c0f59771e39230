"""Runs a distributed Map: each item, or batch of items, is an execution of its own.

It bounds how many run at once, names them, counts failures, and adds four events to the history of the parent
execution, however many items there are. Its bounds may change while it runs. Invariant: when it ends or is aborted,
none of its executions runs on.
"""

import asyncio
from collections.abc import Callable
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
        self.raw, self.narrowed = raw, narrowed
        above = branch.execution.identity
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
            changed=self._changed,
        )
        self._batches: list[tuple[Any, int]] = []
        self._outputs: list[Any] = []
        self._workers: set[asyncio.Task[None]] = set()
        self._running = 0
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
        self._batches, self._outputs = batches, [None] * len(batches)
        try:
            self._add_workers()
            while self._workers:
                ended, _ = await asyncio.wait(self._workers, return_when=asyncio.FIRST_COMPLETED)
                self._workers -= ended
                for worker in ended:
                    worker.result()
        finally:
            for worker in self._workers:
                worker.cancel()
        if self.report.too_many:
            raise StateError(THRESHOLD, THRESHOLD_CAUSE)
        # A tolerated failure has no output. (Each output is in a tuple, because null is one.)
        return [output[0] for output in self._outputs if output is not None]

    @property
    def _at_once(self) -> int:
        return min(self.report.max_concurrency or MOST_AT_ONCE, MOST_AT_ONCE)

    def _add_workers(self) -> None:
        waiting = len(self._batches) - len(self.report.executions)
        working = sum(not worker.done() for worker in self._workers)
        for _ in range(min(self._at_once - working, waiting)):
            self._workers.add(asyncio.get_running_loop().create_task(self._work()))

    def _changed(self) -> None:
        if self.report.too_many:
            self.kill()
        elif self._workers:
            self._add_workers()

    async def _work(self) -> None:
        report = self.report
        # Executions begin in the order of the items, so their number is the place of the next.
        while not report.too_many and self._running < self._at_once and len(report.executions) < len(self._batches):
            index = len(report.executions)
            data, size = self._batches[index]
            execution = self._start(data)
            self._running += 1
            await execution.wait()
            self._running -= 1
            if execution.status == "SUCCEEDED":
                self._outputs[index] = (execution.output,)
            else:
                report.failed += size
            if report.too_many:
                self.kill()

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
