"""The sources of `load`: any JSON, YAML, data, and templates of SAM, CloudFormation, CDK, Serverless and Terraform."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from states_language import DefinitionError, load, problems, read_definition, warnings
from states_language.testing import run_machine

CHARGE = {"Type": "Task", "Resource": "${ChargeArn}", "End": True}
ORDER = {"StartAt": "Charge", "States": {"Charge": CHARGE}}
PASS = '{\n\t"StartAt": "A",\n\t"States": {"A": {"Type": "Pass", "Result": "\x7f", "End": true}}}'


@pytest.mark.parametrize("name", ["m.json", "m.asl.yml", "m", "m.txt"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_json_is_json_whatever_the_files_name(tmp_path: Path, name: str, encoding: str) -> None:
    """JSON is read under any file name, with tabs, U+007F and a byte-order mark. YAML has neither of the first two."""
    path = tmp_path / name
    path.write_text(PASS, encoding=encoding)
    assert load(path).execute().output == "\x7f"
    assert load(PASS).execute().output == load("\ufeff" + PASS).execute().output == "\x7f"


@pytest.mark.parametrize("source", ['{"a": 1e400}', "a: 1e400\n", '{"a": -1e400, "b": [\n]}', "\na: .9e999"])
def test_a_number_that_is_none_is_refused(source: str) -> None:
    with pytest.raises(DefinitionError, match=r"not a valid JSON number|too large for a number"):
        read_definition(source)


@pytest.mark.cpu(4)
@given(st.recursive(st.none() | st.booleans() | st.floats(-1e300, 1e300) | st.text(), st.lists))
def test_a_json_text_is_read_as_json_reads_it(value: Any) -> None:
    text = json.dumps({"a": value}, indent="\t")
    assert read_definition(text) == json.loads(text)


def test_problems_and_warnings_take_what_load_takes(tmp_path: Path) -> None:
    """`problems` and `warnings` take a path, a text, data and a template. An unreadable source is one problem."""
    template = {"Resources": {"M": {"Type": "AWS::Serverless::StateMachine", "Properties": {"Definition": ORDER}}}}
    path = tmp_path / "template.json"
    path.write_text(json.dumps(template), encoding="utf-8")
    for source in (path, str(path), json.dumps(ORDER), ORDER, template):
        assert problems(source) == []
        assert {one.practice for one in warnings(source)} == {"comment", "unhandled-error"}
    assert [str(one) for one in problems(path, machine="N")] == [
        "/Resources: has no state machine 'N': choose one of M by machine='...'"
    ]
    assert [one.pointer for one in problems({"StartAt": "Z", "States": {"A": {"Type": "Pass"}}})] == [
        "/States/A",
        "/StartAt",
    ]
    with pytest.raises(DefinitionError, match="cannot be read: No such file or directory"):
        warnings(tmp_path / "nowhere.json")
    with pytest.raises(DefinitionError, match="must be a JSON object"):
        warnings({"States": {"A": 1}, "StartAt": "A"})


def test_the_problems_of_half_a_surrogate_pair_end() -> None:
    found = problems({"StartAt": "Z", "States": {"M": {"Type": "Pass", "Next": "\ud800"}}})
    assert [one.rule for one in found] == ["there is no state 'Z'", "there is no state '\ufffd'"]


def test_a_placeholder_is_a_function_of_its_name_until_it_is_filled_in() -> None:
    """A test answers a placeholder by its name, with or without its braces. AWS accepts no placeholder."""
    assert run_machine(ORDER, functions={"ChargeArn": {"paid": 1}}).output == {"paid": 1}
    assert run_machine(ORDER, functions={"${ChargeArn}": {"paid": 1}}).output == {"paid": 1}
    arn = "arn:aws:lambda:eu-west-1:123456789012:function:charge"
    assert run_machine(load(ORDER, substitutions={"ChargeArn": arn}), functions={"charge": 2}).output == 2
    assert load(ORDER, substitutions={"Other": 1}).definition == ORDER
    with pytest.raises(DefinitionError, match=r"/States/Charge/Resource: The resource provided \$\{ChargeArn\}"):
        load(ORDER, deployed=True)


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("arn:${partition}:states:::batch:submitJob.sync", "batch:submitJob"),
        ("arn:${Partition}:lambda:${Region}:${Account}:function:charge", "charge"),
        ("arn:aws:states:::${Service}:putItem", "Pay"),
        ("${Prefix}-charge:${Alias}", "Pay"),
    ],
)
def test_a_placeholder_within_a_resource_stays_too(resource: str, name: str) -> None:
    """A placeholder may be a part of a Resource, as in AWS's examples. The state's name answers, and so does the
    service or function if no placeholder hides it.
    """
    definition = {"StartAt": "Pay", "States": {"Pay": {**CHARGE, "Resource": resource}}}
    assert run_machine(definition, functions={name: 7}).output == 7
    with pytest.raises(DefinitionError, match="is not recognized"):
        load(definition, deployed=True)


def test_a_value_is_inserted_as_text() -> None:
    """A substitution is inserted as text, an object as JSON. $${ is no placeholder, as in Terraform."""
    text = '{"StartAt": "A", "States": {"A": {"Type": "Pass", "Result": %s, "End": true}}}'
    text %= '["${n}", ${n}, ${o}, "<${s}>", "$${n}", "${unknown}"]'
    machine = load(text, substitutions={"n": 5, "o": {"a": None}, "s": "t\\n"})
    assert machine.execute().output == ["5", 5, {"a": None}, "<t\n>", "${n}", "${unknown}"]


@pytest.mark.parametrize(
    ("start", "result", "value", "output"),
    [
        ("{StartAt: A, ", "[${X}]", "30", [30]),
        ("{StartAt: A, ", "'${X}'", 30, "30"),
        ("{StartAt: A, ", "${X}", '{"a": [1]}', {"a": [1]}),
        ('{"StartAt": "A", ', '"${X}"', 'say \\"x\\"', 'say "x"'),
        ('{"StartAt": "A", ', '"$${X}"', "${Y}-${X}", "$y-${X}"),
    ],
)
def test_cloudformation_fills_in_the_text(start: str, result: str, value: Any, output: Any, tmp_path: Path) -> None:
    """It substitutes in a file before it is read, and in an object as JSON (the handler of its resource, public)."""
    text = start + '"States": {"A": {"Type": "Pass", "Result": %s, "End": true}}}'
    (tmp_path / "m.asl").write_text(text % result, encoding="utf-8")
    properties = {"DefinitionUri": "m.asl", "DefinitionSubstitutions": {"X": value, "Y": "y"}}
    template = {"Resources": {"M": {"Type": "AWS::Serverless::StateMachine", "Properties": properties}}}
    (tmp_path / "t.json").write_text(json.dumps(template), encoding="utf-8")
    assert load(tmp_path / "t.json").execute().output == output


def test_a_template_parameter_is_a_text_even_if_it_is_a_number() -> None:
    """A template's parameter is a text, even a number. So Seconds of a Wait refuses it, as on AWS."""
    template = """
        Parameters: {Rest: {Type: Number, Default: 5}}
        Conditions: {Five: !Equals [!Ref Rest, 5]}
        Resources:
          M:
            Type: AWS::Serverless::StateMachine
            Condition: Five
            Properties: {Definition: {StartAt: A, States: {A: {Type: Wait, Seconds: !Ref Rest, End: true}}}}
    """
    with pytest.raises(DefinitionError, match="/States/A/Seconds: must be a whole number"):
        load(textwrap.dedent(template))


def test_sub_keeps_an_escaped_name() -> None:
    """Fn::Sub makes ${Name} of ${!Name} and never its value, also within Fn::Join, which fills in nothing itself."""
    template = """
        Parameters: {Name: {Type: String, Default: x}}
        Resources:
          M:
            Type: AWS::Serverless::StateMachine
            Properties: {Definition: {StartAt: A, States: {A: {Type: Pass, End: true, Result: [
                !Sub "${!Name} ${Name}", !Join ["-", [!Sub "${!Name}", !Ref Name, "${Name}"]],
                !Sub ["${!A}${A}${Name}", {A: 1}]]}}}}
    """
    assert load(textwrap.dedent(template)).execute().output == ["${Name} x", "${Name}-x-${Name}", "${A}1x"]


SAM = """
    Transform: AWS::Serverless-2016-10-31
    Parameters:
      Rest: {Type: Number, Default: 30}
      Stage: {Type: String}
    Resources:
      ChargeFunction: {Type: AWS::Serverless::Function, Properties: {Handler: a.b}}
      Order:
        Type: AWS::Serverless::StateMachine
        Properties:
          DefinitionUri: statemachine/order.asl.json
          DefinitionSubstitutions:
            ChargeArn: !GetAtt ChargeFunction.Arn
            Put: !Sub "arn:${AWS::Partition}:states:::dynamodb:putItem"
            Table: !Ref Orders
            Pause: !Ref Rest
"""
ORDER_FILE = """{
    "StartAt": "Charge",
    "States": {
        "Charge": {"Type": "Task", "Resource": "${ChargeArn}", "Next": "Rest"},
        "Rest": {"Type": "Wait", "Seconds": ${Pause}, "Next": "Store"},
        "Store": {"Type": "Task", "Resource": "${Put}", "Parameters": {"TableName": "${Table}"}, "End": true}
    }
}"""


def test_a_sam_template_fills_its_machine_in(tmp_path: Path) -> None:
    """A function's ARN is not known, so the function keeps its logical id. A given value replaces a default."""
    (tmp_path / "statemachine").mkdir()
    (tmp_path / "statemachine" / "order.asl.json").write_text(ORDER_FILE, encoding="utf-8")
    (tmp_path / "template.yaml").write_text(textwrap.dedent(SAM), encoding="utf-8")
    run = run_machine(tmp_path / "template.yaml", functions={"ChargeFunction": {"paid": 1}, "dynamodb:putItem": {}})
    assert run.elapsed_s == 30
    assert run.payloads("dynamodb:putItem") == [{"TableName": "${Orders}"}]
    again = load(tmp_path / "template.yaml", substitutions={"Orders": "orders", "Rest": 5})
    run = run_machine(again, functions={"ChargeFunction": {}, "dynamodb:putItem": {}})
    assert (run.elapsed_s, run.payloads("dynamodb:putItem")) == (5, [{"TableName": "orders"}])


def test_the_definition_in_a_template_may_be_inline_or_a_text() -> None:
    """A template has the definition inline (SAM), or as DefinitionString by !Sub, or by Fn::Join as CDK writes it."""
    inline = """
        Resources:
          M:
            Type: AWS::Serverless::StateMachine
            Properties:
              Definition:
                StartAt: Charge
                States: {Charge: {Type: Task, Resource: !GetAtt Charge.Arn, End: true}}
    """
    by_sub = """
        Resources:
          M:
            Type: AWS::StepFunctions::StateMachine
            Properties:
              DefinitionString: !Sub |
                {"StartAt": "Charge", "States": {"Charge": {"Type": "Task", "Resource": "${Charge.Arn}", "End": true}}}
    """
    begin = '{"StartAt":"Charge","States":{"Charge":{"End":true,"Type":"Task","Resource":"arn:'
    end = ':states:::lambda:invoke","Parameters":{"FunctionName":"'
    parts = [begin, {"Ref": "AWS::Partition"}, end, {"Fn::GetAtt": ["Charge", "Arn"]}, '"}}},"TimeoutSeconds":60}']
    joined = {"DefinitionString": {"Fn::Join": ["", parts]}, "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]}}
    cdk = {"Resources": {"M": {"Type": "AWS::StepFunctions::StateMachine", "Properties": joined}}}
    for template, output in ((textwrap.dedent(inline), 7), (textwrap.dedent(by_sub), 7)):
        assert run_machine(template, functions={"Charge": 7}).output == output
    assert run_machine(cdk, functions={"Charge": 7}).output["Payload"] == 7


SERVERLESS = """
    service: shop
    custom: {base: &base {End: True, Type: Pass}, task: &task {<<: *base , Type: Task}}
    stepFunctions:
      stateMachines:
        order:
          definition:
            StartAt: Charge
            States: {Charge: {Resource: "arn:aws:lambda:#{AWS::Region}:1:function:charge", <<: [*task , *base ]}}
        elsewhere: {name: "${self:service}-2", definition: "${file(./order.yml)}"}
    resources: {Outputs: {Order: {Value: !Ref order}}}
"""


def test_the_machines_of_a_serverless_yml(tmp_path: Path) -> None:
    """A serverless.yml has its machines by name, inline or in a file beside it (Serverless Framework's plugin)."""
    (tmp_path / "serverless.yml").write_text(textwrap.dedent(SERVERLESS), encoding="utf-8")
    (tmp_path / "order.yml").write_text(json.dumps(ORDER), encoding="utf-8")
    path = tmp_path / "serverless.yml"
    assert run_machine(load(path, machine="order"), functions={"charge": 7}).output == 7
    assert load(path, machine="elsewhere").definition == ORDER
    assert load({"stateMachines": {"order": {"definition": ORDER}}}).definition == ORDER


def test_cdk_puts_a_file_beside_its_template(tmp_path: Path) -> None:
    """CDK puts the definition in a file beside the template, named by its hash; the construct's id selects it."""
    key, arn = f"{'9d' * 32}.json", {"Fn::GetAtt": ["ChargeEC431097", "Arn"]}
    properties = {"DefinitionS3Location": {"Bucket": "b", "Key": key}, "DefinitionSubstitutions": {"ChargeArn": arn}}
    other = {"Type": "AWS::StepFunctions::StateMachine", "Properties": {}}
    resources = {"OrderF26A05CE": {**other, "Properties": properties}, "Other84BFAE38": other}
    (tmp_path / "Stack.template.json").write_text(json.dumps({"Resources": resources}), encoding="utf-8")
    (tmp_path / f"asset.{key}").write_text(json.dumps(ORDER), encoding="utf-8")
    machine = load(tmp_path / "Stack.template.json", machine="Order")
    assert run_machine(machine, functions={"ChargeEC431097": 7}).output == 7


def test_several_machines_are_chosen_by_their_logical_ids() -> None:
    machines = {name: {"Type": "AWS::Serverless::StateMachine", "Properties": {"Definition": ORDER}} for name in "AB"}
    with pytest.raises(DefinitionError, match=r"several state machines: choose one of A, B by machine='...'"):
        load({"Resources": machines})
    assert load({"Resources": machines}, machine="B").definition == ORDER
    with pytest.raises(DefinitionError, match="is not a template"):
        load(ORDER, machine="B")
    with pytest.raises(DefinitionError, match="needs a Definition, a DefinitionString or the DefinitionUri of a file"):
        load(
            {"Resources": {"M": {"Type": "AWS::Serverless::StateMachine", "Properties": {"DefinitionUri": "s3://b/k"}}}}
        )
    with pytest.raises(DefinitionError, match="has no resource of the type AWS::Serverless::StateMachine"):
        load({"Resources": {}})


def test_terraforms_templatefile_is_filled_in(tmp_path: Path) -> None:
    """A placeholder may stand for a number or an object. One without a value is named, as is Terraform's own syntax."""
    path = tmp_path / "order.asl.json.tftpl"
    path.write_text(ORDER_FILE.replace("${Pause}", "${ pause }").replace('"${Put}"', "${jsonencode(put)}"), "utf-8")
    values = {"ChargeArn": "arn:aws:lambda:us-east-1:123456789012:function:charge", "pause": 9}
    values["put"] = "arn:aws:states:::dynamodb:putItem"
    run = run_machine(load(path, substitutions=values), functions={"charge": {}, "dynamodb:putItem": {}})
    assert run.elapsed_s == 9
    with pytest.raises(DefinitionError, match=r"\$\{pause\} needs a value: load\(.*'pause'"):
        load(path)
    for text, named in (
        ('{"StartAt": %{ if x }"A"%{ endif }, "a": ${x}}', "%{ if x }"),
        ('{"StartAt": "A", "Comment": "%%{ $${x} ${lower(x)}"}', "${lower(x)}"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DefinitionError, match=re.escape(f"has {named}, for Terraform")):
            load(path, substitutions={"x": 1})
    escaped = '{"StartAt": "A", "States": {"A": {"Type": "Pass", "Result": "%%{a} $${b}", "End": true}}}'
    path.write_text(escaped, "utf-8")
    assert load(path).execute().output == "%{a} ${b}"


def test_a_key_may_appear_twice_in_a_template_but_not_in_its_machine() -> None:
    """In SAM and CloudFormation templates the last of two equal keys counts; in the machine both are refused."""
    state = "{Type: Succeed, Type: Succeed}"
    template = "Outputs: {A: 1, A: 2}\nResources:\n  M: {Type: 'AWS::StepFunctions::StateMachine', Properties: %s}"
    good = template % "{Definition: {StartAt: A, States: {A: {Type: Succeed}}}}"
    assert load(good).execute().status == "SUCCEEDED"
    with pytest.raises(DefinitionError, match="line 3: the key 'Type' appears twice"):
        load(template % f"{{Definition: {{StartAt: A, States: {{A: {state}}}}}}}")


def test_the_server_reads_no_template() -> None:
    """The server reads no template, so a request cannot name a file of the server's computer."""
    template = {"Resources": {"M": {"Type": "AWS::Serverless::StateMachine", "Properties": {"DefinitionUri": "x"}}}}
    assert [one.rule for one in problems(template, deployed=True)] == ["these fields are required: StartAt, States"]
