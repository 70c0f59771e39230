"""What a request needs, and which roles allow it."""

import json
from typing import Any

import pytest

from local.permissions import needs
from local.permissions.needs import Need
from local.terminal import UserError

AT = "us-east-1:000000000000"
TABLE = f"arn:aws:dynamodb:{AT}:table/t"
EXECUTION, MACHINE = f"arn:aws:states:{AT}:execution:m:x", f"arn:aws:states:{AT}:stateMachine:m"
FUNCTION, TOPIC = f"arn:aws:lambda:{AT}:function:f", f"arn:aws:sns:{AT}:t"
INVOKED = "/2015-03-31/functions/f/invocations"


def target(operation: str, parameters: Any) -> tuple[str, str, str, str, bytes]:
    """Returns method, path, query, target and body of a request in AWS's JSON protocol."""
    return "POST", "/", "", f"Any_20120810.{operation}", json.dumps(parameters).encode()


def batch(*statements: str) -> dict[str, Any]:
    return {"Statements": [{"Statement": statement} for statement in statements]}


@pytest.mark.parametrize(
    ("operation", "parameters", "expected"),
    [
        ("GetItem", {"TableName": "t"}, ["GetItem"]),
        ("GetItem", {"TableName": TABLE}, ["GetItem"]),
        ("Query", {"TableName": "t", "IndexName": "i"}, ["Query/index/i"]),
        ("Scan", {"TableName": "t"}, ["Scan"]),
        ("BatchGetItem", {"RequestItems": {"t": {}, TABLE: {}, "t/u": {}}}, ["BatchGetItem", "BatchGetItem/u"]),
        ("BatchExecuteStatement", batch("INSERT INTO \"t\" VALUE {'a': ?}"), ["PartiQLInsert"]),
        ("BatchExecuteStatement", batch("insert into t value {'a': ?}", "INSERT INTO t value {}"), ["PartiQLInsert"]),
        (
            "BatchExecuteStatement",
            batch("INSERT INTO t.i value {}", "DELETE FROM t"),
            ["PartiQLInsert.i", "BatchExecuteStatement*"],
        ),
        ("BatchExecuteStatement", {"Statements": [{}]}, ["BatchExecuteStatement*"]),
        ("ExecuteStatement", {"Statement": "INSERT INTO t VALUE {'a': ?}"}, ["ExecuteStatement*"]),
        ("TransactWriteItems", {"TransactItems": [{"Put": {"TableName": "t"}}]}, ["TransactWriteItems*"]),
    ],
)
def test_dynamodb(operation: str, parameters: Any, expected: list[str]) -> None:
    """An insert of a batch has its own action, and an index its own ARN; an unused statement needs all of them."""
    found = needs.needs_of_http_request("dynamodb", *target(operation, parameters))
    assert [f"{need.action}{need.resource.removeprefix(TABLE)}" for need in found] == [
        f"dynamodb:{e}" for e in expected
    ]


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "expected"),
    [
        ("sqs", "SendMessage", {"QueueUrl": "http://127.0.0.1:1/000000000000/q"}, f"arn:aws:sqs:{AT}:q"),
        ("sqs", "GetQueueUrl", {"QueueName": "q"}, f"arn:aws:sqs:{AT}:q"),
        ("states", "StartExecution", {"stateMachineArn": MACHINE}, MACHINE),
        ("states", "DescribeExecution", {"ExecutionArn": EXECUTION}, EXECUTION),
        ("states", "StopExecution", {"executionArn": EXECUTION}, EXECUTION),
        ("ssm", "GetParameter", {"Name": "/a/b"}, f"arn:aws:ssm:{AT}:parameter/a/b"),
        ("ssm", "GetParameter", {"Name": "b"}, f"arn:aws:ssm:{AT}:parameter/b"),
        ("secretsmanager", "GetSecretValue", {"SecretId": "/a"}, f"arn:aws:secretsmanager:{AT}:secret:/a-000000"),
        ("s3", "GetObject", {"Bucket": "b", "Key": "k/l"}, "arn:aws:s3:::b/k/l"),
        ("kms", "Decrypt", {"KeyId": "k"}, "*"),
    ],
)
def test_other_services(service: str, operation: str, parameters: Any, expected: str) -> None:
    """The resource is the named one; a service that is unknown here needs every resource."""
    assert needs.needs_of_call(service, operation, parameters) == [Need(f"{service}:{operation}", expected)]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (("s3", "PUT", "/b/a%20key/x", "", "", b"..."), ("s3:PutObject", "arn:aws:s3:::b/a key/x")),
        (("s3", "HEAD", "/b/k", "", "", b""), ("s3:GetObject", "arn:aws:s3:::b/k")),
        (("s3", "GET", "/b", "list-type=2", "", b""), ("s3:ListBucket", "arn:aws:s3:::b")),
        (("lambda", "POST", INVOKED, "", "", b"{}"), ("lambda:InvokeFunction", FUNCTION)),
        (("lambda", "POST", INVOKED, "Qualifier=2", "", b"{}"), ("lambda:InvokeFunction", f"{FUNCTION}:2")),
        (("sns", "POST", "/", "", "", f"Action=Publish&TopicArn={TOPIC}".encode()), ("sns:Publish", TOPIC)),
        (("xray", "POST", "/TraceSegments", "", "", b"{}"), ("xray:POST", "*")),
        (("dynamodb", "POST", "/", "", "D.GetItem", b"no JSON"), ("dynamodb:GetItem", "*")),
    ],
)
def test_requests_over_http(request_: tuple[str, str, str, str, str, bytes], expected: tuple[str, str]) -> None:
    """S3 and Lambda have the resource in the path, SNS in a form; an unreadable request needs every resource."""
    assert needs.needs_of_http_request(*request_) == [Need(*expected)]


GET = Need("dynamodb:GetItem", "arn:aws:dynamodb:us-east-1:000000000000:table/t")
NOT_ALLOWED = "because no identity-based policy allows the dynamodb:GetItem action"
MANAGED = "arn:aws:iam::aws:policy/AdministratorAccess"


def template(*statements: dict[str, Any], **role: Any) -> dict[str, Any]:
    """A function whose role has these statements."""
    policies = [{"PolicyName": "p", "PolicyDocument": {"Statement": list(statements)}}]
    function = {"FunctionName": "f", "Handler": "m.h", "Role": {"Fn::GetAtt": ["R", "Arn"]}}
    return {
        "Resources": {
            "T": {"Type": "AWS::DynamoDB::Table", "Properties": {"TableName": "t"}},
            "F": {"Type": "AWS::Lambda::Function", "Properties": function},
            "R": {"Type": "AWS::IAM::Role", "Properties": {"Policies": policies, **role}},
        }
    }


def allow(action: Any, resource: Any, effect: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": action, "Resource": resource, **more}


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([allow("dynamodb:GetItem", {"Fn::GetAtt": ["T", "Arn"]})], ""),
        ([allow(["dynamodb:PutItem", "dynamodb:getitem"], ["x", GET.resource])], ""),
        ([allow("dynamodb:Get*", "arn:aws:dynamodb:*:table/?")], ""),
        (
            [allow("*", "*"), allow("dynamodb:GetItem", "*", "Deny")],
            "with an explicit deny in an identity-based policy",
        ),
        ([allow("dynamodb:GetItem", f"{GET.resource}/index/i")], NOT_ALLOWED),
        ([allow("dynamodb:GetItem", GET.resource.upper())], NOT_ALLOWED),
        ([allow("dynamodb:Get", GET.resource)], NOT_ALLOWED),
        ([allow("dynamodb:GetItem", GET.resource.replace("/", "."))], NOT_ALLOWED),
        ([allow("dynamodb:PutItem", "*")], NOT_ALLOWED),
    ],
)
def test_what_a_role_allows(statements: list[dict[str, Any]], expected: str) -> None:
    """A pattern matches from end to end; case counts in ARNs, but not in actions; a denial wins."""
    assert needs.read(template(*statements)).functions["f"].refusal(GET) == expected


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (template(allow("*", "*", Condition={})), "A policy of the role R has Condition"),
        (template(ManagedPolicyArns=[MANAGED]), "The role R has a managed policy or a boundary"),
    ],
)
def test_a_policy_that_cannot_be_evaluated_is_refused(bad: dict[str, Any], sentence: str) -> None:
    """Conditions and managed policies are refused in one sentence."""
    with pytest.raises(UserError) as refusal:
        needs.read(bad)
    assert str(refusal.value) == f"{sentence}, which the local service cannot evaluate."
