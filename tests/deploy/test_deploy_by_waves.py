"""A deployment changes nothing that running streams use: `packaging/deploy-by-waves.cjs` with played services."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.deploy import node
from tests.http_server import Answer, Request, answering

# Deploys definitions as osls does, null if nothing has changed: a hook, the stack, a hook. Returns what was said.
SCRIPT = """
const Plugin = require('./packaging/deploy-by-waves.cjs');
const [endpoint, deploy_by_waves, definitions, command] = given;
process.env.AWS_ENDPOINT_URL = endpoint;
const config = {region: 'us-east-1', maxAttempts: 1, credentials: {accessKeyId: 'a', secretAccessKey: 'b'}};
const names = {
  connection_manager: 'manager', connections: 'connections', upgrade: 'upgrade', control_table: 'control',
};
const custom = {names, settings: {deploy_by_waves}};
const aws = {getAwsSdkV3Config: () => config, getStage: () => 'prod'};
const serverless = {service: {custom, provider: {}}, classes: {Error}, getProvider: () => aws};
const all = [];
for (const definition of definitions) {
  const said = [];
  const {hooks} = new Plugin(serverless, {timestamp: '1'}, {log: {notice: (line) => said.push(line)}});
  serverless.service.provider.shouldNotDeploy = definition === null;
  try {
    await hooks[`before:${command}:${command}`]();
    if (definition !== null) await fetch(endpoint + '/stack', {method: 'POST', body: definition});
    await hooks[`after:${command}:${command}`]();
  } catch (error) {
    said.push(error.message);
  }
  all.push(said);
}
return all;
"""
MACHINE = "arn:aws:states:us-east-1:111111111111:stateMachine:connections"
UPGRADE = "streamkeeper upgrade --stage prod"


@dataclass
class Stage:
    """Lambda, Step Functions and the control table of a stage; `runs` is the running upgrade."""

    alias: str = ""
    function: int = 0
    deployed: str = ""
    versions: list[str] = field(default_factory=list)
    record: dict[str, str] = field(default_factory=dict)
    runs: str = ""
    asked: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Answer:
        """Answer as the services do."""
        target = request.headers.get("x-amz-target", "").rpartition(".")[2]
        body = request.body.decode()
        if request.path == "/stack":
            self.deployed, self.alias = body, self.alias or "$LATEST"
            return Answer(200)
        self.asked.append(target or f"{request.method} {request.path}")
        said = self._aws(target, json.loads(body or "{}")) if target else self._lambda(request, body)
        status = 404 if said.get("__type") else 200
        return Answer(status, body=json.dumps(said).encode())

    def _lambda(self, request: Request, body: str) -> dict[str, Any]:
        if request.path.endswith("/versions"):
            self.function += 1
            return {"Version": str(self.function)}
        if not self.alias:
            return {"__type": "ResourceNotFoundException"}
        if request.method == "PUT":
            self.alias = json.loads(body)["FunctionVersion"]
        arn = "arn:aws:lambda:us-east-1:111111111111:function:manager:stable"
        return {"AliasArn": arn, "FunctionVersion": self.alias}

    def _aws(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        match operation:
            case "ListExecutions":
                return {"executions": [{"name": self.runs}] if self.runs else []}
            case "PublishStateMachineVersion":
                self.versions.append(self.deployed)
                return {"stateMachineVersionArn": f"{asked['stateMachineArn']}:{len(self.versions)}"}
            case "DescribeStateMachine":
                number = asked["stateMachineArn"].removeprefix(MACHINE).removeprefix(":")
                return {"definition": self.versions[int(number) - 1] if number else self.deployed}
            case "UpdateStateMachine":
                assert asked["stateMachineArn"] == MACHINE
                self.deployed = asked["definition"]
                return {}
            case "GetItem":
                return {"Item": {name: {"S": value} for name, value in self.record.items()}} if self.record else {}
        assert (operation, asked["Key"]) == ("UpdateItem", {"PK": {"S": "#"}, "SK": {"S": "upgrade"}})
        name, arn = asked["ExpressionAttributeNames"]["#name"], asked["ExpressionAttributeValues"][":arn"]["S"]
        self.record[name] = arn
        return {}


def deployed(stage: Stage, *definitions: str | None, by_waves: bool = True, command: str = "deploy") -> list[list[str]]:
    """Return the messages of each deployment."""
    with answering(stage.answer) as endpoint:
        said: list[list[str]] = node.run(SCRIPT, [endpoint, by_waves, definitions, command])
    return said


def test_a_second_deployment_leaves_running_streams_on_their_version() -> None:
    """The alias keeps the code. The former definition is deployed again, and the stack's own waits for the upgrade."""
    stage = Stage()
    first, *others = deployed(stage, "D1", "D1", "D2", "D3")
    assert first == ["To check that it works: streamkeeper doctor --stage prod --demo"]
    assert [one.endswith(UPGRADE) and "version 1 as before" in one for (one,) in others] == [True] * 3
    assert (stage.alias, stage.function, stage.deployed) == ("1", 1, "D1 ")
    assert (stage.versions, stage.asked.count("UpdateStateMachine")) == (["D1", "D2", "D3"], 2)
    assert stage.record == {"definition": f"{MACHINE}:1", "aside": f"{MACHINE}:3"}


def test_the_next_deployment_completes_a_killed_one() -> None:
    """The killed deployment changed only the stack. The next one finds nothing to deploy, and puts D1 back."""
    stage = Stage()
    deployed(stage, "D1", "D1")
    stage.deployed = "D2"
    assert deployed(stage, None, None) == [[], []]
    assert (stage.deployed, stage.versions) == ("D1 ", ["D1", "D2"])
    assert stage.record == {"definition": f"{MACHINE}:1", "aside": f"{MACHINE}:2"}


def test_a_rollback_reaches_streams_by_waves_too() -> None:
    """The stack goes back, and streams keep their version. A definition without a version is replaced at once."""
    stage = Stage()
    deployed(stage, "D2")
    deployed(stage, "D1", command="rollback")
    assert (stage.alias, stage.deployed, stage.record) == ("$LATEST", "D1", {})
    deployed(stage, "D3")
    ((said,),) = deployed(stage, "D0", command="rollback")
    assert (said.endswith(UPGRADE), stage.alias, stage.deployed) == (True, "1", "D1 ")
    assert (stage.versions, stage.record["aside"]) == (["D1", "D3", "D0"], f"{MACHINE}:3")


def test_a_stage_that_was_removed_begins_anew() -> None:
    """Its control table stayed, with the version of a machine that is gone."""
    stage = Stage(record={"definition": f"{MACHINE}:7"})
    *_, (said,) = deployed(stage, "D1", "D2")
    assert (said.endswith(UPGRADE), stage.deployed) == (True, "D1 ")
    assert stage.record == {"definition": f"{MACHINE}:1", "aside": f"{MACHINE}:2"}


def test_nothing_is_deployed_while_an_upgrade_runs() -> None:
    """One sentence names the upgrade, and the stack is not read."""
    stage = Stage(runs="20261128T084311Z-d7fed8")
    _, (refused,) = deployed(stage, "D1", "D2")
    assert refused.startswith(
        "An upgrade of the streams is running (20261128T084311Z-d7fed8) and checks what is deployed"
    )
    assert (stage.deployed, stage.alias, stage.versions) == ("D1", "$LATEST", [])


def test_the_setting_can_switch_waves_off() -> None:
    """Then no service is called."""
    stage = Stage()
    assert (deployed(stage, "D1", "D2", by_waves=False), stage.asked, stage.alias) == ([[], []], [], "$LATEST")
