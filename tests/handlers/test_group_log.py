"""A handover of many streams writes one line and one document for each profile, with the sums of the connections."""

import json
from typing import Any

import pytest

from handlers.connection.effects import Outcome, Progress
from handlers.connection.failures import STUCK_AFTER
from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.connection_metrics import document
from handlers.run.group_invocation import GroupLog
from local.costs import stage_costs

WHO = Invocation("#1", "A", "arn", "r1", 900_000, 20_000, 2_000, 5_000, 0)


def profile(name: str) -> Profile:
    """Return a profile with that name."""
    return parse(name, {"address": "https://upstream.invalid/{streamId}", "framing": "sse"}, {})


def report(error: str = "StreamTakenOver", connect_ms: int = 7, same_ends: int = 0, **counts: Any) -> Report:
    """Return how a connection ended."""
    return Report(Outcome(error, "", ""), Progress(1, 0, **counts), connect_ms, same_ends=same_ends)


def test_connections_that_were_taken_over_are_summed_up_by_profile() -> None:
    """Connections that were taken over are only summed up by profile: counts are added, the longest times kept."""
    log = GroupLog(lambda *_: pytest.fail("written at once"))
    for number in range(100):
        ended = report(connect_ms=number, stored=3, duplicates=1)
        log.report(profile("b" if number % 4 else "a"), WHO, ended, 100 - number)
    assert dict(log.sums()) == {
        "a": {"Stored": 75, "Duplicates": 25, "DeadLettered": 0, "BlockedMs": 100, "ConnectMs": 96, "TakenOver": 25},
        "b": {"Stored": 225, "Duplicates": 75, "DeadLettered": 0, "BlockedMs": 99, "ConnectMs": 99, "TakenOver": 75},
    }


@pytest.mark.parametrize(
    "ended",
    [
        report("StreamDropped"),
        report("ConnectionExpired"),
        report(conflicts=1),
        report(dead_lettered=1),
        report(same_ends=STUCK_AFTER),
    ],
)
def test_a_connection_with_a_problem_is_logged_at_once(ended: Report) -> None:
    """A connection that failed or lost data is logged at once, and does not count in the sum."""
    written: list[tuple[str, str, Report, int]] = []
    log = GroupLog(lambda *one: written.append((one[0].name, one[1].stream_id, one[2], one[3])))
    log.report(profile("a"), WHO, ended, 5)
    assert written == [("a", "#1", ended, 5)]
    assert dict(log.sums()) == {}


def test_a_function_of_many_streams_logs_no_more_than_one_of_one() -> None:
    """A group's document has the names of one stream's, with larger numbers, so `streamkeeper cost` covers it."""
    log = GroupLog(lambda *_: None)
    for _ in range(500):
        log.report(profile("a"), WHO, report(connect_ms=60_000, stored=10**6, duplicates=10**5), 10**5)
    ((name, sums),) = log.sums()
    found = document(sums, "StreamTakenOver", profile=name, service="s", namespace="n", by="stage", now_ms=10**12)
    assert "group" not in found
    said = document(
        sums, "StreamTakenOver", profile=name, service="s", namespace="n", by="stage", now_ms=10**12, group="#123"
    )
    assert said == found | {"group": "#123"}
    found = said
    assert len(json.dumps(found)) < stage_costs.measurements()["log_bytes_per_connection"] / 5
