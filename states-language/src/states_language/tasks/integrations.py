"""The service integrations that AWS has optimised: which actions there are, and how each may be waited for.

Data alone. Source: AWS Step Functions Developer Guide, "Integrating optimized services with Step Functions".
"""

SYNC, SYNC_2, TOKEN = "sync", "sync:2", "waitForTaskToken"

_ANSWER: frozenset[str] = frozenset({""})
_TOKEN = frozenset({"", TOKEN})
_JOB = frozenset({"", SYNC})


def _all(patterns: frozenset[str], *actions: str) -> dict[str, frozenset[str]]:
    return dict.fromkeys(actions, patterns)


OPTIMISED: dict[str, dict[str, frozenset[str]]] = {
    "apigateway": _all(_TOKEN, "invoke"),
    "athena": _all(_JOB, "startQueryExecution")
    | _all(_ANSWER, "stopQueryExecution", "getQueryExecution", "getQueryResults"),
    "batch": _all(_JOB, "submitJob"),
    "bedrock": _all(_TOKEN, "invokeModel") | _all(_JOB, "createModelCustomizationJob"),
    "codebuild": _all(_JOB, "startBuild", "startBuildBatch", "retryBuildBatch")
    | _all(_ANSWER, "stopBuild", "stopBuildBatch", "deleteBuildBatch", "batchDeleteBuilds", "batchGetReports"),
    "databrew": _all(_JOB, "startJobRun"),
    "dynamodb": _all(_ANSWER, "getItem", "putItem", "updateItem", "deleteItem"),
    "ecs": _all(_JOB | _TOKEN, "runTask"),
    "eks": _all(_JOB, "createCluster", "deleteCluster", "createFargateProfile", "deleteFargateProfile")
    | _all(_JOB, "createNodegroup", "deleteNodegroup")
    | _all(_JOB | _TOKEN, "runJob")
    | _all(_ANSWER, "call"),
    "elasticmapreduce": _all(_JOB, "createCluster", "terminateCluster", "addStep")
    | _all(_ANSWER, "cancelStep", "setClusterTerminationProtection")
    | _all(_ANSWER, "modifyInstanceFleetByName", "modifyInstanceGroupByName"),
    "emr-containers": _all(_JOB, "deleteVirtualCluster", "startJobRun") | _all(_ANSWER, "createVirtualCluster"),
    "emr-serverless": _all(_JOB, "createApplication", "startApplication", "stopApplication", "deleteApplication")
    | _all(_JOB, "startJobRun", "cancelJobRun"),
    "events": _all(_TOKEN, "putEvents"),
    "glue": _all(_JOB, "startJobRun"),
    "http": _all(_ANSWER, "invoke"),
    "lambda": _all(_TOKEN, "invoke"),
    "mediaconvert": _all(_JOB, "createJob"),
    "sagemaker": _all(_ANSWER, "createEndpoint", "createEndpointConfig", "createModel", "updateEndpoint")
    | _all(_JOB, "createHyperParameterTuningJob", "createLabelingJob", "createProcessingJob")
    | _all(_JOB, "createTrainingJob", "createTransformJob"),
    "sns": _all(_TOKEN, "publish"),
    "sqs": _all(_TOKEN, "sendMessage"),
    "states": _all(_JOB | _TOKEN | {SYNC_2}, "startExecution"),
}
"""By service and action: the integration patterns, "" for request and response. Any aws-sdk action has "" and TOKEN."""

SDK_PATTERNS = _TOKEN
