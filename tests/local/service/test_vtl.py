"""API Gateway's mapping templates, those that are deployed too."""

import json
from pathlib import Path

import pytest

from local.service.vtl import Call, TemplateFailure, render
from local.stack import Route, read
from tests.local.test_stack import recorded


def test_a_refusal_of_step_functions_leaves_as_the_template_maps_it(tmp_path: Path) -> None:
    """The deployed API's own check: a malformed id gets a name that Step Functions refuses, and the caller a 400."""
    route = next(route for route in read(recorded(), {}).routes if isinstance(route, Route))
    call = Call("", {"streamId": "a b"}, {}, {}, {"requestId": "r"})
    assert json.loads(render(route.request_templates["application/json"], call))["name"] == "malformed*"
    chosen = next(one for one in route.responses if one["StatusCode"] == 400)
    text = render(chosen["ResponseTemplates"]["application/json"], Call('{"message": "Invalid Name: \'malformed*\'"}'))
    assert json.loads(text)["message"].startswith("The stream id must be the name of a profile")
    assert tmp_path.exists()


def test_a_template_sees_input_util_and_context() -> None:
    """Each member of `$input`, `$util` and `$context` has API Gateway's value."""
    call = Call('{"a": {"b": [1, "x"]}}', {"p": "path"}, {"q": "query"}, {"h": "header"}, {"requestId": "id"})
    for template, expected in {
        "$input.json('$.a.b[1]')": '"x"',
        "$input.path('$.a.b[0]')": "1",
        "$input.params('p') $input.params('q') $input.params('h')": "path query header",
        '$util.escapeJavaScript("it\'s")': "it\\'s",
        "$util.urlEncode('a/b') $util.urlDecode('a%2Fb')": "a%2Fb a/b",
        "$util.base64Decode($util.base64Encode('é'))": "é",
        "$util.parseJson($input.body).a.b.size()": "2",
        "$context.requestId": "id",
    }.items():
        assert render(template, call) == expected
    with pytest.raises(TemplateFailure):
        render("#foreach(", call)
