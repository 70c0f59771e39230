"""Runs one state alone, as TestState does: with a mock in place of its work, and with each step of its data.

It evaluates nothing itself: the interpreter runs each step as a small machine. Invariant: it tries the state's own
Retriers and Catchers once and never waits for them. The members that each type of state shows are recorded.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from states_language import Execution, Machine, TaskCall, TaskFailure, Whole, load
from states_language.definition.fields import Fields
from states_language.definition.pointers import transitions
from states_language.distributed.item_formats import ITEM_READER_FAILED as UNREADABLE
from states_language.distributed.item_reader import GET_OBJECT
from states_language.distributed.map_run import BOUNDS, THRESHOLD, THRESHOLD_CAUSE
from states_language.distributed.report import MapRunReport
from states_language.failures import StateError
from states_language.history import EXITED
from states_language.server.requests import Refusal
from states_language.states.retry import compile_retry, is_error_named

Perform = Callable[[TaskCall], Awaitable[Any]]
Run = Callable[[Callable[[], Machine], Any, Perform | None], Awaitable[Execution]]
"""Loads a machine and runs it to its end; without the third argument Tasks do their real work."""

NAME = "StateName"
_RETRYING = ("Task", "Parallel", "Map")
_PREFIX = re.compile(
    r"An error occurred while executing the state '.*?' \(entered at the event id #\d+\)\. ", re.DOTALL
)
_TEXTS, _ITEMS = ("CSV", "JSON", "JSONL"), {"InputType": "JSON"}
_WORK = "arn:aws:states:::aws-sdk:mock:result"
_DATAFLOW = ("QueryLanguage", "InputPath", "OutputPath", "ResultPath", "ResultSelector", "Output", "Assign")
_WAYS = ("Next", "End", "Retry", "Catch")
_INLINE: dict[str, Any] = {"StartAt": "Item", "States": {"Item": {"Type": "Pass", "End": True}}}
_DISTRIBUTED = {**_INLINE, "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}}
_BOUNDS = {"maxConcurrency": BOUNDS[0], "toleratedFailureCount": BOUNDS[1], "toleratedFailurePercentage": BOUNDS[2]}


@dataclass(frozen=True)
class StateTestRequest:
    """A request of TestState: the mock (a result or an error), the number of retries and failed items so far, and the
    text that an ItemReader has read.
    """

    data: Any
    variables: Mapping[str, Any] = field(default_factory=dict)
    result: tuple[Any] | None = None
    error: StateError | None = None
    retries: int = 0
    failed_items: int = 0
    reader_text: str | None = None

    @property
    def is_mocked(self) -> bool:
        """Returns whether the mock replaces the state's own work."""
        return self.result is not None or self.error is not None


def single_state_machine(state: Mapping[str, Any], variables: Mapping[str, Any] | None = None) -> Machine:
    """Returns the machine of this one state; wherever the state leads, the machine ends. Raises DefinitionError."""
    targets = {target for target, _ in transitions(state)}
    free = (name for name in (NAME, *map(str, range(len(targets) + 2))) if name not in targets)
    start = tested = next(free)
    states: dict[str, Any] = {tested: dict(state)} | {target: {"Type": "Succeed"} for target in targets}
    if variables:
        start = next(free)
        states[start] = {"Type": "Pass", "Assign": dict(variables), "Next": tested}
    # "The TestState API can run for up to five minutes" (Developer Guide).
    return load({"StartAt": start, "TimeoutSeconds": 300, "States": states}, deployed=True)


class StateTest:
    def __init__(self, state: dict[str, Any], request: StateTestRequest, run: Run) -> None:
        self.state = state
        self.request = request
        self.inspection: dict[str, Any] = {"input": request.data}
        self._run = run
        self._kind = state.get("Type")
        self._jsonata = state.get("QueryLanguage") == "JSONata"
        self._items = 1
        self._map_run: MapRunReport | None = None
        self._failed_step: Execution | None = None
        self._states_before = 1 if request.variables else 0  # the states of the machine before the tested one

    async def answer(self) -> dict[str, Any]:
        """Returns TestState's answer as data; `inspection` has the members of an inspection."""
        if self.request.variables:
            self.inspection["variables"] = dict(self.request.variables)
        await self._show_before()
        if self._failed_step is not None:
            return await self._answer_failure(self._failed_step)
        execution = await self._execute()
        if execution.status == "SUCCEEDED":
            # The output of the state is the input of the next one.
            answer: dict[str, Any] = {"status": "SUCCEEDED", "output": json.loads(self._exit_data(execution)["output"])}
            following = execution.path[self._states_before + 1 :]
            await self._show_after(execution)
            self._show_variables(execution)
            return answer | ({"nextState": following[0]} if following else {})
        return await self._answer_failure(execution)

    # ---- the state itself ----

    async def _run_state(self, state: Mapping[str, Any], data: Any, perform: Perform | None) -> Execution:
        return await self._run(lambda: single_state_machine(state, self.request.variables), data, perform)

    async def _execute(self) -> Execution:
        state = {key: value for key, value in self._substitute().items() if key not in ("Retry", "Catch")}
        exceeded = self._is_tolerance_exceeded()
        error = self.request.error or (StateError(THRESHOLD, THRESHOLD_CAUSE) if exceeded else None)
        perform = None if not self.request.is_mocked and error is None else _mock_performer(self.request.result, error)
        return await self._run_state(state, self.request.data, perform)

    def _substitute(self) -> dict[str, Any]:
        """Returns the Task in place of a mocked state: it has the state's dataflow, and the mock does its work."""
        if not self.request.is_mocked:
            return self.state
        if self._kind == "Task":
            return {**self.state, "Resource": _WORK}
        return {"Type": "Task", "Resource": _WORK, **self._fields(*_DATAFLOW, *_WAYS)}

    def _is_tolerance_exceeded(self) -> bool:
        run = self._map_run
        if run is None or (run.tolerated_count is None and run.tolerated_percentage is None):
            return False
        return replace(run, failed=self.request.failed_items, total=self._items).has_too_many_failures

    async def _answer_failure(self, execution: Execution) -> dict[str, Any]:
        if execution.status == "TIMED_OUT":
            return {"status": "FAILED", "error": "States.Timeout"}
        details: dict[str, Any] = {"error": execution.error, "cause": _PREFIX.sub("", execution.cause or "", count=1)}
        answer = {key: value for key, value in details.items() if value}
        error = StateError(execution.error, execution.cause)
        if self._kind not in _RETRYING or error.error == "States.Runtime":
            return {"status": "FAILED", **answer}
        if (backoff_s := self._find_retry(error)) is not None:
            self.inspection["errorDetails"]["retryBackoffIntervalSeconds"] = backoff_s
            return {"status": "RETRIABLE", **answer}
        for index, catcher in enumerate(self.state.get("Catch", [])):
            if is_error_named(tuple(catcher.get("ErrorEquals", ())), error):
                self.inspection.setdefault("errorDetails", {})["catchIndex"] = index
                output = await self._run_catcher(catcher, error)
                return {"status": "CAUGHT_ERROR", "output": output, "nextState": catcher["Next"], **answer}
        return {"status": "FAILED", **answer}

    def _find_retry(self, error: StateError) -> int | None:
        """Returns the back-off in seconds of the first Retrier that names the error; None if it is used up."""
        for index, retrier in enumerate(compile_retry(Fields(self.state, "/"))):
            if is_error_named(retrier.errors, error):
                self.inspection["errorDetails"] = {"retryIndex": index}
                if self.request.retries >= retrier.max_attempts:
                    return None
                return retrier.delay_ms(self.request.retries, lambda: 1.0) // 1000
        return None

    async def _run_catcher(self, catcher: dict[str, Any], error: StateError) -> Any:
        state = {"Type": "Task", "Resource": _WORK, **self._fields("QueryLanguage", "Next", "End"), "Catch": [catcher]}
        execution = await self._run_state(state, self.request.data, _mock_performer(None, error))
        self._show_variables(execution)
        return execution.output

    # ---- the members of an inspection ----

    async def _show_before(self) -> None:
        if self._jsonata:
            if self._kind == "Task" and (arguments := self.state.get("Arguments")) is not None:
                await self._show("afterArguments", {"Type": "Pass", "QueryLanguage": "JSONata", "Output": arguments})
        elif self._kind == "Pass" and "Result" in self.state:
            self.inspection["result"] = self.state["Result"]
        elif self._kind != "Parallel":
            await self._show("afterInputPath", {"Type": "Pass", **self._fields("InputPath")})
            if self._kind in ("Pass", "Task"):
                await self._show("afterParameters", {"Type": "Pass", **self._fields("InputPath", "Parameters")})
        if self._kind == "Map":
            await self._show_map()

    async def _show_map(self) -> None:
        if "ItemReader" not in self.state or self.request.reader_text is not None:
            await self._show_items()
        if self._failed_step is None or "ItemReader" in self.state:
            await self._show_bounds()

    async def _show_bounds(self) -> None:
        """Show the bounds as a Map Run reads them, which fails if one is no number; an inline Map reads only one."""
        read = [*_BOUNDS][: None if _is_distributed(self.state) else 1]
        given = [name[0].upper() + name[1:] + end for name in read for end in ("", "Path")]
        reader = {"Resource": GET_OBJECT, "ReaderConfig": _ITEMS}
        bounded = {"Type": "Map", "ItemProcessor": _DISTRIBUTED, "ItemReader": reader}
        step = await self._step(bounded | self._fields("QueryLanguage", "InputPath", *given))
        if not step.map_runs:
            self._failed_step = step
            return
        self._map_run = step.map_runs[0]
        for name, bound in _BOUNDS.items():
            if (value := getattr(self._map_run, bound)) is not None:
                self.inspection[name] = float(value) if name.endswith("Percentage") else value

    def _show_variables(self, execution: Execution) -> None:
        """Show the variables after the state: those of the request and those that the state or a Catcher assigns."""
        assigned = self._exit_data(execution).get("assignedVariables", {})
        variables = {**self.request.variables, **{name: json.loads(text) for name, text in assigned.items()}}
        if variables:
            self.inspection["variables"] = variables

    async def _show_items(self) -> None:
        """Show the items of a path or pointer, and what each iteration gets from ItemSelector and ItemBatcher."""
        run: dict[str, Any] = {"Type": "Map", "ItemProcessor": _DISTRIBUTED if _is_distributed(self.state) else _INLINE}
        run |= self._fields("QueryLanguage", "InputPath", "ItemsPath", "Items")
        reader = self.state.get("ItemReader", {})
        config = reader.get("ReaderConfig", {})
        if reader:
            # The request has an object "as found in its original source" (API reference), or the items of any other.
            is_text = config.get("InputType") in _TEXTS and not config.keys() & {"ManifestType", "Transformation"}
            run["ItemReader"] = reader if is_text else {**reader, "Resource": GET_OBJECT, "ReaderConfig": _ITEMS}
        step = await self._step(run)
        if step.status == "SUCCEEDED":
            self._items = len(step.output)
            if self.request.failed_items > self._items:  # "cannot exceed the number of items" (Developer Guide)
                most = "must be less than or equal to the number of Map iterations"
                raise Refusal("ValidationException", f"Map iteration failure count {most}")
            if not reader and not self._jsonata:
                path = self.state.get("ItemsPath", "$")
                await self._show("afterItemsPath", {"Type": "Pass", **self._fields("InputPath"), "OutputPath": path})
            elif "ItemsPointer" in config and not self._jsonata:
                self.inspection["afterItemsPointer"] = step.output
        elif not reader or step.error == UNREADABLE:
            self._failed_step = step
        for name in ("ItemSelector", "ItemBatcher"):
            if name in self.state:
                run[name] = self.state[name]
                await self._show(f"after{name}", run)

    async def _show_after(self, execution: Execution) -> None:
        if self._kind not in ("Pass", *_RETRYING):
            return
        result = self.request.result[0] if self.request.result is not None else _task_result(execution)
        if self._kind == "Task":
            self.inspection["result"] = result
        elif self._kind == "Pass" and not self._jsonata:
            result = self.inspection.get("result", self.inspection.get("afterParameters"))
        if self._jsonata:
            return
        state: dict[str, Any] = {"Type": "Task", "Resource": _WORK, "End": True}
        for name in ("ResultSelector", "ResultPath"):
            state |= self._fields(name)
            step = await self._run_state(state, self.request.data, _mock_performer((result,), None))
            self.inspection[f"after{name}"] = step.output

    async def _show(self, member: str, state: dict[str, Any]) -> None:
        step = await self._step(state)
        if step.status == "SUCCEEDED":
            self.inspection[member] = step.output

    async def _step(self, state: dict[str, Any]) -> Execution:
        read = _mock_performer((self.request.reader_text,), None)  # only a Map with an ItemReader asks for it
        return await self._run_state({**state, "End": True}, self.request.data, read)

    def _exit_data(self, execution: Execution) -> dict[str, Any]:
        """Returns the details of the event with which the state was left; {} if it was not."""
        exits = [dict(event["stateExitedEventDetails"]) for event in execution.history if EXITED in event]
        return next(iter(exits[self._states_before :]), {})

    def _fields(self, *names: str) -> dict[str, Any]:
        """Return those of these fields that the state has."""
        return {name: self.state[name] for name in names if name in self.state}


def _is_distributed(state: Mapping[str, Any]) -> bool:
    config = (state.get("ItemProcessor") or state.get("Iterator") or {}).get("ProcessorConfig") or {}
    return bool(config.get("Mode") == "DISTRIBUTED")


def _mock_performer(result: tuple[Any] | None, error: StateError | None) -> Perform:
    async def perform(call: TaskCall) -> Any:
        if error is not None:
            raise TaskFailure(error.error, error.cause)
        value = result[0] if result is not None else None
        if call.pending is not None:
            call.pending.succeed(value)
        return Whole(value)

    return perform


def _task_result(execution: Execution) -> Any:
    """Returns the result of the Task's own work, from the history."""
    for event in reversed(execution.history):
        for details in ("taskSucceededEventDetails", "lambdaFunctionSucceededEventDetails"):
            if details in event:
                return json.loads(event[details]["output"])
    return None
