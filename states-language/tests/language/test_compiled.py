"""What a compiled node evaluates to is what the library's evaluator returns."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from language.jsonata_expressions import EXPRESSIONS, INPUT
from machines import machine
from states_language import DefinitionError
from states_language.jsonata import compiled, engine, evaluation

NAMES = st.sampled_from(["a", "b", "`a b`"])
KEYS = st.sampled_from(["a", "b", "a b"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, "", "a", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
PATHS = st.lists(NAMES, max_size=4).map(lambda names: ".".join(["$states.input", *names]))
FORMS = st.sampled_from(
    [
        "{0}",
        "[{0}, {1}]",
        "{0}[0].{2}",
        "{0}.({2})",
        "({0}; $x := {1}; $x.{2}.a)",
        "{0}#$i.{2}",
        "{0}[].{2}",
        "$map([{0}], function($v) {{ $v.{2} }})",
        "{0} = {1} ? {0} : $type({1})",
        "{0}{{`a`: {2}}}",
        "[{0}, null, true, 'text', 1.5][{2}]",
        "{0} & {1}",
        "{0} < {1} or {0} in [{1}, 2]",
        "(1 > 0 ? $x := {0} : 0; $x + {1})",
        "$max([0, $sum([{0}]) - 1])",
    ]
)


def outcome(text: str, data: Any) -> Any:
    """What a state ends with that evaluates an expression."""
    evaluation._compiled.cache_clear()
    try:
        state = {"Type": "Pass", "QueryLanguage": "JSONata", "Output": {"v": f"{{% {text} %}}"}}
        execution = machine(("A", state)).execute(data)
    except DefinitionError as refused:
        return str(refused)
    return execution.output, execution.error, execution.cause


def by_the_library(text: str, data: Any) -> Any:
    """The same where the library evaluates every node."""
    with pytest.MonkeyPatch.context() as without:
        without.setattr(compiled, "_KINDS", {})
        seen = outcome(text, data)
    evaluation._compiled.cache_clear()
    return seen


@given(VALUES, FORMS, PATHS, PATHS, NAMES)
def test_the_library_returns_the_same(data: Any, form: str, one: str, other: str, name: str) -> None:
    """Of whatever data, in whatever expression: the same value, the same failure."""
    text = form.format(one, other, name)
    assert outcome(text, data) == by_the_library(text, data)


@given(EXPRESSIONS)
def test_the_library_returns_the_same_of_any_operator_and_function(text: str) -> None:
    """Of mostly wrong types, too."""
    assert outcome(text, INPUT) == by_the_library(text, INPUT)


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
def test_each_node_takes_a_step(text: str, steps: int) -> None:
    """So does each name of a path, even where an earlier one is missing; a long text or array takes more."""
    outcome(text, INPUT)
    assert engine.bounds().steps == steps


def test_a_variable_named_states_hides_the_states_own() -> None:
    """However it gets its value; its members are not those of the input."""
    texts = ["($states /* ours */ := {'input': 2}; $states.input)", "(function($states){$states.input})({'input': 2})"]
    assert [outcome(text, 1)[0] for text in texts] == [{"v": 2}, {"v": 2}]
