"""AWS's verdicts on definitions that it was asked to create or to validate."""

from typing import Any

import pytest

from recorded import by_recording, cases
from states_language.server.diagnostics import diagnostics

CASES = cases("validation.json")
RECORDINGS = by_recording(CASES)
DIAGNOSED = [case for case in CASES if case["expected"].get("diagnostics")]


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_definition_is_accepted_where_aws_accepted_it(recording: str) -> None:
    """The verdict is that on a Standard and on an Express machine."""
    verdicts = {case["id"]: diagnostics(case["definition_text"], case["type"]) == [] for case in RECORDINGS[recording]}
    assert verdicts == {case["id"]: case["expected"]["valid"] for case in RECORDINGS[recording]}


@pytest.mark.parametrize("case", DIAGNOSED, ids=lambda case: case["id"])
def test_a_diagnostic_is_aws_own(case: dict[str, Any]) -> None:
    """Severity, code, place and message are the same."""
    assert diagnostics(case["definition_text"], case["type"]) == case["expected"]["diagnostics"]
