"""The OpenAPI document lets generators make clients: it has names, groups, and an example of each answer."""

import re

import pytest

from handlers.api import routes
from handlers.api.answers import CONTENT_TYPE
from handlers.api.openapi.document import document, example
from tests.problems import conforms

DOCUMENT = document("/prod")
OPERATIONS = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]


def test_an_operation_has_a_name_and_a_group() -> None:
    """The name of an operation is a verb and its object, unique, and its group is listed."""
    names = [operation["operationId"] for operation in OPERATIONS]
    assert len(set(names)) == len(names) == len(routes.ROUTES)
    assert [
        name for name in names if not re.fullmatch(r"(get|list|start|stop|set|redrive|repair)[A-Z][A-Za-z]+", name)
    ] == []
    assert {tag for operation in OPERATIONS for tag in operation["tags"]} == {one["name"] for one in DOCUMENT["tags"]}


@pytest.mark.parametrize("schema", sorted({route.schema for route in routes.ROUTES.values()} - {""}))
def test_an_example_is_an_answer(schema: str) -> None:
    """Each example of an answer is valid by its schema."""
    conforms(example(schema), schema)


def test_every_answer_has_an_example() -> None:
    """Every answer with a body has an example, and each kind of problem has one in its words."""
    lacking = []
    for operation in OPERATIONS:
        for status, answer in operation["responses"].items():
            for kind, content in answer.get("content", {}).items():
                if content.get("example") is None and not content.get("examples"):
                    lacking.append((operation["operationId"], status, kind))
                for one in content.get("examples", {}).values():
                    assert (kind, one["value"]["status"]) == (CONTENT_TYPE, int(status))
                    conforms(one["value"], "Problem")
    assert lacking == []


def test_a_body_is_in_one_member_of_an_event() -> None:
    """An event's schema has no choice of required members, because generators would make a list of anything from it."""
    assert "oneOf" not in DOCUMENT["components"]["schemas"]["Event"]
    assert len({"data", "data_base64", "left_out", "dead_letter"} & set(example("Event"))) == 1
