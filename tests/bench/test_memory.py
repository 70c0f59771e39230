"""The function as it is deployed stays small, under load and with events up to the profile's bound."""

import json

import pytest

from bench import memory

pytestmark = pytest.mark.long


@pytest.mark.parametrize("max_frame_bytes", [1024 * 1024, 16 * 1024 * 1024])
def test_a_function_of_128_mb_has_room(max_frame_bytes: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand events a second over TLS, and large ones that go to the bucket: all stored in less than 90 MB."""
    options = ["--seconds", "3", "--large", "2", "--max-frame-bytes", str(max_frame_bytes)]
    assert memory.main(["--json", *options]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["events"] > 2_000
    assert figures["most_mb"] < figures["goal_mb"] == 90
