"""The metrics document of a connection has every number; the stage's settings decide which of them are metrics."""

from typing import Any

import pytest

from handlers.connection.effects import Outcome, Progress
from handlers.connection.steps import Report
from handlers.run.connection_metrics import ENDS, By, document, numbers


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
