"""Answers the actions on executions: start, describe, list, read the history, stop, redrive.

Invariant: times are epoch seconds.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from states_language.server.executions import Executions
from states_language.server.express import Express
from states_language.server.known_executions import KnownExecution, description
from states_language.server.machine_actions import configuration, missing
from states_language.server.map_run_actions import child, children, stop_child
from states_language.server.pages import page
from states_language.server.parameters import Action, Answer, Parameters, Refusal, arn
from states_language.server.redrives import OF_MAP_RUN
from states_language.server.versions import split

_LISTED = {
    "executionArn",
    "stateMachineArn",
    "stateMachineVersionArn",
    "stateMachineAliasArn",
    "name",
    "status",
    "startDate",
    "stopDate",
    "redriveCount",
    "redriveDate",
}
_UNSUPPORTED = "This operation is not supported by this type of state machine"


class ExecutionActions:
    """The actions on executions."""

    def __init__(self, executions: Executions, express: Express) -> None:
        self._executions = executions
        self._express = express

    def actions(self) -> dict[str, Action]:
        """Returns the actions by name."""
        return {
            "StartExecution": self._start,
            "StartSyncExecution": self._start_sync,
            "DescribeExecution": self._describe,
            "DescribeStateMachineForExecution": self._describe_machine,
            "ListExecutions": self._list,
            "GetExecutionHistory": self._history,
            "StopExecution": self._stop,
            "RedriveExecution": self._redrive,
        }

    def _start(self, parameters: Parameters) -> Answer:
        machine_arn, text = arn(parameters, "stateMachineArn", "stateMachine"), parameters.get("input", "{}")
        entry = self._executions.machines.get(split(machine_arn)[0])
        if entry is not None and entry.described.type == "EXPRESS":
            run = self._express.start(machine_arn, text, parameters.get("name"))
            return {"executionArn": run.arn, "startDate": run.started_ms / 1000}
        known = self._executions.start(machine_arn, text, parameters.get("name"))
        return {"executionArn": known.opening.arn, "startDate": known.opening.started_ms / 1000}

    async def _start_sync(self, parameters: Parameters) -> Answer:
        machine_arn = arn(parameters, "stateMachineArn", "stateMachine")
        entry = self._executions.machines.get(split(machine_arn)[0])
        if entry is not None and entry.described.type != "EXPRESS":
            raise Refusal("StateMachineTypeNotSupported", _UNSUPPORTED)
        text = parameters.get("input", "{}")
        answer = await self._express.run_to_end(machine_arn, text, parameters.get("name"))
        if "traceHeader" in parameters:
            answer["traceHeader"] = parameters["traceHeader"]
        if parameters.get("includedData") == "METADATA_ONLY":
            answer = {key: value for key, value in answer.items() if key not in ("input", "output")}
            answer |= {key: {"included": False} for key in ("inputDetails", "outputDetails") if key in answer}
        return answer

    def _describe(self, parameters: Parameters) -> Answer:
        execution_arn = arn(parameters, "executionArn", "execution")
        of_run = child(self._executions, execution_arn)
        answer = self._described(self._get(parameters)) if of_run is None else of_run[0]
        if parameters.get("includedData") == "METADATA_ONLY":
            answer = {key: value for key, value in answer.items() if key not in ("input", "output", "cause", "error")}
            answer |= {key: {"included": False} for key in ("inputDetails", "outputDetails") if key in answer}
        return answer

    def _described(self, known: KnownExecution) -> Answer:
        reason = self._executions.not_redrivable(known)
        if reason is None:
            return description(known) | {"redriveStatus": "REDRIVABLE"}
        return description(known) | {"redriveStatus": "NOT_REDRIVABLE", "redriveStatusReason": reason}

    def _describe_machine(self, parameters: Parameters) -> Answer:
        known = self._get(parameters)
        opening, entry = known.opening, self._executions.machines.get(known.opening.machine_arn)
        definition = opening.definition or (entry.described.definition if entry is not None else "")
        if not definition:
            raise missing(opening.machine_arn)
        answer: Answer = {
            "stateMachineArn": opening.machine_arn,
            "name": opening.machine_arn.rpartition(":")[2],
            "definition": definition,
            "roleArn": opening.role_arn,
            "updateDate": (opening.machine_updated_ms or opening.started_ms) / 1000,
            **configuration(entry.described.settings if entry is not None else {}),
        }
        if opening.revision_id is not None:
            answer["revisionId"] = opening.revision_id
        if parameters.get("includedData") == "METADATA_ONLY":
            answer["definition"] = "{}"
        return answer

    def _list(self, parameters: Parameters) -> Answer:
        if ("stateMachineArn" in parameters) == ("mapRunArn" in parameters):
            raise Refusal("ValidationException", "Must provide a StateMachine ARN or MapRun ARN")
        if "mapRunArn" in parameters:
            return children(self._executions, parameters)
        listed_arn = arn(parameters, "stateMachineArn", "stateMachine")
        machine_arn = split(listed_arn)[0]
        try:
            self._executions.machines.started(listed_arn)
        except KeyError:
            raise missing(listed_arn) from None
        if self._executions.machines[machine_arn].described.type == "EXPRESS":
            raise Refusal("StateMachineTypeNotSupported", _UNSUPPORTED)
        wanted, redriven = parameters.get("statusFilter"), parameters.get("redriveFilter")
        chosen = [
            known
            for known in self._executions.all()
            if listed_arn in (known.opening.machine_arn, known.opening.version_arn, known.opening.alias_arn)
            and wanted in (None, known.status)
            and redriven in (None, "REDRIVEN" if known.redrives else "NOT_REDRIVEN")
        ]
        asked = f"executions {listed_arn} {wanted} {redriven}"
        shown, rest = page(parameters, asked, chosen, lambda known: known.serial, descending=True)
        listed = [{name: value for name, value in description(known).items() if name in _LISTED} for known in shown]
        return {"executions": listed} | rest

    async def _history(self, parameters: Parameters) -> Answer:
        of_run = child(self._executions, arn(parameters, "executionArn", "execution"))
        events: Sequence[dict[str, Any]]
        if of_run is None:
            # The first look at a stored history reads all of it, and nobody else waits for that.
            events = await asyncio.to_thread(self._executions.history, self._get(parameters))
        elif of_run[1] is None:
            raise Refusal("ExecutionDoesNotExist", "Only the first hundred executions of a Map Run keep their history.")
        else:
            events = of_run[1]
        with_data = parameters.get("includeExecutionData") is not False
        # By the events' ids, which count from 1: one that runs adds events while its history is read backwards.
        backwards = bool(parameters.get("reverseOrder"))
        ids, rest = page(parameters, "events", range(1, len(events) + 1), int, descending=backwards)
        shown = events[min(ids) - 1 : max(ids)] if ids else []
        return {"events": [_wire(event, with_data) for event in (shown[::-1] if backwards else shown)]} | rest

    def _stop(self, parameters: Parameters) -> Answer:
        execution_arn = arn(parameters, "executionArn", "execution")
        error, cause = parameters.get("error"), parameters.get("cause")
        of_run = child(self._executions, execution_arn)
        if of_run is not None:
            return {"stopDate": stop_child(self._executions, execution_arn, error, cause) / 1000}
        known = self._executions.stop(execution_arn, error, cause)
        assert known.closing is not None
        return {"stopDate": known.closing.stopped_ms / 1000}

    def _redrive(self, parameters: Parameters) -> Answer:
        execution_arn = arn(parameters, "executionArn", "execution")
        if child(self._executions, execution_arn) is not None:
            raise Refusal("ExecutionNotRedrivable", f"{OF_MAP_RUN}.")
        at_ms = self._executions.redrive(execution_arn, parameters.get("clientToken"))
        return {"redriveDate": at_ms / 1000}

    def _get(self, parameters: Parameters) -> KnownExecution:
        execution_arn = arn(parameters, "executionArn", "execution")
        try:
            return self._executions.get(execution_arn)
        except KeyError:
            raise Refusal("ExecutionDoesNotExist", f"Execution Does Not Exist: '{execution_arn}'") from None


def _wire(event: dict[str, Any], with_data: bool) -> dict[str, Any]:
    converted = event | {"timestamp": event["timestamp"] / 1000}
    if not with_data:
        # Source: GetExecutionHistory, includeExecutionData: "whether execution data (input or output) is returned".
        for name, value in event.items():
            if isinstance(value, dict):
                converted[name] = {inner: kept for inner, kept in value.items() if inner not in ("input", "output")}
    return converted
