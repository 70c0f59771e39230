"""A compiled JSONata expression evaluates to the value that the library's evaluator returns."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from language.jsonata_expressions import EXPRESSIONS, INPUT
from machines import machine
from states_language import DefinitionError
from states_language.jsonata import engine, evaluation, node_functions
from states_language.jsonata.patterns import compile_pattern
from states_language.jsonata.writer import Writer

NAMES = st.sampled_from(["a", "b", "`a b`"])
KEYS = st.sampled_from(["a", "b", "a b"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, "", "a", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
PATHS = st.lists(NAMES, max_size=4).map(lambda names: ".".join(["$states.input", *names]))
FORMS = st.sampled_from([
    "{0}", "[{0}, {1}]", "{0}[0].{2}", "{0}.({2})", "({0}; $x := {1}; $x.{2}.a)", "{0}#$i.{2}", "{0}[].{2}",
    "$map([{0}], function($v) {{ $v.{2} }})", "{0} = {1} ? {0} : $type({1})", "{0}{{`a`: {2}}}",
    "[{0}, null, true, 'text', 1.5][{2}]", "{0} & {1}", "{0} < {1} or {0} in [{1}, 2]",
    "(1 > 0 ? $x := {0} : 0; $x + {1})", "$max([0, $sum([{0}]) - 1])",
])  # fmt: skip


def outcome(text: str, data: Any) -> Any:
    """Return output, error and cause of a state that evaluates the expression, or the definition's refusal."""
    evaluation._compile_cached.cache_clear()
    try:
        state = {"Type": "Pass", "QueryLanguage": "JSONata", "Output": {"v": f"{{% {text} %}}"}}
        execution = machine(("A", state)).execute(data)
    except DefinitionError as refused:
        return str(refused)
    return execution.output, execution.error, execution.cause


def library_outcome(text: str, data: Any) -> Any:
    """Return the same outcome, with every node evaluated by the library."""
    with pytest.MonkeyPatch.context() as without:
        without.setattr(node_functions, "_LEAVES", {})
        without.setattr(node_functions, "_OFTEN", math.inf)
        seen = outcome(text, data)
    evaluation._compile_cached.cache_clear()
    return seen


@pytest.fixture(autouse=True, scope="module")
def _write_at_once() -> Iterator[None]:
    """Compile each expression at its first evaluation, instead of letting the library evaluate it at first."""
    with pytest.MonkeyPatch.context() as at_once:
        at_once.setattr(node_functions, "_OFTEN", 0)
        yield


@given(VALUES, FORMS, PATHS, PATHS, NAMES)
def test_a_compiled_expression_has_the_librarys_outcome(data: Any, form: str, one: str, other: str, name: str) -> None:
    """For any data and any of these forms, the compiled expression has the library's value or failure."""
    text = form.format(one, other, name)
    assert outcome(text, data) == library_outcome(text, data)


@given(EXPRESSIONS)
def test_a_compiled_operator_or_function_has_the_librarys_outcome(text: str) -> None:
    """Any operator and function has the library's value or failure, even for arguments of wrong types."""
    assert outcome(text, INPUT) == library_outcome(text, INPUT)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1 + 2 * 3", 5),
        ("($states.input.a)", 5),
        ("$states.input.missing.more", 5),
        ("$states.input.b.c", 7),
        ("$states.input.t = 'text' or $missing", 7),
        ("$sum([1, 2, $states.input.a])", 9),
        ("($x := 'a'; $x & $x)", 6),
        ("$pad('', 6400)", 104),
        ("$map([1..9], function($v){ $v + 1 })", 37),
    ],
)
def test_each_node_takes_a_step(text: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node counts one step, and so does each name of a path, even after a missing one. A long text or array counts
    more. A compiled expression counts as many steps as at first.
    """
    outcome(text, INPUT)
    assert engine.current_bounds().steps == steps
    monkeypatch.setattr(node_functions, "_OFTEN", 1)
    outcome(text, INPUT)
    assert engine.current_bounds().steps == steps


def test_no_text_of_an_expression_becomes_code() -> None:
    """The generated code has no constant and no name of a variable or function, yet each is evaluated."""
    for text in ('"', "'" * 3, "\\", "\n", "{0}", "\u2028", "0; import os"):
        assert outcome(f"{json.dumps(text)} & ''", INPUT)[0] == {"v": text}
    parsed = engine.Jsonata("$named(1 + $named & 'constant', [true, 2.5])", compile_pattern)
    written = Writer(lambda node: node_functions.node_function(parsed, node)).write_function(parsed.ast)
    assert "machine.call(" in written
    assert not any(text in written for text in ("named", "constant", "2.5"))


def test_a_deeply_nested_expression_has_the_librarys_outcome() -> None:
    """An expression nested 15 to 100 levels deep has the library's value, and fails at the same depth."""
    for levels in (15, 16, 17, 40, 65, 66, 67, 100):
        text = "$states.input.n"
        for level in range(levels):
            text = f"(1 + {text})" if level % 3 else f"$number(true ? {text} : 0)"
        assert outcome(text, {"n": 1}) == library_outcome(text, {"n": 1})


def test_a_variable_named_states_hides_the_states_object() -> None:
    """A variable or parameter named $states hides the state's $states: $states.input reads the variable's value."""
    texts = ["($states /* ours */ := {'input': 2}; $states.input)", "(function($states){$states.input})({'input': 2})"]
    assert [outcome(text, 1)[0] for text in texts] == [{"v": 2}, {"v": 2}]
