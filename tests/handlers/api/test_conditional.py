"""A GET whose answer the client has already: RFC 9110, sections 8.8.3 and 13.1.2."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.api.conditional import conditional

HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache", "Vary": "Accept"}


def answer(body: str, status: int = 200) -> dict[str, object]:
    """What the function answers."""
    return {"statusCode": status, "headers": HEADERS, "body": body}


def tag_of(body: str) -> str:
    """The tag of its answer."""
    tag = conditional(answer(body), "")["headers"]["ETag"]
    assert isinstance(tag, str)
    return tag


@given(st.text(), st.text())
def test_two_answers_have_one_tag_if_they_are_the_same(first: str, second: str) -> None:
    """And the tag is an opaque one, whatever the body has."""
    assert (tag_of(first) == tag_of(second)) == (first == second)
    assert tag_of(first).isascii()
    assert tag_of(first)[0] == tag_of(first)[-1] == '"'


@given(st.lists(st.sampled_from(['"a"', 'W/"b,c"', '""']), max_size=3), st.integers(0, 3), st.booleans())
def test_a_list_of_tags_matches_if_it_has_the_answers(others: list[str], at: int, is_weak: bool) -> None:
    """Wherever it stands, weak or not; a 304 has no body, and of the headers those that a cache needs."""
    own = ("W/" if is_weak else "") + tag_of("{}")
    assert conditional(answer("{}"), ", ".join(others)) == {
        **answer("{}"),
        "headers": {**HEADERS, "ETag": tag_of("{}")},
    }
    kept = {"Cache-Control": "no-cache", "ETag": tag_of("{}"), "Vary": "Accept"}
    expected = {"statusCode": 304, "headers": kept, "body": ""}
    assert conditional(answer("{}"), ", ".join([*others[:at], own, *others[at:]])) == expected
    assert conditional(answer("{}"), " * ") == expected


def test_a_refusal_has_no_tag() -> None:
    """It is sent whole, whatever the client has."""
    assert conditional(answer("{}", 404), "*") == answer("{}", 404)
