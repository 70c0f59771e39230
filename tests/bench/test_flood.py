"""What one stream of a group does costs the others nothing that counts, as bench.flood measures it."""

import json

import pytest

from bench import flood

pytestmark = pytest.mark.long


def test_others_are_stored_beside_each_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """99 calm streams beside one that floods, sends 10 MB events, drips, stalls, lies, ends or refuses: a second, p99.

    The one that floods stores its events meanwhile, and so does the one with large events: nobody is starved.
    """
    status = flood.main(["--json", "--seconds", "6"])
    figures = json.loads(capsys.readouterr().out)
    assert status == 0, figures["goals"]
    rows = {row["fault"]: row for row in figures["rows"]}
    assert [*rows] == ["none", *flood.FAULTS]
    assert rows["flood"]["stored"] > 1_000
    assert rows["large"]["stored"] >= 1
