"""AWS's verdicts on definitions that it was asked to create or validate."""

from typing import Any

import pytest

from recorded import group_by_recording, load_cases
from states_language.server.diagnostics import diagnostics

CASES = load_cases("validation.json")
RECORDINGS = group_by_recording(CASES)
DIAGNOSED = [case for case in CASES if case["expected"].get("diagnostics")]


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_definition_is_accepted_where_aws_accepted_it(recording: str) -> None:
    """A definition is accepted if AWS accepted it, for Standard and for Express machines."""
    verdicts = {case["id"]: diagnostics(case["definition_text"], case["type"]) == [] for case in RECORDINGS[recording]}
    assert verdicts == {case["id"]: case["expected"]["valid"] for case in RECORDINGS[recording]}


@pytest.mark.parametrize("case", DIAGNOSED, ids=lambda case: case["id"])
def test_a_diagnostic_equals_that_of_aws(case: dict[str, Any]) -> None:
    """A diagnostic has AWS's severity, code, place and message."""
    assert diagnostics(case["definition_text"], case["type"]) == case["expected"]["diagnostics"]
