"""The benchmark of ingestion runs whole: each kind stores all events, and the report follows from what they used."""

import json

import pytest

from bench import ingest

pytestmark = pytest.mark.long


def test_it_runs_and_reports_what_each_kind_used(capsys: pytest.CaptureFixture[str]) -> None:
    """One run of each at a small size; a kind that has not stored every event fails it."""
    assert ingest.main(["--json", "--events", "2000", "--times", "1", "--event-bytes", "200"]) == 0
    printed = json.loads(capsys.readouterr().out)
    (row,) = printed["rows"]
    assert printed["goal"]["log_share"] < printed["goal"]["below"] == 0.5
    assert row["event_bytes"] == 200
    assert row["ratio"] == round(row["peer_us"] / row["ours_us"], 1)
    assert row["floors"] == round(row["ours_us"] / row["floor_us"], 2)
    assert row["log_share"] == round(row["log_us"] / row["ours_us"], 2)
    assert min(row["floor_us"], row["ours_us"], row["log_us"], row["peer_us"], row["max_rss_mb"]) > 0
    assert row["unordered_us"] > 0
    assert set(row["events_per_s"]) == {"floor", "ours", "unordered", "log", "peer"}
