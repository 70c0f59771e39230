"""The metric documents of the delivery: of each call for a stream and a sink, and of a sweep."""

import json
from typing import Any

from handlers.deliver.bells import Place
from handlers.deliver.delivery_metrics import NAMES, document, lag_document
from handlers.deliver.delivery_records import SinkRecord
from handlers.deliver.operating import Lag
from handlers.deliver.worker import Worked
from handlers.run.connection_metrics import By
from local.costs import stage_costs

BY: tuple[By, ...] = ("stage", "profile", "stream")
QUEUE, HOOK = Place("prices:eur", "sqs:orders.fifo"), Place("prices:usd", "webhook:hooks.example.org")
OF = SinkRecord("")
WORKED = {QUEUE: Worked(OF, 8), HOOK: Worked(OF, failed=2, dead_lettered=1, reason="answered 503")}


def described(by: By) -> list[dict[str, Any]]:
    """The documents of a call that could send to a queue, but not to a webhook."""
    return [document(place, worked, "sk", "sk-prod", by, 5) for place, worked in WORKED.items()]


def metrics(document: dict[str, Any]) -> tuple[list[list[str]], dict[str, str]]:
    """Return the dimensions of a document, and the units of its metrics by name."""
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert (document["_aws"]["Timestamp"], directive["Namespace"]) == (5, "sk-prod")
    return directive["Dimensions"], {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]}


def test_a_stage_keeps_what_is_not_0_of_all_together() -> None:
    """A call with nothing to count has no metric."""
    queue, hook = described("stage")
    assert metrics(queue) == ([["service"]], {"Delivered": "Count"})
    assert metrics(hook) == ([["service"]], {"DeliveryFailed": "Count", "DeliveryDeadLettered": "Count"})
    assert "_aws" not in document(QUEUE, Worked(OF), "sk", "sk-prod", "stage", 5)


def test_a_sweep_says_the_age_of_the_oldest_event_that_waits() -> None:
    """It is in milliseconds, 0 if none waits; the number that waits is a field, which costs nothing."""
    for behind, lag_ms, waiting in (([], 0, 0), ([Lag(0, 0)], 0, 0), ([Lag(2, 4), Lag(1, 3), Lag(0, 0)], 2, 3)):
        one = lag_document(behind, "sk", "sk-prod", 5)
        assert metrics(one) == ([["service"]], {"DeliveryLagMs": "Milliseconds"})
        assert (one["DeliveryLagMs"], one["DeliveryWaiting"]) == (lag_ms, waiting)


def test_a_profile_or_a_stage_of_few_streams_keeps_all_of_each_sink_on_request() -> None:
    """By profile and sink, for a thousand streams would be thousands of metrics; or by stream, for an alarm."""
    ways: tuple[tuple[By, list[str]], ...] = (("profile", []), ("stream", ["stream"]))
    for by, stream in ways:
        for one in described(by):
            dimensions, units = metrics(one)
            assert (dimensions, list(units)) == ([["profile", *stream, "sink", "service"]], list(NAMES))
            assert set(dimensions[0]) <= one.keys()


def test_a_document_is_no_longer_than_what_is_priced() -> None:
    """This is for an ordinary stream and sink."""
    priced = stage_costs.measured()["delivery_log_bytes_per_document"]
    for by in BY:
        assert priced / 2 < max(len(json.dumps(one, separators=(",", ":"))) for one in described(by)) < priced
