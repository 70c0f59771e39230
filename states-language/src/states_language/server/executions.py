"""Runs the executions of the local service: starts, stops, redrives and resumes them after a crash of the service.

Invariant: an ARN belongs to one execution for ever.
"""

import asyncio
import contextlib
import functools
import json
import random
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from states_language import Execution, Machine, Perform
from states_language.clock import Clock
from states_language.place import TOO_MANY_EVENTS, Part, Redriven
from states_language.scheduling.lanes import Lanes
from states_language.scheduling.pool import Pool
from states_language.server import journals
from states_language.server.diagnostics import load_remembered
from states_language.server.known_executions import LARGE_PART, KnownExecution, Registry, Retention, outcome_of
from states_language.server.machines import Machines, StartTarget, machine_deleting
from states_language.server.map_runs import trim
from states_language.server.requests import Refusal, check_name, read_input
from states_language.server.skipping_clock import SkippingClock
from states_language.server.versions import split_qualifier
from states_language.tasks.stubs import MockError
from states_language.values import Document, has_more_values, is_equal, parse_external_json


class Executions(Registry):
    """The registry of the executions that run here.

    `perform` performs Task states, `on_change` is called at each start and end. `test_case` returns what performs those
    of a machine's test case, which the ARN of a start names after a # as in Step Functions Local.
    """

    def __init__(
        self,
        machines: Machines,
        records: journals.Journals,
        clock: Clock,
        on_change: Callable[[KnownExecution], None],
        retention: Retention | None = None,
        virtual_time: bool = False,
    ) -> None:
        super().__init__(records, clock, retention)
        self.machines = machines
        self._virtual_time = virtual_time
        self._on_change = on_change
        self._closed = False
        self.perform: Perform | None = None
        self.test_case: Callable[[str, str], Perform] | None = None
        self.evaluators = Pool()
        self.lanes = Lanes(self.evaluators)

    def start(self, machine_arn: str, text: str = "{}", name: str | None = None) -> KnownExecution:
        """Returns a new execution, or the one that already runs with this name and input; raises Refusal."""
        started, document = self.check_start(machine_arn, text, name)
        perform = self.performer(machine_arn)
        name, described = name or str(uuid.uuid4()), started.description
        arn = f"{described.arn.replace(':stateMachine:', ':execution:')}:{name}"
        if (existing := self._known.get(arn)) is not None:
            # A running execution with the same input, white space aside, is the answer again; else the name is in use.
            if existing.closing is None and is_equal(json.loads(existing.opening.input), document.value):
                return existing
            raise Refusal("ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
        opening = journals.Opening(
            arn,
            name,
            described.arn,
            text,
            self._clock.now_ms(),
            definition=described.definition,
            role_arn=described.role_arn,
            revision_id=described.revision_id,
            machine_updated_ms=described.updated_ms,
            version_arn=started.version_arn,
            alias_arn=started.alias_arn,
            started_arn=machine_arn,
        )
        journal = self._records.create_journal(opening)
        live = self._start(opening, started.machine, journal, document, perform=perform)
        known = KnownExecution(opening, journal.path, live=live, journal=journal, serial=next(self._serials))
        self._known[arn] = known
        self._watch_end(known, live)
        with journals.report_failure_only("the removal of old executions"):
            self._prune()
        return known

    def check_start(self, machine_arn: str, text: str, name: str | None) -> tuple[StartTarget, Document]:
        """Returns what an ARN starts, and the input; raises Refusal for a bad machine, input or name.

        Others have turns while it reads a large input, and none after it has returned.
        """
        document = read_input(text)
        started = self.machines.start_target(machine_arn, random.random())
        if started.deleting:
            raise machine_deleting(machine_arn)
        if isinstance(document, Refusal):
            raise document
        if name is not None:
            check_name(name)
        return started, document

    def forget_deleted(self) -> None:
        """Removes the machines that are being deleted once none of their executions runs."""
        gone = [arn for arn, entry in self.machines.items() if entry.deleting]
        if gone:
            running = {known.opening.machine_arn for known in self.running()}
            for arn in gone:
                if arn not in running:
                    self.machines.remove(arn)
                    self._forget(known for known in self.all() if known.opening.machine_arn == arn)

    def stop(self, arn: str, error: str | None, cause: str | None) -> KnownExecution:
        """Aborts the execution if it runs, and returns it; raises Refusal. Running functions are not killed.

        It counts as running until the executions of its Map Runs have ended, a few in each pass of the event loop.
        """
        known = self.get(arn)
        self._check_serving()
        if known.live is not None and known.closing is None:
            known.live.stop(error, cause)
            self._close(known)
        return known

    def _check_serving(self) -> None:
        """Raises Refusal once the service is ending: the next one resumes what this one has halted."""
        if self._closed:
            raise Refusal("ServiceException", "The service is ending.")

    def redrive_refusal_reason(self, known: KnownExecution) -> str | None:
        """Returns why an execution cannot be redriven; None if it can."""
        entry = self.machines.get(known.opening.machine_arn)
        return known.redrive_refusal_reason(self._clock.now_ms(), entry is not None and entry.deleting)

    async def redrive(self, arn: str, token: str | None) -> int:
        """Goes on with an execution where it ended without success, and returns the time; raises Refusal."""
        known, now_ms = self.get(arn), self._clock.now_ms()
        earlier = journals.find_repeated(known.redrives, token, now_ms)
        if earlier is not None:
            return earlier.at_ms
        reason, opening, closing = self.redrive_refusal_reason(known), known.opening, known.closing
        if reason is not None or closing is None:
            raise Refusal("ExecutionNotRedrivable", f"{reason}.")
        machine, perform = load_remembered(opening.definition), self.performer(opening.started_arn)
        part, now_ms = await self._read_part(known), self._clock.now_ms()
        if known.closing is not closing or self._known.get(arn) is not known:
            return await self.redrive(arn, token)  # another redrive, or the execution's removal, came first
        self._check_serving()
        if part is None:
            raise Refusal("ExecutionNotRedrivable", f"{journals.PLACE_UNKNOWN}.")
        redriven = Redriven(part, len(known.redrives) + 1, opening.started_ms, closing.events)
        known.journal, redrive = self._records.reopen_journal(known.path), journals.Redrive(now_ms, token)
        self._ended_at_ms.pop(arn, None)
        known.journal.write_line(redrive=vars(redrive))
        known.redrives.append(redrive)
        known.earlier_runs, known.closing = closing.map_runs, None
        known.live = self._start(
            opening, machine, known.journal, parse_external_json(opening.input), redriven, closing.stopped_ms, perform
        )
        self._watch_end(known, known.live)
        return now_ms

    async def _read_part(self, known: KnownExecution) -> Part | None:
        """Returns where an execution stood when it ended; a thread reads it, after a large one was written."""
        if known.keeping is not None:
            await asyncio.wait([known.keeping])
            known.keeping = None
        return await asyncio.to_thread(self._records.read_part, known.path)

    def resume(
        self, left: Iterable[KnownExecution], first_input: Callable[[str], str] = lambda text: text
    ) -> list[KnownExecution]:
        """Starts one execution for each machine and input in `left`; `first_input` makes the new input from the old."""
        wanted = {(known.opening.machine_arn, first_input(known.opening.input)) for known in left}
        return [self.start(arn, text) for arn, text in sorted(wanted) if arn in self.machines]

    def close(self) -> None:
        """Halts every execution without a closing line, so that the next service resumes it."""
        self._closed = True
        self._records.writer.shutdown()
        self.evaluators.close()
        for known in self._known.values():
            # The journal is closed first, so that the end of the halted execution is not in it.
            if known.journal is not None:
                known.journal.close()
            if known.live is not None:
                known.live.stop()

    def _start(
        self,
        opening: journals.Opening,
        machine: Machine,
        journal: journals.Journal,
        data: Any,
        redriven: Redriven | None = None,
        ended_ms: int | None = None,
        perform: Perform | None = None,
    ) -> Execution:
        clock, perform, stir = self.timing(perform, 0 if ended_ms is None else ended_ms - self._clock.now_ms())
        return machine.start(
            data,
            clock=clock,
            perform=perform,
            name=opening.name,
            arn=opening.arn,
            machine_name=opening.machine_arn.rpartition(":")[2],
            machine_arn=opening.machine_arn,
            role_arn=opening.role_arn,
            on_event=functools.partial(self._record, opening, journal, stir),
            keep_history=False,
            lanes=self.lanes,
            redriven=redriven,
        )

    def performer(self, machine_arn: str) -> Perform | None:
        """Returns what performs the Tasks of the test case after the # of an ARN; None if there is no #."""
        arn, hash_, case = machine_arn.partition("#")
        if not hash_:
            return None
        try:
            if self.test_case is None:
                raise MockError(f"the server has no mock configuration with a test case '{case}'")
            return self.test_case(split_qualifier(arn)[0].rpartition(":")[2], case)
        except MockError as problem:
            raise Refusal("ValidationException", f"{machine_arn}: {problem}.") from None

    def timing(self, perform: Perform | None = None, ahead_ms: int = 0) -> tuple[Clock, Perform, Callable[[Any], None]]:
        """Returns an execution's clock, the function that performs its Tasks by it, and the listener to its events."""
        perform = perform or self.perform
        assert perform is not None
        if not self._virtual_time:
            return self._clock, perform, lambda _: None
        clock = SkippingClock(self._clock, lambda: self.lanes.is_busy, max(0, ahead_ms))
        return clock, clock.watch_calls(perform), clock.mark_active

    def _record(
        self, opening: journals.Opening, journal: journals.Journal, stir: Callable[[Any], None], event: dict[str, Any]
    ) -> None:
        stir(event)
        journal.write_event(event)
        # "On the next state transition, the state machine's executions are terminated" (DeleteStateMachine).
        entry = self.machines.get(opening.machine_arn)
        if entry is not None and entry.deleting and event["type"].endswith("StateEntered"):
            asyncio.get_running_loop().call_soon(self._terminate, opening.arn)

    def _terminate(self, arn: str) -> None:
        with contextlib.suppress(Refusal):
            self.stop(arn, None, None)

    def _watch_end(self, known: KnownExecution, live: Execution) -> None:
        live.ended.add_done_callback(lambda _: self._close(known))
        self._report_change(known)

    def _report_change(self, known: KnownExecution) -> None:
        with journals.report_failure_only("the report of an execution"):
            self._on_change(known)

    def _close(self, known: KnownExecution) -> None:
        live = known.live
        if live is None or not live.ended.done() or known.closing is not None or self._closed:
            return
        stopped_ms = live.stopped_ms or self._clock.now_ms()
        known.closing = journals.Closing(
            live.status, stopped_ms, live.output_text, live.error, live.cause, trim(known.map_runs), live.record.count
        )
        part = live.part if live.record.count < TOO_MANY_EVENTS else None
        known.open_runs = journals.find_open_runs(part)
        # A Map Run's thousand inputs take half a second to write.
        is_large = live.status != "SUCCEEDED" and has_more_values(part, LARGE_PART)
        if known.journal is not None:
            if live.status != "SUCCEEDED" and not is_large:
                known.journal.write_line(part=part)
            known.journal.write_closing(known.closing)
        if part is not None and is_large:
            known.keeping = self._records.append_part(known.path, part)
        self._ended_at_ms[known.opening.arn] = stopped_ms
        # The history is on disk, so it need not stay in memory.
        known.live, known.journal = None, None
        listeners, known.listeners = known.listeners, []
        for listener in listeners:
            with journals.report_failure_only("the report of an execution's end"):
                listener(outcome_of(known, known.closing))
        with journals.report_failure_only("the removal of old executions"):
            self._prune()
            self.forget_deleted()
        self._report_change(known)
