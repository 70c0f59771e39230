"""All answers: their layout in a terminal, their ETag (RFC 9110), the pages of events, and the OpenAPI document."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.api import routes
from handlers.api.answers import CONTENT_TYPE, WIDTH, conditional_answer, format_json
from handlers.api.event_pages import MOST, PAGE_BYTES, event_json, page
from handlers.api.openapi.document import document, example
from handlers.store.event_items import Entry, StoredEvent
from tests.problems import conforms

HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache", "Vary": "Accept"}
LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5)
)


@given(VALUES)
def test_the_layout_keeps_the_value_and_its_lines_are_short(value: Any) -> None:
    """The layout is the same JSON value; a line longer than the width holds only one member."""
    text = format_json(value)
    assert json.loads(text) == value
    for line in text.split("\n"):
        if len(line) > WIDTH:
            member = line.strip().removesuffix(",")
            try:
                one = json.loads(member)
            except ValueError:
                (one,) = json.loads(f"{{{member}}}").values()
            assert not one or not isinstance(one, dict | list)


def test_a_value_that_does_not_fit_has_a_line_for_each_member() -> None:
    """A value that fits is one line; a value that does not has a line for each of its members."""
    fits = {"a": "x" * (WIDTH - len('  "m": {"a": ""},'))}
    long = {"a": "x" * (WIDTH - len('    {"a": ""},') + 1)}
    assert format_json({"m": fits, "n": [long, {}]}).split("\n") == [
        "{",
        f'  "m": {json.dumps(fits)},',
        '  "n": [',
        "    {",
        f'      "a": "{long["a"]}"',
        "    },",
        "    {}",
        "  ]",
        "}",
    ]
    assert format_json({"message": "No."}) == '{"message": "No."}'


def answer(body: str, status: int = 200) -> dict[str, object]:
    """Return the function's answer."""
    return {"statusCode": status, "headers": HEADERS, "body": body}


def tag_of(body: str) -> str:
    """Return the ETag of the function's answer."""
    tag = conditional_answer(answer(body), "")["headers"]["ETag"]
    assert isinstance(tag, str)
    return tag


@given(st.text(), st.text())
def test_two_answers_have_one_tag_if_they_are_the_same(first: str, second: str) -> None:
    """Equal answers have the same tag, other answers have different ones; a tag is opaque ASCII for any body."""
    assert (tag_of(first) == tag_of(second)) == (first == second)
    assert tag_of(first).isascii()
    assert tag_of(first)[0] == tag_of(first)[-1] == '"'


@given(st.lists(st.sampled_from(['"a"', 'W/"b,c"', '""']), max_size=3), st.integers(0, 3), st.booleans())
def test_a_list_of_tags_matches_if_it_contains_the_answers(others: list[str], at: int, is_weak: bool) -> None:
    """A list with the answer's tag, weak or not, gives a 304 with no body and only the headers that a cache needs."""
    own = ("W/" if is_weak else "") + tag_of("{}")
    assert conditional_answer(answer("{}"), ", ".join(others)) == {
        **answer("{}"),
        "headers": {**HEADERS, "ETag": tag_of("{}")},
    }
    kept = {"Cache-Control": "no-cache", "ETag": tag_of("{}"), "Vary": "Accept"}
    expected = {"statusCode": 304, "headers": kept, "body": ""}
    assert conditional_answer(answer("{}"), ", ".join([*others[:at], own, *others[at:]])) == expected
    assert conditional_answer(answer("{}"), " * ") == expected


def test_a_refusal_has_no_tag() -> None:
    """A refusal is sent whole, whatever the client has."""
    assert conditional_answer(answer("{}", 404), "*") == answer("{}", 404)


LAMBDA_BYTES = 6_291_556


def stored(number: int, data: str | bytes | None, place: str | None = None) -> StoredEvent:
    return StoredEvent(f"k{number}", data, None, None, number, 1, f"{number:015d}/{1:012d}/{number:012d}", object=place)


def entries(bodies: Sequence[str | bytes | None]) -> list[Entry]:
    events = [stored(number, body) for number, body in enumerate(bodies)]
    return [Entry(event.position, None if event.data is None else event) for event in events]


BODIES = st.lists(
    st.one_of(
        st.none(),
        st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=3), st.integers(1, 900_000)),
        st.builds(lambda number: b"\xff" * number, st.integers(0, 2_500_000)),
    ),
    max_size=6,
)


@given(BODIES, st.integers(1, 4))
def test_pages_hold_everything_once_and_fit_into_an_answer(bodies: list[str | bytes | None], limit: int) -> None:
    """With any bodies and limit, all events come once and in order, and each answer is below Lambda's bound."""
    left = entries(bodies)
    wanted = [entry.position for entry in left if entry.event is not None]
    keys: list[str] = []
    while True:
        # What the reader returns after the last position.
        answer = page("s", left[:limit], limit, lambda: False)
        assert len(json.dumps({"statusCode": 200, "body": format_json(answer)})) <= LAMBDA_BYTES
        keys += [event["position"] for event in answer["events"]]
        if answer["next"] is None:
            break
        left = [entry for entry in left if entry.position > answer["next"]]
    assert keys == wanted


def test_a_page_of_many_small_events_fits_into_an_answer() -> None:
    """A page of a thousand small events fits into Lambda's answer, with the line ends and indents of its layout."""
    full = page("s", entries(["x" * (PAGE_BYTES // MOST - 190)] * MOST), MOST, lambda: False)
    assert len(full["events"]) == MOST
    assert PAGE_BYTES < len(json.dumps({"statusCode": 200, "body": format_json(full)})) <= LAMBDA_BYTES


def test_a_body_that_no_answer_holds_is_left_out() -> None:
    """An event whose body is too large for an answer comes without the body, and names the place of the body."""
    too_large = '"' * (PAGE_BYTES // 4 + 1)
    (event,) = page("s", entries([too_large]), 1, lambda: False)["events"]
    assert (event["left_out"], "data" in event) == ("table", False)
    assert event_json(stored(1, None, "s/a/b"))["left_out"] == "s/a/b"


def test_a_page_ends_when_it_is_late() -> None:
    """A late page has at least one entry, and the next page begins after it."""
    answer = page("s", entries(["a", "b"]), MOST, lambda: True)
    assert ([event["data"] for event in answer["events"]], answer["next"]) == (["a"], answer["events"][0]["position"])
    assert page("s", [], MOST, lambda: True) == {"stream": "s", "events": [], "next": None}


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
