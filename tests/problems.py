"""Checks the API's problems against RFC 9457 and our own document."""

from typing import Any

import jsonschema

from handlers.api import answers
from handlers.api.openapi.document import document

_DOCUMENT = document()


def conforms(answer: Any, schema: str) -> None:
    """Fails if an answer is not as the OpenAPI document describes it."""
    rule = {"$ref": f"#/components/schemas/{schema}", "components": _DOCUMENT["components"]}
    jsonschema.Draft202012Validator(rule).validate(answer)


def read(status: int, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the members of a problem of this status besides its kind: `detail`, and `request_id` if it has one."""
    assert list(body) == list(answers.MEMBERS)
    conforms(body, "Problem")
    known = answers.kinds()[body["type"].removeprefix(answers.TYPE)]
    assert (body["status"], body["title"]) == (known["status"], known["title"]) == (status, known["title"])
    said = {"detail": body["detail"]}
    return said if body["request_id"] is None else said | {"request_id": body["request_id"]}
