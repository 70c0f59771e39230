"""What a mapping template sees; tests/deploy/test_mapping_templates.py compares our renderer with Java's."""

import pytest

from local.service.vtl import Call, TemplateFailure, render


def test_a_template_sees_input_and_context() -> None:
    """It sees values of a body and parameters of each kind; a template that cannot be rendered fails."""
    call = Call('{"a": {"b": 1}}', {"p": "path"}, {"q": "query"}, {"h": "header"}, {"requestId": "id"})
    template = "$input.path('$.a.b') $input.params().path.p $input.params().header.h $context.requestId"
    assert render(template, call) == "1 path header id"
    assert render("$input.path('$.a.c')", call) == ""
    with pytest.raises(TemplateFailure):
        render("#foreach(", call)
