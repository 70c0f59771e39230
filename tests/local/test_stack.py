"""The compiled template: that of the stage test, and made up ones for what it does not use."""

from typing import Any

import pytest

from local.service import osls
from local.stack import Function, ProxyRoute, Route, read
from local.user_error import UserError

ENGINE = "http://127.0.0.1:9"
URL = f"{ENGINE}/000000000000/streamkeeper-test-dead-letters"


def function_with(variable: Any, **sections: Any) -> Function:
    """Returns the function of a template whose variable X has this value."""
    properties = {"FunctionName": "f", "Handler": "m.h", "Environment": {"Variables": {"X": variable}}}
    function = {"Type": "AWS::Lambda::Function", "Properties": properties}
    (built,) = read(
        {"Resources": {"F": function, **sections.pop("Resources", {})}, **sections}, {"jobs": URL}
    ).functions
    return built


def test_the_template_of_a_stage() -> None:
    """Functions, machines, routes, tables, queues and buckets of the service have their names on this machine."""
    stack = read(osls.template("test"), {"streamkeeper-test-dead-letters": URL})
    functions = {function.name.removeprefix("streamkeeper-test-"): function for function in stack.functions}
    function = functions["connection-manager"]
    assert function.handler == "handlers/connection_manager.handler"
    assert (function.function_timeout_s, function.memory_mb) == (8, 128)
    assert function.environment["EVENTS_TABLE"] == "streamkeeper-test-events"
    assert function.environment["DEAD_LETTER_QUEUE_URL"] == URL
    machines = {machine.name.removeprefix("streamkeeper-test-"): machine for machine in stack.machines}
    arn = "arn:aws:states:us-east-1:000000000000:stateMachine:streamkeeper-test-start"
    assert (machines["start"].arn, machines["start"].type, machines["connections"].type) == (arn, "EXPRESS", "STANDARD")
    assert "streamkeeper-test-connection-manager:" in machines["connections"].definition
    (route,) = (route for route in stack.routes if isinstance(route, Route))
    assert (route.method, route.path, route.passthrough) == ("POST", "/connections/{streamId}", "WHEN_NO_TEMPLATES")
    assert f'"stateMachineArn": "{arn}"' in route.request_templates["application/json"]
    control = functions["connection-control"]
    assert control.handler == "handlers/control.handler"
    for method in ("GET", "DELETE"):
        assert ProxyRoute(method, route.path, control.name, needs_signature=False) in stack.routes
    assert [table["TableName"] for table in stack.tables] == ["streamkeeper-test-events", "streamkeeper-test-control"]
    assert [queue["QueueName"] for queue in stack.queues] == ["streamkeeper-test-dead-letters"]
    assert stack.buckets == ("streamkeeper-test-events-000000000000-us-east-1",)


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
    """AWS::NoValue counts as an absent property."""
    assert function_with({"Ref": "AWS::NoValue"}).environment == {}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"Ref": "Missing"}, "refers to 'Missing'"),
        (
            {"Fn::ImportValue": "x"},
            "does not support Fn::ImportValue, which the compiled template uses at F.",
        ),
    ],
)
def test_what_cannot_be_resolved_is_named(value: Any, sentence: str) -> None:
    """The error names the place; nothing is guessed."""
    with pytest.raises(UserError, match=sentence):
        function_with(value)
