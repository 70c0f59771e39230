"""The function as it is deployed stays small, under load and with events up to the greatest bound."""

import json

import pytest

from bench import memory
from bench.memory_parts import FRAMES

pytestmark = pytest.mark.long


@pytest.mark.parametrize("framing", sorted(FRAMES))
def test_a_function_of_128_mb_has_room(framing: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As many events as go over TLS, and large ones up to the bound: all stored in less than 90 MB, in both stores."""
    assert memory.main(["--json", "--framing", framing, "--seconds", "2", "--large", "2"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [row["store"] for row in figures["rows"]][:2] == ["items", "log"]
    assert min(row["events"] for row in figures["rows"]) > 1_000
    assert figures["most_mb"] < figures["goal_mb"] == 90


def test_a_hundred_streams_have_room_in_a_function_of_128_mb(capsys: pytest.CaptureFixture[str]) -> None:
    """Over TLS: calm ones, floods, events of 1 MB, and such of 1 and of 10 MB that do not end, all at once."""
    assert (
        memory.main(["--json", "--streams", "100", "--framing", "ndjson", "--store", "items", "--seconds", "12"]) == 0
    )
    figures = json.loads(capsys.readouterr().out)
    assert len(figures["rows"]) == len(memory.GROUP_KINDS)
    assert figures["most_mb"] < figures["goal_mb"] == 110


def test_what_takes_more_than_the_goal_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status says so, and the last line."""
    monkeypatch.setattr(memory, "GOAL_MB", 10)
    options = ["--framing", "raw", "--store", "items", "--seconds", "0.2", "--large", "1"]
    assert memory.main(options) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("missed  a function: below 10 MB: ")
