"""Reads the compiled CloudFormation template: the functions, machines, routes, tables, queues and buckets of the stack.

Each resource gets a physical name and an ARN on this machine; local/template.py resolves them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local.template import ACCOUNT, REGION, Resources, text_of

# The end of a proxy integration's Uri; source: API Gateway's PutIntegration.
_INVOCATION = re.compile(r":function:([A-Za-z0-9_-]+)/invocations$")
# The action of Step Functions that a method without a function calls.
START_SYNC = "StartSyncExecution"
# API Gateway's own template of a gateway response.
DEFAULT_TEMPLATE = '{"message":$context.error.messageString}'


@dataclass(frozen=True)
class Function:
    """A Lambda function of the template; `reserved_concurrency` limits how many run at a time."""

    name: str
    handler: str
    function_timeout_s: int
    memory_mb: int
    environment: Mapping[str, str]
    reserved_concurrency: int | None = None

    @property
    def arn(self) -> str:
        """Its ARN on this machine."""
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.name}"


@dataclass(frozen=True)
class Alias:
    """A name for a version of a function; `version` is its first one in the template."""

    function: str
    name: str
    version: str


@dataclass(frozen=True)
class EventSource:
    """A table whose stream calls a function; `filters` are patterns, one of which a record must match."""

    table: str
    function: str
    batch_size: int
    filters: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class StateMachine:
    """A state machine; `definition` is the JSON text with every reference resolved, `type` STANDARD or EXPRESS."""

    name: str
    arn: str
    definition: str
    type: str = "STANDARD"


@dataclass(frozen=True)
class Route:
    """A method of the REST API that answers with an Express execution; templates by content type, in VTL."""

    method: str
    path: str
    request_templates: Mapping[str, str]
    passthrough: str
    responses: tuple[Mapping[str, Any], ...]
    needs_signature: bool


@dataclass(frozen=True)
class ProxyRoute:
    """A method of the REST API that a function answers by Lambda's proxy integration; `function` is its name."""

    method: str
    path: str
    function: str
    needs_signature: bool


@dataclass(frozen=True)
class GatewayResponse:
    """API Gateway's answer without an integration; `status` is None if it keeps its own.

    `template` is not VTL: variables are inserted as they are.
    """

    kind: str
    status: int | None
    headers: Mapping[str, str]
    template: str


@dataclass(frozen=True)
class Stack:
    """The parts of a template that the local run uses; tables and queues are parameters of their Create calls."""

    functions: tuple[Function, ...]
    machines: tuple[StateMachine, ...]
    routes: tuple[Route | ProxyRoute, ...]
    tables: tuple[Mapping[str, Any], ...]
    queues: tuple[Mapping[str, Any], ...] = field(default=())
    buckets: tuple[str, ...] = ()
    gateway_responses: tuple[GatewayResponse, ...] = ()
    event_sources: tuple[EventSource, ...] = ()
    aliases: tuple[Alias, ...] = ()


def read_stack(template: Mapping[str, Any], queue_urls: Mapping[str, str]) -> Stack:
    """Returns the stack; `queue_urls` has the queues' addresses by name. Raises UserError for an invalid template."""
    resources = Resources(template, queue_urls)

    def properties(kind: str) -> list[dict[str, Any]]:
        return [resources.properties(key) for key in resources.ids_of_type(kind)]

    queues = zip(resources.ids_of_type("AWS::SQS::Queue"), properties("AWS::SQS::Queue"), strict=True)
    routes = (_route(resources, key) for key in resources.ids_of_type("AWS::ApiGateway::Method"))
    return Stack(
        functions=tuple(_function(resources, key) for key in resources.ids_of_type("AWS::Lambda::Function")),
        machines=tuple(_machine(resources, key) for key in resources.ids_of_type("AWS::StepFunctions::StateMachine")),
        routes=tuple(route for route in routes if route is not None),
        tables=tuple(properties("AWS::DynamoDB::Table")),
        queues=tuple({"QueueName": resources.name(key), **each} for key, each in queues),
        # A bucket without a name belongs to the deploy tool.
        buckets=tuple(each["BucketName"] for each in properties("AWS::S3::Bucket") if each.get("BucketName")),
        gateway_responses=tuple(map(_gateway_response, properties("AWS::ApiGateway::GatewayResponse"))),
        event_sources=tuple(map(_event_source, properties("AWS::Lambda::EventSourceMapping"))),
        aliases=tuple(map(_alias, properties("AWS::Lambda::Alias"))),
    )


def _alias(properties: Mapping[str, Any]) -> Alias:
    return Alias(str(properties["FunctionName"]), str(properties["Name"]), str(properties["FunctionVersion"]))


def _event_source(properties: Mapping[str, Any]) -> EventSource:
    filters = properties.get("FilterCriteria", {}).get("Filters", [])
    return EventSource(
        str(properties["EventSourceArn"]).split("/")[1],
        str(properties["FunctionName"]).rpartition(":")[2],
        int(properties["BatchSize"]),
        tuple(json.loads(one["Pattern"]) for one in filters),
    )


def _function(resources: Resources, key: str) -> Function:
    properties = resources.properties(key)
    reserved = properties.get("ReservedConcurrentExecutions")
    return Function(
        name=resources.name(key),
        handler=str(properties["Handler"]),
        function_timeout_s=int(properties.get("Timeout", 3)),
        memory_mb=int(properties.get("MemorySize", 128)),
        environment={
            name: text_of(value) for name, value in properties.get("Environment", {}).get("Variables", {}).items()
        },
        reserved_concurrency=None if reserved is None else int(reserved),
    )


def _machine(resources: Resources, key: str) -> StateMachine:
    properties = resources.properties(key)
    return StateMachine(
        resources.name(key),
        resources.attribute(key, "Arn"),
        str(properties["DefinitionString"]),
        str(properties.get("StateMachineType", "STANDARD")),
    )


def _route(resources: Resources, key: str) -> Route | ProxyRoute | None:
    properties = resources.properties(key)
    integration = properties.get("Integration", {})
    uri = str(integration.get("Uri", ""))
    called = {
        "method": str(properties["HttpMethod"]),
        "path": resources.path(resources.raw(key)["Properties"]["ResourceId"]) or "/",
    }
    needs_signature = properties.get("AuthorizationType") == "AWS_IAM"
    if integration.get("Type") == "AWS_PROXY":
        function = _INVOCATION.search(uri)
        return function and ProxyRoute(**called, function=function[1], needs_signature=needs_signature)
    if not uri.endswith(f":states:action/{START_SYNC}"):
        return None
    return Route(
        **called,
        request_templates={kind: str(text) for kind, text in integration.get("RequestTemplates", {}).items()},
        passthrough=str(integration.get("PassthroughBehavior", "WHEN_NO_MATCH")),
        responses=tuple(integration.get("IntegrationResponses", ())),
        needs_signature=needs_signature,
    )


def _gateway_response(properties: Mapping[str, Any]) -> GatewayResponse:
    # A static value is in single quotes.
    headers = {
        name.removeprefix("gatewayresponse.header."): str(value).strip("'")
        for name, value in properties.get("ResponseParameters", {}).items()
    }
    status = properties.get("StatusCode")
    template = properties.get("ResponseTemplates", {}).get("application/json", DEFAULT_TEMPLATE)
    return GatewayResponse(str(properties["ResponseType"]), status and int(status), headers, template)
