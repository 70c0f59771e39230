"""`profile try --repair`: what the stream brings is compared with what the address has, under the same keys."""

import os
from pathlib import Path

import pytest

from local.cli import main
from tests.real.upstream import serving

PROFILE = """
address = "{origin}/demo-trades:a?interval_ms=100"
allow_private = true
framing = "ndjson"
key = "{key}"
[repair]
address = "{origin}/rest/demo-trades?after={{after}}&before={{before}}"
items = "$.trades"
key = "$.id"
after_s = 4
"""


@pytest.mark.cpu(4)
@pytest.mark.parametrize(("key", "status"), [("$.id", 0), ("$.at_ms", 1)])
def test_both_sides_of_an_overlap_are_compared(
    key: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the keys agree it says so and exits with 0; where an item has another key than the event, with 1."""
    with serving() as (_, port):
        file = tmp_path / "trades.toml"
        file.write_text(PROFILE.format(origin=f"http://127.0.0.1:{port}", key=key))
        environment = dict(os.environ)
        assert main(["profile", "try", str(file), "--seconds", "2", "--repair"]) == status
        assert dict(os.environ) == environment
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("repair: ")]
    if status == 0:
        assert len(said) == 2
        assert said[0].startswith("repair: the address has ")
        assert said[1] == "repair: the address leaves out the events at the ends of the request"
        found, _, wanted = said[0].removeprefix("repair: the address has ").partition(" of ")
        assert found == wanted.split()[0]
    else:
        assert said
