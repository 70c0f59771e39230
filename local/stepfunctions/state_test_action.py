"""TestState: one state, run on its own.

Decides how the request is read and the answer written. What becomes of a state, `local.stepfunctions.single_state`
says. Invariant: a state that is mocked asks no service.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from local.stepfunctions.diagnostics import invalid, refuse_bad
from local.stepfunctions.executions import Executions
from local.stepfunctions.json_messages import strict
from local.stepfunctions.json_messages import told as words
from local.stepfunctions.parameters import PREFIX, Action, Answer, Parameters, Refusal, parsed
from local.stepfunctions.single_state import NAME, NoSuchState, Trial, Wish, cut_out, machine
from states_language import DefinitionError, Execution, Machine, TaskCall
from states_language.clock import Clock, VirtualClock
from states_language.failures import StateError
from states_language.timestamps import written
from states_language.values import compact

_TEXTS = ("output", "error", "cause", "nextState", "status")
_NEEDS_A_MOCK = (
    "TestState API does not support Map or Parallel states. "
    "Supported state types include: [Task, Wait, Pass, Succeed, Fail, Choice]"
)
_NUMBERS = ("maxConcurrency", "toleratedFailureCount", "toleratedFailurePercentage", "errorDetails")


class TestStateActions:
    """TestState; `perform` of the executions does the work of a Task that is not mocked."""

    __test__ = False  # pytest takes every class of this name for a test

    def __init__(self, executions: Executions, clock: Clock) -> None:
        self._executions = executions
        self._clock = clock

    def actions(self) -> dict[str, Action]:
        """Returns the action by name."""
        return {"TestState": self._test}

    async def _test(self, parameters: Parameters) -> Answer:
        state, wish = _state(parameters), _wish(parameters)
        _check_mock(parameters, state, wish)
        context = self._context(parameters, state, wish.data)

        async def run(tested: Machine, data: Any, perform: Callable[[TaskCall], Awaitable[Any]] | None) -> Execution:
            if perform is None and state.get("Type") == "Task":
                return await self._really(tested, data, context)
            return await asyncio.to_thread(_quickly, tested, data, perform, context)

        try:
            trial = Trial(state, wish, run)
            answer = await trial.answer()
        except DefinitionError as problem:
            raise invalid(problem, state) from None
        found = {name: answer[name] for name in _TEXTS if name in answer}
        if "output" in found:
            found["output"] = _text(found["output"])
        if parameters.get("inspectionLevel", "INFO") != "INFO":
            shown = trial.shown
            found["inspectionData"] = {key: shown[key] if key in _NUMBERS else _text(shown[key]) for key in shown}
        return found

    async def _really(self, tested: Machine, data: Any, context: dict[str, Any]) -> Execution:
        assert self._executions.perform is not None
        # What a service is told of the caller is the account of every other execution here.
        machine_arn = f"{PREFIX}:stateMachine:{uuid.uuid4()}"
        execution = tested.start(
            data, clock=self._clock, perform=self._executions.perform, machine_arn=machine_arn, context=context
        )
        return await execution.wait()

    def _context(self, parameters: Parameters, state: dict[str, Any], data: Any) -> dict[str, Any]:
        """The Context Object that was given, or that of an Express execution of a machine of its own (recorded)."""
        if "context" in parameters:
            return _object(parameters, "context")
        name, execution, now = str(uuid.uuid4()), str(uuid.uuid4()), written(self._clock.now_ms())
        within: dict[str, Any] = {"Name": NAME, "EnteredTime": now}
        if state.get("Type") in ("Task", "Parallel", "Map"):
            within["RetryCount"] = parameters.get("stateConfiguration", {}).get("retrierRetryCount", 0)
        return {
            "Execution": {
                "Id": f"{PREFIX}:express:{name}:{execution}",
                "Input": data,
                "Name": execution,
                "RoleArn": parameters.get("roleArn"),
                "StartTime": now,
            },
            "StateMachine": {"Id": f"{PREFIX}:stateMachine:{name}", "Name": name},
            "State": within,
        }


def _quickly(
    tested: Machine, data: Any, perform: Callable[[TaskCall], Awaitable[Any]] | None, context: dict[str, Any]
) -> Execution:
    clock = VirtualClock()

    async def nothing(_: TaskCall) -> Any:
        """A state that is no Task asks for nothing."""

    async def main() -> Execution:
        return await tested.start(data, clock=clock, perform=perform or nothing, context=context).wait()

    return clock.run(main())


def _state(parameters: Parameters) -> dict[str, Any]:
    text, name = parameters["definition"], parameters.get("stateName")
    try:
        definition = strict(text)
    except (ValueError, RecursionError):
        definition = None
    if not isinstance(definition, dict):
        raise Refusal("InvalidDefinition", "Invalid State Machine Definition: 'Definition must be a valid JSON object'")
    if "States" in definition and name is None:
        raise Refusal("ValidationException", "The stateName is required to test a state of a state machine.")
    if "States" in definition:
        refuse_bad(text, "STANDARD")
    try:
        state = cut_out(definition, name)
        machine(state)
    except NoSuchState as problem:
        raise Refusal("ValidationException", str(problem)) from None
    except DefinitionError as problem:
        raise invalid(problem, definition) from None
    return state


def _wish(parameters: Parameters) -> Wish:
    text = parameters.get("input") or "{}"
    try:
        data = parsed(text)
    except ValueError as problem:
        told = words(text, problem)[0]
        raise Refusal("InvalidExecutionInput", f"Invalid State Machine Execution Input: '{told}'") from None
    mock, settings = parameters.get("mock", {}), parameters.get("stateConfiguration", {})
    error = mock.get("errorOutput")
    items = _json(settings, "mapItemReaderData") if "mapItemReaderData" in settings else None
    return Wish(
        data=data,
        variables=_object(parameters, "variables") if "variables" in parameters else {},
        result=(_json(mock, "result"),) if "result" in mock else None,
        error=None if error is None else StateError(error.get("error"), error.get("cause")),
        retries=settings.get("retrierRetryCount", 0),
        failed_items=settings.get("mapIterationFailureCount", 0),
        item_count=len(items) if isinstance(items, list) else 0,
    )


def _check_mock(parameters: Parameters, state: dict[str, Any], wish: Wish) -> None:
    """Return nothing; raises Refusal for a mock that this state cannot have, or for want of one. Recorded."""
    kind, mock = state.get("Type"), parameters.get("mock")
    if not mock:
        if kind in ("Parallel", "Map"):
            raise Refusal("InvalidDefinition", _NEEDS_A_MOCK)
        return
    if parameters.get("revealSecrets"):
        raise Refusal("ValidationException", "TestState does not support RevealSecrets when a mock is specified.")
    if {"result", "errorOutput"} <= mock.keys():
        fields = "[result, errorOutput]"
        raise Refusal("ValidationException", f"A test mock should have only one of the following fields: {fields}.")
    if kind not in ("Task", "Parallel", "Map"):
        raise Refusal("ValidationException", f"State type '{kind}' is not supported when a mock is specified")
    if kind == "Task" or wish.result is None:
        return
    result = wish.result[0]
    wanted, words_for_it = (dict, "a JSON object") if "ResultWriter" in state else (list, "an array")
    if not isinstance(result, wanted):
        raise Refusal("ValidationException", f"Mocked result must be {words_for_it}.")
    if kind == "Parallel" and len(result) != len(state["Branches"]):
        same = "the same number of items as number of Parallel branches"
        raise Refusal("ValidationException", f"Mocked result must contain {same}.")


def _json(parameters: Parameters, name: str) -> Any:
    try:
        return parsed(parameters[name])
    except ValueError as problem:
        raise Refusal("ValidationException", f"Invalid JSON in {name}: {words(parameters[name], problem)[0]}") from None


def _object(parameters: Parameters, name: str) -> dict[str, Any]:
    value = _json(parameters, name)
    if not isinstance(value, dict):
        raise Refusal("ValidationException", f"{name} must be a JSON object.")
    return value


def _text(value: Any) -> str:
    return compact(value)
