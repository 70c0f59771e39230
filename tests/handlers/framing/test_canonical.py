"""Canonical JSON: equal values have one form, different values have two, and nothing raises."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.events import canonical_json

NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["", "a", "é", "😀"]), inner, max_size=4)
    ),
    max_leaves=12,
)
BODIES = st.lists(VALUES, max_size=4) | st.dictionaries(st.sampled_from("abcdé"), VALUES, max_size=4)


def shuffled(value: Any, draws: random.Random) -> Any:
    """Return the same value with the names of its objects in another order."""
    if isinstance(value, list):
        return [shuffled(item, draws) for item in value]
    if not isinstance(value, dict):
        return value
    names = draws.sample(list(value), len(value))
    return {name: shuffled(value[name], draws) for name in names}


def typed(value: Any) -> Any:
    """Return the value in a form in which True is not 1, and 1.0 is 1."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (isinstance(value, bool), value)


@given(BODIES, st.randoms(use_true_random=False), st.booleans())
def test_the_spelling_of_a_value_does_not_count(body: Any, draws: random.Random, escapes: bool) -> None:
    """Deliveries may differ in name order, white space and escapes; the form is the same, and is its own form."""
    one = json.dumps(body)
    other = json.dumps(shuffled(body, draws), indent=1, ensure_ascii=escapes)
    assert canonical_json(one) == canonical_json(other.encode())
    assert canonical_json(canonical_json(one)) == canonical_json(one)


@given(BODIES, BODIES)
def test_two_values_never_have_one_form(one: Any, other: Any) -> None:
    """Equal forms mean equal values, so two events are never taken for one."""
    same = canonical_json(json.dumps(one)) == canonical_json(json.dumps(other))
    assert not same or typed(one) == typed(other)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('{"b": 1, "a": [1.0, -0, 1e2, 1.50, "é"]}', '{"a":[1,0,100,1.5,"é"],"b":1}'),
        ("[1E3, 0.1, 5e-324, 1e22, 1e23]", f"[1000,0.1,5e-324,1{'0' * 22},1{'0' * 23}]"),
        ("[10000000000000000000000, -9007199254740993, -1.5e16]", f"[1{'0' * 22},-9007199254740993,-15{'0' * 15}]"),
        ("[1.7976931348623157e308]", f"[17976931348623157{'0' * 292}]"),
        (' \n[ "\\u00e9\\/" ]', '["é/"]'),
        ("[9007199254740993]", "[9007199254740993]"),
    ],
)
def test_the_canonical_form_has_sorted_names_and_the_shortest_numbers(text: str, form: str) -> None:
    """Names are sorted, white space is left out, and numbers are shortest; whole numbers keep all digits."""
    assert canonical_json(text) == form.encode()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        "[0.10000000000000000001]",
        "[9007199254740993.5]",
        "[1e999]",
        "[NaN]",
        '["\\ud800"]',
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        f"[{'9' * 5000}]",
        "[1, ]",
        "12.0",
        ' "a"',
        "plain text",
        "",
    ],
)
def test_a_text_that_cannot_be_compared_safely_keeps_its_bytes(text: str) -> None:
    """Duplicate names, inexact numbers, endless nesting, and anything but objects and arrays keep their bytes."""
    assert canonical_json(text) == text.encode()


@given(st.binary(max_size=60) | st.text(st.sampled_from('{}[]":,0.e-\\ua'), max_size=30).map(str.encode))
def test_no_input_raises(data: bytes) -> None:
    """Bytes that are not text, and texts that are nearly JSON, have a form too."""
    assert canonical_json(canonical_json(data)) == canonical_json(data)
