"""JSONata in a machine: what expressions read and return, and how endless evaluations are stopped."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from machines import INVOKE, event_types, function_raising, machine
from states_language import Behaviour, DefinitionError
from states_language.jsonata.ecmascript import translate

TOO_DEEP = "Stack overflow error: Check for non-terminating recursive function. Consider rewriting as tail-recursive"
TOO_LARGE = "Expression evaluation memory limit exceeded: Check for excessive memory usage"
TOO_LONG = "Expression evaluation timeout: Check for infinite loop"
LEAVES = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)


def query(*states: tuple[str, Any]) -> Any:
    return machine(*states, QueryLanguage="JSONata")


def output(expression: str, data: Any = None, **fields: Any) -> Any:
    """Return the value of an expression in a Pass state."""
    execution = query(("A", {"Type": "Pass", "Output": {"v": f"{{% {expression} %}}"}, **fields})).execute(data)
    assert execution.status == "SUCCEEDED", execution.cause
    return execution.output["v"]


def failure(expression: str, data: Any = None) -> str:
    """Return the cause of a failed expression, without the sentence that names state, expression and field."""
    execution = query(("A", {"Type": "Pass", "Output": {"v": f"{{% {expression} %}}"}})).execute(data)
    assert (execution.status, execution.error) == ("FAILED", "States.QueryEvaluationError")
    assert event_types(execution)[-2:] == ["EvaluationFailed", "ExecutionFailed"]
    start = (
        "An error occurred while executing the state 'A' (entered at the event id #2). "
        f"The JSONata expression '{expression}' specified for the field 'Output/v' "
    )
    assert execution.cause is not None
    assert execution.cause.startswith(start)
    return str(execution.cause).removeprefix(start)


@given(JSON)
@settings(max_examples=examples(60), deadline=None)
def test_a_value_passes_through_an_expression_unchanged(value: Any) -> None:
    """Any JSON value passes through an expression unchanged, null and nested arrays too: null is not undefined."""
    assert output("$states.input.value", {"value": value}) == value


ENDED: list[tuple[str, str]] = [
    ("($f := function($x) { 1 + $f($x) }; $f(1))", TOO_DEEP),
    (" + ".join(["1"] * 200), TOO_DEEP),
    ("$count([1..900000])", TOO_LARGE),
    ("[-1e308..-1e308]", TOO_LARGE),
    ("[9007199254740991..9007199254740992]", TOO_LARGE),
    ("$reduce([1..40], function($a, $b) { $a & $a }, 'x')", TOO_LARGE),
    ("$pad('x', 1e12)", TOO_LARGE),
    ("true and $pad('x', 1e12) = ''", TOO_LARGE),
    ("($x := [1..9999]; [1..9999].({'a': $x}))", TOO_LARGE),
    ("($x := [1..9999]; $length($string([1..9999].({'a': $x}))))", TOO_LARGE),
    ("($x := [1..99999]; $x[$ in $x])", TOO_LONG),
    ("$replace($pad('', 9999, 'a'), /a/, function($m) { $pad('', 9999, 'b') })", TOO_LARGE),
    ("$replace($pad('', 9999, 'a'), 'a', $pad('', 9999, 'b'))", TOO_LARGE),
    ("$join($map([1..999], function($i) { $pad('', 9999, 'b') }))", TOO_LARGE),
    ("$fromMillis(1, '[Y,99999999999999999999]')", TOO_LARGE),
    ("$parseInteger($pad('', 99999, 'Z'), 'A')", TOO_LARGE),
    ("$toMillis($pad('', 99999, '1'), '[Y]')", TOO_LARGE),
]
ENDED_LATE: list[tuple[str, str]] = [
    ("($f := function($x) { $f($x + 1) }; $f(1))", TOO_LONG),
    ("($x := [[1..9999], 1]; [1..99999].($x = $x))", TOO_LONG),
    ("($x := [1..9999]; [1..99999].([$x]; 1))", TOO_LONG),
    ("$map([1..20000], function($i) { $distinct([1..500]) })", TOO_LONG),
    ("$contains($states.input.text, /(a|aa)+$/)", TOO_LONG),
    ("$map([1..99999], function($i) { $contains('aaaaaaaaaaaaaaaaaaaaaaaab', /(a|aa)+$/) })", TOO_LONG),
    ("($x := [1..5000]; $x@$a.$x@$b.{'a': $a, 'b': $b})", TOO_LONG),
    ("$map([1..10000], function($i) { $string({'a': [1..20000]}) })", TOO_LONG),
    ("$reduce([1..99999], function($all, $i) { $merge([$all, {$string($i): $i}]) }, {})", TOO_LONG),
    ("$map([1..9999], function($i) { $pad('', 9999, 'b') })", TOO_LARGE),
]


@pytest.mark.parametrize(
    ("expression", "bound"), [*ENDED, *(pytest.param(*late, marks=pytest.mark.long) for late in ENDED_LATE)]
)
def test_an_endless_or_huge_evaluation_ends_with_its_bound(expression: str, bound: str) -> None:
    """Endless recursion, doubling, huge ranges and backtracking regular expressions end with their bound's error."""
    assert failure(expression, {"text": "a" * 60 + "b"}) == f"threw an error during evaluation: {bound}"


def test_parsing_with_an_ambiguous_picture_ends() -> None:
    """Twenty years in a row divide a text in too many ways to try, so the search is bounded."""
    assert failure(f"$toMillis($pad('', 200, '1'), '{'[Y]' * 20}x')") == "returned nothing (undefined)."


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("/(a)(?R)?/", "Invalid group"),
        ("/(?P<a>a)(?P>a)/", "Invalid group"),
        ("/(?>a)/", "Invalid group"),
        ("/(?i)a/", "Invalid group"),
        ("/a++/", "Nothing to repeat"),
        ("/^*/", "Nothing to repeat"),
        ("/a{2,1}/", "numbers out of order in {} quantifier"),
        ("/[b-a]/", "Range out of order in character class"),
        ("/(?<n>a)(?<n>b)/", "Duplicate capture group name"),
        ("/(?<n>a)\\k<m>/", "Invalid named reference"),
        ("/[a-/", "Unterminated character class"),
        ("/a)/", "Unmatched ')'"),
        ("/(a/", "Unterminated group"),
    ],
)
def test_a_regular_expression_that_javascript_refuses_is_refused(expression: str, fault: str) -> None:
    """Group calls, possessive quantifiers and inline flags, which only `regex` has, do not load."""
    with pytest.raises(ValueError, match=re.escape(f"Invalid regular expression: {expression}: {fault}")):
        translate(expression[1:-1], multiline=False)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("[1!2]", 'S0204: Unknown operator: "!"'),
        ("'\\y'", 'S0103: Unsupported escape sequence: \\"y"'),
        ("1 /* and so on", "S0106: Comment has no closing tag"),
        ("'a'/", "S0207: Unexpected end of expression"),
        ("λ($a)<n<n>>{$a}(5)", "S0401: Type parameters can only be applied to functions and arrays"),
        ("λ($a)<(sa<n>)>>{$a}(5)", "S0402: Choice groups containing parameterized types are not supported"),
        ("λ($a)<(s>>{$a}(5)", "S0201: Syntax error"),
        # AWS has JSONata 2.0.6, in which ?? and ?: are a ? and a sign without a value.
        ("1 ?? 2", 'S0211: The symbol "?" cannot be used as a unary operator'),
        ("1 ?: 2", 'S0211: The symbol ":" cannot be used as a unary operator'),
    ],
)
def test_a_syntax_error_of_an_expression_is_refused_with_jsonatas_code(expression: str, error: str) -> None:
    """A syntax error refuses the definition with JSONata's code and words, not with Python's."""
    with pytest.raises(DefinitionError, match=re.escape(f"is not a valid JSONata expression: {error}") + "$"):
        query(("A", {"Type": "Pass", "Output": f"{{% {expression} %}}"}))


def test_a_failed_evaluation_follows_the_event_before_its_state() -> None:
    """The event of a failed expression refers to the last event before the state was entered, in a later state too."""
    states = ("A", {"Type": "Pass", "Next": "B"}), ("B", {"Type": "Pass", "Output": "{% $states.input.missing %}"})
    history = query(*states).execute({}).history
    assert [(event["type"], event["previousEventId"]) for event in history[3:5]] == [
        ("PassStateEntered", 3),
        ("EvaluationFailed", 3),
    ]


def test_a_failed_evaluation_can_be_caught_and_retried() -> None:
    """A Task's Retrier and Catcher take States.QueryEvaluationError of its Arguments; the Catcher's Output sees it."""
    catcher = {"ErrorEquals": ["States.QueryEvaluationError"], "Output": "{% $states.errorOutput.Error %}", "Next": "B"}
    work = {
        "Type": "Task",
        "Resource": INVOKE,
        "Arguments": {"FunctionName": "work", "Payload": {"n": "{% $states.input.n %}"}},
        "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 1}],
    }
    states = ("A", {**work, "Catch": [catcher], "Next": "B"}), ("B", {"Type": "Pass"})
    execution = query(*states).execute(functions={"work": function_raising()})
    assert execution.output == "States.QueryEvaluationError"
    assert event_types(execution).count("EvaluationFailed") == 2
    failed = next(event for event in execution.history if event["type"] == "EvaluationFailed")
    assert failed["evaluationFailedEventDetails"]["location"] == "Arguments/Payload/n"


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ({"Type": "Choice", "Choices": [{"Condition": "{% 1 %}", "Next": "Z"}]},
         "The JSONata expression '1' specified for the field 'Choices[0]/Condition' returned an unexpected result "
         "type. Expected 'boolean', but was 'number' for value: 1"),
        ({"Type": "Wait", "Seconds": "{% 'a' %}", "Next": "Z"},
         "The JSONata expression ''a'' specified for the field 'Seconds' returned an unexpected result "
         "type. Expected 'number', but was 'string' for value: \"a\""),
        ({"Type": "Wait", "Seconds": "{% -1 %}", "Next": "Z"}, "The Seconds field references a negative value: -1"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_refused(state: dict[str, Any], cause: str) -> None:
    """If an expression returns the wrong type, the cause names the expected type, the actual type and the value."""
    execution = query(("A", state), ("Z", {"Type": "Pass"})).execute()
    assert execution.error == "States.QueryEvaluationError"
    assert (execution.cause or "").endswith(cause)


def test_time_out_error_and_cause_may_be_expressions() -> None:
    """TimeoutSeconds of a Task, and Error and Cause of a Fail state, may be JSONata expressions."""

    state = {
        "Type": "Task",
        "Resource": INVOKE,
        "Arguments": {"FunctionName": "work"},
        "TimeoutSeconds": "{% $states.input.limit %}",
        "Catch": [{"ErrorEquals": ["States.Timeout"], "Next": "F"}],
    }
    fail = {"Type": "Fail", "Error": "{% 'Late' & '!' %}", "Cause": "{% $string($states.input.Error) %}"}
    late = query(("A", state), ("F", fail)).execute({"limit": 5}, functions={"work": Behaviour(delay_ms=60_000)})
    assert (late.error, late.cause) == ("Late!", "States.Timeout")
    assert (late.stopped_ms or 0) - late.started_ms == 5000
