"""What a role of a template allows."""

from typing import Any

import pytest

from local.permissions import needs
from local.permissions.needs import Need
from local.terminal import UserError

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
