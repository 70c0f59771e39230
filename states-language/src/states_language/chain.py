"""Writes the history of a line of states: a chain of events, each of which names the one before it.

It words the failures of the line's states too. Invariant: nothing is added to the history once the chain is dead or the
execution has ended.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from states_language.clock import Clock
from states_language.context import Identity, Store
from states_language.distributed.report import MapRunReport
from states_language.failures import EvaluationError, Fatal, Halted, Oversized, QueryFailure, StateError
from states_language.history import PAYLOAD_LIMIT_BYTES, History, is_within_limit
from states_language.scheduling.lanes import Lanes
from states_language.scheduling.writing import text_in_turns
from states_language.tasks.calls import Latencies, Perform, TaskCall
from states_language.values import too_large_cause


class EnteredState(Protocol):
    """The data of a state that its history events have. type: as in the definition."""

    name: str
    type: str


class RunningExecution(Protocol):
    """What a branch, and a state by its branch, may ask of the execution; `Execution` says what each returns.

    context: the part of the Context Object that every state has; whole_context: a Context Object in
    place of all of it, or None. transitions: states entered, and retries.
    """

    identity: Identity
    clock: Clock
    latencies: Latencies
    perform: Perform
    status: str
    record: History
    store: Store
    context: dict[str, Any]
    whole_context: dict[str, Any] | None
    lanes: Lanes | None
    transitions: int
    map_runs: list[MapRunReport]

    @property
    def functions(self) -> Any: ...
    def fail_full_history(self, previous_id: int) -> None: ...
    def fail(self, branch: "Chain", problem: Fatal | StateError) -> None: ...
    def crash(self, branch: "Chain", problem: Exception) -> None: ...
    def create_line_task(self, line: Coroutine[Any, Any, None]) -> "asyncio.Task[None]": ...
    def start_call(self, branch: "Chain", call: TaskCall) -> "asyncio.Future[Any]": ...
    def complete_if_ended(self) -> None: ...


class Chain:
    """The events of one line; last_id is the id of the newest, before_entry_id of the one before the open state."""

    def __init__(self, execution: RunningExecution, last_id: int) -> None:
        self.execution = execution
        self.last_id = self.before_entry_id = last_id
        self.entered_id = 0
        self.state: EnteredState | None = None
        self.is_dead = False

    @property
    def state_name(self) -> str:
        """Return the name of the open state; "" between two states."""
        return self.state.name if self.state else ""

    @property
    def is_alive(self) -> bool:
        """Return whether the line goes on: neither has it been killed nor has the execution ended."""
        return not self.is_dead and self.execution.status == "RUNNING"

    def add(self, kind: str, details: dict[str, Any] | None = None, *, key: str | None = None) -> int:
        """Add the next event of this branch's chain and return its id; raises Halted after the end."""
        self.last_id = self.add_side_event(kind, details, key=key)
        return self.last_id

    def add_side_event(
        self,
        kind: str,
        details: dict[str, Any] | None = None,
        *,
        key: str | None = None,
        previous_id: int | None = None,
    ) -> int:
        """Add an event that does not advance the chain and return its id: *StateSucceeded, *StateAborted (recorded)."""
        if not self.is_alive:
            raise Halted
        execution = self.execution
        if previous_id is None:
            previous_id = self.last_id
        if not execution.record.events_left:
            execution.fail_full_history(previous_id)
            raise Halted
        return execution.record.add(kind, previous_id, details, key)

    def payload_text(self, value: Any) -> str:
        """Return a state's data as JSON text; raises Fatal if it is larger than the payload limit."""
        return self.check_size(text_in_turns(value, PAYLOAD_LIMIT_BYTES))

    def check_size(self, text: str) -> str:
        """Return the JSON text unchanged; raises Fatal if it is larger than the payload limit."""
        if not is_within_limit(text):
            raise Fatal("States.DataLimitExceeded", too_large_cause(self.state_name))
        return text

    def fatal_with_place(self, error: str, detail: str) -> Fatal:
        """Return the failure with a cause that names this state and the event at which it was entered."""
        return Fatal(error, self.cause_with_place(detail))

    def cause_with_place(self, detail: str) -> str:
        """Return `detail` after the sentence with which AWS begins the causes that it writes itself (recorded)."""
        place = f"the state '{self.state_name}' (entered at the event id #{self.entered_id})"
        return f"An error occurred while executing {place}. {detail}"

    def record_failure(self, problem: EvaluationError) -> Exception:
        """Return the exception for an expression's failure, and add EvaluationFailed for one of JSONata.

        Fatal for States.Runtime and for a value that is far too large; otherwise a StateError, which can be caught.
        """
        if problem.name == "States.Runtime":
            return self.fatal_with_place(problem.name, str(problem))
        if isinstance(problem, Oversized):
            return Fatal(problem.name, too_large_cause(self.state_name))
        cause = self.cause_with_place(str(problem))
        if isinstance(problem, QueryFailure):
            details = {"error": problem.name, "cause": cause, "state": self.state_name}
            if problem.location is not None:
                details["location"] = problem.location
            # An expression's failure points to what came before the state (recorded).
            previous_id = self.last_id if problem.after_entry else self.before_entry_id
            self.last_id = self.add_side_event("EvaluationFailed", details, previous_id=previous_id)
        return StateError(problem.name, cause)
