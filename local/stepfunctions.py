"""The Step Functions API, JSON 1.0, as boto3 and the AWS command line speak it.

Decides the shape of answers and errors. It does not know how executions run. Invariant: times are epoch seconds, as the
protocol has them; an unknown action or a bad request is an error that the SDK raises by AWS's name.
"""

import base64
import json
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.responses import Response

from local.executions import Executions, Refusal, description, parsed

_MEDIA_TYPE = "application/x-amz-json-1.0"
_STATUSES = ("RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED", "PENDING_REDRIVE")
_MOST = 1000
_USUAL = 100
_KINDS: dict[type, str] = {str: "a string", int: "a whole number", bool: "true or false"}
T = TypeVar("T")
Action = Callable[[dict[str, Any]], dict[str, Any]]


class StepFunctions:
    """Answers Step Functions requests out of the registry of executions."""

    def __init__(self, executions: Executions, created_ms: int) -> None:
        self._executions = executions
        self._created_s = created_ms / 1000
        self._actions: dict[str, Action] = {
            "StartExecution": self._start,
            "DescribeExecution": self._describe,
            "ListExecutions": self._list,
            "GetExecutionHistory": self._history,
            "StopExecution": self._stop,
            "DescribeStateMachine": self._describe_machine,
            "ListStateMachines": self._list_machines,
        }

    def answer(self, action: str, body: bytes) -> Response:
        """Returns the HTTP answer to one request; never raises for what the request says."""
        try:
            if action not in self._actions:
                raise Refusal("UnknownOperationException", f"The local service does not offer {action}.")
            try:
                parameters = parsed(body or b"{}")
            except ValueError:
                raise Refusal("SerializationException", "The request is no JSON.") from None
            if not isinstance(parameters, dict):
                raise Refusal("SerializationException", "The request is no JSON object.")
            return _json(200, self._actions[action](parameters))
        except Refusal as refusal:
            return _json(400, {"__type": f"com.amazonaws.states#{refusal.code}", "message": str(refusal)})

    def _start(self, parameters: dict[str, Any]) -> dict[str, Any]:
        machine_arn = _text(parameters, "stateMachineArn")
        text, name = _optional(parameters, "input", str), _optional(parameters, "name", str)
        known = self._executions.start(machine_arn, text or "{}", name)
        return {"executionArn": known.opening.arn, "startDate": known.opening.started_ms / 1000}

    def _describe(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return description(self._get(parameters))

    def _list(self, parameters: dict[str, Any]) -> dict[str, Any]:
        machine_arn = _text(parameters, "stateMachineArn")
        wanted = parameters.get("statusFilter")
        if wanted is not None and wanted not in _STATUSES:
            raise Refusal("ValidationException", f"statusFilter must be one of {', '.join(_STATUSES)}.")
        if machine_arn not in self._executions.machines:
            raise Refusal("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{machine_arn}'")
        found = [
            {name: value for name, value in description(known).items() if name in _LISTED}
            for known in reversed(self._executions.all())
            if known.opening.machine_arn == machine_arn and wanted in (None, known.status)
        ]
        return _page(parameters, "executions", found)

    def _history(self, parameters: dict[str, Any]) -> dict[str, Any]:
        events = self._executions.history(self._get(parameters))
        with_data = _optional(parameters, "includeExecutionData", bool) is not False
        if _optional(parameters, "reverseOrder", bool):
            events = events[::-1]
        page = _page(parameters, "events", events)
        page["events"] = [_wire(event, with_data) for event in page["events"]]
        return page

    def _stop(self, parameters: dict[str, Any]) -> dict[str, Any]:
        arn = _text(parameters, "executionArn")
        error, cause = _optional(parameters, "error", str), _optional(parameters, "cause", str)
        known = self._executions.stop(arn, error, cause)
        assert known.closing is not None
        return {"stopDate": known.closing.stopped_ms / 1000}

    def _describe_machine(self, parameters: dict[str, Any]) -> dict[str, Any]:
        arn = _text(parameters, "stateMachineArn")
        if arn not in self._executions.machines:
            raise Refusal("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")
        machine, _ = self._executions.machines[arn]
        return {
            "stateMachineArn": arn,
            "name": machine.name,
            "status": "ACTIVE",
            "definition": machine.definition,
            "roleArn": "arn:aws:iam::000000000000:role/local",
            "type": "STANDARD",
            "creationDate": self._created_s,
        }

    def _list_machines(self, parameters: dict[str, Any]) -> dict[str, Any]:
        found = [
            {"stateMachineArn": arn, "name": machine.name, "type": "STANDARD", "creationDate": self._created_s}
            for arn, (machine, _) in self._executions.machines.items()
        ]
        return _page(parameters, "stateMachines", found)

    def _get(self, parameters: dict[str, Any]) -> Any:
        arn = _text(parameters, "executionArn")
        try:
            return self._executions.get(arn)
        except KeyError:
            raise Refusal("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'") from None


_LISTED = {"executionArn", "stateMachineArn", "name", "status", "startDate", "stopDate", "redriveCount"}


def _wire(event: dict[str, Any], with_data: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in event.items():
        if name == "timestamp":
            found[name] = value / 1000
        elif isinstance(value, dict) and not with_data:
            # Source: GetExecutionHistory, includeExecutionData: "whether execution data (input or output) is returned".
            found[name] = {inner: kept for inner, kept in value.items() if inner not in ("input", "output")}
        else:
            found[name] = value
    return found


def _page(parameters: dict[str, Any], name: str, found: list[Any]) -> dict[str, Any]:
    """One page; maxResults is 0 (the usual 100) to 1000, and the token is the place to go on from."""
    most = _optional(parameters, "maxResults", int) or _USUAL
    if not 0 <= most <= _MOST:
        raise Refusal("ValidationException", f"maxResults must be a whole number from 0 to {_MOST}.")
    begin = 0
    if token := _optional(parameters, "nextToken", str):
        try:
            begin = int(base64.b64decode(token, validate=True))
        except ValueError:
            begin = -1
        if begin < 0:
            raise Refusal("InvalidToken", f"Invalid Token: '{token}'")
    page: dict[str, Any] = {name: found[begin : begin + most]}
    if begin + most < len(found):
        page["nextToken"] = base64.b64encode(str(begin + most).encode()).decode()
    return page


def _optional(parameters: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """A member of this type; None where it is absent or null."""
    value = parameters.get(name)
    # A bool is an int to Python, and not to JSON.
    if value is None or type(value) is kind:
        return value
    raise Refusal("ValidationException", f"1 validation error detected: {name} must be {_KINDS[kind]}.")


def _text(parameters: dict[str, Any], name: str) -> str:
    value = parameters.get(name)
    if not isinstance(value, str):
        raise Refusal("ValidationException", f"{name} is missing or no text.")
    # Source: the errors of each action in the AWS Step Functions API reference.
    if not value.startswith("arn:") or value.count(":") < 6:
        raise Refusal("InvalidArn", f"Invalid Arn: '{value}'")
    return value


def _json(status: int, value: dict[str, Any]) -> Response:
    return Response(json.dumps(value), status, media_type=_MEDIA_TYPE)
