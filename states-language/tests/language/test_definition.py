"""`load` returns a machine, or refuses a definition with the place and the rule."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from machines import INVOKE, line
from states_language import DefinitionError, load

PASS = {"Type": "Pass", "End": True}
SET = {"Assign": {"v": 1}}
GET, PUT = "arn:aws:states:::s3:getObject", "arn:aws:states:::s3:putObject"
LISTED = "arn:aws:states:::s3:listObjectsV2"
TASK = {"Type": "Task", "Resource": INVOKE, "Parameters": {"FunctionName": "f"}, "End": True}


def one_state(state: Any, **fields: Any) -> dict[str, Any]:
    return {"StartAt": "S", "States": {"S": state}, **fields}


def choice(**rule: Any) -> dict[str, Any]:
    return {"StartAt": "S", "States": {"S": {"Type": "Choice", "Choices": [{"Next": "P", **rule}]}, "P": PASS}}


def map_definition(mode: str | None = "STANDARD", **fields: Any) -> dict[str, Any]:
    """Return a Map whose ProcessorConfig is DISTRIBUTED with this ExecutionType; without a mode, an inline Map."""
    config = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": mode}} if mode else {}
    return {"Type": "Map", "ItemProcessor": {**line(("A", {"Type": "Pass"})), **config}, "End": True, **fields}


WHOLE: list[tuple[Any, str, str]] = [
    ({"StartAt": "A", "States": {}}, "/StartAt", "there is no state 'A'"),
    (one_state(PASS, Version="2.0"), "/Version", "must be 1.0"),
    (one_state(PASS, TimeoutSeconds=0), "/TimeoutSeconds", "must be between 1 and 99999999"),
    (choice(Variable="$.a", IsNull=True, IsString=True), "/States/S/Choices/0",
     "exactly one operator is required, not 2"),
    (choice(Not={"Variable": "$.a", "IsNull": True, "Next": "P"}), "/States/S/Choices/0/Not/Next",
     "stands in a top-level rule only"),
    (choice(And=[]), "/States/S/Choices/0/And", "must hold at least one rule"),
    ({"StartAt": "A", "States": {"A": PASS, "B/C": PASS}}, "/States/B~1C", "the state 'B/C' is not reachable"),
]  # fmt: skip
"""Definitions, the place of what is wrong in each, and the rule."""
ALONE = "States.ALL stands alone, and in the last Retrier or Catcher only"
STATES: list[tuple[Any, str, str]] = [
    ({}, "", "these fields are required: Type"),
    ({"Type": "Map", "End": True}, "", "these fields are required: ItemProcessor"),
    ({**PASS, "ResultPath": "$x.a"}, "/ResultPath", "cannot write to a variable; Assign does"),
    ({"Type": "Succeed", "Assign": {"a": 1}}, "/Assign", "is not a field of a Succeed state"),
    ({**PASS, "Assign": 1}, "/Assign", "must be a JSON object whose keys are variables"),
    ({**PASS, "Assign": {"states": 1}}, "/Assign/states", "'states' is reserved"),
    ({**PASS, "Assign": {"1st.$": "$"}}, "/Assign/1st.$",
     "'1st' is not a variable name: letters, digits and _, no digit first"),
    ({**PASS, "Assign": {"a" * 81: 1}}, "/Assign/" + "a" * 81, "a variable's name has at most 80 characters"),
    ({**PASS, "Output": "{% 1 + %}", "QueryLanguage": "JSONata"}, "/Output",
     "'1 +' is not a valid JSONata expression: S0207: Unexpected end of expression"),
    ({**PASS, "Next": "S"}, "", "exactly one of Next and End: true is required"),
    ({"Type": "Pass", "End": False}, "", "exactly one of Next and End: true is required"),
    ({**PASS, "Retry": []}, "/Retry", "is not a field of a Pass state"),
    *(
        ({**PASS, "InputPath": path}, "/InputPath",
         f"'{path}' is not a valid JSONPath: cannot be read from character {at} on: '{'9' * 1_000}]'")
        for path, at in ((f"$.a[{'9' * 5_000}]", 4_005), (f"$.a[0:{'9' * 5_000}]", 4_007))
    ),
    ({**PASS, "ResultPath": "$$.a"}, "/ResultPath", "cannot write to the Context Object"),
    ({**PASS, "Parameters": {"a.$": 1}}, "/Parameters/a.$",
     "must be a string with a JSONPath or an intrinsic function"),
    ({**PASS, "Parameters": [{"a.$": "$.b", "a": 1}]}, "/Parameters/0", "gives the same name with .$ and without"),
    ({"Type": "Wait", "End": True}, "",
     "one of these fields is required: Seconds, Timestamp, SecondsPath, TimestampPath"),
    ({"Type": "Wait", "Seconds": 1.5, "End": True}, "/Seconds", "must be a whole number"),
    ({**TASK, "Resource": "arn:aws:states:::sqs:sendMessage.sync"}, "/Resource",
     "The resource provided arn:aws:states:::sqs:sendMessage.sync is not recognized. The value is not a valid "
     "resource ARN, or the resource is not available in this region. "
     "(sqs:sendMessage has no .sync; what it may be waited for with: .waitForTaskToken)"),
    ({**TASK, "Resource": "arn:aws:states:::dynamodb:query"}, "/Resource",
     "The resource provided arn:aws:states:::dynamodb:query is not recognized. The value is not a valid resource "
     "ARN, or the resource is not available in this region. "
     "(for this action it is arn:aws:states:::aws-sdk:dynamodb:query)"),
    ({**TASK, "Parameters": {}}, "/Parameters", "the field 'FunctionName' is required but was missing"),
    ({**TASK, "TimeoutSeconds": 5, "HeartbeatSeconds": 5}, "/HeartbeatSeconds", "must be smaller than TimeoutSeconds"),
    ({**TASK, "Retry": [{}]}, "/Retry/0", "these fields are required: ErrorEquals"),
    ({**TASK, "Retry": [{"ErrorEquals": ["States.ALL"]}, {"ErrorEquals": ["A"]}]}, "/Retry/0/ErrorEquals", ALONE),
    ({**TASK, "Catch": [{"ErrorEquals": ["States.ALL", "A"], "Next": "S"}]}, "/Catch/0/ErrorEquals", ALONE),
    ({**TASK, "Catch": [{"ErrorEquals": ["A"]}]}, "/Catch/0", "these fields are required: Next"),
    ({**TASK, "Catch": [{"ErrorEquals": ["A"], "Next": "X"}]}, "/Catch/0/Next", "there is no state 'X'"),
    ({**TASK, "Retry": [{"ErrorEquals": ["A"], "BackoffRate": 0.5}]}, "/Retry/0/BackoffRate", "must be at least 1.0"),
    ({**TASK, "Retry": [{"ErrorEquals": ["A"], "BackoffRate": 10**400}]}, "/Retry/0/BackoffRate",
     "must be at most 1.7976931348623157e+308"),
    ({**TASK, "Retry": [{"ErrorEquals": ["A"], "JitterStrategy": "HALF"}]}, "/Retry/0/JitterStrategy",
     "must be FULL or NONE"),
    ({"Type": "Parallel", "Branches": [], "End": True}, "/Branches", "must hold at least one branch"),
    ({"Type": "Parallel", "Branches": [line(("B", {"Type": "Pass", "Next": "T"}))], "End": True},
     "/Branches/0/States/B/Next", "there is no state 'T'"),
    ({"Type": "Fail", "Error": "E", "ErrorPath": "$.e"}, "",
     "only one of these fields may be present: Error, ErrorPath"),
    ({"Type": "Succeed", "End": True}, "/End", "is not a field of a Succeed state"),
    ({"Type": "Choice", "Choices": []}, "/Choices", "must hold at least one rule"),
    (map_definition(None, Label="x"), "/Label", "stands in a Map whose ProcessorConfig has Mode DISTRIBUTED"),
    (map_definition(None, Iterator={}), "", "only one of these fields may be present: ItemProcessor, Iterator"),
    (map_definition(None, MaxConcurrency=-1), "/MaxConcurrency", "must be between 0 and 99999999"),
    (map_definition("FAST"), "/ItemProcessor/ProcessorConfig/ExecutionType", "must be one of STANDARD, EXPRESS"),
    (map_definition(ResultWriter={}), "/ResultWriter", "these fields are required: Resource"),
    (map_definition(ItemBatcher={}), "/ItemBatcher", "MaxItemsPerBatch or MaxInputBytesPerBatch is required"),
    (map_definition(ResultWriter={"Resource": PUT, "WriterConfig": {"Transformation": "SORT"}}),
     "/ResultWriter/WriterConfig/Transformation", "must be one of NONE, COMPACT, FLATTEN"),
    (map_definition(ToleratedFailurePercentage=101), "/ToleratedFailurePercentage", "must be at most 100"),
    ({"Type": "Parallel", "Branches": [line(("X", {**PASS, **SET}))], "End": True, **SET},
     "/Branches/0/States/X/Assign/v", "the variable 'v' belongs to an outer scope, see /States/S/Assign/v"),
]  # fmt: skip
"""States, and the place in each."""
FORMATS = "must be one of JSON, JSONL, CSV, PARQUET, MANIFEST"
READERS: list[tuple[str, dict[str, str], str, str]] = [
    (GET, {"InputType": "AVRO"}, "InputType", FORMATS),
    (GET, {"InputType": "CSV", "CSVHeaderLocation": "NONE"}, "CSVHeaderLocation", "must be one of FIRST_ROW, GIVEN"),
    (GET, {"InputType": "JSONL", "ItemsPointer": "/a"}, "ItemsPointer",
     "must be a JSON Pointer such as /data/items, where InputType is JSON"),
    (GET, {"InputType": "JSON", "Transformation": "LOAD_AND_FLATTEN"}, "Transformation",
     "must be one of NONE, LOAD_AND_FLATTEN, and NONE for an object"),
    (GET, {"InputType": "MANIFEST", "ManifestType": "ATHENA_DATA"}, "ManifestType",
     "must be S3_INVENTORY where InputType is MANIFEST"),
    (LISTED, {"Transformation": "LOAD_AND_FLATTEN"}, "InputType", FORMATS),
    (LISTED, {"ManifestType": "S3_INVENTORY"}, "ManifestType",
     "must be one of ATHENA_DATA, S3_INVENTORY, for an object"),
]  # fmt: skip
"""The resource and the configuration of an ItemReader, its wrong field, and the rule."""
STATES += [
    (
        map_definition(ItemReader={"Resource": resource, "ReaderConfig": config}),
        f"/ItemReader/ReaderConfig/{field}",
        rule,
    )
    for resource, config, field, rule in READERS
]
REFUSED = [*WHOLE, *((one_state(state), f"/States/S{place}", rule) for state, place, rule in STATES)]


LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))


def test_a_definition_is_refused_with_place_and_rule() -> None:
    """A refusal names the place and the rule. The place is a JSON pointer (RFC 6901); / is the whole machine."""
    for definition, pointer, rule in REFUSED:
        with pytest.raises(DefinitionError) as refusal:
            load(definition)
        assert (refusal.value.pointer, refusal.value.rule) == (pointer, rule)
        assert str(refusal.value) == f"{pointer}: {rule}"


def test_a_definition_given_as_data_is_copied_as_json() -> None:
    """Data is copied as JSON: keys become texts, later changes have no effect, and other types are refused."""
    with pytest.raises(DefinitionError, match="is not valid JSON: Object of type set is not JSON serializable"):
        load({"StartAt": "A", "States": {"A": {"Type": "Pass", "Result": {1}, "End": True}}})
    data: dict[Any, Any] = {"StartAt": "1", "States": {1: {"Type": "Pass", "Result": [], "End": True}}}
    machine = load(data)
    data["States"][1]["Result"].append(0)
    assert machine.execute().output == []


def test_a_yaml_definition_has_only_the_types_of_json(tmp_path: Path) -> None:
    """A YAML definition has only JSON's types: timestamps, `on` and 1:30 are texts, 010 is ten.

    An alias means the last definition of its anchor (YAML 1.2, section 7.1). PyYAML itself refuses a second one.
    """
    text = """
    StartAt: S
    TimeoutSeconds: 010
    States:
      S:
        Type: Pass
        Result: {when: 2026-01-01T00:00:00Z, on: off, ratio: 1:30, n: -1, f: 1e3, none: null, yes: True, empty: ,
          again: [&a 1, *a, &a 2, *a]}
        End: true
    """
    path = tmp_path / "machine.asl.yml"
    path.write_text(text, encoding="utf-8")
    machine = load(path)
    assert machine.timeout_s == 10
    texts = {"when": "2026-01-01T00:00:00Z", "on": "off", "ratio": "1:30"}
    others = {"n": -1, "f": 1000.0, "none": None, "yes": True, "empty": None, "again": [1, 1, 2, 2]}
    assert machine.execute().output == {**texts, **others}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("m.yml", "StartAt: A\nStates: {}\nStartAt: B\n", "line 3: the key 'StartAt' appears twice"),
        ("m.json", '{"StartAt": "A", "StartAt": "B"}', "the key 'StartAt' appears twice"),
        ("m.yml", "a: !!timestamp 2026-01-31", "could not determine a constructor for the tag"),
        ("m.yml", "a: !!bool maybe", "neither YAML nor JSON: 'maybe'"),
        ("m.json", "[" * 100_000, "m.json is nested too deeply"),
        ("m.yml", "a: " + "[" * 1_000, "m.yml is nested too deeply"),
        ("m.json", '{"a": NaN}', "neither YAML nor JSON: NaN is not a valid JSON number"),
        ("m.json", '{"a": ' + "9" * 5_000 + "}", "neither YAML nor JSON: Exceeds the limit"),
        ("m.yml", LAUGHS, "m.yml has more than 1000000 values once its aliases are expanded"),
        ("m.yml", "1: 2\n", "line 1: a key must be a string, not 1"),
        ("m.yml", "<<: [{}, 2]\n", "line 1: << must have an object or a list of objects"),
        ("m.yml", "- a\n", "must contain an object with StartAt and States"),
        ("m.yml", "a: [", "is neither YAML nor JSON"),
        ("m.yml", "stepFunctions: ${file(x.yml)}\n", "/stepFunctions: must have stateMachines"),
        ("m.json", "{", "is neither YAML nor JSON"),
        ("m.yml", "a: \xff", "m.yml is not valid UTF-8 at byte 4"),
        ("m.json", "\xff\xfe{", "m.json is not valid UTF-16 at byte 3"),
    ],
)
def test_a_broken_file_is_refused_in_one_sentence(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DefinitionError) as refusal:
        load(path)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_reader_leaves_pyyamls_own_types_unchanged() -> None:
    """Only the reader of definitions has JSON's types; `yaml.safe_load` keeps its own."""
    assert yaml.safe_load("on: 1:30") == {True: 90}
