"""Answers the actions on executions: start, describe, list, read the history, stop, redrive.

Express executions are not listed or described, their history is not kept, and none outlives `close`.
"""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

from states_language import Execution
from states_language.scheduling.lanes import STEPS_PER_TURN, take_turn
from states_language.server.diagnostics import examine
from states_language.server.executions import Executions
from states_language.server.journals import REDRIVEN_BY_MAP_RUN
from states_language.server.known_executions import KnownExecution, describe
from states_language.server.machine_actions import configuration
from states_language.server.machines import unknown_machine
from states_language.server.map_run_actions import find_child, find_map_run, list_children, stop_child
from states_language.server.requests import Actions, Answer, Parameters, Refusal, page, require_arn
from states_language.server.stored_events import event_bytes
from states_language.server.versions import split_qualifier

_UNSUPPORTED = "This operation is not supported by this type of state machine"


class ExpressExecutions:
    """Runs the executions of Express state machines."""

    def __init__(self, executions: Executions) -> None:
        self._executions = executions
        self._running: set[Execution] = set()

    def start(self, machine_arn: str, text: str, name: str | None) -> Execution:
        """Starts an execution and returns it; raises Refusal. Any number of executions may have the same name."""
        started, document = self._executions.check_start(machine_arn, text, name)
        clock, perform, stir = self._executions.timing(self._executions.performer(machine_arn))
        name = name or str(uuid.uuid4())
        described = started.description
        live = started.machine.start(
            document,
            clock=clock,
            perform=perform,
            on_event=stir,
            name=name,
            arn=f"{described.arn.replace(':stateMachine:', ':express:')}:{name}:{uuid.uuid4()}",
            machine_name=described.name,
            machine_arn=described.arn,
            role_arn=described.role_arn,
            lanes=self._executions.lanes,
            keep_history=False,
        )
        self._running.add(live)
        live.ended.add_done_callback(lambda _: self._running.discard(live))
        return live

    async def run_to_end(self, machine_arn: str, text: str, name: str | None) -> dict[str, Any]:
        """Returns StartSyncExecution's answer when the execution has ended; raises Refusal."""
        live = await self.start(machine_arn, text, name).wait()
        stopped_ms = live.stopped_ms or live.started_ms
        return {
            "executionArn": live.arn,
            "stateMachineArn": machine_arn,
            "name": live.name,
            "startDate": live.started_ms,
            "stopDate": stopped_ms,
            "status": "FAILED" if live.status == "ABORTED" else live.status,
            "input": text,
            "output": live.output_text if live.status == "SUCCEEDED" else None,
            "error": live.error,
            "cause": live.cause,
            # Billed by 100 milliseconds and 64 MB (AWS Step Functions pricing).
            "billingDetails": {
                "billedMemoryUsedInMB": 64,
                "billedDurationInMilliseconds": -(-(stopped_ms - live.started_ms) // 100) * 100,
            },
        }

    def close(self) -> None:
        """Ends the executions that run."""
        for live in self._running:
            live.stop()


class ExecutionActions(Actions):
    def __init__(self, executions: Executions, express: ExpressExecutions) -> None:
        self._executions = executions
        self._express = express

    def _start_execution(self, parameters: Parameters) -> Answer:
        machine_arn, text = require_arn(parameters, "stateMachineArn", "stateMachine"), parameters.get("input", "{}")
        entry = self._executions.machines.get(split_qualifier(machine_arn)[0])
        if entry is not None and entry.description.type == "EXPRESS":
            run = self._express.start(machine_arn, text, parameters.get("name"))
            return {"executionArn": run.arn, "startDate": run.started_ms}
        known = self._executions.start(machine_arn, text, parameters.get("name"))
        return {"executionArn": known.opening.arn, "startDate": known.opening.started_ms}

    async def _start_sync_execution(self, parameters: Parameters) -> Answer:
        machine_arn = require_arn(parameters, "stateMachineArn", "stateMachine")
        entry = self._executions.machines.get(split_qualifier(machine_arn)[0])
        if entry is not None and entry.description.type != "EXPRESS":
            raise Refusal("StateMachineTypeNotSupported", _UNSUPPORTED)
        text = parameters.get("input", "{}")
        answer = await self._express.run_to_end(machine_arn, text, parameters.get("name"))
        return answer | {"traceHeader": parameters.get("traceHeader")}

    def _describe_execution(self, parameters: Parameters) -> Answer:
        of_run = find_child(self._executions, require_arn(parameters, "executionArn", "execution"))
        if of_run is not None:
            return of_run[0]
        known = self._get(parameters)
        reason = self._executions.redrive_refusal_reason(known)
        status = "REDRIVABLE" if reason is None else "NOT_REDRIVABLE"
        return describe(known) | {"redriveStatus": status, "redriveStatusReason": reason}

    def _describe_state_machine_for_execution(self, parameters: Parameters) -> Answer:
        of_run = find_child(self._executions, require_arn(parameters, "executionArn", "execution"))
        if of_run is None:
            return self._describe_machine(self._get(parameters))
        run = find_map_run(self._executions, of_run[0]["mapRunArn"])
        qualified = {name: run[name] for name in ("mapRunArn", "stateMachineArn")}
        label = run["stateMachineArn"].rpartition("/")[2]
        return self._describe_machine(self._executions.get(run["executionArn"])) | qualified | {"label": label}

    def _describe_machine(self, known: KnownExecution) -> Answer:
        opening, entry = known.opening, self._executions.machines.get(known.opening.machine_arn)
        definition = opening.definition or (entry.description.definition if entry is not None else "")
        if not definition:
            raise unknown_machine(opening.machine_arn)
        return {
            "stateMachineArn": opening.machine_arn,
            "name": opening.machine_arn.rpartition(":")[2],
            "definition": definition,
            "roleArn": opening.role_arn,
            "updateDate": opening.machine_updated_ms or opening.started_ms,
            "revisionId": opening.revision_id,
            "variableReferences": examine(definition).variables or None,
            **configuration(entry.description.settings if entry is not None else {}),
        }

    def _list_executions(self, parameters: Parameters) -> Answer:
        if ("stateMachineArn" in parameters) == ("mapRunArn" in parameters):
            raise Refusal("ValidationException", "Must provide a StateMachine ARN or MapRun ARN")
        if "mapRunArn" in parameters:
            return list_children(self._executions, parameters)
        listed_arn = require_arn(parameters, "stateMachineArn", "stateMachine")
        machine_arn = split_qualifier(listed_arn)[0]
        self._executions.machines.start_target(listed_arn)
        if self._executions.machines[machine_arn].description.type == "EXPRESS":
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
        return {"executions": [describe(known) for known in shown]} | rest

    async def _get_execution_history(self, parameters: Parameters) -> Answer:
        of_run = find_child(self._executions, require_arn(parameters, "executionArn", "execution"))
        events: Sequence[dict[str, Any]]
        if of_run is None:
            # The first page of a stored history reads the whole file, in a thread, so that nobody else waits for it.
            events = await asyncio.to_thread(self._executions.history, self._get(parameters))
            self._get(parameters)  # it may have been forgotten meanwhile
        elif of_run[1] is None:
            raise Refusal("ExecutionDoesNotExist", "Only the first executions of a Map Run keep their history.")
        else:
            events = of_run[1]
        with_data = parameters.get("includeExecutionData") is not False
        # Pages go by event ids, which count from 1, for a running execution adds events while its history is read.
        backwards = bool(parameters.get("reverseOrder"))
        every = range(1, len(events) + 1)
        ids, rest = page(
            parameters, "events", every, int, descending=backwards, size=lambda id_: event_bytes(events, id_ - 1)
        )
        shown = events[min(ids) - 1 : max(ids)] if ids else []
        return {"events": [_to_wire_event(event, with_data) for event in (shown[::-1] if backwards else shown)]} | rest

    async def _stop_execution(self, parameters: Parameters) -> Answer:
        execution_arn = require_arn(parameters, "executionArn", "execution")
        error, cause = parameters.get("error"), parameters.get("cause")
        # Marking ten thousand executions of a Map Run as ended takes 20 ms, so each pass of the event loop stops one.
        take_turn(STEPS_PER_TURN)
        at_ms = stop_child(self._executions, execution_arn, error, cause)
        if at_ms is None:
            known = self._executions.stop(execution_arn, error, cause)
            if known.live is not None:
                await known.live.wait()
            assert known.closing is not None
            at_ms = known.closing.stopped_ms
        return {"stopDate": at_ms}

    async def _redrive_execution(self, parameters: Parameters) -> Answer:
        execution_arn = require_arn(parameters, "executionArn", "execution")
        if find_child(self._executions, execution_arn) is not None:
            raise Refusal("ExecutionNotRedrivable", f"{REDRIVEN_BY_MAP_RUN}.")
        at_ms = await self._executions.redrive(execution_arn, parameters.get("clientToken"))
        return {"redriveDate": at_ms}

    def _get(self, parameters: Parameters) -> KnownExecution:
        return self._executions.get(require_arn(parameters, "executionArn", "execution"))


def _to_wire_event(event: dict[str, Any], with_data: bool) -> dict[str, Any]:
    converted = event | {"timestamp": event["timestamp"] / 1000}
    if not with_data:
        # Source: GetExecutionHistory, includeExecutionData: "whether execution data (input or output) is returned".
        for name, value in event.items():
            if isinstance(value, dict):
                converted[name] = {inner: kept for inner, kept in value.items() if inner not in ("input", "output")}
    return converted
