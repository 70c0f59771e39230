"""A bad definition or invalid JSON is reported with AWS's codes, places and words."""

import json
from typing import Any

import pytest

from endpoint import distributed_map
from states_language.server.diagnostics import diagnostics, refuse_invalid_definition
from states_language.server.json_messages import bytes_outside_texts, message_and_place
from states_language.server.requests import Refusal
from states_language.values import parse_external_json

SCHEMA = "SCHEMA_VALIDATION_FAILED"
TARGET = "MISSING_TRANSITION_TARGET"
PASS = {"Type": "Pass", "End": True}
ONLY = "The QueryLanguage is set to '{}', but field '{}' is only supported for the '{}' QueryLanguage"
LANGUAGES = "Value should be one of the following: [JSONPath, JSONata]"


def one_state(state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"StartAt": "X", "States": {"X": state}, **fields}


def map_over(state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return one_state({"Type": "Map", "ItemProcessor": {"StartAt": "P", "States": {"P": state}}, "End": True, **fields})


def branch(line: dict[str, Any]) -> dict[str, Any]:
    return one_state({"Type": "Parallel", "Branches": [line], "End": True})


NO_END = ("MISSING_END_STATE", "Workflow has no terminal state", None)
Reports = list[tuple[str, str, str | None]]
CASES: list[tuple[dict[str, Any], Reports]] = [
    ({"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}, "B": {"Type": "Pass", "Next": "A"}}}, [NO_END]),
    (one_state({"Type": "Pass", "Next": "NOPE"}), [(TARGET, "Missing 'Next' target: NOPE", "/States/X/Next"), NO_END]),
    ({"StartAt": "A", "States": {"A": PASS, "a/b": PASS}}, [(TARGET, 'State "a/b" is not reachable.', "/States/a/b")]),
    (branch({"StartAt": "W", "States": {"W": PASS, "Ghost": PASS}}),
     [(TARGET, 'State "Ghost" is not reachable.', "/States/X/Branches[0]/States/Ghost")]),
    (map_over({"Type": "Pass", "Next": "P"}), []),
    (branch({"StartAt": "X", "States": {"X": PASS}}),
     [("DUPLICATE_STATE_NAME", "Duplicate State name: X", "/States/X/Branches[0]/States/X")]),
    (one_state({**PASS, "TimeoutSeconds": 5}), [(SCHEMA, "Field 'TimeoutSeconds' is not supported", "/States/X")]),
    (branch({"QueryLanguage": "JSONata", "StartAt": "P", "States": {"P": PASS}}),
     [(SCHEMA, "Field 'QueryLanguage' is not supported", "/States/X/Branches[0]")]),
    (map_over({**PASS, "Output": {"v": "{% 1 %}"}}, QueryLanguage="JSONata"),
     [(SCHEMA, ONLY.format("JSONPath", "Output", "JSONata"), "/States/X/ItemProcessor/States/P")]),
    (one_state({**PASS, "InputPath": "$.a"}, QueryLanguage="JSONata"),
     [(SCHEMA, ONLY.format("JSONata", "InputPath", "JSONPath"), "/States/X")]),
    (one_state({"Type": "Wait", "Seconds": -1, "End": True}), [(SCHEMA, "Minimum value is 0", "/States/X/Seconds")]),
    (one_state(PASS, QueryLanguage="jsonata"), [(SCHEMA, LANGUAGES, "/QueryLanguage")]),
    (one_state(PASS, QueryLanguage=5), [(SCHEMA, "Expected value of type [STRING]", "/QueryLanguage")]),
]  # fmt: skip
QUERIES = [
    ("phone", "UNSUPPORTED", "Reference to 'phone' at the top level is not supported."),
    ("$$", "UNSUPPORTED", "Reference to '$$' is not supported."),
    ("$states.errorOutput", "UNSUPPORTED", "Field '$states.errorOutput' does not exist."),
    ("1 +", "INVALID", "Unexpected end of expression"),
    ("", "INVALID", "Unexpected end of expression"),
    ("a[1,2)", "INVALID", 'Expected "]", got ","'),
]
for text, kind, words in QUERIES:
    query = one_state({**PASS, "Output": {"a": ["b", f"{{% {text} %}}"]}}, QueryLanguage="JSONata")
    CASES.append((query, [(f"{kind}_JSONATA_EXPRESSION", words, "/States/X/Output/a[1]")]))


@pytest.mark.parametrize(("definition", "expected"), CASES)
def test_a_problem_has_awss_code_words_and_place(definition: dict[str, Any], expected: Reports) -> None:
    """A problem has AWS's code, words and place, as others measured them."""
    reports = diagnostics(json.dumps(definition), "STANDARD")
    assert [(each["code"], each["message"], each.get("location")) for each in reports] == expected


def test_a_refusal_names_every_problem() -> None:
    """A refusal lists every problem with its place, or null where it has none."""
    with pytest.raises(Refusal) as refusal:
        refuse_invalid_definition(json.dumps(CASES[1][0]), "STANDARD")
    assert str(refusal.value) == (
        "Invalid State Machine Definition: 'MISSING_TRANSITION_TARGET: Missing 'Next' target: NOPE at /States/X/Next, "
        "MISSING_END_STATE: Workflow has no terminal state at null'"
    )


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("not a", "Unrecognized token 'not': was expecting (JSON String, Number, Array, Object or token 'null', "
                  "'true' or 'false')", 4),
        ("a" * 300, f"Unrecognized token '{'a' * 256}...': was expecting (JSON String, Number, Array, Object or token "
                    "'null', 'true' or 'false')", 301),
        ("{", 'Unexpected end-of-input: expected close marker for Object (start marker at [Source: (String)"{"; '
              "line: 1, column: 1])", 2),
        ('["a', "Unexpected end-of-input: was expecting closing quote for a string value", 4),
        ("{a: 1}", "Unexpected character ('a' (code 97)): was expecting double-quote to start field name", 3),
        ("{1: 1}", "Unexpected character ('1' (code 49)): was expecting double-quote to start field name", 3),
        ('{"a" 1}', "Unexpected character ('1' (code 49)): was expecting a colon to separate field name and value", 7),
        ('{"a": 1 2}', "Unexpected character ('2' (code 50)): was expecting comma to separate Object entries", 10),
        ("[1 2]", "Unexpected character ('2' (code 50)): was expecting comma to separate Array entries", 5),
        ('["\\x"]', "Unrecognized character escape 'x' (code 120)", 5),
        ("[}", "Unexpected character ('}' (code 125)): expected a valid value", 3),
        ("[NaN]", "Non-standard token 'NaN': enable JsonParser.Feature.ALLOW_NON_NUMERIC_NUMBERS to allow", 5),
    ],
)  # fmt: skip
def test_bad_json_has_jacksons_message(text: str, message: str, column: int) -> None:
    """Jackson's message names the unexpected token or character, and the place after it."""
    with pytest.raises(ValueError) as problem:  # noqa: PT011
        parse_external_json(text)
    worded, place = message_and_place(text, problem.value)
    assert worded.startswith(message)
    assert worded.endswith(f"\n at {place}")
    assert place == f'[Source: (String)"{text}"; line: 1, column: {column}]'


def test_outside_texts_counts_each_string_as_one_character() -> None:
    """A string counts as one. An escaped quote ends no string, and an open string takes the rest."""
    texts = (rb'["\\", "\"]"]', rb'[1, "\\\"', b'""' * 99, b"[" * 99)
    assert [bytes_outside_texts(text, 9) for text in texts] == [6, 5, 10, 99]


def test_a_member_that_appears_twice_is_refused() -> None:
    """A repeated member is refused, because one of the two would be lost."""
    reports = diagnostics('{"StartAt": "A",\n "States": {"A": {"Type": "Succeed"}, "A": {"Type": "Fail"}}}', "STANDARD")
    assert [(one["code"], one["message"].partition("\n")[0]) for one in reports] == [
        ("INVALID_JSON_DESCRIPTION", "Duplicate field 'A'")
    ]
    assert reports[0]["location"].endswith("line: 2, column: 42]")


def test_an_express_machine_has_no_distributed_map() -> None:
    """A Map in DISTRIBUTED mode is refused at its Mode, and accepted in a Standard machine."""
    definition = json.dumps(one_state(distributed_map("EXPRESS", B=PASS)))
    (refused,) = diagnostics(definition, "EXPRESS")
    assert refused["message"] == "Express state machine does not support Distributed Map"
    assert refused["location"] == "/States/X/ItemProcessor/ProcessorConfig/Mode"
    assert diagnostics(definition, "STANDARD") == []
