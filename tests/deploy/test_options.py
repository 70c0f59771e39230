"""The resources of a stage that names a bucket of profiles."""

import re
from typing import Any

import pytest

from local import stages
from tests.deploy import node

SCRIPT = """
const Plugin = require('./packaging/profiles-bucket.cjs');
const { statementsOfBucket } = require('./packaging/delivery.cjs');
const run = (profiles_bucket) => {
  const role = () => ({Properties: {Policies: [{PolicyDocument: {Statement: []}}]}});
  const names = ['Manager', 'Control', 'Repair', 'Delivery', 'Watch'].map((one) => `Connection${one}`).concat('Start');
  const Resources = {
    ...Object.fromEntries(names.map((name) => [`${name}Role`, role()])),
    StuckAlarm: {Properties: {AlarmActions: ['topic'], OKActions: ['topic']}},
  };
  const keys = ['Manager', 'Control', 'Repair', 'Watch'].map((name) => `connection${name}`);
  const functions = Object.fromEntries(keys.map((key) => [key, {environment: {}}]));
  const definition = {StartAt: 'First', States: {First: {}}};
  const settings = {profiles_bucket, profiles_folder: 'streams/'};
  const custom = {settings, upstreams: {}, names: {metrics: 'ours', connection_manager: 'manager'}};
  const configurationInput = {stepFunctions: {stateMachines: {start: {definition}}}};
  const plugin = new Plugin({
    service: {custom, functions, resources: {Resources}}, configurationInput,
    getProvider: () => ({getStage: () => 'dev'}),
  });
  plugin.hooks['before:package:compileFunctions']();
  return {functions, Resources, definition, sinks: statementsOfBucket('http,arn:aws:sqs:eu-west-1:1:q', '/s/dev/')};
};
return [run(''), run('mine')];
"""


@pytest.fixture(scope="module")
def stages_of() -> list[dict[str, Any]]:
    """Return what the plugin makes of a stage without a bucket, and of one with it."""
    found: list[dict[str, Any]] = node.run(SCRIPT)
    return found


def allowed(role: dict[str, Any]) -> dict[str, str]:
    """Return the ARN on which a role allows each action."""
    statements = role["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    return {
        action: one["Resource"]["Fn::Sub"]
        for one in statements
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
    }


def test_who_reads_profiles_may_read_the_folder_and_nobody_else(stages_of: list[dict[str, Any]]) -> None:
    """They may read the profiles, their versions, and the list; the machine that answers a POST only the list."""
    without, within = stages_of
    objects, bucket = "arn:${AWS::Partition}:s3:::mine/streams/*.toml", "arn:${AWS::Partition}:s3:::mine"
    reads = dict.fromkeys(("s3:GetObject", "s3:GetObjectVersion"), objects)
    reads |= dict.fromkeys(("s3:ListBucket", "s3:ListBucketVersions"), bucket)
    roles = {name: allowed(role) for name, role in within["Resources"].items() if name.endswith("Role")}
    assert roles == {
        **{f"Connection{name}Role": reads for name in ("Manager", "Control", "Repair")},
        "StartRole": {"s3:ListBucket": bucket},
        "ConnectionWatchRole": {},
        "ConnectionDeliveryRole": {},
    }
    assert set(map(str, (allowed(role) for name, role in without["Resources"].items() if name.endswith("Role")))) == {
        "{}"
    }
    named = {"PROFILES_BUCKET": "mine", "PROFILES_FOLDER": "streams/"}
    functions = {name: one["environment"] for name, one in within["functions"].items()}
    assert functions == {
        **{f"connection{name}": named for name in ("Manager", "Control", "Repair")},
        "connectionWatch": {},
    }
    assert [one["definition"]["StartAt"] for one in stages_of] == ["First", "Did it ship"]


def test_the_alarm_looks_for_the_words_of_the_log(stages_of: list[dict[str, Any]]) -> None:
    """They are in the one sentence about a wrong profile; the alarm acts like the others."""
    _, within = stages_of
    source = (stages.ROOT / "handlers" / "run" / "profile_source.py").read_text()
    (words,) = re.findall('^"(.+)"$', within["Resources"]["WrongProfilesFilter"]["Properties"]["FilterPattern"])
    assert source.count(words) == 1
    alarm = within["Resources"]["WrongProfilesAlarm"]["Properties"]
    assert (alarm["AlarmActions"], alarm["OKActions"]) == (["topic"], ["topic"])


def test_its_profiles_may_deliver_to_what_the_stage_names(stages_of: list[dict[str, Any]]) -> None:
    """An action applies only to its own service's resources; `http` to the stage's secrets."""
    sinks, *secrets = stages_of[0]["sinks"]
    assert sinks["Resource"] == ["arn:aws:sqs:eu-west-1:1:q"]
    assert {"sqs:SendMessage", "s3:PutObject", "lambda:InvokeFunction"} < set(sinks["Action"])
    assert [one["Resource"][0]["Fn::Sub"].rpartition(":")[2] for one in secrets] == ["parameter/s/dev/*", "/s/dev/*"]
