"""How a POST becomes an execution, by the mapping templates that API Gateway gets."""

import json
from typing import Any

import pytest

from local import resolved, vtl

FORM = "application/x-www-form-urlencoded"


def integration() -> dict[str, Any]:
    """The integration of the route that starts a stream."""
    found: dict[str, Any] = resolved.template("test")["Resources"]["ApiGatewayMethodConnectionsStreamidVarPost"]
    integration: dict[str, Any] = found["Properties"]["Integration"]
    return integration


def started(stream_id: str, query: dict[str, str], kind: str = "application/json") -> dict[str, Any]:
    """The StartExecution request for a POST with a body and credentials in its headers."""
    text, variables = integration()["RequestTemplates"][kind]["Fn::Sub"]
    assert variables == {"StateMachineArn": {"Ref": "Connections"}}
    headers = {"Authorization": "Bearer secret", "x-api-key": "secret", "Content-Type": kind}
    call = vtl.Call('{"a": 1}', {"streamId": stream_id}, query, headers, {"requestId": "request-1"})
    request: dict[str, Any] = json.loads(vtl.render(text, call))
    return request


def answered(status: int, body: dict[str, str]) -> dict[str, Any]:
    """The body of the API's answer when Step Functions answers so."""
    (chosen,) = [one for one in integration()["IntegrationResponses"] if one["StatusCode"] == status]
    answer: dict[str, Any] = json.loads(
        vtl.render(chosen["ResponseTemplates"]["application/json"], vtl.Call(json.dumps(body)))
    )
    return answer


@pytest.mark.parametrize("kind", ["application/json", FORM])
@pytest.mark.parametrize("query", [{}, {"since": "7"}, {"it's": 'a "b" \\ é / \n c', "empty": ""}])
def test_the_input_is_path_and_query_and_nothing_else(kind: str, query: dict[str, str]) -> None:
    """Neither headers nor body come into the execution's input; every character of the query survives."""
    request = started("demo:one", query, kind)
    assert json.loads(request["input"]) == {"pathParameters": {"streamId": "demo:one"}, "queryStringParameters": query}
    assert request["name"] == "request-1"
    assert set(request) == {"input", "name", "stateMachineArn"}


@pytest.mark.parametrize("stream_id", ["a b", "a/b", "a" * 65, "é", "a?b", 'a"b', "a'b"])
def test_a_malformed_stream_id_starts_nothing(stream_id: str) -> None:
    """Step Functions refuses an execution name with an asterisk, and the API says what is wrong."""
    assert "*" in started(stream_id, {})["name"]
    assert answered(400, {"message": "Invalid Name: 'malformed*'"}) == {
        "message": "The stream id must be 1 to 64 letters, digits, dots, underscores, colons or hyphens."
    }


def test_other_refusals_keep_their_words() -> None:
    """What else Step Functions refuses is passed on; its failures are one sentence."""
    assert answered(400, {"message": 'State Machine "x" is deleting'}) == {"message": 'State Machine "x" is deleting'}
    assert set(answered(500, {"message": "internals"})) == {"message"}
    assert "internals" not in str(answered(500, {"message": "internals"}))
