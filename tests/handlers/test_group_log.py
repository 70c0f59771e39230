"""The metrics document of a connection, and the one line and sums of each profile after a handover of many streams."""

import json
from typing import Any

import pytest

from handlers.connection.effects import Outcome, Progress
from handlers.connection.failures import STUCK_AFTER
from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.connection_metrics import ENDS, By, document, numbers
from handlers.run.group_invocation import GroupLog
from local.costs import stage_costs


def described(by: By, *, error: str = "StreamTakenOver", connect_ms: int | None = 7, **counts: Any) -> dict[str, Any]:
    """Return the document of a connection that ended by `error`."""
    report = Report(Outcome(error, "", ""), Progress(1, 0, **counts), connect_ms)
    return document(
        numbers(report, 3), error or "", profile="prices", service="sk", namespace="sk-prod", by=by, now_ms=5
    )


def metrics(found: dict[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Return the dimensions and the names of the metrics in a document."""
    (directive,) = found["_aws"]["CloudWatchMetrics"]
    assert (found["_aws"]["Timestamp"], directive["Namespace"]) == (5, "sk-prod")
    return directive["Dimensions"], [metric["Name"] for metric in directive["Metrics"]]


def test_a_stage_has_few_metrics_and_no_profile_in_them() -> None:
    """Events and failures are metrics. Zeros and usual values are only fields, so a quiet hour is not billed."""
    found = described("stage", stored=8, duplicates=2)
    assert metrics(found) == ([["service"]], ["Stored"])
    assert (found["profile"], found["Duplicates"], found["TakenOver"], found["ConnectMs"]) == ("prices", 2, 1, 7)
    assert "_aws" not in described("stage", duplicates=2)
    troubled = described("stage", error="StreamDropped", dead_lettered=1, conflicts=1, missing=2)
    assert metrics(troubled) == ([["service"]], ["DeadLettered", "Conflicts", "Missing", "Dropped"])


def test_metrics_by_profile_contain_every_number() -> None:
    """With metrics by profile, every number is a metric of the one document, zeros included, each with its unit."""
    found = described("profile", stored=8)
    names = ["Stored", "Duplicates", "DeadLettered", "BlockedMs", "ConnectMs", "TakenOver"]
    assert metrics(found) == ([["profile", "service"]], names)
    units = {each["Name"]: each["Unit"] for each in found["_aws"]["CloudWatchMetrics"][0]["Metrics"]}
    assert {name for name, unit in units.items() if unit == "Milliseconds"} == {"BlockedMs", "ConnectMs"}
    assert metrics(described("profile", connect_ms=None, error=""))[1] == names[:4]


@pytest.mark.parametrize("error", ENDS)
def test_each_end_is_counted(error: str) -> None:
    """Each way a connection ends has a metric of its own, and `outcome` names the error."""
    assert (described("stage", error=error)[ENDS[error]], described("stage", error=error)["outcome"]) == (1, error)


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
