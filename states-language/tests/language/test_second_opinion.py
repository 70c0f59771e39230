"""The same definitions on moto's interpreter and on ours: where the two differ is listed, with who is right."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from machines import line
from states_language import TaskCall, load

ROLE = "arn:aws:iam::123456789012:role/second-opinion"
PASS = {"Type": "Pass"}


def one(**fields: Any) -> dict[str, Any]:
    return line(("A", {"Type": "Pass", **fields}))


def mapped(*states: tuple[str, dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A Map over $.a.b, one item at a time, so that both take the items in one order."""
    field = {"ItemsPath": "$.a.b", "MaxConcurrency": 1, "ItemProcessor": line(*states), **fields}
    return line(("Each", {"Type": "Map", **field, "Next": "After"}), ("After", PASS))


def chosen(**rule: Any) -> dict[str, Any]:
    choice = {"Type": "Choice", "Choices": [{**rule, "Next": "Yes"}], "Default": "No"}
    return line(("Look", choice), ("Yes", {"Type": "Succeed"}), ("No", {"Type": "Fail", "Error": "No", "Cause": "why"}))


INPUT = {"a": {"b": [1, 2, 3]}, "n": 5, "text": "x,y", "at": "2026-01-01T00:00:00Z", "yes": True, "none": None}
DEFINITIONS: dict[str, dict[str, Any]] = {
    "pass": one(),
    "result": one(Result={"r": 1}, ResultPath="$.into"),
    "paths": one(InputPath="$.a", OutputPath="$.b"),
    "parameters": one(Parameters={"whole.$": "$", "part.$": "$.a.b[1]", "slice.$": "$.a.b[0:2]", "all.$": "$.a.b[*]"}),
    "succeed": line(("A", {"Type": "Succeed"})),
    "fail": line(("A", {"Type": "Fail", "Error": "E", "Cause": "C"})),
    "fail by path": line(("A", {"Type": "Fail", "ErrorPath": "$.text", "CausePath": "$.at"})),
    "string": chosen(Variable="$.text", StringMatches="x*"),
    "numeric": chosen(Variable="$.n", NumericGreaterThanEqualsPath="$.a.b[0]"),
    "present": chosen(Variable="$.nothing", IsPresent=True),
    "null": chosen(Variable="$.none", IsNull=True),
    "time": chosen(Variable="$.at", TimestampLessThan="2027-01-01T00:00:00Z"),
    "and or not": chosen(
        And=[
            {"Not": {"Variable": "$.n", "NumericEquals": 1}},
            {"Or": [{"Variable": "$.yes", "BooleanEquals": False}, {"Variable": "$.n", "IsNumeric": True}]},
        ]
    ),
    "loop": line(
        ("Count", {"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.n, 1)"}, "Next": "Look"}),
        ("Look", {"Type": "Choice", "Choices": [{"Variable": "$.n", "NumericLessThan": 9, "Next": "Count"}],
                  "Default": "Over"}),
        ("Over", {"Type": "Succeed"}),
    ),
    "parallel": line(("Both", {"Type": "Parallel", "Branches": [line(("B", PASS))], "ResultPath": "$.both"})),
    "parallel fails": line(
        ("Both", {"Type": "Parallel", "Branches": [line(("B", {"Type": "Fail", "Error": "E"}))],
                  "Catch": [{"ErrorEquals": ["E"], "ResultPath": "$.caught", "Next": "After"}], "Next": "After"}),
        ("After", PASS),
    ),
    "map": mapped(("I", PASS)),
    "map of nothing": mapped(("I", PASS), ItemsPath="$.none_here[*]"),
    "map selects": mapped(
        ("I", PASS),
        ItemSelector={"n.$": "$.n", "i.$": "$$.Map.Item.Index", "v.$": "$$.Map.Item.Value"},
        ResultSelector={"all.$": "$[*].v"},
        ResultPath="$.each",
    ),
    "map of old": line(
        ("Each", {"Type": "Map", "ItemsPath": "$.a.b", "MaxConcurrency": 1, "Iterator": line(("I", PASS)),
                  "Parameters": {"v.$": "$$.Map.Item.Value"}}),
    ),
    "map of two states": mapped(
        ("I", {"Type": "Pass", "Parameters": {"v.$": "States.MathAdd($, 1)"}, "Next": "J"}),
        ("J", {"Type": "Choice", "Choices": [{"Variable": "$.v", "NumericLessThan": 3, "Next": "K"}], "Default": "L"}),
        ("K", PASS),
        ("L", {"Type": "Succeed"}),
    ),
    "map fails": mapped(
        ("I", {"Type": "Fail", "Error": "E"}),
        Catch=[{"ErrorEquals": ["E"], "ResultPath": "$.caught", "Next": "After"}],
    ),
    "map in map": mapped(
        ("In", {"Type": "Map", "ItemsPath": "$.v", "MaxConcurrency": 1, "ItemProcessor": line(("I", PASS))}),
        ItemSelector={"v.$": "States.Array($$.Map.Item.Value, 0)"},
    ),
    "map of no array": mapped(("I", PASS), ItemsPath="$.n"),
    "variables": line(
        ("Set", {"Type": "Pass", "Assign": {"v.$": "$.n"}, "Next": "Get"}),
        ("Get", {"Type": "Pass", "Parameters": {"v.$": "$v"}}),
    ),
    "no choice": line(
        ("Look", {"Type": "Choice", "Choices": [{"Variable": "$.n", "NumericEquals": 1, "Next": "Over"}]}),
        ("Over", {"Type": "Succeed"}),
    ),
    "lost path": one(InputPath="$.nothing"),
    "service": line(("Get", {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage",
                             "Parameters": {"QueueUrl.$": "$.queue", "MessageBody": "m"}, "ResultPath": None})),
    **{
        name: one(Parameters={"r.$": call})
        for name, call in {
            "format": "States.Format('{} and {}', $.n, $.text)",
            "array": "States.Array($.n, 'a', true, null)",
            "partition": "States.ArrayPartition($.a.b, 2)",
            "contains": "States.ArrayContains($.a.b, 2)",
            "range": "States.ArrayRange(1, 9, 3)",
            "item": "States.ArrayGetItem($.a.b, 1)",
            "length": "States.ArrayLength($.a.b)",
            "unique": "States.ArrayUnique(States.Array(1, 2, 1))",
            "encode": "States.Base64Encode($.text)",
            "decode": "States.Base64Decode('eA==')",
            "hash": "States.Hash($.text, 'SHA-256')",
            "merge": "States.JsonMerge($.a, States.StringToJson('{\"c\":1}'), false)",
            "to text": "States.JsonToString($.a)",
            "split": "States.StringSplit($.text, ',')",
        }.items()
    },
}  # fmt: skip
PAGE = (Path(__file__).parents[2] / "docs" / "second-opinion.md").read_text(encoding="utf-8")
EXPLAINED = dict(re.findall(r"^\| ([a-z ]+) \| (.+) \|$", PAGE, re.MULTILINE))


def flat(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event without its time, its details beside its id, JSON texts parsed."""
    flattened = {"id": event["id"], "prev": event.get("previousEventId", 0), "type": event["type"]}
    for name, details in event.items():
        if name.endswith("EventDetails"):
            flattened |= {key: parsed(value) for key, value in details.items() if not key.endswith("Details")}
    return flattened


def parsed(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def theirs(data: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the name of each definition and the history that moto's interpreter makes of it."""
    client = boto3.client("stepfunctions", region_name="us-east-1")
    started = {}
    for number, (name, definition) in enumerate(DEFINITIONS.items()):
        text = json.dumps(definition)
        arn = client.create_state_machine(name=f"m{number}", definition=text, roleArn=ROLE)["stateMachineArn"]
        started[name] = client.start_execution(stateMachineArn=arn, name=f"e{number}", input=json.dumps(data))
    for name, execution in started.items():
        named = {"executionArn": execution["executionArn"]}
        while client.describe_execution(**named)["status"] == "RUNNING":
            threading.Event().wait(0.1)
        yield name, [flat(event) for event in client.get_execution_history(**named)["events"]]


def ours(definition: dict[str, Any], data: dict[str, Any], answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return our history of the same; services answer as they answered moto."""
    left = [event["output"] for event in answers if event["type"] == "TaskSucceeded"]

    async def perform(_call: TaskCall) -> Any:
        return left.pop(0)

    execution = load(definition).execute(data, perform=perform, role_arn=ROLE)
    return [flat(event) for event in execution.history]


@pytest.mark.long
def test_both_interpreters_make_the_same_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Id, previous id, type and details of every event are the same but for what second-opinion.md explains."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    settings: Any = {"stepfunctions": {"execute_state_machine": True}}
    with mock_aws(config=settings):
        queue = boto3.client("sqs", region_name="us-east-1").create_queue(QueueName="q")["QueueUrl"]
        data = {**INPUT, "queue": queue}
        different = {name for name, history in theirs(data) if history != ours(DEFINITIONS[name], data, history)}
    assert different == EXPLAINED.keys() - {"definition", "how many"}  # the heads of the tables
