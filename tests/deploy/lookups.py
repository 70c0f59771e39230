"""Looks a resource of a stack up in its own service, so that a stack cannot say of itself what it made."""

import re
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from tests.deploy.account import Account

Found = Callable[[Account, str, str], Any]


def _asked(service: str, request: str, parameter: str, answer: str) -> Found:
    """Asks a service for one thing by the physical id of its resource."""

    def ask(account: Account, physical_id: str, _api: str) -> Any:
        return getattr(account.client(service), request)(**{parameter: physical_id})[answer]

    return ask


def _listed(service: str, request: str, parameter: str, answer: str) -> Found:
    """Asks a service for the list of all that have a name, of which there must be one."""

    def ask(account: Account, physical_id: str, _api: str) -> Any:
        value = [physical_id] if parameter.endswith("s") else physical_id
        (one,) = getattr(account.client(service), request)(**{parameter: value})[answer]
        return one

    return ask


def _permission(account: Account, physical_id: str, _api: str) -> Any:
    """The policy of the function that the permission is of: its id begins with the stage's and the function's name."""
    match = re.match(r"(.+)-Connection([A-Za-z]+?)LambdaPermission", physical_id)
    assert match is not None, physical_id
    return account.client("lambda").get_policy(FunctionName=f"{match[1]}-connection-{match[2].lower()}")["Policy"]


def _alias(account: Account, physical_id: str, _api: str) -> Any:
    # The ARN of an alias ends with the function's name and its own.
    function, name = physical_id.split(":")[-2:]
    return account.client("lambda").get_alias(FunctionName=function, Name=name)["FunctionVersion"]


def _metric_filter(account: Account, physical_id: str, _api: str) -> Any:
    filters = account.client("logs").describe_metric_filters()["metricFilters"]
    return physical_id in [one["filterName"] for one in filters]


def _method(account: Account, physical_id: str, api: str) -> Any:
    _, resource, verb = physical_id.split("-")
    return account.client("apigateway").get_method(restApiId=api, resourceId=resource, httpMethod=verb)["httpMethod"]


def _bucket_policy(account: Account, physical_id: str, _api: str) -> Any:
    return account.client("s3").get_bucket_policy(Bucket=physical_id.removesuffix("-policy"))["Policy"]


def _gateway_response(account: Account, physical_id: str, api: str) -> Any:
    # There is a response of each kind in every API; ours is not the default one.
    kind = physical_id.rpartition("/")[2]
    return not account.client("apigateway").get_gateway_response(restApiId=api, responseType=kind)["defaultResponse"]


def _usage_plan_key(account: Account, physical_id: str, _api: str) -> Any:
    key, plan = physical_id.split(":")
    return account.client("apigateway").get_usage_plan_key(usagePlanId=plan, keyId=key)["id"]


def _of_api(request: str, parameter: str, answer: str = "id") -> Found:
    def ask(account: Account, physical_id: str, api: str) -> Any:
        return getattr(account.client("apigateway"), request)(restApiId=api, **{parameter: physical_id})[answer]

    return ask


# Of each type in the template: what its service says of a resource, by its physical id. An error where there is none.
LOOKUPS: dict[str, Found] = {
    "AWS::ApiGateway::ApiKey": _asked("apigateway", "get_api_key", "apiKey", "id"),
    "AWS::ApiGateway::Deployment": _of_api("get_deployment", "deploymentId"),
    "AWS::ApiGateway::GatewayResponse": _gateway_response,
    "AWS::ApiGateway::Method": _method,
    "AWS::ApiGateway::Resource": _of_api("get_resource", "resourceId"),
    "AWS::ApiGateway::RestApi": _asked("apigateway", "get_rest_api", "restApiId", "id"),
    "AWS::ApiGateway::Stage": _of_api("get_stage", "stageName", "stageName"),
    "AWS::ApiGateway::UsagePlan": _asked("apigateway", "get_usage_plan", "usagePlanId", "id"),
    "AWS::ApiGateway::UsagePlanKey": _usage_plan_key,
    "AWS::CloudWatch::Alarm": _listed("cloudwatch", "describe_alarms", "AlarmNames", "MetricAlarms"),
    "AWS::CloudWatch::Dashboard": _asked("cloudwatch", "get_dashboard", "DashboardName", "DashboardBody"),
    "AWS::DynamoDB::Table": _asked("dynamodb", "describe_table", "TableName", "Table"),
    "AWS::Events::Rule": _asked("events", "describe_rule", "Name", "ScheduleExpression"),
    "AWS::IAM::Role": _asked("iam", "get_role", "RoleName", "Role"),
    "AWS::Lambda::Alias": _alias,
    "AWS::Lambda::Function": _asked("lambda", "get_function", "FunctionName", "Configuration"),
    "AWS::Lambda::Permission": _permission,
    "AWS::Logs::LogGroup": _listed("logs", "describe_log_groups", "logGroupNamePrefix", "logGroups"),
    "AWS::Logs::MetricFilter": _metric_filter,
    "AWS::S3::Bucket": _asked("s3", "head_bucket", "Bucket", "ResponseMetadata"),
    "AWS::S3::BucketPolicy": _bucket_policy,
    "AWS::SNS::Topic": _asked("sns", "get_topic_attributes", "TopicArn", "Attributes"),
    "AWS::SQS::Queue": _asked("sqs", "get_queue_attributes", "QueueUrl", "ResponseMetadata"),
    "AWS::StepFunctions::StateMachine": _asked("stepfunctions", "describe_state_machine", "stateMachineArn", "status"),
}


def missing(account: Account, resources: dict[str, dict[str, Any]]) -> list[str]:
    """The logical ids of the resources that their services do not know; KeyError for a type without a look-up."""
    (api,) = [one["PhysicalResourceId"] for one in resources.values() if one["ResourceType"].endswith("::RestApi")]
    absent = []
    for name, resource in resources.items():
        look_up = LOOKUPS[resource["ResourceType"]]
        try:
            there = bool(look_up(account, resource["PhysicalResourceId"], api))
        except (ValueError, ClientError):
            there = False
        if not there:
            absent.append(name)
    return sorted(absent)
