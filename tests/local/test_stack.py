"""References and intrinsic functions of a compiled template are resolved to names on this machine."""

from typing import Any

import pytest

from local.stack import Function, read_stack
from local.terminal import UserError

URL = "http://127.0.0.1:9/000000000000/jobs"


def function_with(variable: Any, **sections: Any) -> Function:
    """Returns the function of a template whose variable X has this value."""
    properties = {"FunctionName": "f", "Handler": "m.h", "Environment": {"Variables": {"X": variable}}}
    function = {"Type": "AWS::Lambda::Function", "Properties": properties}
    (built,) = read_stack(
        {"Resources": {"F": function, **sections.pop("Resources", {})}, **sections}, {"jobs": URL}
    ).functions
    return built


QUEUE = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "jobs"}}
TABLE = {"Type": "AWS::DynamoDB::Table", "Properties": {"TableName": {"Fn::Sub": "t-${AWS::Region}"}}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ref": "Q"}, URL),
        ({"Fn::GetAtt": ["Q", "Arn"]}, "arn:aws:sqs:us-east-1:000000000000:jobs"),
        ({"Fn::GetAtt": "Q.QueueName"}, "jobs"),
        ({"Ref": "T"}, "t-us-east-1"),
        ({"Fn::Sub": "${T.Arn}/${!literal}"}, "arn:aws:dynamodb:us-east-1:000000000000:table/t-us-east-1/${literal}"),
        ({"Fn::Sub": ["${a}-${AWS::AccountId}", {"a": {"Ref": "T"}}]}, "t-us-east-1-000000000000"),
        ({"Fn::Join": ["-", ["a", {"Ref": "AWS::Partition"}, 3]]}, "a-aws-3"),
        ({"Fn::Select": ["1", {"Fn::Split": ["/", "a/b/c"]}]}, "b"),
        ({"Fn::If": ["Yes", "then", "else"]}, "then"),
        ({"Fn::If": ["No", "then", {"Ref": "Size"}]}, "big"),
        ({"Fn::FindInMap": ["Map", {"Ref": "Size"}, "mb"]}, "10"),
        (True, "true"),
    ],
)
def test_intrinsic_functions(value: Any, expected: str) -> None:
    """Every intrinsic function that osls and its plugins write is resolved to local names."""
    function = function_with(
        value,
        Resources={"Q": QUEUE, "T": TABLE},
        Conditions={"Yes": {"Fn::Equals": ["a", "a"]}, "No": {"Fn::Not": [{"Condition": "Yes"}]}},
        Parameters={"Size": {"Type": "String", "Default": "big"}},
        Mappings={"Map": {"big": {"mb": 10}}},
    )
    assert function.environment["X"] == expected


def test_no_value_leaves_the_property_out() -> None:
    """A property whose value is AWS::NoValue counts as absent."""
    assert function_with({"Ref": "AWS::NoValue"}).environment == {}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"Ref": "Missing"}, "refers to 'Missing'"),
        ({"Fn::ImportValue": "x"}, "does not support Fn::ImportValue, which the compiled template uses at F."),
    ],
)
def test_a_reference_that_cannot_be_resolved_is_named(value: Any, sentence: str) -> None:
    """The error names the place; nothing is guessed."""
    with pytest.raises(UserError, match=sentence):
        function_with(value)
