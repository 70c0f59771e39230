"""The watch holds 100,000 streams within the memory and the time of the deployed function."""

import json

import pytest

from bench import watch
from handlers.store.control_table import KEYS
from handlers.watching.lease_rounds import AT_ONCE

pytestmark = pytest.mark.long


def test_a_hundred_thousand_streams(capsys: pytest.CaptureFixture[str]) -> None:
    """By the requests and the read units of one look: half a unit for a held stream, next to nothing for another."""
    watch.main(["--json", "--streams", "2000", "--held", "500", "--sample", "200"])
    figures = json.loads(capsys.readouterr().out)
    look, page, plain = figures["look"], figures["page"], figures["plain"]
    assert look["requests"] == figures["away"]["requests"] == {"query": 1, "batch_get_item": 5}
    assert 250 < look["read_units"] < 250 + 2000 / 40
    # The leases in one request, the newest connections of twenty streams in each of five.
    assert page["requests"] == {"query": 101, "batch_get_item": 6}
    assert (plain["requests"], plain["read_units"]) == ({"get_item": 200}, 200.0)
    assert (figures["timeout_s"], figures["look_s"], figures["memory_mb"]) == (55, 30, 1024)
    # Half a minute is enough for the requests alone, whatever processor there is.
    assert figures["look_s"] * 1000 > 100_000 / KEYS / AT_ONCE * watch.BATCH_MS
