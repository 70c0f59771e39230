"""Reads all facts about a stage from AWS; nothing is changed, and a refusal takes the place of an answer.

The answers are boto3's own, by subject. Invariant: no answer contains a secret: keys are requested without their
values, and secrets are read by the stage's own function, which only says whether it could read them.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.errors import StoreUnavailable
from handlers.store.leases import Leases
from local import stages
from local.doctor.findings import Mend, NoAnswer
from local.doctor.stage_template import DeployedStage, Resource

Facts = dict[str, Any]
# What the run on this machine offers of AWS.
LOCAL_SERVICES = frozenset({"dynamodb", "lambda", "s3", "sqs", "stepfunctions"})
MAPPINGS = "mappings"
TITLES = {
    "account": "quota of an account", "apigateway": "API Gateway of AWS's own", "cloudwatch": "CloudWatch",
    "backups": "point-in-time recovery of tables", "events": "EventBridge", "firehose": "Firehose", "iam": "IAM",
    "kinesis": "Kinesis", MAPPINGS: "mapping, but reads the stream itself", "sns": "SNS topic",
}  # fmt: skip
# How far back CloudWatch's numbers are read, by the minute.
HOURS = 3
# How many profiles one call of the function examines; each may take some seconds.
AT_ONCE = 10
TABLE, FUNCTION, MACHINE = "AWS::DynamoDB::Table", "AWS::Lambda::Function", "AWS::StepFunctions::StateMachine"
ALARM, RULE, TOPIC, MAPPING = (
    "AWS::CloudWatch::Alarm", "AWS::Events::Rule", "AWS::SNS::Topic", "AWS::Lambda::EventSourceMapping",
)  # fmt: skip
MANAGER, DELIVERY = "ConnectionManagerLambdaFunction", "ConnectionDeliveryLambdaFunction"


class Account:
    """An account; `has` are its services, None for all."""

    def __init__(self, clients: Callable[[str], Any], has: Collection[str] | None = None) -> None:
        self._make, self._has = clients, has
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """boto3's client, made once."""
        if service not in self._clients:
            self._clients[service] = self._make(service)
        return self._clients[service]

    def request(self, service: str, operation: str, has: str = "", **parameters: Any) -> Any:
        """Returns the answer, or Unasked; `has` is the subject of the request, unless that is the service itself."""
        if self._has is not None and (has or service) not in self._has:
            return NoAnswer(f"the run on this machine has no {TITLES[has or service]}", is_absent=True)
        try:
            return getattr(self.client(service), operation)(**parameters)
        except ClientError as error:
            told = error.response.get("Error", {})
            code = str(told.get("Code", ""))
            words = f"{operation} of {service} failed with {code}: {told.get('Message', '')}"
            return NoAnswer(" ".join(words.split()).rstrip(" .:"), code)
        except (BotoCoreError, StoreUnavailable, ValueError) as error:
            return NoAnswer(f"{operation} of {service}: {error}".rstrip("."))

    def request_all(self, service: str, operation: str, name: str, has: str = "", **parameters: Any) -> Any:
        """Returns the complete list of this name, from all pages, or Unasked, as `ask` does."""
        if isinstance(first := self.request(service, operation, has, **parameters), NoAnswer):
            return first
        try:
            pages = self.client(service).get_paginator(operation).paginate(**parameters)
            return [one for page in pages for one in page[name]]
        except (BotoCoreError, ClientError) as error:
            return NoAnswer(f"{operation} of {service}: {error}".rstrip("."))

    def send_mend(self, mend: Mend) -> str:
        """Sends the request; returns why it was refused, or ""."""
        answer = self.request(mend.service, mend.operation, **mend.parameters)
        return answer.reason if isinstance(answer, NoAnswer) else ""


def collect_facts(account: Account, deployed: DeployedStage) -> Facts:
    """Returns all facts, by subject."""
    ask = account.request

    def each(kind: str, service: str, operation: str, name: str, has: str = "") -> dict[str, Any]:
        """Returns the answers about the resources of a type, whose names are the parameter `name`."""
        return {one.key: ask(service, operation, has, **{name: one.name}) for one in deployed.of_type(kind)}

    facts: Facts = {
        "tables": {one.key: _table_facts(account, one) for one in deployed.of_type(TABLE)},
        "functions": each(FUNCTION, "lambda", "get_function_configuration", "FunctionName"),
        "reserved": each(FUNCTION, "lambda", "get_function_concurrency", "FunctionName", "account"),
        "machines": each(MACHINE, "stepfunctions", "describe_state_machine", "stateMachineArn"),
        "rules": each(RULE, "events", "describe_rule", "Name"),
        "subscriptions": {
            one.key: account.request_all("sns", "list_subscriptions_by_topic", "Subscriptions", TopicArn=one.name)
            for one in deployed.of_type(TOPIC)
        },
        "alarms": _alarms(account, deployed),
        "stable": _stable_version(account, deployed),
        "mappings": _mappings(account, deployed),
        "queue": ask(
            "sqs", "get_queue_attributes", QueueUrl=_queue_url(account, deployed), AttributeNames=["All"]
        ),
        "bucket": ask("s3", "head_bucket", Bucket=deployed.id_of("EventsBucket")),
        "concurrency": ask("lambda", "get_account_settings", has="account"),
        "limits": ask("dynamodb", "describe_limits", has="account"),
        "api_account": ask("apigateway", "get_account"),
        "held": _holders(account, deployed),
        "measured": _worst_minutes(account, deployed),
        **_api_facts(account, deployed),
    }  # fmt: skip
    facts["profiles"] = _profiles(account, deployed)
    facts["sinks"] = _sinks(account, deployed, facts["profiles"])
    return facts


def _table_facts(account: Account, table: Resource) -> dict[str, Any]:
    name = {"TableName": table.name}
    return {
        "table": account.request("dynamodb", "describe_table", **name),
        "ttl": account.request("dynamodb", "describe_time_to_live", **name),
        "backups": account.request("dynamodb", "describe_continuous_backups", "backups", **name),
    }


def _alarms(account: Account, deployed: DeployedStage) -> Any:
    names = [one.name for one in deployed.of_type(ALARM)]
    found: list[Any] = []
    for first in range(0, len(names), 100):
        answer = account.request("cloudwatch", "describe_alarms", AlarmNames=names[first : first + 100], MaxRecords=100)
        if isinstance(answer, NoAnswer):
            return answer
        found += answer["MetricAlarms"]
    return found


def _stable_version(account: Account, deployed: DeployedStage) -> dict[str, Any]:
    """Returns the alias, and its version; nothing is read if there is no alias."""
    name = deployed.id_of(MANAGER)
    alias = account.request("lambda", "get_alias", FunctionName=name, Name="stable")
    if isinstance(alias, NoAnswer):
        return {"alias": alias}
    asked = {"FunctionName": name, "Qualifier": alias["FunctionVersion"]}
    return {"alias": alias, "version": account.request("lambda", "get_function_configuration", **asked)}


def _mappings(account: Account, deployed: DeployedStage) -> Any:
    if not deployed.of_type(MAPPING):
        return []
    name = {"FunctionName": deployed.id_of(DELIVERY)}
    return account.request_all("lambda", "list_event_source_mappings", "EventSourceMappings", has=MAPPINGS, **name)


def _queue_url(account: Account, deployed: DeployedStage) -> str:
    """Returns the queue's address: its id in CloudFormation, or that of the run on this machine."""
    name = deployed.id_of("DeadLetterQueue")
    if name.startswith("http"):
        return name
    answer = account.request("sqs", "get_queue_url", QueueName=name)
    return name if isinstance(answer, NoAnswer) else str(answer["QueueUrl"])


def _holders(account: Account, deployed: DeployedStage) -> Any:
    """Returns the execution, or group, that holds each stream and each group, by id; or Unasked."""
    leases = Leases(account.client("dynamodb"), deployed.id_of("ControlTable"))
    try:
        return {stream_id: holder for page, _ in leases.held_pages("") for stream_id, holder in page.items()}
    except (StoreUnavailable, BotoCoreError, ClientError) as error:
        return NoAnswer(str(error).rstrip("."))


def _api_facts(account: Account, deployed: DeployedStage) -> Facts:
    rest = deployed.id_of("ApiGatewayRestApi")
    keys = [one.name for one in deployed.of_type("AWS::ApiGateway::ApiKey")]
    plans = [one.name for one in deployed.of_type("AWS::ApiGateway::UsagePlan")]
    ask = account.request
    return {
        "api_stage": ask("apigateway", "get_stage", restApiId=rest, stageName=deployed.stage),
        "api_keys": {key: ask("apigateway", "get_api_key", apiKey=key, includeValue=False) for key in keys},
        "api_plan_keys": {plan: ask("apigateway", "get_usage_plan_keys", usagePlanId=plan) for plan in plans},
    }


def _worst_minutes(account: Account, deployed: DeployedStage) -> Any:
    """Returns CloudWatch's counts in the worst minute of the last hours, by name, except those without a count."""
    wanted = list(_metrics(deployed))
    queries = [{"Id": f"m{n}", "ReturnData": True, "MetricStat": metric} for n, (_, metric) in enumerate(wanted)]
    now_s = int(time.time())
    begin, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (now_s - HOURS * 3600, now_s))
    answer = account.request("cloudwatch", "get_metric_data", MetricDataQueries=queries, StartTime=begin, EndTime=end)
    if isinstance(answer, NoAnswer):
        return answer
    values = {one["Id"]: one["Values"] for one in answer["MetricDataResults"]}
    return {name: max(found) for number, (name, _) in enumerate(wanted) if (found := values.get(f"m{number}"))}


def _metrics(deployed: DeployedStage) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in deployed.of_type(TABLE):
        yield one.key, _metric("DynamoDB", "ConsumedWriteCapacityUnits", "Sum", TableName=one.name)
    yield "functions", _metric("Lambda", "ConcurrentExecutions", "Maximum")
    api = {"ApiName": f"{deployed.stage}-{stages.SERVICE}", "Stage": deployed.stage}
    yield "requests", _metric("ApiGateway", "Count", "Sum", **api)
    for name, dimension in (("starts", "APIName=StartExecution"), ("transitions", "ServiceMetric=StateTransition")):
        key, _, value = dimension.partition("=")
        yield f"{name}_refill", _metric("States", "ProvisionedRefillRate", "Maximum", **{key: value})
        yield f"{name}_throttled", _metric("States", "ThrottledEvents", "Sum", **{key: value})


def _metric(namespace: str, name: str, statistic: str, **dimensions: str) -> dict[str, Any]:
    named = [{"Name": key, "Value": value} for key, value in dimensions.items()]
    metric = {"Namespace": f"AWS/{namespace}", "MetricName": name, "Dimensions": named}
    return {"Metric": metric, "Period": 60, "Stat": statistic}


# --- profiles and sinks -----------------------------------------------------------------------------------------------


def _profiles(account: Account, deployed: DeployedStage) -> Any:
    """Returns what the connecting function can read and reach, by profile, or Unasked."""
    names = _examine_profiles(account, deployed, [])
    if isinstance(names, NoAnswer):
        return names
    found: dict[str, Any] = {}
    for first in range(0, len(names["profiles"]), AT_ONCE):
        some = names["profiles"][first : first + AT_ONCE]
        answer = _examine_profiles(account, deployed, some)
        found |= dict.fromkeys(some, answer) if isinstance(answer, NoAnswer) else answer["examined"]
    return found


def _examine_profiles(account: Account, deployed: DeployedStage, names: Sequence[str]) -> Any:
    payload = json.dumps({"examine": names}).encode()
    function = f"{deployed.id_of(MANAGER)}:stable"
    answer = account.request("lambda", "invoke", FunctionName=function, Payload=payload)
    if isinstance(answer, NoAnswer):
        return answer
    said = json.loads(answer["Payload"].read() or b"null")
    if "FunctionError" not in answer and isinstance(said, dict) and {"profiles", "examined"} & said.keys():
        return said
    error = said.get("errorType", "") if isinstance(said, dict) else ""
    if error == "InvalidRequest":
        return NoAnswer(f"{function} has a version that cannot examine a profile: `streamkeeper upgrade` replaces it")
    return NoAnswer(f"{function} answered with {error or 'something that cannot be read'}")


def _sinks(account: Account, deployed: DeployedStage, profiles: Any) -> dict[str, Any]:
    """Returns whether each sink exists, and whether the delivery's role may send to it."""
    if isinstance(profiles, NoAnswer):
        return {}
    sinks = {
        f"{one['kind']}:{one['name']}": one
        for answer in profiles.values()
        if isinstance(answer, dict)
        for one in answer.get("sinks", ())
    }
    return {label: _sink(account, deployed, one) for label, one in sinks.items()}


def _sink(account: Account, deployed: DeployedStage, sink: Mapping[str, str]) -> dict[str, Any]:
    kind, name = sink["kind"], sink["name"]
    partition, region, own = deployed.account
    here = f"arn:{partition}:%s:{region}:{own}:"
    # For each kind: the request that shows whether it exists, and the action and resource of sending.
    asked: dict[str, tuple[str, str, dict[str, str], str, str]] = {
        "sqs": ("sqs", "get_queue_url", {"QueueName": name}, "sqs:SendMessage", here % "sqs" + name),
        "eventbridge": ("events", "describe_event_bus", {"Name": name}, "events:PutEvents",
                        here % "events" + f"event-bus/{name}"),
        "kinesis": ("kinesis", "describe_stream_summary", {"StreamName": name}, "kinesis:PutRecords",
                    here % "kinesis" + f"stream/{name}"),
        "firehose": ("firehose", "describe_delivery_stream", {"DeliveryStreamName": name}, "firehose:PutRecordBatch",
                     here % "firehose" + f"deliverystream/{name}"),
        "s3": ("s3", "head_bucket", {"Bucket": name}, "s3:PutObject", f"arn:{partition}:s3:::{name}/{sink['prefix']}x"),
        "lambda": ("lambda", "get_function_configuration", {"FunctionName": name}, "lambda:InvokeFunction",
                   here % "lambda" + f"function:{name}"),
    }  # fmt: skip
    found: dict[str, Any] = {}
    role = f"arn:{partition}:iam::{own}:role/{deployed.id_of('ConnectionDeliveryRole')}"
    if kind in asked:
        service, operation, parameters, action, arn = asked[kind]
        found["there"] = account.request(service, operation, **parameters)
    else:
        secret = sink["secret"].partition(":")[2]
        whole = secret if secret.startswith("/") else f"{stages.names(deployed.stage)['secrets']}{secret}"
        of_ssm = sink["secret"].startswith("ssm:")
        action = "ssm:GetParameter" if of_ssm else "secretsmanager:GetSecretValue"
        arn = here % "ssm" + f"parameter{whole}" if of_ssm else here % "secretsmanager" + f"secret:{whole}-AAAAAA"
        if not secret:
            return found
    found["allowed"] = account.request(
        "iam", "simulate_principal_policy", PolicySourceArn=role, ActionNames=[action], ResourceArns=[arn]
    )
    return found
