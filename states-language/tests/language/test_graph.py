"""Flowcharts of machines."""

from typing import Any

import pytest

from states_language.drawing.boxes import targets, words
from states_language.drawing.mermaid import flowchart

MACHINE: dict[str, Any] = {
    "StartAt": "Look",
    "States": {
        "Look": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.n", "NumericGreaterThanEquals": "${self:custom.settings.most}", "Next": "Rest"}
            ],
            "Default": "Both",
        },
        "Rest": {"Type": "Wait", "Seconds": 3, "Next": "Look"},
        "Both": {
            "Type": "Parallel",
            "Branches": [{"StartAt": "One", "States": {"One": {"Type": "Pass", "End": True}}}],
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Over"}],
            "Next": "Over",
        },
        "Over": {"Type": "Succeed"},
    },
}
PICTURE = """flowchart TD
  start(( ))
  s0{"Look"}
  s1(["Rest<br/>3"])
  s2[["Both"]]
  s3(("Over"))
  start --> s0
  s0 -->|"$.n ≥ most"| s1
  s0 -->|"otherwise"| s2
  s1 --> s0
  s2 -->|"any error"| s3
  s2 --> s3"""


def test_each_way_out_of_a_state_is_an_arrow() -> None:
    """Rules, Default, Catchers and Next are drawn in the order in which they are tried."""
    assert flowchart(MACHINE) == PICTURE


def test_too_large_a_result_is_any_error() -> None:
    """States.ALL does not match it, so Catchers name both; if they lead to one state that is one arrow."""
    both = [{"ErrorEquals": [name], "Next": "Over"} for name in ("States.DataLimitExceeded", "States.ALL")]
    assert list(targets({"Catch": both})) == [("Over", "any error")]
    apart = [both[0] | {"Next": "Large"}, both[1]]
    assert list(targets({"Catch": apart})) == [("Large", "States.DataLimitExceeded"), ("Over", "any other error")]


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        ({"Variable": "$.a", "StringEquals": "b"}, "$.a = b"),
        ({"Variable": "$.a", "IsPresent": False}, "$.a is absent"),
        ({"Variable": "$.a", "StringMatches": "b*"}, "$.a matches b*"),
        ({"Variable": "$.a", "IsNumeric": False}, "$.a is not numeric"),
        ({"Variable": "$.a", "NumericLessThanPath": "$.b"}, "$.a < $.b"),
        ({"Not": {"Variable": "$.a", "BooleanEquals": True}}, "not $.a = true"),
        (
            {"Or": [{"Variable": "$.a", "IsPresent": True}, {"Variable": "$.b", "IsNull": True}]},
            "$.a is there or $.b is null",
        ),
    ],
)
def test_rules_in_words(rule: dict[str, Any], label: str) -> None:
    """Every form of rule can be read at its arrow."""
    assert words(rule) == label
