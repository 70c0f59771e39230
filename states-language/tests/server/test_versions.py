"""Versions and aliases of state machines, regions, and the deletion of machines."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session

from endpoint import PASS, ROLE, WAIT, await_end, create_machine, refusal, run_to_end, service, states_client
from patience import in_thread, until

FAIL = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "Second"}}}


def create_published(states: Any, name: str) -> tuple[str, str, str]:
    """Return the ARN of a machine, of its version that passes and of its version that fails."""
    answer = states.create_state_machine(
        name=name, definition=json.dumps(PASS), roleArn=ROLE, publish=True, versionDescription="passes"
    )
    arn = answer["stateMachineArn"]
    updated = states.update_state_machine(stateMachineArn=arn, definition=json.dumps(FAIL), publish=True)
    return arn, answer["stateMachineVersionArn"], updated["stateMachineVersionArn"]


def route(*weights: tuple[str, int]) -> list[dict[str, Any]]:
    """Return a routing configuration."""
    return [{"stateMachineVersionArn": arn, "weight": weight} for arn, weight in weights]


def test_a_version_stays_what_it_was(states: Any) -> None:
    """A version is described and started as published, and its ARN lists its executions."""
    arn, first, second = create_published(states, "versioned")
    assert (first, second) == (f"{arn}:1", f"{arn}:2")
    described = states.describe_state_machine(stateMachineArn=first)
    assert (json.loads(described["definition"]), described["description"]) == (PASS, "passes")
    assert "description" not in states.describe_state_machine(stateMachineArn=arn)
    ended = run_to_end(states, first)
    assert (ended["status"], ended["stateMachineVersionArn"], ended["stateMachineArn"]) == ("SUCCEEDED", first, arn)
    assert run_to_end(states, arn)["error"] == "Second"
    assert [one["status"] for one in states.list_executions(stateMachineArn=first)["executions"]] == ["SUCCEEDED"]
    assert len(states.list_executions(stateMachineArn=arn)["executions"]) == 2
    listed = states.list_state_machine_versions(stateMachineArn=arn)["stateMachineVersions"]
    assert [one["stateMachineVersionArn"] for one in listed] == [second, first]
    assert refusal(states.start_execution, stateMachineArn=f"{arn}:3")[0] == "StateMachineDoesNotExist"


def test_a_revision_is_published_once(states: Any) -> None:
    """Publishing a revision again returns its version. The number of a deleted version is not used again."""
    arn = create_machine(states, "publishes")
    publish: Callable[..., Any] = functools.partial(states.publish_state_machine_version, stateMachineArn=arn)
    assert publish(description="one")["stateMachineVersionArn"] == f"{arn}:1"
    assert publish()["stateMachineVersionArn"] == f"{arn}:1"
    assert refusal(publish, revisionId="other") == (
        "ConflictException",
        "Failed to publish the State Machine version for revision other. "
        "The current State Machine revision is INITIAL.",
    )
    states.delete_state_machine_version(stateMachineVersionArn=f"{arn}:1")
    states.delete_state_machine_version(stateMachineVersionArn=f"{arn}:1")
    assert publish(revisionId="INITIAL")["stateMachineVersionArn"] == f"{arn}:2"


def test_an_alias_leads_to_its_versions(states: Any) -> None:
    """The alias's weights choose the version. An execution names its alias, and a version in use is not deleted."""
    arn, first, second = create_published(states, "aliased")
    alias = states.create_state_machine_alias(name="live", routingConfiguration=route((first, 100)))
    alias_arn = alias["stateMachineAliasArn"]
    assert alias_arn == f"{arn}:live"
    ended = run_to_end(states, alias_arn)
    assert (ended["status"], ended["stateMachineVersionArn"], ended["stateMachineAliasArn"]) == (
        "SUCCEEDED", first, alias_arn,
    )  # fmt: skip
    kept = "Version to be deleted must not be referenced by an alias. Current list of aliases referencing this version"
    refused = refusal(states.delete_state_machine_version, stateMachineVersionArn=first)
    assert refused == ("ConflictException", f"{kept}: [live]")
    routes = route((first, 0), (second, 100))
    states.update_state_machine_alias(stateMachineAliasArn=alias_arn, routingConfiguration=routes)
    assert states.describe_state_machine_alias(stateMachineAliasArn=alias_arn)["routingConfiguration"] == routes
    assert run_to_end(states, alias_arn)["error"] == "Second"
    assert len(states.list_executions(stateMachineArn=alias_arn)["executions"]) == 2
    states.delete_state_machine_alias(stateMachineAliasArn=alias_arn)
    assert refusal(states.start_execution, stateMachineArn=alias_arn)[0] == "StateMachineDoesNotExist"
    assert states.list_state_machine_aliases(stateMachineArn=arn)["stateMachineAliases"] == []


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ([(":1", 50)], "Sum of routing configuration weights must equal 100. Received: [50]"),
        ([(":1", 50), (":1", 50)],
         "Routing configuration must contain distinct {0} version ARNs. Received: [{1}, {1}]"),
        ([("", 100)], "Routing configuration must contain {0} version ARNs. Received: [{2}]"),
        ([(":9", 100)], "Request references a resource that does not exist."),
    ],
)  # fmt: skip
def test_an_alias_that_leads_nowhere_is_refused(states: Any, routes: list[tuple[str, int]], message: str) -> None:
    """A wrong routing configuration is refused in AWS's words, as localstack recorded them."""
    made = states.create_state_machine(name="leads", definition=json.dumps(PASS), roleArn=ROLE, publish=True)
    machine = made["stateMachineArn"]
    configuration = route(*((machine + suffix, weight) for suffix, weight in routes))
    code = "ResourceNotFound" if "resource" in message else "ValidationException"
    message = message.format("state machine", f"{machine}:1", machine)
    assert refusal(states.create_state_machine_alias, name="bad", routingConfiguration=configuration) == (code, message)


def test_a_key_of_an_activity_is_described_and_compared(states: Any) -> None:
    """Creating an activity with a customer's key again is refused; without a key it returns the activity."""
    key = {"type": "CUSTOMER_MANAGED_KMS_KEY", "kmsKeyId": "mine"}
    arn = states.create_activity(name="keyed", encryptionConfiguration=key)["activityArn"]
    assert states.describe_activity(activityArn=arn)["encryptionConfiguration"] == key
    assert refusal(states.create_activity, name="keyed", encryptionConfiguration=key)[0] == "ActivityAlreadyExists"
    bad = {"type": "CUSTOMER_MANAGED_KMS_KEY"}
    refused = refusal(states.create_activity, name="other", encryptionConfiguration=bad)
    assert refused[0] == "InvalidEncryptionConfiguration"
    plain = [states.create_activity(name="plain")["creationDate"] for _ in range(2)]
    assert plain[0] == plain[1]


def test_regions_versions_and_aliases_outlive_the_service(tmp_path: Path) -> None:
    """Machines belong to the region for which a request is signed. Version numbers are not reused after a restart."""
    with in_thread(lambda: service(tmp_path)) as url:
        for region, partition in (("eu-west-1", "aws"), ("cn-northwest-1", "aws-cn")):
            states = Session().create_client(
                "stepfunctions", region, endpoint_url=url, aws_access_key_id="local", aws_secret_access_key="local"
            )
            arn = create_machine(states, "same", FAIL)
            assert arn == f"arn:{partition}:states:{region}:000000000000:stateMachine:same"
            execution = states.start_execution(stateMachineArn=arn)["executionArn"]
            assert execution.startswith(f"arn:{partition}:states:{region}:000000000000:execution:same:")
            assert await_end(states, execution)["status"] == "FAILED"
            assert [one["stateMachineArn"] for one in states.list_state_machines()["stateMachines"]] == [arn]
            assert states.create_activity(name="a")["activityArn"].startswith(f"arn:{partition}:states:{region}:")
            assert len(states.list_activities()["activities"]) == 1
        create_machine(states_client(url), "same", PASS)
        kept, first, _ = create_published(states_client(url), "kept")
        states_client(url).create_state_machine_alias(name="live", routingConfiguration=route((first, 100)))
    with in_thread(lambda: service(tmp_path)) as url:
        states = states_client(url)
        listed = [one["name"] for one in states.list_state_machines()["stateMachines"]]
        assert listed == ["deployed", "kept", "same"]
        execution = states.start_execution(stateMachineArn=f"{kept}:live")["executionArn"]
        assert await_end(states, execution)["stateMachineVersionArn"] == first
        assert states.publish_state_machine_version(stateMachineArn=kept)["stateMachineVersionArn"] == f"{kept}:2"
        arn = "arn:aws:states:eu-west-1:000000000000:stateMachine:same"
        assert json.loads(states.describe_state_machine(stateMachineArn=arn)["definition"]) == FAIL


def test_a_deleted_machine_is_deleting_until_its_last_execution_ends(states: Any) -> None:
    """While it is DELETING it starts nothing; then its executions are gone and its name can be used again."""
    arn = create_machine(states, "goes")
    ended = states.start_execution(stateMachineArn=arn, name="once")["executionArn"]
    await_end(states, ended)
    version = states.update_state_machine(stateMachineArn=arn, definition=json.dumps(WAIT), publish=True)
    alias = {"name": "a", "routingConfiguration": route((version["stateMachineVersionArn"], 100))}
    running = states.start_execution(stateMachineArn=arn)["executionArn"]
    states.delete_state_machine(stateMachineArn=arn)
    states.tag_resource(resourceArn=arn, tags=[{"key": "a", "value": "b"}])
    assert refusal(states.create_state_machine_alias, **alias)[0] == "StateMachineDeleting"
    assert states.describe_execution(executionArn=ended)["status"] == "SUCCEEDED"
    assert states.describe_state_machine(stateMachineArn=arn)["status"] == "DELETING"
    assert refusal(states.start_execution, stateMachineArn=arn)[0] == "StateMachineDeleting"
    assert refusal(states.update_state_machine, stateMachineArn=arn, roleArn=ROLE)[0] == "StateMachineDeleting"
    states.stop_execution(executionArn=running)
    for execution in (ended, running):
        assert refusal(states.describe_execution, executionArn=execution)[0] == "ExecutionDoesNotExist"
    assert until(lambda: refusal(states.describe_state_machine, stateMachineArn=arn)[0]) == "StateMachineDoesNotExist"
    assert create_machine(states, "goes") == arn
    assert run_to_end(states, arn, name="once")


def test_an_execution_of_a_deleted_machine_ends_at_its_next_state(states: Any) -> None:
    """The current state goes on. Before the next state the execution is terminated, and the machine is gone."""
    activity = states.create_activity(name="last")["activityArn"]
    work = {"Type": "Task", "Resource": activity, "Next": "Long"}
    long = {"Type": "Wait", "Seconds": 600, "End": True}
    arn = create_machine(states, "ends", {"StartAt": "Work", "States": {"Work": work, "Long": long}})
    running = states.start_execution(stateMachineArn=arn)["executionArn"]
    token = states.get_activity_task(activityArn=activity)["taskToken"]
    states.delete_state_machine(stateMachineArn=arn)
    assert states.describe_state_machine(stateMachineArn=arn)["status"] == "DELETING"
    assert states.describe_execution(executionArn=running)["status"] == "RUNNING"
    states.send_task_success(taskToken=token, output="{}")
    assert until(lambda: arn not in [one["stateMachineArn"] for one in states.list_state_machines()["stateMachines"]])
    assert refusal(states.describe_execution, executionArn=running)[0] == "ExecutionDoesNotExist"


def test_a_token_of_another_filter_is_refused(states: Any) -> None:
    """A page token continues only the list that it came from."""
    arn = create_machine(states, "filters")
    for _ in range(2):
        states.start_execution(stateMachineArn=arn)
    token = states.list_executions(stateMachineArn=arn, maxResults=1)["nextToken"]
    refused = refusal(states.list_executions, stateMachineArn=arn, nextToken=token, statusFilter="FAILED")
    assert refused == ("InvalidToken", "Invalid Token: 'Input inconsistent with page token'")
