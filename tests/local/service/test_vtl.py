"""The variables and functions of API Gateway's mapping templates; tests/deploy compares those with Java's."""

import pytest

from local.service.vtl import Call, TemplateFailure, render


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
