"""TestState checks mocked results against botocore's models."""

import json
from typing import Any

import pytest

from endpoint import refusal

START = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution", "Parameters": {}, "End": True}
GET = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:dynamodb:getItem", "Parameters": {}, "End": True}
INVOKE = {
    "Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f"}, "End": True,
}  # fmt: skip
JOB = {**START, "Resource": "arn:aws:states:::states:startExecution.sync:2"}
ENDED = {
    "ExecutionArn": "a", "StateMachineArn": "m", "Status": "SUCCEEDED", "StartDate": "1769015654832", "Output": "{}",
}  # fmt: skip
STARTED = {"ExecutionArn": "a", "StartDate": "2026-01-01T00:00:00Z"}


def _sync(action: str) -> dict[str, Any]:
    return {**START, "Resource": f"arn:aws:states:::{action}.sync"}


def _sdk(action: str) -> dict[str, Any]:
    return {**START, "Resource": f"arn:aws:states:::aws-sdk:{action}"}


def _answer(states: Any, state: Any, result: Any, mode: str | None) -> Any:
    mock = {"result": json.dumps(result)} | ({} if mode is None else {"fieldValidationMode": mode})
    return states.test_state(definition=json.dumps(state), mock=mock)


@pytest.mark.parametrize(
    ("state", "result", "mode", "reason"),
    [
        (START, {"ExecutionArn": "a"}, "STRICT", "Required field 'StartDate' is missing"),
        (START, {"executionArn": "a", "startDate": "b"}, None, "Required field 'ExecutionArn' is missing"),
        (START, {"ExecutionArn": 1}, "PRESENT", "Field 'ExecutionArn' must be a string"),
        (START, STARTED | {"StartDate": True}, "STRICT", "Field 'StartDate' must be a string"),
        (GET, {"Item": []}, "PRESENT", "Field 'Item' must be an object"),
        (GET, {"Item": {"id": {"S": 1}}}, "STRICT", "Field 'S' must be a string"),
        (GET, {"Item": {"id": {"SS": {}}}}, "STRICT", "Field 'SS' must be an array"),
        (GET, {"Item": {"id": {"BOOL": 1}}}, "STRICT", "Field 'BOOL' must be a boolean"),
        (GET, {"ConsumedCapacity": {"CapacityUnits": True}}, "PRESENT", "Field 'CapacityUnits' must be a number"),
        (INVOKE, {"StatusCode": "200"}, "PRESENT", "Field 'StatusCode' must be a number"),
        (_sdk("lambda:getFunction"), {"Configuration": {"MemorySize": 1}}, "STRICT",
         "Field 'MemorySize' is less than the minimum value"),
        (_sdk("lambda:getFunction"), {"Configuration": {"MemorySize": 10**6}}, "PRESENT",
         "Field 'MemorySize' exceeds the maximum value"),
        (_sdk("kms:encrypt"), {"CiphertextBlob": ""}, "STRICT",
         "Field 'CiphertextBlob' is smaller than the minimum length"),
        (JOB, STARTED, "STRICT", "Required field 'StateMachineArn' is missing"),
        (JOB, ENDED | {"Output": {}}, "PRESENT", "Field 'Output' must be a string"),
        (JOB, ENDED | {"StartDate": 1769015654832}, None, "Field 'StartDate' must be a string"),
        (_sync("glue:startJobRun"), {"JobRun": {"Attempt": "1"}}, "PRESENT", "Field 'Attempt' must be a number"),
        (_sync("batch:submitJob"), {"Jobs": [{}]}, None, "Required field 'JobName' is missing"),
        (_sync("codebuild:startBuildBatch"), {"BuildBatches": {}}, None, "Field 'BuildBatches' must be an array"),
    ],
)  # fmt: skip
def test_a_result_that_the_api_cannot_give_is_refused(
    states: Any, state: Any, result: Any, mode: str | None, reason: str
) -> None:
    """A mocked result outside the API's model is refused; STRICT is the default. Others recorded AWS's texts."""
    with pytest.raises(Exception, match="ValidationException") as refused:
        _answer(states, state, result, mode)
    assert str(refused.value).endswith(f"Mock result schema validation error: {reason}")
    assert _answer(states, state, result, "NONE")["status"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("state", "result", "mode"),
    [
        (INVOKE, {"StatusCode": 200, "Payload": {"any": ["thing"]}}, "STRICT"),
        ({**START, "Resource": "arn:aws:lambda:us-east-1:123456789012:function:f"}, [1], None),
        (JOB, ENDED, "STRICT"),
        (_sync("ecs:runTask"), {"Tasks": [{"TaskArn": "t"}]}, "STRICT"),
        ({**START, "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken"}, ["any"], "STRICT"),
        ({**START, "Resource": "arn:aws:states:::http:invoke"}, "any", "STRICT"),
        ({**START, "Resource": "arn:aws:states:::apigateway:invoke"}, "any", "STRICT"),
        (_sync("eks:runJob"), "any", "STRICT"),
    ],
)
def test_a_result_that_the_api_can_give_is_accepted(states: Any, state: Any, result: Any, mode: str | None) -> None:
    """A result within the model is accepted. A function's or a token holder's result may be any JSON value."""
    assert json.loads(_answer(states, state, result, mode)["output"]) == result


def test_a_result_is_an_object(states: Any) -> None:
    code, message = refusal(states.test_state, definition=json.dumps(GET), mock={"result": "[1]"})
    assert (code, message) == ("ValidationException", "Mocked result must be a valid JSON object.")
