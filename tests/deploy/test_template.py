"""The template's requests to CloudFormation."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local import stages
from local.service import osls
from local.template import Resources

# The settings of its stage that the connection manager reads.
SETTINGS = """MARGIN_S WAIT_S RETRY_MAX_DELAY_S THROTTLE_DELAY_S THROTTLE_MAX_DELAY_S COOL_DOWN_S JITTER_S LEASE_EVERY_S
PROGRESS_EVERY_S KEEP_DAYS LEDGER_KEEP_DAYS BUDGET_EVENTS_PER_DAY BUDGET_BYTES_PER_DAY METRICS_BY"""


def resources(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the properties of all resources of a type."""
    return [resource["Properties"] for resource in template["Resources"].values() if resource["Type"] == kind]


def statements(template: dict[str, Any], role: str) -> list[tuple[Any, Any]]:
    """Return the (actions, resource) pairs that a role allows."""
    (policy,) = template["Resources"][role]["Properties"]["Policies"]
    return [(one["Action"], one["Resource"]) for one in policy["PolicyDocument"]["Statement"]]


@pytest.mark.long
def test_cfn_lint_finds_nothing_of_ours(package: Path, tmp_path: Path) -> None:
    """cfn-lint is silent but for a doubled dependency that osls itself writes (W3005)."""
    # For TimeoutSeconds its schema allows only a number, AWS an expression too.
    template, linted = (package / osls.COMPILED).read_text(encoding="utf-8"), tmp_path / "template.json"
    linted.write_text(re.sub(r'(TimeoutSeconds\\": )\\"{% \d+ \+ \d+ %}\\"', r"\g<1>960", template), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--ignore-checks", "W3005", "--", str(linted)]
    run = subprocess.run(command, cwd=stages.ROOT, capture_output=True, text=True, check=False)
    assert (run.stdout + run.stderr, run.returncode) == ("", 0)


def test_tables_are_on_demand_encrypted_recoverable_and_kept(template: dict[str, Any]) -> None:
    """Both tables have PK and SK, point-in-time recovery, encryption and a time to live."""
    tables = {
        resource["Properties"]["TableName"]: resource
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::DynamoDB::Table"
    }
    assert set(tables) == {"streamkeeper-dev-events", "streamkeeper-dev-control"}
    for table in tables.values():
        properties = table["Properties"]
        assert properties["BillingMode"] == "PAY_PER_REQUEST"
        assert properties["KeySchema"] == [
            {"AttributeName": "PK", "KeyType": "HASH"},
            {"AttributeName": "SK", "KeyType": "RANGE"},
        ]
        assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": False}
        assert properties["SSESpecification"] == {"SSEEnabled": True}
        assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}


def test_two_stages_have_nothing_in_common() -> None:
    """Every resource that has a name of its own has the stage's in it."""
    test, local = (Resources(osls.template(stage), {}) for stage in ("test", "local"))
    kinds = {one["Type"] for one in osls.template("test")["Resources"].values()}
    named = {key: test.name(key) for kind in kinds for key in test.of(kind) if test.name(key) != key}
    assert len(named) > 20
    assert named == {key: local.name(key).replace("-local", "-test") for key in named}
    assert [name for name in named.values() if "-test" not in name] == []


def test_what_is_kept_outlives_the_stack_but_no_failed_first_deployment(template: dict[str, Any]) -> None:
    """A stack that could not be created leaves nothing behind whose name would fail the next one."""
    kept = {
        name: (resource["DeletionPolicy"], resource["UpdateReplacePolicy"])
        for name, resource in template["Resources"].items()
        if "DeletionPolicy" in resource
    }
    names = ("ControlTable", "DeadLetterQueue", "EventsBucket", "EventsTable")
    assert kept == dict.fromkeys(names, ("RetainExceptOnCreate", "Retain"))


def test_no_deployment_moves_the_alias(template: dict[str, Any]) -> None:
    """The template says the same at each, so CloudFormation leaves what an upgrade has set."""
    (alias,) = resources(template, "AWS::Lambda::Alias")
    function = {"Ref": "ConnectionManagerLambdaFunction"}
    assert alias == {"FunctionName": function, "FunctionVersion": "$LATEST", "Name": "stable"}
    assert template["Resources"]["Connections"]["DependsOn"] == ["ConnectionManagerStable"]
    assert resources(template, "AWS::Lambda::Version") == []


def test_the_function_has_its_limits_and_settings(template: dict[str, Any]) -> None:
    """It is on arm64 with the stage's limit and its own role; its environment has what handlers read."""
    function, *_ = resources(template, "AWS::Lambda::Function")
    chosen = ("FunctionName", "Handler", "Runtime", "Architectures", "Timeout", "MemorySize", "Role")
    assert {name: function[name] for name in chosen} == {
        "FunctionName": "streamkeeper-dev-connection-manager",
        "Handler": "handlers/connection_manager.handler",
        "Runtime": "python3.13",
        "Architectures": ["arm64"],
        "Timeout": 900,
        "MemorySize": 128,
        "Role": {"Fn::GetAtt": ["ConnectionManagerRole", "Arn"]},
    }
    settings, names = stages.load("dev"), stages.names("dev")
    assert function["Environment"]["Variables"] == {
        **{name: str(settings[name.lower()]) for name in SETTINGS.split()},
        **{name: names[name.lower()] for name in ("EVENTS_TABLE", "CONTROL_TABLE")},
        "REPAIR_FUNCTION": names["connection_repair"],
        "DEAD_LETTER_QUEUE_URL": {"Ref": "DeadLetterQueue"},
        "EVENTS_BUCKET": {"Ref": "EventsBucket"},
        "STREAMS_DIR": "env/streams",
        "SECRETS_PREFIX": names["secrets"],
        "MALLOC_ARENA_MAX": "1",
        **dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), "131072"),
        "POWERTOOLS_SERVICE_NAME": stages.SERVICE,
        "POWERTOOLS_METRICS_NAMESPACE": names["metrics"],
        "POWERTOOLS_LOG_LEVEL": settings["log_level"],
    }
    assert [group["RetentionInDays"] for group in resources(template, "AWS::Logs::LogGroup")] == [7] * 6


def test_the_function_that_shows_and_stops_streams(template: dict[str, Any]) -> None:
    """It has the same zip and runtime, its own role and name."""
    manager, function, *_ = resources(template, "AWS::Lambda::Function")
    for name in ("Runtime", "Architectures", "Code"):
        assert function[name] == manager[name]
    chosen = ("FunctionName", "Handler", "Timeout", "MemorySize", "Role")
    assert {name: function[name] for name in chosen} == {
        "FunctionName": "streamkeeper-dev-connection-control",
        "Handler": "handlers/control.handler",
        "Timeout": 20,
        "MemorySize": 256,
        "Role": {"Fn::GetAtt": ["ConnectionControlRole", "Arn"]},
    }


ALL, INDEX = "ApiGatewayMethodConnectionsGet", "ApiGatewayMethodGet"
DOCUMENT = "ApiGatewayMethodOpenapijsonGet"
METHODS = "ApiGatewayMethodConnectionsStreamidVar"
PAGE = ("ApiGatewayMethodConsoleGet", "ApiGatewayMethodConsoleFileVarGet")
FLEET = ("ApiGatewayMethodFleetGet", "ApiGatewayMethodFleetPut")
OWN = (ALL, INDEX, DOCUMENT, *PAGE)


def methods(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the API's methods by the path after the stream and the HTTP method; ALL is the list of streams."""
    kind = "AWS::ApiGateway::Method"
    properties = {name: one["Properties"] for name, one in template["Resources"].items() if one["Type"] == kind}
    return {name.removeprefix(METHODS): method for name, method in properties.items()}


def test_get_and_delete_go_to_that_function(template: dict[str, Any]) -> None:
    """They need the API key as POST does; API Gateway may call the function, and is deployed after all methods."""
    routes = methods(template)
    views = ("CostGet", "DeadDashlettersGet", "GapsGet", "LatestGet", "MachineGet", "SinksGet", "TimelineGet")
    assert sorted(name for name in routes if not name.endswith("Any")) == sorted(
        [*OWN, *FLEET, "Delete", "EventsGet", "Get", "Post", "RedrivePost", "RepairPost", "SinksPost", *views]
    )
    # Each path has ANY besides, for a 405.
    anys = {name.removesuffix("Any") for name in routes if name.endswith("Any")}
    assert anys == {"Redrive", "Repair", *(name.removesuffix("Get") for name in routes if name.endswith("Get"))}
    for name in set(routes) - {"Post"}:
        # The page itself is the same for everybody, and a browser sends no key with an address that is typed.
        assert routes[name]["ApiKeyRequired"] is (name.replace("Any", "Get") not in PAGE)
        integration = routes[name]["Integration"]
        assert integration["Type"] == "AWS_PROXY"
        assert {"Fn::GetAtt": ["ConnectionControlLambdaFunction", "Arn"]} in integration["Uri"]["Fn::Join"][1]
    permissions = {one["Principal"]: one["FunctionName"] for one in resources(template, "AWS::Lambda::Permission")}
    assert permissions == {
        "apigateway.amazonaws.com": {"Fn::GetAtt": ["ConnectionControlLambdaFunction", "Arn"]},
        "events.amazonaws.com": {"Fn::GetAtt": ["ConnectionWatchLambdaFunction", "Arn"]},
    }
    (deployment,) = [one for one in template["Resources"].values() if one["Type"] == "AWS::ApiGateway::Deployment"]
    every = {name for name, one in template["Resources"].items() if one["Type"] == "AWS::ApiGateway::Method"}
    assert every <= set(deployment["DependsOn"])


def test_the_route_that_starts_a_stream_maps_errors(template: dict[str, Any]) -> None:
    """POST /connections/{streamId} answers 4xx and 5xx as such."""
    method = methods(template)["Post"]
    integration = method["Integration"]
    assert integration["Credentials"] == {"Fn::GetAtt": ["ApiRole", "Arn"]}
    # With a template for some media types the others are refused, as with NEVER.
    assert integration["PassthroughBehavior"] == "WHEN_NO_TEMPLATES"
    answers = [(one["StatusCode"], one["SelectionPattern"]) for one in integration["IntegrationResponses"]]
    assert answers == [(200, ""), (400, r"4(?!29)\d{2}"), (429, "429"), (503, r"5\d{2}")]
    assert [one["StatusCode"] for one in method["MethodResponses"]] == [200, 400, 404, 429, 503]


@pytest.mark.parametrize("stage", ["local", "test"])
def test_the_local_stages_have_the_same_resources(template: dict[str, Any], stage: str) -> None:
    """This machine runs the deployed template, with other names and numbers."""

    def shape(compiled: dict[str, Any]) -> list[str]:
        return sorted(resource["Type"] for resource in compiled["Resources"].values())

    assert shape(osls.template(stage)) == shape(template)
    assert f"streamkeeper-{stage}-control" in json.dumps(osls.template(stage))
