"""Reads the Resource of a Task state, and forms the request and response of lambda:invoke.

OPTIMISED lists the service integrations that AWS has optimised: their actions, and how each may be waited for.
Source: AWS Step Functions Developer Guide, "Integrating optimized services with Step Functions".
"""

import functools
import re
from dataclasses import dataclass
from typing import Any

from states_language.definition.templates import PLACEHOLDER, fill_in
from states_language.failures import TaskFailure
from states_language.values import compact, parse_json

ACTIVITY = "activity"
"""The service of a call of an activity; its Resource names the activity, whose worker polls for the call."""

_ARN = r"arn:(?:aws[a-z-]*|\$\{\w+\})"
"""How an ARN begins; templates for all partitions have a name in place of `aws`."""
_FUNCTION = re.compile(rf"{_ARN}:lambda:[^:]*:[^:]*:function:([^:]+)(?::[^:]+)?")
_ACTIVITY = re.compile(rf"{_ARN}:states:[^:]+:[^:]+:activity:[^:]+")
_SERVICE = re.compile(rf"{_ARN}:states:[^:]*:[^:]*:(aws-sdk:)?([A-Za-z0-9-]+):([A-Za-z0-9]+)(?:\.([A-Za-z0-9:]+))?")


_UNFILLED = re.compile(rf"{PLACEHOLDER.pattern}(?::[^:]+)?")
_ARN_SUFFIX = re.compile(r"\.(?:arn|invoke_arn|qualified_arn)$", re.IGNORECASE)
"""How CloudFormation and Terraform end the name of a function's ARN."""


@dataclass(frozen=True)
class Resource:
    """A supported Resource: a function by its ARN (`function` is its name) or an action of a service.

    pattern: what the Task waits for: "" for the answer, otherwise "sync", "sync:2" or "waitForTaskToken".
    is_placeholder: whether the text has a `${Name}`, which only a deployment can fill in. A text that is no ARN but for
    its names means a function of this name.
    """

    text: str
    service: str
    action: str
    sdk: bool
    function: str | None
    pattern: str = ""
    is_placeholder: bool = False

    @property
    def is_lambda_invoke(self) -> bool:
        """Return whether this is lambda:invoke, whose answer AWS wraps."""
        return self.service == "lambda" and self.action == "invoke" and not self.sdk and self.function is None

    @property
    def type(self) -> str:
        """Return the resourceType of history events."""
        return f"aws-sdk:{self.service}" if self.sdk else self.service

    @property
    def name(self) -> str:
        """Return the resource of history events."""
        return f"{self.action}.{self.pattern}" if self.pattern else self.action

    @property
    def is_activity(self) -> bool:
        return self.service == ACTIVITY


@functools.lru_cache(maxsize=1024)
def read_resource(text: str) -> Resource | str:
    """Return the resource, or the rule that the text breaks."""
    text = fill_in(text, {})
    named = PLACEHOLDER.search(text) is not None
    if match := _FUNCTION.fullmatch(text):
        return Resource(text, "lambda", "invoke", False, match.group(1), is_placeholder=named)
    if _ACTIVITY.fullmatch(text):
        return Resource(text, ACTIVITY, "", False, None, is_placeholder=named)
    match = _SERVICE.fullmatch(text)
    if match is None and named:
        return Resource(text, "lambda", "invoke", False, function_name(text), is_placeholder=True)
    if match is None:
        return _unknown_rule(text, "it is neither the ARN of a Lambda function nor arn:aws:states:::service:action")
    sdk, service, action, pattern = match.group(1) is not None, match.group(2), match.group(3), match.group(4) or ""
    actions = OPTIMISED.get(service, {})
    if not sdk and action not in actions:
        return _unknown_rule(text, f"for this action it is {text.replace(':::', ':::aws-sdk:')}")
    allowed = SDK_PATTERNS if sdk else actions[action]
    if pattern not in allowed:
        ways = " or ".join(f".{each}" for each in sorted(allowed) if each) or "none"
        return _unknown_rule(text, f"{service}:{action} has no .{pattern}; what it may be waited for with: {ways}")
    return Resource(text, service, action, sdk, None, pattern, named)


def _unknown_rule(text: str, hint: str) -> str:
    return f"{unrecognized_message(text)} ({hint})"


def unrecognized_message(text: str) -> str:
    """Return AWS's message for a text that is no resource (recorded)."""
    return (
        f"The resource provided {text} is not recognized. The value is not a valid resource ARN, or the resource is "
        "not available in this region."
    )


@functools.lru_cache(maxsize=1024)
def function_name(reference: str) -> str:
    """Return the bare name in a function's name, partial ARN or ARN, without qualifier, or that of a placeholder."""
    if match := _UNFILLED.fullmatch(reference):
        return _ARN_SUFFIX.sub("", match[2])
    return reference.rpartition("function:")[2].split(":")[0]


def payload_of(parameters: dict[str, Any]) -> Any:
    """Return the event that lambda:invoke passes to the function.

    A null or absent Payload is {}. A string is sent unchanged, so it must be JSON, and the function gets its value
    (recorded).
    """
    payload = parameters.get("Payload")
    if payload is None:
        return {}
    if not isinstance(payload, str):
        return payload
    try:
        return parse_json(payload)
    except ValueError:
        raise TaskFailure(
            "Lambda.InvalidRequestContentException",
            f"Could not parse request body into json: Could not parse payload into json: {compact(payload)}",
        ) from None


def invoke_response(result: Any, text: str, request_id: str, date: str) -> dict[str, Any]:
    """Return lambda:invoke's response for a function's result, in AWS's form; `text` is the result as JSON."""
    headers = {
        "Connection": "keep-alive",
        "Content-Length": str(len(text.encode())),
        "Content-Type": "application/json",
        "Date": date,
        "X-Amz-Executed-Version": "$LATEST",
        "x-amzn-Remapped-Content-Length": "0",
        "x-amzn-RequestId": request_id,
        "X-Amzn-Trace-Id": f"root=1-{request_id.replace('-', '')[:8]}-{request_id.replace('-', '')[8:]};sampled=0",
    }
    return {
        "ExecutedVersion": "$LATEST",
        "Payload": result,
        **http_metadata(headers, 200, request_id),
        "StatusCode": 200,
    }


def http_metadata(headers: dict[str, str], status: int, request_id: str) -> dict[str, Any]:
    """Return the members that an optimised integration adds to an answer."""
    every = {name: [value] for name, value in headers.items()}
    return {
        "SdkHttpMetadata": {"AllHttpHeaders": every, "HttpHeaders": headers, "HttpStatusCode": status},
        "SdkResponseMetadata": {"RequestId": request_id},
    }


SYNC, SYNC_2, TOKEN = "sync", "sync:2", "waitForTaskToken"

_ANSWER: frozenset[str] = frozenset({""})
_TOKEN = frozenset({"", TOKEN})
_JOB = frozenset({"", SYNC})


def _actions_with(patterns: frozenset[str], *actions: str) -> dict[str, frozenset[str]]:
    return dict.fromkeys(actions, patterns)


OPTIMISED: dict[str, dict[str, frozenset[str]]] = {
    "apigateway": _actions_with(_TOKEN, "invoke"),
    "athena": _actions_with(_JOB, "startQueryExecution")
    | _actions_with(_ANSWER, "stopQueryExecution", "getQueryExecution", "getQueryResults"),
    "batch": _actions_with(_JOB, "submitJob"),
    "bedrock": _actions_with(_TOKEN, "invokeModel") | _actions_with(_JOB, "createModelCustomizationJob"),
    "codebuild": _actions_with(_JOB, "startBuild", "startBuildBatch", "retryBuildBatch")
    | _actions_with(_ANSWER, "stopBuild", "stopBuildBatch", "deleteBuildBatch", "batchDeleteBuilds", "batchGetReports"),
    "databrew": _actions_with(_JOB, "startJobRun"),
    "dynamodb": _actions_with(_ANSWER, "getItem", "putItem", "updateItem", "deleteItem"),
    "ecs": _actions_with(_JOB | _TOKEN, "runTask"),
    "eks": _actions_with(_JOB, "createCluster", "deleteCluster", "createFargateProfile", "deleteFargateProfile")
    | _actions_with(_JOB, "createNodegroup", "deleteNodegroup")
    | _actions_with(_JOB | _TOKEN, "runJob")
    | _actions_with(_ANSWER, "call"),
    "elasticmapreduce": _actions_with(_JOB, "createCluster", "terminateCluster", "addStep")
    | _actions_with(_ANSWER, "cancelStep", "setClusterTerminationProtection")
    | _actions_with(_ANSWER, "modifyInstanceFleetByName", "modifyInstanceGroupByName"),
    "emr-containers": _actions_with(_JOB, "deleteVirtualCluster", "startJobRun")
    | _actions_with(_ANSWER, "createVirtualCluster"),
    "emr-serverless": _actions_with(
        _JOB, "createApplication", "startApplication", "stopApplication", "deleteApplication"
    )
    | _actions_with(_JOB, "startJobRun", "cancelJobRun"),
    "events": _actions_with(_TOKEN, "putEvents"),
    "glue": _actions_with(_JOB, "startJobRun"),
    "http": _actions_with(_ANSWER, "invoke"),
    "lambda": _actions_with(_TOKEN, "invoke"),
    "mediaconvert": _actions_with(_JOB, "createJob"),
    "sagemaker": _actions_with(_ANSWER, "createEndpoint", "createEndpointConfig", "createModel", "updateEndpoint")
    | _actions_with(_JOB, "createHyperParameterTuningJob", "createLabelingJob", "createProcessingJob")
    | _actions_with(_JOB, "createTrainingJob", "createTransformJob"),
    "sns": _actions_with(_TOKEN, "publish"),
    "sqs": _actions_with(_TOKEN, "sendMessage"),
    "states": _actions_with(_JOB | _TOKEN | {SYNC_2}, "startExecution"),
}
"""The integration patterns by service and action; "" is request and response. Any aws-sdk action has "" and TOKEN."""

SDK_PATTERNS = _TOKEN
