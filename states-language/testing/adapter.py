"""Replays recorded AWS executions on the interpreter."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from recorded_services import RecordedServices
from states_language import DefinitionError, Perform, TaskCall, TaskFailure, load
from states_language.clock import VirtualClock
from states_language.tasks.lambda_answers import missing_function_failure
from states_language.values import compact

ROLE = "arn:aws:iam::111111111111:role/test-sfn-role"


def replay_case(
    definition: dict[str, Any], data: Any, lambdas: Mapping[str, dict[str, Any]], case: dict[str, Any]
) -> dict[str, Any]:
    """Return status, output, error, cause, event_types and events of the case's execution in virtual time."""
    try:
        load(definition)
    except DefinitionError as refusal:
        return {"status": "REFUSED", "cause": str(refusal)}

    distributed = "DISTRIBUTED" in compact(definition)
    outside = RecordedServices(case.get("expected", {}).get("events", []))

    async def perform(call: TaskCall) -> Any:
        if call.service == "s3" and distributed:
            return answer_s3(call)
        if call.function is None:
            return await outside.perform(call)
        answer = await answer_function(lambdas, call)
        if call.pending is not None:
            await outside.complete_task(call, call.pending)
        return answer

    return run_recorded(definition, data, case, perform)


def run_recorded(definition: dict[str, Any], data: Any, case: dict[str, Any], perform: Perform) -> dict[str, Any]:
    """Return the outcome of the case's execution, in virtual time and under the recorded names."""
    machine, clock, arn = load(definition), VirtualClock(), case["execution_arn"]
    machine_arn = arn.replace(":execution:", ":stateMachine:").rpartition(":")[0]
    if ":express:" in arn:
        machine_arn = arn.partition(":express:")[0] + ":stateMachine:" + case["state_machine_name"]
    execution = machine.run(
        data, clock=clock, perform=perform, name=case["execution_name"], arn=arn, role_arn=ROLE,
        machine_name=case["state_machine_name"], machine_arn=machine_arn,
    )  # fmt: skip
    answer: dict[str, Any] = {"status": execution.status, "event_types": [event["type"] for event in execution.history]}
    answer["events"] = [flatten_event(event) for event in execution.history]
    if execution.status == "SUCCEEDED":
        answer["output"] = execution.output
    for name in ("error", "cause"):
        if getattr(execution, name) is not None:
            answer[name] = getattr(execution, name)
    return answer


def answer_s3(call: TaskCall) -> Any:
    """Return S3's answer: it accepts writes and has nothing to read, because no object was recorded."""
    if call.action == "putObject":
        return {}
    raise TaskFailure("S3.NoSuchKeyException", "The specified key does not exist.")


async def answer_function(lambdas: Mapping[str, dict[str, Any]], call: TaskCall) -> Any:
    """Return the answer of the case's function; raises TaskFailure as AWS does."""
    behaviour = lambdas.get(call.function or "")
    if behaviour is None:
        raise missing_function_failure(call, "00000000-0000-0000-0000-000000000000")
    kind = behaviour["kind"]
    if kind == "raise":
        payload = {
            "errorMessage": behaviour["errorMessage"],
            "errorType": behaviour["errorType"],
            "requestId": "00000000-0000-0000-0000-000000000000",
            "stackTrace": behaviour.get("stackTrace", []),
        }
        raise TaskFailure(behaviour["errorType"], compact(payload))
    if kind == "sleep_then_echo":
        await asyncio.sleep(behaviour["seconds"])
    answers = {"echo": lambda: call.payload, "sleep_then_echo": lambda: call.payload,
               "constant": lambda: behaviour["value"],
               "python_format": lambda: behaviour["format"].format(event=call.payload),
               "large_string": lambda: behaviour["char"] * behaviour["bytes"]}  # fmt: skip
    return answers[kind]()


def flatten_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event in the recordings' form: id, prev, type and its details' members, with JSON texts parsed."""
    flat: dict[str, Any] = {"id": event["id"], "prev": event["previousEventId"], "type": event["type"]}
    for name, details in event.items():
        if name.endswith("EventDetails"):
            for key, value in details.items():
                if key in ("inputDetails", "outputDetails", "assignedVariablesDetails", "roleArn"):
                    continue
                if key == "assignedVariables":
                    flat[key] = {name: json.loads(text) for name, text in value.items()}
                else:
                    flat[key] = json.loads(value) if key in ("input", "output", "parameters") else value
    return flat
