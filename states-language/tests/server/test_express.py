"""Express executions as an SDK starts them."""

import json
from typing import Any

from endpoint import (
    HANDED,
    PREFIX,
    ROLE,
    SEND,
    calling,
    created,
    refusal,
)


def test_an_express_execution_is_answered_at_once(states: Any) -> None:
    """StartSyncExecution gives output or error; a Standard machine has no such start."""
    arn = created(states, "express", type="EXPRESS")
    answer = states.start_sync_execution(stateMachineArn=arn, input='{"a":1}', name="one")
    assert (answer["status"], answer["output"], answer["name"]) == ("SUCCEEDED", '{"a":1}', "one")
    assert answer["executionArn"].startswith(PREFIX.replace("stateMachine", "express") + "express:one:")
    assert answer["billingDetails"]["billedMemoryUsedInMB"] == 64
    fail = {"StartAt": "S", "States": {"S": {"Type": "Fail", "Error": "Bad"}}}
    failed = states.start_sync_execution(stateMachineArn=created(states, "express-bad", fail, type="EXPRESS"))
    assert (failed["status"], failed["error"]) == ("FAILED", "Bad")
    refused = refusal(states.start_sync_execution, stateMachineArn=PREFIX + "deployed")
    assert refused == ("StateMachineTypeNotSupported", "This operation is not supported by this type of state machine")
    started = states.start_execution(stateMachineArn=arn)["executionArn"]
    assert refusal(states.describe_execution, executionArn=started)[0] == "InvalidArn"
    assert refusal(states.list_executions, stateMachineArn=arn)[0] == "StateMachineTypeNotSupported"


def test_an_express_machine_waits_for_nobody(states: Any) -> None:
    """Recorded: task tokens and .sync are refused when it is created."""
    request = {"name": "express-token", "roleArn": ROLE, "type": "EXPRESS"}
    refused = refusal(states.create_state_machine, **request, definition=json.dumps(calling(SEND, HANDED, End=True)))
    assert refused == (
        "InvalidDefinition",
        "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: Express state machine does not support "
        "'.waitForTaskToken' service integration  at /States/S/Resource'",
    )
