"""Runs a line of states: the machine's own, a branch of a Parallel state or an iteration of a Map.

It enters one state after the other, keeps their variables and writes the history, on a `chain` of its own.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from states_language.chain import Chain, EnteredState, RunningExecution
from states_language.context import Scope, state_context
from states_language.failures import EvaluationError
from states_language.history import ENTERED, EXITED, payload_details
from states_language.place import Part, Place, Within
from states_language.scheduling.lanes import STATE_ENTRY_STEPS, spend_for_json, take_turn
from states_language.values import compact

ABORTABLE = frozenset({"Task", "Wait", "Parallel", "Map"})
"""State types for which AWS has an event <Type>StateAborted."""


class Child(Protocol):
    """A line of work within a state: a branch, an iteration or a Map Run."""

    def abort_state(self, previous_id: int) -> None: ...
    def kill(self) -> None: ...


class Resumable(Protocol):
    """A part of a state that knows its place, so that a redrive goes on from there."""

    def prepare_redrive(self) -> Within: ...


class RunnableState(EnteredState, Protocol):
    """The methods of a state that a branch calls; `State` describes them."""

    async def run(self, branch: "Branch", data: Any) -> tuple[str | None, Any]: ...


class Branch(Chain):
    """A line of states that is running or has ended."""

    def __init__(self, execution: RunningExecution, last_id: int, scope: Scope) -> None:
        super().__init__(execution, last_id)
        self.clock, self.random = execution.clock, execution.clock.random
        self.scope, self.variable = scope, scope.get
        self.staged: dict[str, Any] | None = None
        self.name: str | None = None
        self.data: Any = None
        self.entered = False
        self.place: Place | None = None
        self.group: Resumable | None = None
        self.within: Within | None = None
        self.entered_ms = 0
        self.retries: int | None = None
        self.token: str | None = None
        self.item: dict[str, Any] | None = None
        self.iteration: dict[str, Any] | None = None
        self.began_id: int | None = None  # of the event that the iteration started
        self.children: list[Child] = []
        self.output_text = ""
        self.work: asyncio.Task[Any] | None = None

    # ---- the environment of expressions ----

    def context(self) -> dict[str, Any]:
        """Return the Context Object as it is now."""
        if self.execution.whole_context is not None:
            return self.execution.whole_context
        context = dict(self.execution.context)
        if self.state is not None:
            context["State"] = state_context(self.state.name, self.entered_ms, self.retries)
        if self.item is not None:
            context["Map"] = {"Item": self.item}
        if self.token is not None:
            context["Task"] = {"Token": self.token}
        return context

    def functions(self) -> Any:
        """Return the frame in which JSONata finds the functions of Step Functions."""
        return self.execution.functions

    def fork(self) -> "Branch":
        """Return a child branch that goes on from this one's last event and reads its variables."""
        child = Branch(self.execution, self.last_id, Scope(self.execution.store, self.scope))
        child.item = self.item
        return child

    # ---- running ----

    async def run(
        self,
        states: Mapping[str, RunnableState],
        start_at: str,
        data: Any,
        place: Place | None = None,
        text: str | None = None,
    ) -> Any:
        """Run the states from `start_at` on and return the output of the last; raises StateError or Fatal.

        place: where a redrive goes on, with its data and variables. text: the data's JSON text, if it is known.
        """
        name: str | None = start_at
        self.place = place
        if place is not None:
            name, data, text = place["state"], place["input"], None
            self.scope.restore(place["variables"])
            self.last_id = place["last_id"]
        if text is None:
            text = compact(data)
            spend_for_json(text)
        before: RunnableState | None = None
        while name is not None:
            state = states[name]
            self.name, self.data, self.entered, self.group = name, data, False, None
            take_turn(STATE_ENTRY_STEPS)
            if before is not None and before.type == "Wait" and state.type == "Task":
                await self.pause_ms(self.execution.latencies.wait_to_task_ms())
            if self.place is None or not self._enter_again(state, self.place):
                self._enter(state, text)
            self.place = None
            try:
                name, output = await state.run(self, data)
            except EvaluationError as problem:
                raise self.record_failure(problem) from None
            if output is not data:
                # A state's data is never written to, so the same object has the same text.
                data, text = output, self.payload_text(output)
            details = {"name": state.name, **payload_details("output", text)}
            if self.staged and self.is_alive:  # a redrive finds the variables as they were when the execution ended
                details["assignedVariables"] = self.scope.assign(self.staged)
                details["assignedVariablesDetails"] = {"truncated": False}
            self.staged = None
            self.add(f"{state.type}StateExited", details, key=EXITED)
            before, self.state = state, None
        self.output_text = text
        return data

    async def pause_ms(self, duration_ms: int) -> None:
        """Sleep for so many milliseconds; return at once for 0."""
        if duration_ms > 0:
            await self.clock.sleep_until(self.clock.now_ms() + duration_ms)

    def _enter(self, state: RunnableState, text: str) -> None:
        self.state, self.retries, self.staged, self.before_entry_id = state, None, None, self.last_id
        self.entered_ms, self.within = self.clock.now_ms(), None
        self.add(f"{state.type}StateEntered", {"name": state.name, **payload_details("input", text)}, key=ENTERED)
        self.entered_id, self.entered = self.last_id, True
        self.execution.transitions += 1

    def _enter_again(self, state: RunnableState, place: Place) -> bool:
        """Return whether a redrive opens this state again without an event, because it was open at the end.

        The next event names the event at which the state was entered, not the redrive (measured by others).
        """
        entered_id = place["entered_id"]
        # "Fail: Reenters the Fail state and fails again" (Developer Guide, redriving executions)
        if entered_id is None or state.type == "Fail":
            return False
        self.state, self.retries, self.staged, self.before_entry_id = state, None, None, place["last_id"]
        self.last_id = self.entered_id = entered_id
        self.entered_ms, self.entered, self.within = place["entered_ms"], True, place["within"]
        self.execution.transitions += 1
        return True

    def take_within(self) -> Within | None:
        """Return the place within the state from which its first attempt goes on; only the first call returns it."""
        within, self.within = self.within, None
        return within

    def part(self) -> Part:
        """Return where this line stands."""
        if self.place is not None:
            return {"place": self.place}
        if self.name is None:
            return {} if self.began_id is None else {"began_id": self.began_id}
        place: Place = {
            "state": self.name,
            "input": self.data,
            "last_id": self.before_entry_id if self.entered else self.last_id,
            "entered_id": self.entered_id if self.entered else None,
            "entered_ms": self.entered_ms,
            "variables": self.scope.values(),
            "within": self.within if self.group is None else self.group.prepare_redrive(),
        }
        return {"place": place}

    # ---- abortion ----

    def abort_state(self, previous_id: int) -> None:
        """Add the aborted events of the open state, of the work within it and of the iteration."""
        if self.is_dead:
            return
        if self.state is not None and self.state.type in ABORTABLE:
            self.add_side_event(f"{self.state.type}StateAborted", previous_id=previous_id)
        for child in self.children:
            child.abort_state(previous_id)
        if self.iteration is not None:
            self.add_side_event("MapIterationAborted", self.iteration, previous_id=previous_id)

    def kill(self) -> None:
        """Stop this branch and those below it for good, without an event."""
        self.is_dead = True
        self.scope.close()
        for child in self.children:
            child.kill()
        # Both refer to this branch, a cancelled task by the frames of its exception.
        work, self.work, self.group = self.work, None, None
        if work is not None and not work.done() and work is not asyncio.current_task(work.get_loop()):
            lanes = self.execution.lanes
            work.cancel() if lanes is None else lanes.call_in_batches(work.cancel)
