"""All answers: their layout in a terminal, and the ETag for an answer that the client already has (RFC 9110)."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handlers.api.answers import WIDTH, conditional_answer, format_json

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
