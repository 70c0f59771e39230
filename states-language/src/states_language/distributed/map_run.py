"""Runs a distributed Map: each item, or batch of items, is an execution of its own.

It adds four events to the history of the parent execution, however many items there are. A redrive of the parent runs
the executions again that had not succeeded, under the same names. Invariant: when the Map Run ends or is aborted, none
of its executions runs on.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from states_language.branch import Branch
from states_language.clock import uuid4
from states_language.distributed.report import FormerExecution, MapRunReport, unwind_some
from states_language.distributed.result_writer import Distribution
from states_language.execution import Execution
from states_language.failures import EvaluationError, StateError
from states_language.history import failure_details
from states_language.place import MAP_RUN, Redriven, Within
from states_language.scheduling.lanes import BATCH_SIZE, take_turn
from states_language.states.iterations import Items, item_environment

MOST_AT_ONCE = 10_000
"""How many executions of one run go on at a time at most, whatever MaxConcurrency says (Developer Guide)."""

RECORDED_AT_ONCE = 200
"""How many executions' places a stopped run records in one pass of the event loop: a millisecond's work."""

MOST_REDRIVES = 1000
"""How often one run can be redriven (Developer Guide)."""

ERRORS_OF_NEW_RUN = ("States.DataLimitExceeded", "States.Runtime")
"""If a run ended with one of these errors, a redrive starts another Map Run (Developer Guide)."""

BOUNDS = ("max_concurrency", "tolerated_count", "tolerated_percentage")
KEPT_FIELDS = ("name", "arn", "machine_name", "machine_arn", "started_ms", "total", *BOUNDS)
"""The fields of a report that a redrive keeps."""

THRESHOLD = "States.ExceedToleratedFailureThreshold"
THRESHOLD_CAUSE = "The specified tolerated failure threshold was exceeded"


class MapRun:
    """One attempt of a distributed Map, with its report. within: for a redrive, where the earlier attempt stood."""

    def __init__(
        self,
        distribution: Distribution,
        branch: Branch,
        raw: Any,
        narrowed: Any,
        max_concurrency: int,
        within: Within | None = None,
    ) -> None:
        self.distribution, self.branch = distribution, branch
        self.raw, self.narrowed = raw, narrowed
        reader = distribution.reader
        self.most_items = reader.max_items(raw, narrowed, branch) if reader else None
        former = (within or {}).get(MAP_RUN)
        self.report = self._make_report(max_concurrency) if former is None else self._renew_report(former)
        if within is not None:
            branch.last_id = within["last_id"]
        self._began_id = branch.last_id
        self._batches: list[tuple[Any, int]] | None = None
        self._waiting_indices: deque[int] = deque()
        self._execution_records: list[dict[str, Any]] | None = None
        self._is_begin_scheduled = self._is_unwinding = False
        if former is not None and former["batches"] is not None:
            self._batches = [(data, size) for data, size in former["batches"]]
            self.report.executions = [
                FormerExecution(kept, self.report.machine_arn, data)
                for kept, (data, _) in zip(former["executions"], self._batches, strict=False)
            ]
        branch.execution.map_runs.append(self.report)

    def _make_report(self, max_concurrency: int) -> MapRunReport:
        branch, distribution, raw, narrowed = self.branch, self.distribution, self.raw, self.narrowed
        count = distribution.tolerated_count.evaluate_number(raw, narrowed, branch)
        percentage = distribution.tolerated_share.evaluate_number(raw, narrowed, branch, most=100)
        label = distribution.label or uuid4(branch.random)
        name = uuid4(branch.random)
        above = branch.execution.identity
        machine_name = f"{above.machine_name}/{label}"
        prefix = above.machine_arn.rpartition(":stateMachine:")[0]
        return MapRunReport(
            name=name,
            arn=f"{prefix}:mapRun:{machine_name}:{name}",
            machine_name=machine_name,
            machine_arn=f"{prefix}:stateMachine:{machine_name}",
            max_concurrency=max_concurrency,
            tolerated_count=count,
            tolerated_percentage=percentage,
            batched=distribution.batcher is not None,
            express=distribution.express,
            started_ms=branch.clock.now_ms(),
            changed=self._on_bounds_changed,
        )

    def _renew_report(self, former: dict[str, Any]) -> MapRunReport:
        kept = {name: former[name] for name in KEPT_FIELDS}
        redrives = former["redrives"] + 1
        return replace(self._make_report(0), **kept, redrives=redrives, redriven_ms=self.branch.clock.now_ms())

    async def run(self, items: Items, select: Callable[[Any, Any], Any]) -> Any:
        """Return the outputs or the ResultWriter's result; for a run that failed, return its StateError, not raised."""
        branch, report = self.branch, self.report
        if report.redrives > MOST_REDRIVES:
            raise branch.fatal_with_place("States.Runtime", f"The Map Run has been redriven {MOST_REDRIVES} times.")
        if report.redrives:
            branch.add("MapRunRedriven", {"mapRunArn": report.arn, "redriveCount": report.redrives})
        else:
            branch.add("MapRunStarted", {"mapRunArn": report.arn})
        branch.children = [self]
        try:
            batches = self._batches
            if batches is None:
                batches = self._batches = await self._make_batches(items, select)
            outputs = await self._run_all(batches)
            if self.distribution.writer is not None:
                outputs = await self.distribution.writer.write(report, self.raw, self.narrowed, branch)
        except (StateError, EvaluationError) as problem:
            self._end("FAILED")
            refusal = branch.record_failure(problem) if isinstance(problem, EvaluationError) else problem
            if not isinstance(refusal, StateError):
                branch.group = None
                raise refusal from None
            if refusal.error in ERRORS_OF_NEW_RUN:
                branch.group = None
            branch.add("MapRunFailed", failure_details(refusal.error, refusal.cause))
            return refusal
        branch.add("MapRunSucceeded")
        self._end("SUCCEEDED")
        return outputs

    async def _make_batches(self, items: Items, select: Callable[[Any, Any], Any]) -> list[tuple[Any, int]]:
        """Return each execution's input and its number of items."""
        branch, parts = self.branch, self.distribution
        sources = ["STATE_DATA"] * len(items)
        if parts.reader is not None:
            items, sources = await parts.reader.read(self.raw, self.narrowed, branch, self.most_items)
        # An iteration over an object gets a key and its value (Developer Guide, and measured by others).
        pairs = [{"Key": key, "Value": value} for key, value in items.items()] if isinstance(items, dict) else []
        described = pairs or [{"Value": item} for item in items]
        chosen = []
        for index, (item, source) in enumerate(zip(described, sources, strict=True)):
            take_turn(1)
            environment = item_environment(branch, {"Index": index, **item, "Source": source})
            chosen.append(select(environment, item if pairs else item["Value"]))
        self.report.total = len(items)
        if parts.batcher is not None:
            return parts.batcher.make_batches(chosen, self.raw, self.narrowed, branch)
        return [(item, 1) for item in chosen]

    def _queue_executions(self, batches: list[tuple[Any, int]]) -> None:
        """Queue the executions that are redriven, then those that never began, both in the order of the items."""
        report, now_ms = self.report, self.branch.clock.now_ms()
        for index, former in enumerate(report.executions):
            if not isinstance(former, FormerExecution) or former.status == "SUCCEEDED":
                continue
            if former.can_go_on(report.express, now_ms):
                former.pending = True
                self._waiting_indices.append(index)
            else:
                report.failed += batches[index][1]
        self._waiting_indices.extend(range(len(report.executions), len(batches)))

    async def _run_all(self, batches: list[tuple[Any, int]]) -> list[Any]:
        self._queue_executions(batches)
        self._all_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begin_some()
        await self._all_ended
        if self.report.has_too_many_failures:
            raise StateError(THRESHOLD, THRESHOLD_CAUSE)
        # A tolerated failure has no output.
        return [execution.output for execution in self.report.executions if execution.status == "SUCCEEDED"]

    def _can_begin(self) -> bool:
        at_once = min(self.report.max_concurrency or MOST_AT_ONCE, MOST_AT_ONCE)
        over = (
            self.report.has_too_many_failures
            or self._is_unwinding
            or not self.branch.is_alive
            or self._all_ended.done()
        )
        return bool(self._waiting_indices) and len(self.report.running) < at_once and not over

    def _begin_some(self) -> None:
        """Begin a few executions in each pass of the event loop, because others need turns; end the run after all."""
        self._is_begin_scheduled, few = False, iter(range(BATCH_SIZE))
        while self._can_begin() and next(few, None) is not None:
            try:
                self._start(self._waiting_indices.popleft())
            except Exception as problem:
                self._all_ended.set_exception(problem)
        if self._can_begin():
            self._is_begin_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_some)
        elif not self.report.running and self.branch.is_alive and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _on_bounds_changed(self) -> None:
        if self.report.has_too_many_failures:
            self.kill()
        elif self.report.running and not self._is_begin_scheduled:
            self._begin_some()

    def _on_execution_end(self, index: int, execution: Execution) -> None:
        report = self.report
        del report.running[index]
        if execution.status != "SUCCEEDED":
            assert self._batches is not None
            were_too_many, report.failed = report.has_too_many_failures, report.failed + self._batches[index][1]
            # The executions that `kill` stops come here too, and must not call it again.
            if report.has_too_many_failures and not were_too_many:
                self.kill()
        if not report.running:
            self._record_places()
        if not self._is_begin_scheduled:
            self._begin_some()

    def _start(self, index: int) -> None:
        assert self._batches is not None
        above, executions = self.branch.execution, self.report.executions
        former = executions[index] if index < len(executions) else None
        redriven = None
        if isinstance(former, FormerExecution) and not self.report.express:
            redriven = Redriven(former.part, former.redrives + 1, former.started_ms, former.event_count)
        execution = self.distribution.machine.start(
            self._batches[index][0],
            clock=above.clock,
            perform=above.perform,
            name=uuid4(self.branch.random) if former is None else former.name,
            machine_name=self.report.machine_name,
            machine_arn=self.report.machine_arn,
            role_arn=above.identity.role_arn,
            latencies=above.latencies,
            lanes=above.lanes,
            redriven=redriven,
        )
        # Executions begin in the order of the items, so their number is the place of the next.
        executions[index : index + 1] = [execution]
        self.report.running[index] = execution
        execution.ended.add_done_callback(lambda _: self._on_execution_end(index, execution))

    def _end(self, status: str) -> None:
        self.report.status = status
        self.report.stopped_ms = self.branch.clock.now_ms()
        self.report.changed = lambda: None  # the method refers to this run, so both would be in a cycle
        for execution in self.report.executions:
            if isinstance(execution, FormerExecution):
                execution.pending = False

    def prepare_redrive(self) -> Within:
        """Abort the executions that still run, as the caller does next with the Map Run, and return where all stand.

        The list of the executions is complete once all of them have ended and `report.is_place_whole` is true.
        """
        report, lanes = self.report, self.branch.execution.lanes
        self.kill()
        self._execution_records, report.is_place_whole = [], False
        if lanes is None or not report.running:
            self._record_places()
        run = {"redrives": report.redrives, "batches": self._batches, "executions": self._execution_records}
        within = {"last_id": self._began_id, MAP_RUN: run | {name: getattr(report, name) for name in KEPT_FIELDS}}
        return within if self._batches is None else {**within, "items": []}

    def _record_places(self) -> None:
        """Record where the executions stand, a few at a time in lanes; after the last, the parent's end is complete."""
        report, left, lanes = self.report, self._execution_records, self.branch.execution.lanes
        if left is not None:
            few = None if lanes is None else len(left) + RECORDED_AT_ONCE
            left.extend(execution.redrive_record() for execution in report.executions[len(left) : few])
            report.is_place_whole = len(left) == len(report.executions)
            if lanes is not None and not report.is_place_whole:
                lanes.call_in_batches(self._record_places, BATCH_SIZE)
                return
        self.branch.execution.complete_if_ended()

    # ---- abortion, as a child of the branch ----

    def abort_state(self, previous_id: int) -> None:
        """Add MapRunAborted."""
        self.branch.add_side_event("MapRunAborted", previous_id=previous_id)

    def kill(self) -> None:
        """Abort the executions that still run; in lanes they end a few at a time, so that others have turns."""
        report, lanes = self.report, self.branch.execution.lanes
        if report.status == "RUNNING" and self.branch.is_dead:
            self._end("ABORTED")
        if not self._is_unwinding:
            ended = deque(report.running.values())
            for execution in ended:
                execution.stop(unwinds=False)
            self._is_unwinding = lanes is not None and bool(ended)
            unwind_some(ended, None) if lanes is None else lanes.call_in_batches(lambda: unwind_some(ended, lanes))
