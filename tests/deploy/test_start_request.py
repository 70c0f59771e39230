"""How a POST becomes an execution, by the mapping templates that API Gateway gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from local.service import osls, vtl
from tests import shipped

FORM = "application/x-www-form-urlencoded"


def integration() -> dict[str, Any]:
    """The integration of the route that starts a stream."""
    method: dict[str, Any] = osls.template("test")["Resources"]["ApiGatewayMethodConnectionsStreamidVarPost"]
    integration: dict[str, Any] = method["Properties"]["Integration"]
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
    override: dict[str, int] = {}
    call = vtl.Call(json.dumps(body), context={"responseOverride": override})
    answer: dict[str, Any] = json.loads(vtl.render(chosen["ResponseTemplates"]["application/json"], call))
    return answer | override


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


@pytest.mark.parametrize("stream_id", ["nobody", "demo-", "xdemo", "nobody:demo", "Demo", "wikimedia.toml:x"])
def test_a_stream_without_a_profile_starts_nothing(stream_id: str) -> None:
    """The template knows the profiles of its own deployment; the answer is overridden to 404."""
    assert started(stream_id, {})["name"] == "unknown*"
    assert answered(400, {"message": "Invalid Name: 'unknown*'"}) == {
        "status": 404,
        "message": "There is no such stream: no profile has the name that the stream id begins with.",
    }


@pytest.mark.parametrize("path", shipped.files(), ids=lambda path: path.stem)
def test_every_profile_can_be_started(path: Path) -> None:
    """By its name alone, and with a name of its own after a colon."""
    for stream_id in (path.stem, f"{path.stem}:a", f"{path.stem}:a:b"):
        assert started(stream_id, {})["name"] == "request-1"


def test_other_refusals_keep_their_words() -> None:
    """What else Step Functions refuses is passed on; its failures are one sentence."""
    assert answered(400, {"message": 'State Machine "x" is deleting'}) == {"message": 'State Machine "x" is deleting'}
    assert set(answered(500, {"message": "internals"})) == {"message"}
    assert "internals" not in str(answered(500, {"message": "internals"}))
