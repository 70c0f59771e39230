"""Every problem of a definition is listed once, with a hint; consequences of another problem are left out."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from language.test_definition import REFUSED
from states_language import DefinitionError, load
from states_language.definition.hints import hint
from states_language.definition.pointers import keys, value_at
from states_language.definition.problems import problems

PASS = {"Type": "Pass", "End": True}
BROKEN: dict[str, Any] = {
    "StartAt": "A",
    "Surprise": 1,
    "States": {
        "A": {"Type": "Task", "InputPath": "x", "ResultPath": "$.a[*]", "Inputpath": "$", "Next": "Choose it"},
        "Choose it": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.x", "NumericEquals": "a", "Next": "C"},
                {"Variable": "y", "Next": "Chose it"},
                {"Variable": "$.z", "IsNull": True},
            ],
            "Default": "D",
        },
        "C": {"Type": "Wait", "Seconds": 1, "SecondsPath": "$.x", "Next": 5},
        "D": {"Type": "Parallel", "Branches": [{"StartAt": "X", "States": {"Y": {"Type": "Pass"}}}, 3],
              "Retry": [{"ErrorEquals": [], "MaxAttempts": -1, "IntervalSeconds": "x"}], "Catch": [{"Next": "E"}]},
        "E": {"Type": "Fail", "Error": 1},
        "F": {"Type": "pass", "Next": "A"},
        "G": [],
    },
}  # fmt: skip
LISTED = [
    ("/Surprise", "is not a field of a state machine"),
    ("/States/A/InputPath", "'x' is not a valid JSONPath: a path begins with $"),
    ("/States/A/ResultPath", "'$.a[*]' is not a Reference Path: it must name a single node"),
    ("/States/A", "these fields are required: Resource"),
    ("/States/A/Inputpath", "is not a field of a Task state"),
    ("/States/Choose it/Choices/0/NumericEquals", "has a value of the wrong type"),
    ("/States/Choose it/Choices/1/Variable", "'y' is not a valid JSONPath: a path begins with $"),
    ("/States/Choose it/Choices/1", "exactly one operator is required, not 0"),
    ("/States/Choose it/Choices/2", "these fields are required: Next"),
    ("/States/C/Next", "must be a string"),
    ("/States/C", "only one of these fields may be present: Seconds, SecondsPath"),
    ("/States/D", "exactly one of Next and End: true is required"),
    ("/States/D/Retry/0/ErrorEquals", "must hold at least one Error Name"),
    ("/States/D/Retry/0/IntervalSeconds", "must be a whole number"),
    ("/States/D/Retry/0/MaxAttempts", "must be between 0 and 99999999"),
    ("/States/D/Catch/0", "these fields are required: ErrorEquals"),
    ("/States/D/Branches/0/States/Y", "exactly one of Next and End: true is required"),
    ("/States/D/Branches/0/StartAt", "there is no state 'X'"),
    ("/States/D/Branches/1", "must be a JSON object"),
    ("/States/E/Error", "must be a string"),
    ("/States/F/Type", "'pass' is not one of"),
    ("/States/G", "must be a JSON object"),
    ("/States/Choose it/Choices/1/Next", "there is no state 'Chose it'"),
]


def list_problems(definition: Any) -> list[tuple[str, str]]:
    return [(problem.pointer, problem.rule) for problem in problems(definition)]


def test_every_problem_is_listed_at_once() -> None:
    """Twenty-three mistakes give twenty-three problems. A state without a Next causes no further problem."""
    rules = list_problems(BROKEN)
    assert [pointer for pointer, _ in rules] == [pointer for pointer, _ in LISTED]
    assert [rule.startswith(start) for (_, rule), (_, start) in zip(rules, LISTED, strict=True)] == [True] * len(LISTED)


def test_the_only_problem_of_a_refused_definition_is_the_loaders() -> None:
    """A definition with one mistake has one problem, which is the error that `load` raises."""
    refused = [case for case in REFUSED if isinstance(case[0], dict)]
    assert [list_problems(definition) for definition, *_ in refused] == [
        [(pointer, rule)] for _, pointer, rule in refused
    ]


@pytest.mark.parametrize("definition", [None, [], 5])
def test_a_definition_that_is_not_an_object_has_one_problem(definition: Any) -> None:
    """The problem says that it must be a JSON object; nothing is raised."""
    assert list_problems(definition) == [("/", "must be a JSON object")]


BRANCH = {"StartAt": "B", "States": {"B": {"Type": "Pass", "Next": "C"}, "C": PASS}}
LOST: dict[str, Any] = {"B": {"Type": "Pass", "Next": "C"}, "C": {"Type": "Pass", "Next": "B"}}


@pytest.mark.parametrize(
    ("states", "pointers"),
    [
        # Two states that nobody reaches and that only lead to each other, and neither is a missing target.
        ({"A": PASS, **LOST}, ["/States/B", "/States/C"]),
        # A typing mistake: the intended state is not listed as unreachable.
        ({"A": {"Type": "Pass", "Next": "Bb"}, "B": PASS}, ["/States/A/Next"]),
        # A wrong type hides no wrong Next.
        ({"A": {"Type": "Pas", "Next": "B"}}, ["/States/A/Type", "/States/A/Next"]),
        # Three branches with the names of two states.
        ({"A": {"Type": "Parallel", "Branches": [BRANCH] * 3, "End": True}},
         [f"/States/A/Branches/{number}/States/{name}" for number in (1, 2) for name in "BC"]),
    ],
)  # fmt: skip
def test_a_mistake_is_listed_without_its_consequences(states: dict[str, Any], pointers: list[str]) -> None:
    """A mistake is one problem; what follows from it is none."""
    assert sorted(pointer for pointer, _ in list_problems({"StartAt": "A", "States": states})) == sorted(pointers)


@pytest.mark.parametrize(
    ("pointer", "advice"),
    [
        ("/States/A/Inputpath", "Did you mean InputPath?"),
        ("/States/Choose it/Choices/1/Next", "Did you mean 'Choose it'?"),
        ("/States/F/Type", "Did you mean Pass?"),
        ("/States/A", "Add Resource: arn:aws:states:::lambda:invoke."),
        ("/States/D/Branches/0/StartAt", "The states beside it: Y."),
        ("/States/G", "Write name: value pairs, in JSON within braces."),
    ],
)
def test_a_hint_names_a_similar_name_or_shows_the_missing_field(pointer: str, advice: str) -> None:
    """A hint suggests a similar name, or shows a missing field with a value."""
    assert [hint(BROKEN, problem) for problem in problems(BROKEN) if problem.pointer == pointer] == [advice]


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ({"Type": "Succeed", "Next": "A"}, "Remove it: a Succeed state ends its line."),
        ({"Type": "Fail", "End": True}, "Remove it: a Fail state ends the execution."),
        ({"Type": "Choice", "Choices": []}, "Write a list with at least one element."),
        ({"Type": "Parallel", "Branches": [], "End": True}, "Write a list with at least one element."),
        ({"Type": "Pass", "Output": 1, "End": True},
         "Remove it, or say QueryLanguage: JSONata. ResultPath is what JSONPath has for it."),
        ({"Type": "Wait", "Seconds": 1, "QueryLanguage": "JSONata", "InputPath": "$", "End": True},
         "Remove it, or say QueryLanguage: JSONPath."),
        ({"Type": "Pass", "Assign": {"1a": 1}, "End": True}, "Choose a name such as count or last_seen."),
        ({"Type": "Wait", "Seconds": "${Rest}", "End": True},
         "Give each ${Name} a value: load's substitutions={...}, the command's --substitute NAME=VALUE."),
    ],
)  # fmt: skip
def test_a_hint_suggests_no_superfluous_field_and_no_absent_number(state: dict[str, Any], advice: str) -> None:
    """A hint never suggests the superfluous field itself, and names no number if the rule has none."""
    definition = {"StartAt": "A", "States": {"A": state}}
    (problem,) = problems(definition)
    assert hint(definition, problem) == advice


@pytest.mark.parametrize(
    ("definition", "advice"),
    [
        ({"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "A"}}},
         "Give one of its states End: true, or lead to a Succeed or a Fail."),
        (
            {"StartAt": "A", "States": {"A": {"Type": "Parallel", "Branches": [{"StartAt": "A", "States": {"A": PASS}}],
                                              "End": True}}},
            "Give one of the two another name: a name may occur only once in the whole machine.",
        ),
        ({"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": {**PASS, "Output": "{% phone %}"}}},
         "Write $states.input.name for the input, $name for a variable."),
        ({"StartAt": "A", "States": {"A": {"Type": "Task", "Resource": "${Fn}", "End": True}}},
         "A placeholder is filled in at deployment: check the definition that it makes."),
    ],
)  # fmt: skip
def test_a_hint_for_a_problem_of_the_whole_machine(definition: dict[str, Any], advice: str) -> None:
    """A rule about the whole machine gives one problem, with one sentence that says what to do."""
    (problem,) = problems(definition, deployed=True)
    assert hint(definition, problem) == advice


def test_a_next_to_a_state_of_another_branch_has_a_hint() -> None:
    """The hint says why a state's name that exists elsewhere in the definition is not valid here."""
    inner = {"StartAt": "Far away", "States": {"Far away": PASS}}
    states = {"A": {"Type": "Parallel", "Branches": [inner], "Next": "Far away"}}
    definition = {"StartAt": "A", "States": states}
    (problem,) = problems(definition)
    expected = "'Far away' is in another branch or Map; a state can lead only to states of its own `States`."
    assert hint(definition, problem) == expected


def all_places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [one for key, member in members for one in all_places(member, (*path, key))]


GOOD: dict[str, Any] = {
    "StartAt": "Begin",
    "States": {
        "Begin": {"Type": "Pass", "Parameters": {"a.$": "$.b", "c": [1]}, "Next": "Both"},
        "Both": {"Type": "Parallel",
                 "Branches": [{"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 1, "End": True}}}],
                 "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 1}],
                 "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.e", "Next": "Look"}], "Next": "Look"},
        "Look": {
            "Type": "Choice",
            "Choices": [{"And": [{"Variable": "$.a", "IsNull": True}, {"Not": {"Variable": "$", "IsNull": True}}],
                         "Next": "Begin"}],
            "Default": "Over",
        },
        "Over": {"Type": "Fail", "ErrorPath": "$.e"},
    },
}  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(all_places(GOOD)), st.sampled_from([None, 1, "x", "$", {}, [], True]))))
def test_the_problems_of_any_damage_begin_with_the_loaders(damage: list[tuple[tuple[Any, ...], Any]]) -> None:
    """However a definition is damaged, the list begins with the error of `load` and has no problem twice."""
    definition = copy.deepcopy(GOOD)
    for path, value in damage:
        owner = value_at(definition, path[:-1])
        key = path[-1]
        at_home = isinstance(key, int) and key < len(owner) if isinstance(owner, list) else isinstance(key, str)
        if isinstance(owner, dict | list) and at_home:
            owner[key] = copy.deepcopy(value)
    before = copy.deepcopy(definition)
    rules = list_problems(definition)
    assert definition == before
    assert len(rules) == len(set(rules))
    assert rules[:1] == first_problem(definition)
    assert all(hint(definition, DefinitionError(*rule)) for rule in rules)


def first_problem(definition: dict[str, Any]) -> list[tuple[str, str]]:
    try:
        load(definition)
    except DefinitionError as problem:
        return [(problem.pointer, problem.rule)]
    return []


def test_keys_decodes_the_two_escapes_of_a_json_pointer() -> None:
    """`keys` splits a JSON pointer and decodes the two escapes of RFC 6901."""
    assert keys("/States/a~1b~0c/Next") == ("States", "a/b~c", "Next")
    assert keys("/") == ()
