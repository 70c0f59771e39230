"""What is read directly is what the general evaluator says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machines import machine
from states_language import DefinitionError
from states_language.jsonata import engine, evaluation

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


@given(VALUES, FORMS, PATHS, PATHS, NAMES)
def test_the_general_evaluator_says_the_same(data: Any, form: str, one: str, other: str, name: str) -> None:
    """Of whatever data, in whatever expression: the same value, the same failure."""
    text = form.format(one, other, name)
    seen = outcome(text, data)
    with pytest.MonkeyPatch.context() as without:
        without.setattr(engine, "direct", lambda _node: None)
        assert outcome(text, data) == seen
    evaluation._compiled.cache_clear()
