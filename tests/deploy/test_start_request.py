"""How a POST becomes an execution, by the mapping templates that API Gateway gets."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.profile.addresses import ProfileError, check_stream_id
from local.service import osls, vtl
from tests import shipped

FORM = "application/x-www-form-urlencoded"


def integration() -> dict[str, Any]:
    """The integration of the route that starts a stream."""
    method: dict[str, Any] = osls.template("test")["Resources"]["ApiGatewayMethodConnectionsStreamidVarPost"]
    integration: dict[str, Any] = method["Properties"]["Integration"]
    return integration


# RFC 3986, section 3.3: what a segment of a path may hold without percent-encoding.
PCHAR = "-._~!$&'()*+,;=:@"


def started(stream_id: str, query: dict[str, str], kind: str = "application/json", safe: str = "") -> dict[str, Any]:
    """The StartExecution request for a POST with a body and credentials in its headers.

    A client percent-encodes all of the stream id but letters, digits, "_.-~" and `safe`.
    """
    return sent(quote(stream_id, safe=safe), query, kind)


def sent(segment: str, query: dict[str, str], kind: str = "application/json") -> dict[str, Any]:
    """The same for a segment of the path as it is on the wire, which is how a REST API hands it over."""
    text, variables = integration()["RequestTemplates"][kind]["Fn::Sub"]
    assert variables == {"StateMachineArn": {"Ref": "Start"}}
    headers = {"Authorization": "Bearer secret", "x-api-key": "secret", "Content-Type": kind}
    call = vtl.Call('{"a": 1}', {"streamId": segment}, query, headers, {"requestId": "request-1"})
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


def is_sound(stream_id: str) -> bool:
    """Whether the function accepts the id."""
    try:
        check_stream_id(stream_id)
    except ProfileError:
        return False
    return True


def in_utf8(text: str) -> bool:
    """Whether the text can be percent-encoded."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


# What an encoding, Velocity, JSON, a regular expression or a path could take for its own.
TRICKY = st.sampled_from(
    ["/", "+", "=", "%", "%41", "%2F", "$x", "${x}", "#if(1)", "#", '"', "'", "\\", "\\'", "..", ".", ":"]
)
CHARACTERS = st.sampled_from([" ", "\n", "\0", "\x85", "\ufffd", "é", "\u2028", "😀"])
NAMES = st.lists(TRICKY | CHARACTERS | st.characters(), max_size=8).map("".join).filter(in_utf8)


@given(NAMES, st.sampled_from(["", PCHAR]))
def test_every_sound_id_arrives_and_no_other_starts_anything(name: str, safe: str) -> None:
    """However much the client percent-encodes, the input has the id; the template refuses what the function does."""
    stream_id = f"demo:{name}"
    request = started(stream_id, {}, safe=safe)
    assert request["name"] == ("request-1" if is_sound(stream_id) else "malformed*")
    if is_sound(stream_id):
        assert json.loads(request["input"])["pathParameters"] == {"streamId": stream_id}


@pytest.mark.parametrize("character", ["a", "é", "😀"])
def test_an_id_has_at_most_256_characters(character: str) -> None:
    """However many bytes they have: the template counts as the function does."""
    for length, name in ((256, "request-1"), (257, "malformed*")):
        stream_id = "demo:" + (length - 5) * character
        assert (started(stream_id, {})["name"], is_sound(stream_id)) == (name, name == "request-1")


@pytest.mark.parametrize(
    "segment", ["a%20b", "a%2Fb", "a" * 65, "%C3%A9", "demo:%FF", "demo:%2", "demo:%zz", "demo%0A"]
)
def test_a_malformed_stream_id_starts_nothing(segment: str) -> None:
    """Step Functions refuses an execution name with an asterisk, and the API says what is wrong."""
    assert sent(segment, {})["name"] == "malformed*"
    (message,) = answered(400, {"message": "Invalid Name: 'malformed*'"}).values()
    assert message.startswith("The stream id must be the name of a profile, perhaps followed by a colon and any text")


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


def test_the_answer_is_that_of_the_execution() -> None:
    """One that ran and failed is a 500, and keeps its words to itself."""
    (chosen,) = [one for one in integration()["IntegrationResponses"] if one["StatusCode"] == 200]
    output = '{"executionArn":"arn:x","startDate":1.5,"already_running":true}'
    call = vtl.Call(json.dumps({"status": "SUCCEEDED", "output": output}), context={"responseOverride": {}})
    assert json.loads(vtl.render(chosen["ResponseTemplates"]["application/json"], call)) == json.loads(output)
    override: dict[str, int] = {}
    call = vtl.Call(json.dumps({"status": "FAILED", "cause": "internals"}), context={"responseOverride": override})
    failed = json.loads(vtl.render(chosen["ResponseTemplates"]["application/json"], call))
    assert (failed, override) == (
        {"message": "Step Functions could not start the execution. Try again."},
        {"status": 500},
    )


def test_other_refusals_keep_their_words() -> None:
    """What else Step Functions refuses is passed on; its failures are one sentence."""
    assert answered(400, {"message": 'State Machine "x" is deleting'}) == {"message": 'State Machine "x" is deleting'}
    assert set(answered(500, {"message": "internals"})) == {"message"}
    assert "internals" not in str(answered(500, {"message": "internals"}))
