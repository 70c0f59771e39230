"""Compares an answer with a recorded one, in which every value that differs between runs is masked."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from states_language.values import compact

DATA = Path(__file__).resolve().parent.parent / "tests" / "conformance" / "data"

MASKS = frozenset(
    [
        *("timestamp", "date", "datetime", "time", "start-date", "start-time", "entered-time", "RequestId", "uuid"),
        *("x-amzn-RequestId", "X-Amzn-Trace-Id", "x-amz-crc32", "RandomNumberGenerated", "map_run_arn"),
    ]
)
"""Texts that stand for any value."""

NOT_COMPARED = frozenset({"SdkHttpMetadata", "SdkResponseMetadata", "LogResult"})
"""Headers of the Lambda API, which say nothing about the language."""

# Recorded before the Context Object had it; the newer recording test_input_path[$$] has it.
ONLY_NEWER = frozenset({"RedriveCount"})

_MASKED_PART = re.compile(r"<[A-Za-z][A-Za-z_0-9:-]*>")


def load_cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of a data file."""
    cases: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))["cases"]
    return cases


def group_by_recording(cases: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the cases by the test file that recorded them: 900 separate tests would take longer than the cases."""
    recordings: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        recordings.setdefault(case["id"].partition("::")[0], []).append(case)
    return recordings


def is_equal(expected: Any, actual: Any) -> bool:
    """Return whether the answer equals the recorded one; JSON texts are compared as values."""
    return _is_equal(_parse(expected), _parse(actual))


def _parse(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return _parse(json.loads(value))
        except ValueError:
            return value
    if isinstance(value, dict):
        return {key: _parse(member) for key, member in value.items() if key not in NOT_COMPARED}
    if isinstance(value, list):
        return [_parse(element) for element in value]
    return value


def _is_equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, str):
        if expected in MASKS or _MASKED_PART.fullmatch(expected):
            return True
        if not isinstance(actual, str):  # the mask stands in for a quoted text, so the recorded one is no JSON any more
            actual = compact(actual)
        parts = (re.escape(part) for part in _MASKED_PART.split(expected))
        return re.fullmatch(".*".join(parts), actual, re.DOTALL) is not None
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return False
        missing = expected.keys() ^ actual.keys()
        return missing <= ONLY_NEWER and all(_is_equal(expected[key], actual[key]) for key in expected)
    if isinstance(expected, list):
        return isinstance(actual, list) and len(expected) == len(actual) and all(map(_is_equal, expected, actual))
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return bool(expected == actual)
