"""Answers TestState: reads the request, runs the state in `single_state`, and writes the answer.

Invariant: a mocked state calls no service.
"""

import uuid
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from states_language import DefinitionError, Execution, Machine, TaskCall
from states_language.clock import Clock, RealClock
from states_language.definition.pointers import LINES, states_of
from states_language.failures import StateError
from states_language.scheduling.lanes import take_turn_for_json
from states_language.server.definition_reader import DefinitionReader
from states_language.server.diagnostics import (
    diagnostics,
    invalid_definition,
    refuse_invalid_definition,
    unknown_actions,
)
from states_language.server.executions import Executions
from states_language.server.json_messages import message
from states_language.server.requests import PREFIX, Actions, Answer, Parameters, Refusal, read_data, read_input
from states_language.server.sdk import STRICT, check_mocked_result
from states_language.server.single_state import NAME, StateTest, StateTestRequest, single_state_machine
from states_language.tasks.calls import Exchange
from states_language.tasks.resources import Resource, read_resource
from states_language.timestamps import format_timestamp
from states_language.values import compact, parse_json, unique_members_hook

_DEFAULT_COUNT = 100
_TEXTS = ("output", "error", "cause", "nextState", "status")
_NEEDS_A_MOCK = (
    "TestState API does not support Map or Parallel states. "
    "Supported state types include: [Task, Wait, Pass, Succeed, Fail, Choice]"
)
_WAITS = "TestState API does not support Activity tasks, .sync or .waitForTaskToken without a mock."
"""AWS documents that they are not supported; the words are ours."""
_DATA = ("maxConcurrency", "toleratedFailureCount", "toleratedFailurePercentage", "errorDetails", "request", "response")
"""Members of an inspection that are no text of JSON."""

_CONTEXT = {
    "Execution": ("Id", "Input", "Name", "RoleArn", "StartTime", "RedriveCount", "RedriveTime"),
    "State": ("EnteredTime", "Name", "RetryCount"),
    "StateMachine": ("Id", "Name"),
    "Task": ("Token",),
}
_TEXT_MEMBERS = {"Id", "Name", "RoleArn", "StartTime", "RedriveTime", "EnteredTime", "Token"}
_PATTERNS = "a '.sync' or '.waitForTaskToken' service integration pattern"


class StateTestAction(Actions):
    """TestState and ValidateStateMachineDefinition; a Task that is not mocked is performed as in an execution."""

    def __init__(self, executions: Executions, clock: Clock, reader: DefinitionReader) -> None:
        self._executions = executions
        self._reader = reader
        self._clock = clock

    def _validate_state_machine_definition(self, parameters: Parameters) -> Answer:
        reports = diagnostics(parameters["definition"], parameters.get("type") or "STANDARD")
        # "The default value is 100. … If the number of diagnostics exceeds it, truncated is true" (API reference).
        shown = reports[: parameters.get("maxResults") or _DEFAULT_COUNT]
        return {"result": "FAIL" if reports else "OK", "diagnostics": shown, "truncated": len(shown) < len(reports)}

    async def _test_state(self, parameters: Parameters) -> Answer:
        inner = ("mock", "stateConfiguration")
        parameters |= {
            name: {key: value for key, value in parameters[name].items() if value is not None}
            for name in inner
            if isinstance(parameters.get(name), dict)
        }
        length = len(parameters["definition"])
        state, iterated = await self._reader.run_in_thread(length, _find_state, parameters)
        document = read_input(parameters.get("input") or "{}")
        if isinstance(document, Refusal):
            raise document
        request = _build_request(parameters, document.value)
        _check_mock(parameters, state, request)
        context = self._context(parameters, state, request.data, iterated)
        level = parameters.get("inspectionLevel", "INFO")
        exchange = Exchange(bool(parameters.get("revealSecrets"))) if level == "TRACE" else None

        async def perform_real(call: TaskCall) -> Any:
            assert self._executions.perform is not None
            return await self._executions.perform(call._replace(exchange=exchange))

        async def run(
            loading: Callable[[], Machine], data: Any, perform: Callable[[TaskCall], Awaitable[Any]] | None
        ) -> Execution:
            tested = await self._reader.run_in_thread(length, loading)
            works = perform is None and state.get("Type") == "Task"
            # A service sees the same account as from every other execution here.
            execution = tested.start(
                document if data is document.value else data,
                clock=self._clock if works else _NoWaitClock(),
                perform=perform or perform_real,
                machine_arn=f"{PREFIX}:stateMachine:{uuid.uuid4()}",
                context=context,
                lanes=self._executions.lanes,
            )
            return await execution.wait()

        try:
            state_test = StateTest(state, request, run)
            answer = await state_test.answer()
        except DefinitionError as problem:
            raise invalid_definition(problem, {"States": {NAME: state}}) from None
        response = {name: answer[name] for name in _TEXTS if name in answer}
        if "output" in response:
            response["output"] = _to_json_text(response["output"])
        if level != "INFO":
            shown = state_test.inspection | (exchange.shown if exchange else {})
            response["inspectionData"] = {
                key: shown[key] if key in _DATA else _to_json_text(shown[key]) for key in shown
            }
        return response

    def _context(self, parameters: Parameters, state: dict[str, Any], data: Any, iterated: bool) -> dict[str, Any]:
        """Returns the request's Context Object, or else that of an Express execution of a new machine (recorded).

        iterated: whether the state is one of a Map's iterations, whose item is the input (Developer Guide).
        """
        if "context" in parameters:
            return _check_context(_read_object(parameters, "context"), state)
        name, execution, now = str(uuid.uuid4()), str(uuid.uuid4()), format_timestamp(self._clock.now_ms())
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
            **({"Map": {"Item": {"Index": 0, "Value": data}}} if iterated else {}),
        }


class _NoWaitClock(RealClock):
    """The time of a tested state: a Wait ends at once, and the time has moved on by its length."""

    def __init__(self) -> None:
        super().__init__()
        self._waited_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._waited_ms

    async def sleep_until(self, at_ms: int) -> None:
        self._waited_ms += max(0, at_ms - self.now_ms())


def _to_json_text(value: Any) -> str:
    text = compact(value)
    take_turn_for_json(text)
    return text


def _find_state(parameters: Parameters) -> tuple[dict[str, Any], bool]:
    """Return the state under test, and whether it is within a Map."""
    text, name = parameters["definition"], parameters.get("stateName")
    try:
        definition = parse_json(text, members=unique_members_hook())
    except (ValueError, RecursionError):
        definition = None
    if not isinstance(definition, dict):
        raise Refusal("InvalidDefinition", "Invalid State Machine Definition: 'Definition must be a valid JSON object'")
    if "States" in definition:
        if name is None:
            raise Refusal("ValidationException", "The stateName is required to test a state of a state machine.")
        refuse_invalid_definition(text, "STANDARD")
        path, named = next((found for found in states_of(definition) if found[0][-1] == name), ((), None))
        if named is None:
            raise Refusal("ValidationException", "State not found in definition")
        # The states within it have the machine's query language, so it was checked with the machine, not by itself.
        state = {name: definition[name] for name in ("QueryLanguage",) if name in definition} | named
        return state, any(field in LINES and inner == "States" for field, inner in pairwise(path))
    try:
        single_state_machine(definition)
        for problem in unknown_actions(states_of({"States": {NAME: definition}})):
            raise problem
    except DefinitionError as problem:
        raise invalid_definition(problem, {"States": {NAME: definition}}) from None
    return definition, False


def _build_request(parameters: Parameters, data: Any) -> StateTestRequest:
    mock, settings = parameters.get("mock", {}), parameters.get("stateConfiguration", {})
    error = mock.get("errorOutput")
    return StateTestRequest(
        data=data,
        variables=_read_object(parameters, "variables") if "variables" in parameters else {},
        result=(_read_json(mock, "result"),) if "result" in mock else None,
        error=None if error is None else StateError(error.get("error"), error.get("cause")),
        retries=settings.get("retrierRetryCount", 0),
        failed_items=settings.get("mapIterationFailureCount", 0),
        reader_text=settings.get("mapItemReaderData"),
    )


def _check_mock(parameters: Parameters, state: dict[str, Any], request: StateTestRequest) -> None:
    """Raises Refusal for a mock that this state cannot have, or for a missing one that it needs (recorded)."""
    kind, mock = state.get("Type"), parameters.get("mock")
    if not mock:
        if "mapIterationFailureCount" in parameters.get("stateConfiguration", {}):
            unsupported = "TestState does not support MapIterationFailureCount when a mock is not specified."
            raise Refusal("ValidationException", unsupported)
        if kind in ("Parallel", "Map"):
            raise Refusal("InvalidDefinition", _NEEDS_A_MOCK)
        resource = read_resource(state["Resource"]) if kind == "Task" else None
        if isinstance(resource, Resource) and (resource.is_activity or resource.pattern):
            raise Refusal("InvalidDefinition", _WAITS)
        if kind == "Task" and not parameters.get("roleArn"):
            raise Refusal("ValidationException", "RoleArn must be specified when testing a Task state")
        return
    if parameters.get("revealSecrets"):
        raise Refusal("ValidationException", "TestState does not support RevealSecrets when a mock is specified.")
    if {"result", "errorOutput"} <= mock.keys():
        fields = "[result, errorOutput]"
        raise Refusal("ValidationException", f"A test mock should have only one of the following fields: {fields}.")
    if kind not in ("Task", "Parallel", "Map"):
        raise Refusal("ValidationException", f"State type '{kind}' is not supported when a mock is specified")
    if request.error is not None and kind != "Task":
        _check_cause(parameters, state)
    if request.result is None:
        return
    result = request.result[0]
    if kind == "Task":
        resource = read_resource(state["Resource"])
        if isinstance(resource, Resource):
            check_mocked_result(resource, result, mock.get("fieldValidationMode") or STRICT)
        return
    wanted, description = (dict, "a JSON object") if "ResultWriter" in state else (list, "an array")
    if not isinstance(result, wanted):
        raise Refusal("ValidationException", f"Mocked result must be {description}.")
    if kind == "Parallel" and len(result) != len(state["Branches"]):
        same = "the same number of items as number of Parallel branches"
        raise Refusal("ValidationException", f"Mocked result must contain {same}.")


def _check_cause(parameters: Parameters, state: dict[str, Any]) -> None:
    """Raises Refusal if no state within the Map or Parallel is named as the one whose error is mocked.

    "When mocking errors for Map or Parallel states, you must specify which sub-state caused the error" (Developer
    Guide); its Retriers and Catchers treat the error as in an execution, where any state's error is treated alike.
    """
    within = (path[-1] for path, _ in states_of({"States": {NAME: state}}) if len(path) > len(("States", NAME)))
    if parameters.get("stateConfiguration", {}).get("errorCausedByState") not in within:
        where = f"a state within this {state['Type']} state, where the mocked error comes from"
        raise Refusal("ValidationException", f"stateConfiguration.errorCausedByState must name {where}.")


def _check_context(context: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Return the Context Object of a request; raises Refusal for one that no tested state has (recorded)."""
    resource = read_resource(state["Resource"]) if state["Type"] == "Task" else ""
    for name, members in context.items():
        if name == "Map":
            reason = "'Map' field is not supported when mocking a Context object"
        elif name == "Task" and not (isinstance(resource, Resource) and resource.pattern):
            reason = f"Context object contains 'Task' when state is not a Task state with {_PATTERNS}"
        elif name not in _CONTEXT or not isinstance(members, dict):
            reason = f"Field '{name}' is not allowed"
        elif unknown := [member for member in members if member not in _CONTEXT[name]]:
            reason = f"Field '{unknown[0]}' is not allowed"
        elif wrong := [member for member in _TEXT_MEMBERS & members.keys() if not isinstance(members[member], str)]:
            reason = f"{name}.{min(wrong)} must be a string"
        else:
            continue
        raise Refusal("ValidationException", f"Invalid Context object provided: {reason}")
    return context


def _read_json(parameters: Parameters, name: str) -> Any:
    try:
        return read_data(parameters[name])
    except ValueError as problem:
        reason = f"Invalid JSON in {name}: {message(parameters[name], problem)}"
        raise Refusal(
            "ValidationException", "Mocked result must be valid JSON" if name == "result" else reason
        ) from None


def _read_object(parameters: Parameters, name: str) -> dict[str, Any]:
    value = _read_json(parameters, name)
    if not isinstance(value, dict):
        raise Refusal("ValidationException", f"{name} must be a JSON object.")
    return value
