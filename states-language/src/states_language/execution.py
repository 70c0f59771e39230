"""Runs one execution of a machine, from ExecutionStarted to the event that ends it.

An execution succeeds, fails, times out or is aborted. Invariant: after the event that ends it, nothing is added to its
history and no state runs on; calls that Tasks have begun are not cancelled.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypedDict

from states_language.branch import Branch
from states_language.chain import Chain
from states_language.clock import Clock
from states_language.context import Identity, Scope, Store, execution_context
from states_language.distributed.report import MapRunReport
from states_language.failures import Fatal, Halted, StateError, TaskFailure
from states_language.history import ENTERED, EVENT_LIMIT, Event, History, failure_details, payload_details
from states_language.jsonata.functions import functions_frame
from states_language.place import Part, Place, Redriven
from states_language.scheduling.lanes import Lanes
from states_language.states.base import Line
from states_language.tasks.calls import Latencies, NoLatencies, Perform, TaskCall
from states_language.values import HISTORY_FULL, NESTED, Document, compact, parse_json, well_formed

YEAR_S = 31_536_000
"""An execution runs for a year at most (AWS Step Functions quotas)."""


LastEvent = tuple[str, int, dict[str, Any] | None]
"""The type of the event that ends an execution, the id of the event before it, and its details."""
# Ten thousand executions of a Map Run that end at once make no object each: the garbage collector would search them.
ABORTED: LastEvent = ("ExecutionAborted", 0, {})
TIMED_OUT: LastEvent = ("ExecutionTimedOut", 0, None)


class Options(TypedDict, total=False):
    """What `Machine.start` takes besides `clock` and `perform`."""

    name: str | None
    arn: str | None
    machine_name: str | None
    machine_arn: str | None
    role_arn: str
    latencies: Latencies | None
    on_event: Callable[[Event], object] | None
    history_limit: int | None
    keep_history: bool
    context: dict[str, Any] | None
    lanes: Lanes | None
    redriven: Redriven | None


class Execution:
    """A running or ended execution.

    status: RUNNING, SUCCEEDED, FAILED, TIMED_OUT or ABORTED. output: JSON value, None unless SUCCEEDED. input_text,
    output_text: input and output as JSON text. error, cause: None if there is none. history: events in the wire shape
    of GetExecutionHistory, in milliseconds; after a redrive, only the events since then.
    transitions: states entered, retries and redrives. part: where it stood when it ended without success.
    started_ms, stopped_ms, redriven_ms: of the clock; stopped_ms is None while it runs. redrives: how often so far.
    ended: completed at the end.
    """

    def __init__(
        self,
        line: Line,
        data: Any,
        identity: Identity,
        timeout_s: int | None,
        clock: Clock,
        perform: Perform,
        options: Options,
    ) -> None:
        document = _copy_as_document(data)
        self.input_text, self.input = document.text, document.value
        self.identity = identity
        self.name, self.arn = identity.name, identity.arn
        self.machine_name, self.machine_arn = identity.machine_name, identity.machine_arn
        self.role_arn = identity.role_arn
        redriven, context = options.get("redriven"), options.get("context")
        self.clock, self.perform, self.latencies = clock, perform, options.get("latencies") or NoLatencies()
        self.status = "RUNNING"
        self.output: Any = None
        self.output_text: str | None = None
        self.error: str | None = None
        self.cause: str | None = None
        self.transitions = 0
        self.part: Part = {} if redriven is None else redriven.part
        now_ms = clock.now_ms()
        self.started_ms = now_ms if redriven is None else redriven.started_ms
        self.stopped_ms: int | None = None
        self.background: set[asyncio.Future[Any]] = set()
        self.redrives = 0 if redriven is None else redriven.count
        self.redriven_ms = None if redriven is None else now_ms
        self.context = execution_context(identity, self.input, self.started_ms, self.redrives, self.redriven_ms)
        self.whole_context = context
        before = 0 if redriven is None else redriven.events
        limit, keep = options.get("history_limit", EVENT_LIMIT), options.get("keep_history", True)
        self.record = History(clock.now_ms, options.get("on_event"), limit=limit, keep=keep, events_before=before)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.store = Store()
        self.map_runs: list[MapRunReport] = []
        self._root: Branch | None = Branch(self, 0, Scope(self.store))
        self._line = line
        self.lanes = options.get("lanes")
        if redriven is None:
            self.record.add(
                "ExecutionStarted", 0, {**payload_details("input", self.input_text), "roleArn": self.role_arn}
            )
        else:
            self.transitions += 1
            self.record.add("ExecutionRedriven", self.record.count, {"redriveCount": redriven.count})
        # "the state machine level timeout, if defined, is reset to 0" (Developer Guide, redriving executions)
        deadline_ms = min(now_ms + (timeout_s or YEAR_S) * 1000, self.started_ms + YEAR_S * 1000)
        self._deadline = clock.call_at(deadline_ms, lambda: self._end("TIMED_OUT", TIMED_OUT))
        self._last_event: LastEvent | None = None  # until it is added
        self._root.work = self.create_line_task(self._run(self._root, self.input_text, self.part.get("place")))

    @functools.cached_property
    def functions(self) -> Any:
        """Return the frame in which JSONata finds the functions of Step Functions."""
        return functions_frame(self.clock.now_ms, self.clock.random)

    @property
    def history(self) -> list[Event]:
        """Return the events so far; the list grows while the execution runs. It is empty if none are kept."""
        self._add_last_event()
        return self.record.events

    @property
    def event_count(self) -> int:
        """Return how many events the execution has, those from before a redrive too."""
        return self.record.count + (self._last_event is not None)

    @property
    def path(self) -> list[str]:
        """Return the names of the states entered so far, those of branches too, in the order of the history."""
        return [event["stateEnteredEventDetails"]["name"] for event in self.history if ENTERED in event]

    async def wait(self) -> "Execution":
        """Return this execution once it has ended."""
        await asyncio.shield(self.ended)
        return self

    def stop(self, error: str | None = None, cause: str | None = None, *, unwinds: bool = True) -> None:
        """Abort the execution at once, unless it has ended. unwinds: whether to call `unwind` now too."""
        if self.status == "RUNNING":
            last = ABORTED
            if error is not None or cause is not None:
                error, cause = error and well_formed(error), cause and well_formed(cause)
                last = ("ExecutionAborted", 0, failure_details(error, cause))
            self._end("ABORTED", last, error, cause, unwinds=unwinds)

    def unwind(self) -> None:
        """Add the last event of an ended execution and release its objects: 0.2 s for ten thousand executions."""
        self._add_last_event()
        root, self._root = self._root, None  # each knows the other, so only the garbage collector would free them
        if root is not None:
            if self.status != "SUCCEEDED":
                self.part = root.part() or self.part
            root.kill()
            self.complete_if_ended()

    def redrive_record(self) -> dict[str, Any]:
        """Return the JSON from which a redrive of its Map Run goes on, once it has ended."""
        return {
            "name": self.name,
            "arn": self.arn,
            "status": self.status,
            "output": self.output,
            "error": self.error,
            "cause": self.cause,
            "started_ms": self.started_ms,
            "stopped_ms": self.stopped_ms,
            "redrives": self.redrives,
            "redriven_ms": self.redriven_ms,
            "events": self.event_count,
            "part": self.part,
        }

    # ---- for branches and states ----

    def fail_full_history(self, previous_id: int) -> None:
        """Fail the execution because its history is full."""
        self._fail(previous_id, "States.Runtime", HISTORY_FULL)

    def fail(self, branch: Chain, problem: Fatal | StateError) -> None:
        """Fail the execution at this branch's last event."""
        if self.status == "RUNNING":
            self._fail(branch.last_id, problem.error, problem.cause)

    def crash(self, branch: Chain, problem: Exception) -> None:
        """Fail the execution for a defect of the interpreter or of `perform`, and report it to the event loop."""
        if isinstance(problem, RecursionError):
            self.fail(branch, branch.fatal_with_place("States.Runtime", NESTED))
            return
        self.fail(branch, branch.fatal_with_place("States.Runtime", f"{type(problem).__name__}: {problem}"))
        message = f"state '{branch.state_name}' broke"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": problem})

    def create_line_task(self, line: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Return the task that runs a line of states, in a lane if the execution has lanes."""
        return asyncio.get_running_loop().create_task(line if self.lanes is None else self.lanes.run(line))

    def start_call(self, branch: Chain, call: TaskCall) -> asyncio.Future[Any]:
        """Start the call and return the future of its answer: a JSON value, a Whole or a TaskFailure.

        The future may be cancelled; the call itself runs on. Raises Halted after the end of the branch.
        """
        if not branch.is_alive:
            raise Halted
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        asked = self.perform(call)
        work = loop.create_task(asked) if asyncio.iscoroutine(asked) else asyncio.ensure_future(asked)
        self.background.add(work)
        work.add_done_callback(functools.partial(self._deliver, branch, answer))
        return answer

    def _deliver(self, branch: Chain, answer: asyncio.Future[Any], work: asyncio.Future[Any]) -> None:
        self.background.discard(work)
        problem = asyncio.CancelledError() if work.cancelled() else work.exception()
        if isinstance(problem, Exception) and not isinstance(problem, TaskFailure):
            self.crash(branch, problem)
        elif not answer.done():
            if isinstance(problem, asyncio.CancelledError):
                problem = TaskFailure("States.TaskFailed", "The work was cancelled.")
            answer.set_result(problem or work.result())

    # ---- from the beginning to the end ----

    async def _run(self, root: Branch, text: str, place: Place | None) -> None:
        line = self._line
        try:
            await root.pause_ms(self.latencies.start_ms())
            output = await root.run(line.states, line.start_at, self.input, place, text)
            text = root.check_size(root.output_text)
        except (StateError, Fatal) as problem:
            self.fail(root, problem)
        except Halted:
            return
        except Exception as problem:
            self.crash(root, problem)
        else:
            self.output, self.output_text = output, text
            self._end("SUCCEEDED", ("ExecutionSucceeded", root.last_id, payload_details("output", text)))

    def _fail(self, previous_id: int, error: str | None, cause: str | None) -> None:
        self._end("FAILED", ("ExecutionFailed", previous_id, failure_details(error, cause)), error, cause)

    def complete_if_ended(self) -> None:
        """Complete `ended` once the execution and the executions of its Map Runs have ended."""
        over = self._root is None and not self.ended.done()
        if over and all(run.is_place_whole and not run.running for run in self.map_runs):
            self.ended.set_result(None)

    def _end(
        self,
        status: str,
        last_event: LastEvent,
        error: str | None = None,
        cause: str | None = None,
        *,
        unwinds: bool = True,
    ) -> None:
        self.status, self.error, self.cause = status, error, cause
        self.stopped_ms = self.clock.now_ms()
        self._deadline.cancel()
        self._last_event = last_event
        for run in self.map_runs:
            for execution in run.running.values():
                execution.stop(unwinds=False)
        if unwinds:
            self.unwind()

    def _add_last_event(self) -> None:
        last, self._last_event = self._last_event, None
        if last is not None:
            kind, previous_id, details = last
            self.record.add(kind, previous_id, None if details is None else dict(details), at_ms=self.stopped_ms)


def _copy_as_document(data: Any) -> Document:
    """Return a copy of an input that no caller can write to: keys are strings, arrays are lists."""
    if isinstance(data, Document):
        return data
    try:
        text = compact(data)
        return Document(parse_json(text), text)
    except (TypeError, ValueError, RecursionError) as problem:
        raise ValueError(f"the input is not a valid JSON value: {problem}") from None
