"""A function of 128 MB survives an upstream that sends faster than DynamoDB writes, and loses nothing."""

import json

import pytest

from bench import backlog

pytestmark = pytest.mark.long

EVENTS, EVENT_BYTES = 6_000, 3_000


def test_a_slow_store_costs_no_memory_and_no_event(capsys: pytest.CaptureFixture[str]) -> None:
    """18 MB behind an endpoint that throttles: all stored, and the process is hardly larger than without a backlog."""
    options = ["--events", str(EVENTS), "--event-bytes", str(EVENT_BYTES), "--items-per-s", "4000"]
    assert backlog.main(["--json", *options]) == 0
    figures = json.loads(capsys.readouterr().out)
    fast, slow = figures["fast"], figures["slow"]
    assert (figures["sent_mb"], fast["events"], slow["events"]) == (18.0, EVENTS, EVENTS)
    assert slow["max_rss_mb"] < figures["goal_mb"] == 128
    # The queue holds a megabyte, a read and a batch one more in all; without a bound it would be 18.
    assert slow["max_rss_mb"] < fast["max_rss_mb"] + 8
