"""An answer in a terminal: the value that was given, on lines that fit."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handlers.api.layout import WIDTH, laid_out

LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5)
)


@given(VALUES)
def test_it_is_the_value_and_only_a_text_is_longer_than_a_line(value: Any) -> None:
    """Whatever is in it; a line that is longer holds no more than one member."""
    text = laid_out(value)
    assert json.loads(text) == value
    for line in text.split("\n"):
        if len(line) > WIDTH:
            member = line.strip().removesuffix(",")
            try:
                one = json.loads(member)
            except ValueError:
                (one,) = json.loads(f"{{{member}}}").values()
            assert not one or not isinstance(one, dict | list)


def test_what_does_not_fit_has_a_line_for_each_member() -> None:
    """And what fits has one."""
    fits = {"a": "x" * (WIDTH - len('  "m": {"a": ""},'))}
    long = {"a": "x" * (WIDTH - len('    {"a": ""},') + 1)}
    assert laid_out({"m": fits, "n": [long, {}]}).split("\n") == [
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
    assert laid_out({"message": "No."}) == '{"message": "No."}'
