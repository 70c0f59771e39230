"""moto's API with this interpreter in the place of moto's own: its services, task tokens, Map Runs and refusals."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from endpoint import await_end
from machines import line
from patience import until
from suites.moto_adapter import swap_interpreter

ROLE = "arn:aws:iam::123456789012:role/any"


@pytest.fixture(scope="module", autouse=True)
def moto() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with swap_interpreter(), mock_aws(config={"stepfunctions": {"execute_state_machine": True}}):
            yield


def start_execution(states: Any, definition: dict[str, Any], data: Any = None) -> str:
    name = f"m{len(states.list_state_machines()['stateMachines'])}"
    made = states.create_state_machine(name=name, definition=json.dumps(definition), roleArn=ROLE)
    started = states.start_execution(stateMachineArn=made["stateMachineArn"], name="e", input=json.dumps(data or {}))
    return str(started["executionArn"])


def test_a_task_stores_in_motos_dynamodb_and_the_history_is_ours() -> None:
    """A Choice and an optimised integration store in moto's DynamoDB; the history has this interpreter's events."""
    states, table = boto3.client("stepfunctions"), boto3.client("dynamodb")
    key = [{"AttributeName": "id", "KeyType": "HASH"}]
    types = [{"AttributeName": "id", "AttributeType": "S"}]
    table.create_table(TableName="t", KeySchema=key, AttributeDefinitions=types, BillingMode="PAY_PER_REQUEST")
    put = {
        "Type": "Task",
        "Resource": "arn:aws:states:::dynamodb:putItem",
        "Parameters": {"TableName": "t", "Item": {"id": {"S.$": "$.id"}}},
        "End": True,
    }
    look = {"Type": "Choice", "Choices": [{"Variable": "$.id", "IsPresent": True, "Next": "Put"}]}
    arn = start_execution(states, line(("Look", look), ("Put", put)), {"id": "7"})
    assert await_end(states, arn)["status"] == "SUCCEEDED"
    assert table.scan(TableName="t")["Items"] == [{"id": {"S": "7"}}]
    events = states.get_execution_history(executionArn=arn)["events"]
    assert [event["type"] for event in events] == [
        "ExecutionStarted", "ChoiceStateEntered", "ChoiceStateExited", "TaskStateEntered", "TaskScheduled",
        "TaskStarted", "TaskSucceeded", "TaskStateExited", "ExecutionSucceeded",
    ]  # fmt: skip


def test_the_holder_of_a_token_answers_through_motos_api() -> None:
    """A queue gets the token, and SendTaskSuccess through moto's API ends the Task."""
    states, queues = boto3.client("stepfunctions"), boto3.client("sqs")
    url = queues.create_queue(QueueName="q")["QueueUrl"]
    send = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Parameters": {"QueueUrl": url, "MessageBody.$": "$$.Task.Token"},
    }
    arn = start_execution(states, line(("Send", send)))
    token = until(lambda: queues.receive_message(QueueUrl=url).get("Messages"))[0]["Body"]
    states.send_task_heartbeat(taskToken=token)
    states.send_task_success(taskToken=token, output='{"done": true}')
    assert json.loads(await_end(states, arn)["output"]) == {"done": True}


def test_a_distributed_map_reads_motos_s3_and_can_be_described() -> None:
    """Its Map Run is listed and described with its counts. A waiting execution can be stopped."""
    states, store = boto3.client("stepfunctions"), boto3.client("s3")
    store.create_bucket(Bucket="items")
    store.put_object(Bucket="items", Key="k", Body="a,b\n1,2\n3,4\n")
    processor = {
        **line(("P", {"Type": "Pass"})),
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "EXPRESS"},
    }
    reader = {
        "Resource": "arn:aws:states:::s3:getObject",
        "Parameters": {"Bucket": "items", "Key": "k"},
        "ReaderConfig": {"InputType": "CSV", "CSVHeaderLocation": "FIRST_ROW"},
    }
    arn = start_execution(states, line(("M", {"Type": "Map", "ItemReader": reader, "ItemProcessor": processor})))
    assert json.loads(await_end(states, arn)["output"]) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    (run,) = states.list_map_runs(executionArn=arn)["mapRuns"]
    assert states.describe_map_run(mapRunArn=run["mapRunArn"])["itemCounts"]["total"] == 2
    waiting = start_execution(states, line(("W", {"Type": "Wait", "Seconds": 600})))
    states.stop_execution(executionArn=waiting)
    assert await_end(states, waiting)["status"] == "ABORTED"


def test_a_definition_is_refused_by_our_rules() -> None:
    """moto answers InvalidDefinition with the place and the rule."""
    with pytest.raises(ClientError, match="there is no state 'Z'"):
        start_execution(boto3.client("stepfunctions"), {"StartAt": "Z", "States": {"A": {"Type": "Succeed"}}})
