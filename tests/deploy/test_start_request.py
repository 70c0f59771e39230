"""How a POST becomes an execution, by the mapping templates that API Gateway gets."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.service import osls, vtl
from tests import shipped
from tests.stream_ids import NAMES, PCHAR, is_sound

FORM = "application/x-www-form-urlencoded"


def integration() -> dict[str, Any]:
    """The integration of the route that starts a stream."""
    method: dict[str, Any] = osls.template("test")["Resources"]["ApiGatewayMethodConnectionsStreamidVarPost"]
    integration: dict[str, Any] = method["Properties"]["Integration"]
    return integration


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


@pytest.mark.parametrize("kind", ["application/json", FORM])
@pytest.mark.parametrize("query", [{}, {"since": "7"}, {"it's": 'a "b" \\ é / \n c', "empty": ""}])
def test_the_input_is_path_and_query_and_nothing_else(kind: str, query: dict[str, str]) -> None:
    """Neither headers nor body come into the execution's input; every character of the query survives."""
    request = started("demo:one", query, kind)
    assert json.loads(request["input"]) == {"pathParameters": {"streamId": "demo:one"}, "queryStringParameters": query}
    # Without a name Step Functions makes one. What API Gateway calls the request's id, a client may choose.
    assert set(request) == {"input", "stateMachineArn"}


@given(NAMES, st.sampled_from(["", PCHAR]))
def test_every_sound_id_arrives_and_no_other_starts_anything(name: str, safe: str) -> None:
    """However much the client percent-encodes, the input has the id; the template refuses what the function does."""
    stream_id = f"demo:{name}"
    request = started(stream_id, {}, safe=safe)
    assert request.get("name") == (None if is_sound(stream_id) else "malformed*")
    if is_sound(stream_id):
        assert json.loads(request["input"])["pathParameters"] == {"streamId": stream_id}


@pytest.mark.parametrize("character", ["a", "é", "😀"])
def test_an_id_has_at_most_256_characters(character: str) -> None:
    """However many bytes they have: the template counts as the function does."""
    for length, name in ((256, None), (257, "malformed*")):
        stream_id = "demo:" + (length - 5) * character
        assert (started(stream_id, {}).get("name"), is_sound(stream_id)) == (name, name is None)


@pytest.mark.parametrize(
    "segment", ["a%20b", "a%2Fb", "a" * 65, "%C3%A9", "demo:%FF", "demo:%2", "demo:%zz", "demo%0A"]
)
def test_a_malformed_stream_id_starts_nothing(segment: str) -> None:
    """Step Functions refuses an execution name with an asterisk; test_mapping_templates.py has the answer."""
    assert sent(segment, {})["name"] == "malformed*"


@pytest.mark.parametrize("stream_id", ["nobody", "demo-", "xdemo", "nobody:demo", "Demo", "wikimedia.toml:x"])
def test_a_stream_without_a_profile_starts_nothing(stream_id: str) -> None:
    """The template knows the profiles of its own deployment."""
    assert started(stream_id, {})["name"] == "unknown*"


@pytest.mark.parametrize("path", shipped.files(), ids=lambda path: path.stem)
def test_every_profile_can_be_started(path: Path) -> None:
    """By its name alone, and with a name of its own after a colon."""
    for stream_id in (path.stem, f"{path.stem}:a", f"{path.stem}:a:b"):
        assert "name" not in started(stream_id, {})
