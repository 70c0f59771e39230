"""Paths in Jayway's dialect: what they select, their errors if they select nothing, and where they write."""

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from states_language.failures import EvaluationError, ResultPathFailure
from states_language.jsonpath.grammar import PathSyntaxError, compile_path
from states_language.jsonpath.selection import Path
from states_language.values import MISSING

DATA: dict[str, Any] = {"a": {"b": [10, 20, 30, {"c": "x"}], "b c": 1, "it's": 2, "error-info": 3},
                        "items": [{"n": 1, "t": "x"}, {"n": 2}, {"n": 3, "t": "y", "on": True}], "empty": [],
                        "null": None, "texts": ["it's", "\\é\n😀"]}  # fmt: skip


SELECTED = [
    ("$", DATA),
    ("$.a.b[0]", 10),
    ("$.a.b[-1].c", "x"),
    ("$['a']['b'][1]", 20),
    ("$.a.b.[0] ", 10),
    ("$['null', 'empty', 'none']", {"null": None, "empty": []}),
    ("$.items.[*].['n','t']", [{"n": 1, "t": "x"}, {"n": 2}, {"n": 3, "t": "y"}]),
    ("$..['n','t']", [{"n": 1, "t": "x"}, {"n": 3, "t": "y"}]),
    ("$.a.b.[?(@ > 10)]", [20, 30]),
    ('$["a"].b[1]', 20),
    ("$.a['b c']", 1),
    ("$.a['it\\'s']", 2),
    ("$.a.error-info", 3),
    ("$.null", None),
    ("$.a.b[*]", [10, 20, 30, {"c": "x"}]),
    ("$.a.b[1:3]", [20, 30]),
    ("$.a.b[:2]", [10, 20]),
    ("$.a.b[-2:]", [30, {"c": "x"}]),
    ("$.a.b[::2]", [10, 30]),
    ("$.a.b[0,2]", [10, 30]),
    ("$.items[*].n", [1, 2, 3]),
    ("$.items[*].t", ["x", "y"]),
    ("$.items.*", DATA["items"]),
    ("$..n", [1, 2, 3]),
    ("$.items[?(@.t)].n", [1, 3]),
    ("$.items[?(@.n > 1)].n", [2, 3]),
    ("$.items[?(@.n >= 2 && @.t == 'y')].n", [3]),
    ("$.items[?(@.n == 1 || @.on == true)].n", [1, 3]),
    ("$.items[?(!(@.t))].n", [2]),
    ("$.items[?(@.n == $.items[1].n)].n", [2]),
    ("$.items[?(@.n != 2)].n", [1, 3]),
    ("$.items[?(@.t==x)].n", [1]),
    ("$.items[?(@.on == 1)].n", []),
    (r"""$.texts[?(@ == 'it\'s' || @ == "\\\u00e9\n\ud83d\ude00")]""", ["it's", "\\é\n😀"]),
    ("$.empty[*]", []),
    ("$.nowhere[*].x", []),
    ("$.nowhere.deeper[1:]", []),
]


def test_a_definite_path_selects_a_value_and_any_other_a_list() -> None:
    """A definite path selects one value; any other path selects a list."""
    assert [(path, compile_path(path).read_from_root(DATA)) for path, _ in SELECTED] == SELECTED


CONTEXT = 'Current context is: {"n":3,"t":"y","on":true}'


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("$.no", "Invalid path '{}' : No results for path: $['no']"),
        ("$.a.no", "Invalid path '{}' : No results for path: $['a']['no']"),
        ("$.no.such.path", "Invalid path '{}' : Missing property in path $['no']"),
        ("$.a.b[9]", "Invalid path '{}' : Index out of bounds when evaluating path $['a']['b'][9]"),
        ("$.items[2][0]", "Invalid path '{}' : Filter: [0] can only be applied to arrays. " + CONTEXT),
        ("$.null.x", "Invalid path '{}' : Expected to find an object with property ['x'] in path $['null']"),
    ],
)
def test_a_definite_path_that_leads_nowhere_is_an_error_in_jayways_words(path: str, error: str) -> None:
    """A definite path that selects nothing fails with Jayway's message. The first three were recorded."""
    with pytest.raises(EvaluationError) as problem:
        compile_path(path).read_from_root(DATA)
    assert str(problem.value) == error.replace("{}", path)
    assert compile_path(path).find_from_root(DATA) is MISSING


@pytest.mark.parametrize(
    "path",
    [
        *("", "a.b", "$.", "$1", "$a b", "$.a[", "$.a[]", "$.a[1", "$.a['b]", "$.a b", "$.length(", "$.a[::0]"),
        *("$[?(@.n ==)]", "$[?(false)]", "$[?(@.n && false)]", "$[?(!5)]", "$[?(word)]", "$[?(@.a == word())]"),
    ],
)
def test_a_text_that_is_not_a_path_is_refused(path: str) -> None:
    with pytest.raises(PathSyntaxError):
        compile_path(path)


@pytest.mark.parametrize(
    ("path", "reference"), [("$", True), ("$.a[0]['b']", True), ("$.a[*]", False), ("$.a[-1]", False), ("$..a", False)]
)
def test_a_reference_path_names_a_single_node(path: str, reference: bool) -> None:
    assert compile_path(path).is_reference_path is reference


@pytest.mark.parametrize(
    ("path", "data", "result"),
    [
        ("$", {"a": 1}, 7),
        ("$.b", {"a": 1}, {"a": 1, "b": 7}),
        ("$.a", {"a": {"x": 1}}, {"a": 7}),
        ("$.b.c.d", {"a": 1}, {"a": 1, "b": {"c": {"d": 7}}}),
        ("$.a[1]", {"a": [0, 1, 2]}, {"a": [0, 7, 2]}),
        ("$.a[0].b", {"a": [{"c": 1}]}, {"a": [{"c": 1, "b": 7}]}),
    ],
)
def test_put_makes_a_copy_and_the_objects_on_the_way(path: str, data: Any, result: Any) -> None:
    before = repr(data)
    assert compile_path(path).put(data, 7) == result
    assert repr(data) == before


@pytest.mark.parametrize(
    ("path", "data"), [("$.a", "text"), ("$.a.b", {"a": 1}), ("$.a[3]", {"a": [1]}), ("$.a.b", {"a": None})]
)
def test_put_refuses_another_value_on_the_way(path: str, data: Any) -> None:
    with pytest.raises(ResultPathFailure, match=r"Unable to apply ReferencePath"):
        compile_path(path).put(data, 7)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="'\\"), min_size=1, max_size=5)


@given(st.lists(NAMES, min_size=1, max_size=5), st.integers() | st.none() | st.text())
def test_a_value_that_was_put_is_selected_again(names: list[str], value: Any) -> None:
    """A value put at a path is selected again by it, whatever characters the quoted names have."""
    path = compile_path("$" + "".join(f"['{name}']" for name in names))
    assert path.read_from_root(path.put({}, value)) == value


@given(st.text(alphabet="$.[]'\"*:,?()@=a0- &|!", max_size=12))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    """Any text is a path or is refused. Compiling and evaluating raise no other exception."""
    try:
        path = compile_path("$" + text)
    except PathSyntaxError:
        return
    with contextlib.suppress(EvaluationError):
        path.find_from_root(DATA)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("$.a[?(@.b in ['x'])]", "the operator in of a filter"),
        ("$.a[?(@.b =~ /x/)]", "the operator =~ of a filter"),
        ("$.a[?(@.b size 2)]", "the operator size of a filter"),
        ("$.a.length().b", "the function length() within a path"),
        ("$.a[?(@.length() > 1)]", "the function length() within a path"),
    ],
)
def test_an_operator_or_function_that_only_jayway_has_is_refused_by_name(path: str, named: str) -> None:
    """A Jayway operator or function outside the States Language is refused by name when the definition is loaded."""
    with pytest.raises(PathSyntaxError, match=re.escape(f"{named} is not supported")):
        compile_path(path)


@pytest.mark.parametrize("read", [Path.read_from_root, Path.find_from_root])
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        *((path, "a function of a path is not") for path in ("$.a.length()", "$.sum()", "$.a.append(1)")),
        ("$['a', 'x'].b", "Multi properties can only be used as path leafs: $['a', 'x']"),
        ("$.a[*][*]", "it selects more than 200000 nodes"),
    ],
)
def test_an_unsupported_path_fails_when_it_is_read(read: Callable[[Path, Any], Any], path: str, problem: str) -> None:
    """The definition loads, as on AWS, and reading the path fails. Others measured the words on several members."""
    with pytest.raises(EvaluationError, match=re.escape(f"Invalid path '{path}' : {problem}")):
        read(compile_path(path), {"a": [[0] * 450] * 450})
    assert not compile_path(path).is_reference_path


@pytest.mark.parametrize(("value", "shown"), [(5, "5"), ("x", "x"), (None, "null")])
def test_a_filter_on_a_primitive_fails_after_a_definite_path(value: Any, shown: str) -> None:
    """After a definite path a filter fails on a primitive, as in Jayway. After another path it selects none of it."""
    text = f"Filter: [?] can not be applied to primitives. Current context is: {shown}"
    with pytest.raises(EvaluationError, match=re.escape(text)):
        compile_path("$.a[?(@ > 1)]").read_from_root({"a": value})
    assert compile_path("$.*[?(@ > 1)]").read_from_root({"a": value, "b": [1, 2]}) == [2]
