"""The eighteen intrinsic functions beyond the recordings: their values, their errors and the text of a call."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from states_language.clock import VirtualClock
from states_language.context import ComposedEnvironment
from states_language.failures import IntrinsicFailure
from states_language.jsonpath.expressions import compile_expression, evaluate
from states_language.jsonpath.grammar import PathSyntaxError
from states_language.values import is_equal


def value(text: str, data: Any = None) -> Any:
    here = ComposedEnvironment(dict, {"known": [7]}.get, dict, VirtualClock(seed=5).random)
    return evaluate(compile_expression(text), data, here)


GIVEN = [
    ("States.Format('{} and \\{{}\\}', 'a', 1)", "a and {1}"),
    ("States.Format('it\\'s {}', $.x)", "it's {p=[1, null], q=true}"),
    ("States.Format($.template, 1.5)", "<1.5>"),
    ("States.Array(1, 'two', $.no[*], null, true, -0.5)", [1, "two", [], None, True, -0.5]),
    ("States.ArrayPartition($.list, 2)", [[1, 2], [2, 1], [1.0]]),
    ("States.ArrayContains($.list, true)", False),
    ("States.ArrayRange(5, 1, -2)", [5, 3, 1]),
    ("States.ArrayRange(1, 0, 1)", []),
    ("States.ArrayUnique($.list)", [1, 2]),
    ("States.Base64Decode('w6Q=')", "ä"),
    ("States.Hash('input data', 'SHA-1')", "aaff4a450a104cd177d28d18d74485e8cae074b7"),
    ("States.StringSplit('a.b+c', '.+')", ["a", "b", "c"]),
    ("States.StringSplit('a]b^c-d', ']^-')", ["a", "b", "c", "d"]),
    ("States.Format('{}', $['a,b)'][0])", "odd"),
    # A wildcard that selects nothing is an empty array, and null is a value: neither is a missing argument (measured).
    ("States.Format('{}{}', States.ArrayLength($.list[*].no), $.x.p[1])", "0null"),
]


def test_a_call_gives() -> None:
    data = {"x": {"p": [1, None], "q": True}, "list": [1, 2, 2, 1, 1.0], "template": "<{}>", "a,b)": ["odd"]}
    assert [(text, value(text, data)) for text, _ in GIVEN] == GIVEN


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("States.Format('{}{}', 1)", "2 placeholders for 1 values"),
        ("States.Format('none', 1)", "0 placeholders for 1 values"),
        ("States.Format('{', 1)", "a { or } that is not a placeholder is written \\{ or \\}"),
        ("States.StringToJson('{')", "'{' is not JSON"),
        ("States.StringToJson('NaN')", "'NaN' is not JSON"),
        ("States.ArrayPartition($.list, 0)", "the size of a chunk is a positive integer"),
        ("States.ArrayRange(0, 1000, 1)", "a range has at most 1000 elements"),
        ("States.ArrayRange(0, 9223372036854775807, 1)", "a range has at most 1000 elements"),
        ("States.ArrayRange(0, 1, 0)", "the step is not zero"),
        ("States.MathAdd($.huge, 1)", f"{10**400} is out of range"),
        ("States.ArrayGetItem($.list, 3)", "index 3 is out of bounds for an array of 3"),
        ("States.ArrayLength('text')", 'an array is expected, not "text"'),
        ("States.Base64Decode('!')", "'!' is not Base64 of UTF-8"),
        ("States.Hash('x', 'CRC')", 'the algorithm is one of MD5, SHA-1, SHA-256, SHA-384, SHA-512, not "CRC"'),
        ("States.Hash('x', $.x)", "the algorithm is one of MD5, SHA-1, SHA-256, SHA-384, SHA-512, not {}"),
        ("States.JsonMerge($.x, $.x, true)", "only the shallow merge exists; the third argument is false"),
        ("States.MathAdd('1', 2)", 'a number is expected, not "1"'),
        ("States.MathRandom(3, 3)", "the end is greater than the start"),
    ],
)
def test_a_function_refuses_wrong_arguments_and_quotes_the_call(text: str, why: str) -> None:
    """A function with wrong arguments fails with States.IntrinsicFailure, whose message quotes the call."""
    with pytest.raises(IntrinsicFailure) as failure:
        value(text, {"list": [1, 2, 3], "x": {}, "huge": 10**400})
    assert str(failure.value) == f"The function '{text}' had the following error: {why}"


@pytest.mark.parametrize(
    "text",
    [
        *("States.Nothing()", "States.Array(", "States.Array(1", "States.Array(1 2)", "States.Array('open)"),
        *("States.Array('\\n')", "States.Array(x)", "States.Array() ", "States.UUID(1)", "States.Hash('x')"),
        *("States.Array(01)", "Array()", "plain text", "States.Array(" * 11 + ")" * 11),
    ],
)
def test_a_text_that_is_not_a_call_is_refused(text: str) -> None:
    """A text that is no call is refused. Up to ten calls may nest (Developer Guide), any number stand side by side."""
    compile_expression(f"{'States.Array(' * 9}States.UUID(), States.UUID(){')' * 9}")
    with pytest.raises(PathSyntaxError):
        compile_expression(text)


def test_chance_is_the_clocks_unless_there_is_a_seed() -> None:
    assert value("States.UUID()") == value("States.UUID()")  # each call above has a clock of the same seed
    assert value("States.MathRandom(1, 1000, 42)") == value("States.MathRandom(1, 1000, 42)")


@given(st.integers(-1000, 1000), st.integers(1, 1000), st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_random_number_lies_between_start_and_end(start: int, width: int, seed: int) -> None:
    """States.MathRandom includes the start and excludes the end."""
    assert start <= value(f"States.MathRandom({start}, {start + width}, {seed})") < start + width


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON)
def test_json_survives_its_text(data: Any) -> None:
    assert is_equal(value("States.StringToJson(States.JsonToString($))", data), data)


@given(st.text())
def test_a_text_survives_base64_and_format(text: str) -> None:
    assert value("States.Base64Decode(States.Base64Encode($))", text) == text
    assert value("States.Format('{}', $)", text) == text
