"""Who may call the API, how often, and what is logged, by the settings, in the compiled template."""

import json
import re
from typing import Any

from local import stages
from tests.deploy.test_template import resources, statements

KEYS = ("AWS::ApiGateway::ApiKey", "AWS::ApiGateway::UsagePlan", "AWS::ApiGateway::UsagePlanKey")
LOGGED = ["requestId", "requestTime", "identity.sourceIp", "identity.userArn", "identity.apiKeyId", "httpMethod"]
LOGGED += ["path", "status", "responseLength", "responseLatency", "error.responseType"]
ROLES = ("ConnectionsRole", "StartRole", "UpgradeRole", "FleetRole")


def methods(template: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return for each method of the API how a caller is authorized, and whether a key is required."""
    return [(one["AuthorizationType"], one["ApiKeyRequired"]) for one in resources(template, "AWS::ApiGateway::Method")]


def test_prod_requires_a_signature_and_dev_a_key(template: dict[str, Any], prod: dict[str, Any]) -> None:
    """All methods of prod have AWS_IAM and no key. All methods of dev need the one key, except the page."""
    assert methods(prod) == [("AWS_IAM", False)] * 38
    assert [resources(prod, kind) for kind in KEYS] == [[], [], []]
    assert sorted(methods(template)) == [("NONE", False)] * 4 + [("NONE", True)] * 34
    assert [len(resources(template, kind)) for kind in KEYS] == [1, 1, 1]


def test_the_readme_calls_the_deployed_stage_with_its_credentials() -> None:
    """It signs if the stage requires a signature, and sends the key if the stage requires one."""
    readme = (stages.ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^## Deploy\n.*?^```sh\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    (stage,) = re.findall(r"sls deploy --stage (\w+)", block)
    by_iam = stages.load(stage)["api_auth"] == "iam"
    assert ("streamkeeper request " in block, "x-api-key" in block) == (by_iam, not by_iam)


def test_each_call_counts_for_the_throttle_of_the_stage(template: dict[str, Any], prod: dict[str, Any]) -> None:
    """Every caller counts. The stage has the newest deployment, and a usage plan waits for the stage.

    A throttle of the plan would count all methods together, so reads would use up the rate of POSTs.
    """
    for compiled, name, settings_of in ((template, "dev", "dev"), (prod, "test", "prod")):
        (stage,) = resources(compiled, "AWS::ApiGateway::Stage")
        (deployment,) = (key for key in compiled["Resources"] if key.startswith("ApiGatewayDeployment"))
        assert (stage["StageName"], stage["DeploymentId"]) == (name, {"Ref": deployment})
        settings = stages.load(settings_of)
        rate, burst = settings["api_requests_per_s"], settings["api_burst"]
        every = {"ResourcePath": "/*", "HttpMethod": "*", "ThrottlingRateLimit": rate, "ThrottlingBurstLimit": burst}
        assert stage["MethodSettings"] == [every]
        assert "StageName" not in compiled["Resources"][deployment]["Properties"]
    (plan,) = (one for one in template["Resources"].values() if one["Type"] == KEYS[1])
    assert (plan["DependsOn"], "Throttle" in plan["Properties"]) == ("ApiGatewayStage", False)


def test_the_settings_switch_logs_on(template: dict[str, Any], prod: dict[str, Any]) -> None:
    """API and machines get log groups, kept as long as the functions', without inputs and outputs."""
    assert "AccessLogSetting" not in resources(template, "AWS::ApiGateway::Stage")[0]
    machines = resources(template, "AWS::StepFunctions::StateMachine")
    assert [one.get("LoggingConfiguration") for one in machines] == [None] * 4
    groups = {one["LogGroupName"]: one["RetentionInDays"] for one in resources(prod, "AWS::Logs::LogGroup")}
    logs = [
        f"/aws/vendedlogs/states/streamkeeper-test-{machine}"
        for machine in ("connections", "start", "upgrade", "fleet")
    ]
    api = "/aws/apigateway/streamkeeper-test"
    assert ({*logs, api}, set(groups.values())) == ({name for name in groups if "lambda" not in name}, {30})
    (stage,) = resources(prod, "AWS::ApiGateway::Stage")
    assert stage["AccessLogSetting"]["DestinationArn"]["Fn::Sub"].endswith(":log-group:${ApiAccessLog}")
    # No message of an error: of a wrong signature it quotes the signed headers, a session token among them.
    assert json.loads(stage["AccessLogSetting"]["Format"]) == {name: f"$context.{name}" for name in LOGGED}
    for machine in ("Connections", "Start", "Upgrade", "Fleet"):
        logging = prod["Resources"][machine]["Properties"]["LoggingConfiguration"]
        target = {"CloudWatchLogsLogGroup": {"LogGroupArn": {"Fn::GetAtt": [f"{machine}Log", "Arn"]}}}
        assert logging == {"Level": "ERROR", "IncludeExecutionData": False, "Destinations": [target]}
        (everywhere,) = (actions for actions, place in statements(prod, f"{machine}Role") if place == "*")
        assert all(action.startswith("logs:") for action in everywhere)
    assert not [one for role in ROLES for one in statements(template, role) if one[1] == "*"]
