"""What AWS said of definitions that it was asked to create or to validate."""

from typing import Any

import pytest

from local.stepfunctions.diagnostics import diagnostics
from tests.conformance.asl.recorded import cases

CASES = cases("validation.json")
DIAGNOSED = [case for case in CASES if case["expected"].get("diagnostics")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_definition_is_accepted_where_aws_accepted_it(case: dict[str, Any]) -> None:
    """The verdict on a Standard and on an Express machine."""
    assert (diagnostics(case["definition_text"], case["type"]) == []) is case["expected"]["valid"]


@pytest.mark.parametrize("case", DIAGNOSED, ids=lambda case: case["id"])
def test_a_diagnostic_is_aws_own(case: dict[str, Any]) -> None:
    """Severity, code, place and message."""
    assert diagnostics(case["definition_text"], case["type"]) == case["expected"]["diagnostics"]
