"""The metrics documents of the delivery: for each call's stream and sink, and for a sweep."""

import json
from typing import Any

from handlers.deliver.bells import Place
from handlers.deliver.delivery_metrics import NAMES, document, lag_document
from handlers.deliver.delivery_records import SinkRecord
from handlers.deliver.sink_commands import Lag
from handlers.deliver.worker import Worked
from handlers.run.connection_metrics import By
from local.costs import stage_costs

BY: tuple[By, ...] = ("stage", "profile", "stream")
QUEUE, HOOK = Place("prices:eur", "sqs:orders.fifo"), Place("prices:usd", "webhook:hooks.example.org")
OF = SinkRecord("")
WORKED = {QUEUE: Worked(OF, 8), HOOK: Worked(OF, failed=2, dead_lettered=1, reason="answered 503")}


def described(by: By) -> list[dict[str, Any]]:
    """Return the documents of a call that could send to a queue, but not to a webhook."""
    return [document(place, worked, "sk", "sk-prod", by, 5) for place, worked in WORKED.items()]


def metrics(document: dict[str, Any]) -> tuple[list[list[str]], dict[str, str]]:
    """Return the dimensions of a document, and the units of its metrics by name."""
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert (document["_aws"]["Timestamp"], directive["Namespace"]) == (5, "sk-prod")
    return directive["Dimensions"], {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]}


def test_metrics_by_stage_leave_out_zeros() -> None:
    """Metrics by stage are the sums that are not 0; a call with nothing to count has none."""
    queue, hook = described("stage")
    assert metrics(queue) == ([["service"]], {"Delivered": "Count"})
    assert metrics(hook) == ([["service"]], {"DeliveryFailed": "Count", "DeliveryDeadLettered": "Count"})
    assert "_aws" not in document(QUEUE, Worked(OF), "sk", "sk-prod", "stage", 5)


def test_a_sweep_reports_the_age_of_the_oldest_waiting_event() -> None:
    """The age is in milliseconds, 0 if no event waits; the number of waiting events is a field, which is not billed."""
    for behind, lag_ms, waiting in (([], 0, 0), ([Lag(0, 0)], 0, 0), ([Lag(2, 4), Lag(1, 3), Lag(0, 0)], 2, 3)):
        one = lag_document(behind, "sk", "sk-prod", 5)
        assert metrics(one) == ([["service"]], {"DeliveryLagMs": "Milliseconds"})
        assert (one["DeliveryLagMs"], one["DeliveryWaiting"]) == (lag_ms, waiting)


def test_metrics_by_profile_or_stream_have_every_number_of_a_sink() -> None:
    """Metrics by profile keep a thousand streams few; metrics by stream allow an alarm for each."""
    ways: tuple[tuple[By, list[str]], ...] = (("profile", []), ("stream", ["stream"]))
    for by, stream in ways:
        for one in described(by):
            dimensions, units = metrics(one)
            assert (dimensions, list(units)) == ([["profile", *stream, "sink", "service"]], list(NAMES))
            assert set(dimensions[0]) <= one.keys()


def test_a_document_is_no_longer_than_what_is_priced() -> None:
    """The document of an ordinary stream and sink is no longer than the priced length."""
    priced = stage_costs.measurements()["delivery_log_bytes_per_document"]
    for by in BY:
        assert priced / 2 < max(len(json.dumps(one, separators=(",", ":"))) for one in described(by)) < priced
