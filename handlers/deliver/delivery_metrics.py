"""Makes the documents that the delivery prints: CloudWatch's embedded metrics.

Each call has a document with its results for a stream and a sink. Its numbers are fields, which queries of the log find
by stream and by sink. The stage says which of them CloudWatch keeps as metrics, each at a price a month, as for
connections (handlers/run/connection_metrics.py): by "stage" the sums that are not 0, else all of them for each profile
or stream and sink, 0 included. Once a minute a document says how far the stage's sinks are behind; the alarm reads it,
so it is there with 0 too. A call that notes late says for how long its events were not noted.

Pure. Invariant: a document holds the names of a stream and a sink, and numbers; nothing that the upstream sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.deliver.bells import Place
from handlers.deliver.sink_commands import Lag
from handlers.deliver.worker import Worked
from handlers.run.connection_metrics import By, embedded_document, metrics_to_keep

_DIMENSIONS: Mapping[By, list[str]] = {
    "stage": ["service"],
    "profile": ["profile", "sink", "service"],
    "stream": ["profile", "stream", "sink", "service"],
}
NAMES = ("Delivered", "DeliveryFailed", "DeliveryDeadLettered")
LAG = "DeliveryLagMs"


def document(place: Place, worked: Worked, service: str, namespace: str, by: By, now_ms: int) -> dict[str, Any]:
    """Returns the document of a call for a stream and a sink."""
    values = dict(zip(NAMES, (worked.delivered, worked.failed, worked.dead_lettered), strict=True))
    profile, _, _ = place.stream_id.partition(":")
    fields = {"profile": profile, "stream": place.stream_id, "sink": place.label, "service": service, **values}
    return embedded_document(fields, metrics_to_keep(values, by), _DIMENSIONS[by], namespace, now_ms)


def lag_document(behind: Sequence[Lag], service: str, namespace: str, now_ms: int) -> dict[str, Any]:
    """Returns the document of a sweep: the age of the oldest event that waits for a sink, and how many wait."""
    oldest_ms = min((lag.oldest_ms for lag in behind if lag.oldest_ms), default=now_ms)
    fields = {"service": service, LAG: max(0, now_ms - oldest_ms), "DeliveryWaiting": sum(lag.events for lag in behind)}
    return embedded_document(fields, [LAG], ["service"], namespace, now_ms)
