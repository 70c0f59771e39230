"""State machines as an SDK creates, changes and deletes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from endpoint import (
    PASS,
    PREFIX,
    ROLE,
    WAIT,
    await_end,
    create_machine,
    line_of,
    refusal,
    run_to_end,
    service,
    states_client,
    task_definition,
)
from patience import in_thread


def test_a_machine_is_described_with_the_variables_that_its_states_read(states: Any) -> None:
    """variableReferences lists each state's variables, without those of literals, inner states or inner functions."""
    query = "{% $map($list, function($x) { $x + $n + $states.input.y }) ~> $sum %}"
    inner = line_of(C={"Type": "Pass", "Parameters": {"a.$": "States.Format('{}', $n.m[0])", "b": "$no"}, "End": True})
    rule = {"Variable": "$n", "NumericEqualsPath": "$m", "Next": "B"}
    definition = line_of(
        A={"Type": "Choice", "Choices": [{"Not": {"Variable": "$k", "IsNull": True}, "Next": "B"}, rule]},
        B={
            "Type": "Map",
            "ItemsPath": "$list",
            "Assign": {"n": "$q", "k.$": "$.k"},
            "ItemProcessor": inner,
            "Next": "D",
        },
        D={"Type": "Pass", "QueryLanguage": "JSONata", "Output": {"a": [query]}, "End": True},
    )
    machine = create_machine(states, "variables", definition)
    execution = states.start_execution(stateMachineArn=machine)["executionArn"]
    read = {"A": ["k", "m", "n"], "B": ["list"], "C": ["n"], "D": ["list", "n"]}
    assert states.describe_state_machine(stateMachineArn=machine)["variableReferences"] == read
    assert states.describe_state_machine_for_execution(executionArn=execution)["variableReferences"] == read


def test_a_machine_from_creation_to_deletion(states: Any) -> None:
    """A machine is created, described, listed, run and deleted; then it does not exist."""
    arn = create_machine(states, "life", tags=[{"key": "a", "value": "b"}])
    assert arn == PREFIX + "life"
    described = states.describe_state_machine(stateMachineArn=arn)
    assert [described[name] for name in ("name", "status", "type", "roleArn")] == ["life", "ACTIVE", "STANDARD", ROLE]
    assert json.loads(described["definition"]) == PASS
    assert described["loggingConfiguration"]["level"] == "OFF"
    assert arn in [one["stateMachineArn"] for one in states.list_state_machines()["stateMachines"]]
    ended = run_to_end(states, arn, input='{"a":1}')
    assert (ended["status"], ended["output"]) == ("SUCCEEDED", '{"a":1}')
    assert states.list_tags_for_resource(resourceArn=arn)["tags"] == [{"key": "a", "value": "b"}]
    states.delete_state_machine(stateMachineArn=arn)
    states.delete_state_machine(stateMachineArn=arn)
    refused = f"State Machine Does Not Exist: '{arn}'"
    assert refusal(states.describe_state_machine, stateMachineArn=arn) == ("StateMachineDoesNotExist", refused)
    assert refusal(states.start_execution, stateMachineArn=arn) == ("StateMachineDoesNotExist", refused)


def test_creating_again_is_no_error_unless_something_differs(states: Any) -> None:
    """A repeated creation is refused if name, definition, type or configurations differ; role and tags may."""
    arn = create_machine(states, "again")
    assert create_machine(states, "again", tags=[{"key": "a", "value": "b"}]) == arn
    request = {"name": "again", "roleArn": ROLE}
    other = refusal(states.create_state_machine, **request, definition=json.dumps(WAIT))
    assert other == ("StateMachineAlreadyExists", f"State Machine Already Exists: '{arn}'")
    other = refusal(states.create_state_machine, **request, definition=json.dumps(PASS), type="EXPRESS")
    assert other[0] == "StateMachineAlreadyExists"


def test_a_running_execution_keeps_its_definition(states: Any) -> None:
    """An update affects later executions only. DescribeStateMachineForExecution returns the one that each runs."""
    arn = create_machine(states, "changes", WAIT)
    old = states.start_execution(stateMachineArn=arn)["executionArn"]
    updated = states.update_state_machine(stateMachineArn=arn, definition=json.dumps(PASS))
    new = states.start_execution(stateMachineArn=arn)["executionArn"]
    assert await_end(states, new)["status"] == "SUCCEEDED"
    assert states.describe_execution(executionArn=old)["status"] == "RUNNING"
    before = states.describe_state_machine_for_execution(executionArn=old)
    after = states.describe_state_machine_for_execution(executionArn=new)
    assert (json.loads(before["definition"]), json.loads(after["definition"])) == (WAIT, PASS)
    assert ("revisionId" in before, after["revisionId"]) == (False, updated["revisionId"])
    assert refusal(states.update_state_machine, stateMachineArn=arn)[0] == "MissingRequiredParameter"
    assert refusal(states.update_state_machine, stateMachineArn=arn, definition="{}")[0] == "InvalidDefinition"
    states.stop_execution(executionArn=old)


def test_tags_are_added_and_taken_away(states: Any) -> None:
    """Tags of a machine or an activity are added and removed; a later value of a key replaces the earlier one."""
    first = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]
    activity = states.create_activity(name="tagged", tags=first)["activityArn"]
    for arn in (activity, create_machine(states, "tagged", tags=first)):
        states.tag_resource(resourceArn=arn, tags=[{"key": "a", "value": "3"}])
        states.untag_resource(resourceArn=arn, tagKeys=["b"])
        assert states.list_tags_for_resource(resourceArn=arn)["tags"] == [{"key": "a", "value": "3"}]
    assert refusal(states.list_tags_for_resource, resourceArn=PREFIX + "no")[0] == "ResourceNotFound"
    many = [{"key": str(number), "value": ""} for number in range(51)]
    assert refusal(states.tag_resource, resourceArn=arn, tags=many)[0] == "TooManyTags"


def test_created_machines_exist_after_a_restart(tmp_path: Path) -> None:
    """After a restart machines have tags and executions. A machine of the stack has the stack's definition again."""
    with in_thread(lambda: service(tmp_path)) as url:
        states = states_client(url)
        arn = create_machine(states, "kept", tags=[{"key": "a", "value": "b"}])
        execution = states.start_execution(stateMachineArn=arn, name="one")["executionArn"]
        answer = await_end(states, execution)["output"]
        states.update_state_machine(stateMachineArn=arn, definition=json.dumps(WAIT))
        states.update_state_machine(stateMachineArn=PREFIX + "deployed", definition=json.dumps(WAIT))
        gone = create_machine(states, "gone", WAIT)
        states.start_execution(stateMachineArn=gone)
        states.delete_state_machine(stateMachineArn=gone)
        long = create_machine(states, "\U0001f600" * 80)  # 320 bytes, more than the name of a file may have
    with in_thread(lambda: service(tmp_path)) as url:
        states = states_client(url)
        states.delete_state_machine(stateMachineArn=long)
        assert {one["name"] for one in states.list_state_machines()["stateMachines"]} == {"deployed", "kept"}
        assert json.loads(states.describe_state_machine(stateMachineArn=arn)["definition"]) == WAIT
        deployed = states.describe_state_machine(stateMachineArn=PREFIX + "deployed")
        assert json.loads(deployed["definition"]) == PASS
        assert states.list_tags_for_resource(resourceArn=arn)["tags"] == [{"key": "a", "value": "b"}]
        described = states.describe_execution(executionArn=execution)
        assert (described["status"], described["output"]) == ("SUCCEEDED", answer)
        events = states.get_execution_history(executionArn=execution)["events"]
        assert [event["type"] for event in events][-1] == "ExecutionSucceeded"
        again = refusal(states.start_execution, stateMachineArn=arn, name="one", input='{"other":1}')
        assert again[0] == "ExecutionAlreadyExists"
        kept = states.describe_state_machine_for_execution(executionArn=execution)
        assert json.loads(kept["definition"]) == PASS


_GROUP = "arn:aws:logs:us-east-1:000000000000:log-group:mine:*"
_ONE = "Invalid Logging Configuration: Must specify exactly one Log Destination."


def _to(*groups: str) -> list[dict[str, Any]]:
    return [{"cloudWatchLogsLogGroup": {"logGroupArn": group}} for group in groups]


@pytest.mark.parametrize(
    ("logging", "message"),
    [
        ({"level": "ALL"}, _ONE),
        ({"level": "ALL", "destinations": []}, _ONE),
        ({"level": "OFF", "destinations": _to(_GROUP, _GROUP)}, _ONE),
        ({"level": "ALL", "destinations": _to("mine")},
         "Invalid Logging Configuration: 'mine' is not the ARN of a log group that ends with :*"),
    ],
)  # fmt: skip
def test_a_bad_logging_configuration_is_refused(states: Any, logging: dict[str, Any], message: str) -> None:
    """Logging needs exactly one destination (recorded), and it must be a log group."""
    request = {"name": "logs", "definition": json.dumps(PASS), "roleArn": ROLE}
    refused = refusal(states.create_state_machine, **request, loggingConfiguration=logging)
    assert refused == ("InvalidLoggingConfiguration", message)


def test_a_configuration_is_described_whole_and_compared_whole(states: Any) -> None:
    """Defaults complete a configuration, so a machine with them given equals one without (recorded)."""
    arn = create_machine(states, "whole", loggingConfiguration={"level": "ALL", "destinations": _to(_GROUP)})
    whole = {"level": "ALL", "includeExecutionData": False, "destinations": _to(_GROUP)}
    assert states.describe_state_machine(stateMachineArn=arn)["loggingConfiguration"] == whole
    usual = {"loggingConfiguration": {"level": "OFF"}, "tracingConfiguration": {"enabled": False}}
    assert create_machine(states, "plain") == create_machine(states, "plain", **usual)


def test_a_customers_key_needs_its_id(states: Any) -> None:
    encryption = {"type": "CUSTOMER_MANAGED_KMS_KEY"}
    request = {"name": "keyed", "definition": json.dumps(PASS), "roleArn": ROLE, "encryptionConfiguration": encryption}
    assert refusal(states.create_state_machine, **request)[0] == "InvalidEncryptionConfiguration"
    change = {"stateMachineArn": create_machine(states, "keyed"), "encryptionConfiguration": encryption}
    assert refusal(states.update_state_machine, **change)[0] == "InvalidEncryptionConfiguration"
    encryption["kmsKeyId"] = "alias/mine"
    states.update_state_machine(**change)


@pytest.mark.parametrize("action", ["s3:GetObject", "dynamodb:getItems", "nothing:getItem"])
def test_an_action_that_no_service_has_is_refused(states: Any, action: str) -> None:
    """botocore's models decide which actions exist. The words are AWS's for an unknown resource."""
    definition = task_definition(f"arn:aws:states:::aws-sdk:{action}", {}, End=True)
    request = {"name": "unknown", "definition": json.dumps(definition), "roleArn": ROLE}
    code, message = refusal(states.create_state_machine, **request)
    assert (code, f"aws-sdk:{action} is not recognized" in message) == ("InvalidDefinition", True)
    assert "at /States/S/Resource" in message
    assert refusal(states.test_state, definition=json.dumps(definition["States"]["S"]))[0] == "InvalidDefinition"
    for known in ("emrserverless:startJobRun", "cognitoidentityprovider:listUsers", "rds:describeDBInstances"):
        good = task_definition(f"arn:aws:states:::aws-sdk:{known}", {}, End=True)
        assert states.validate_state_machine_definition(definition=json.dumps(good))["result"] == "OK"
