"""Makes the documents that the delivery prints, one for each stream and sink of a call: CloudWatch's embedded metrics.

Their numbers are fields, which queries of the log find by stream and by sink. Which of them CloudWatch keeps as
metrics, each at a price a month, the stage says as it does for connections (handlers/run/connection_metrics.py): by
"stage" those of all together that are not 0, else all of them of each profile or stream and sink, 0 included.
Pure. Invariant: a document holds the names of a stream and a sink, and numbers; nothing that the upstream sent.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from handlers.deliver.delivery_records import Count, Place
from handlers.run.connection_metrics import By, embedded

_DIMENSIONS: Mapping[By, list[str]] = {
    "stage": ["service"],
    "profile": ["profile", "sink", "service"],
    "stream": ["profile", "stream", "sink", "service"],
}
NAMES = ("Delivered", "DeliveryFailed", "DeliveryDeadLettered", "DeliveryLagMs")


def documents(
    counts: Mapping[Place, Count], *, service: str, namespace: str, by: By, now_ms: int
) -> Iterator[dict[str, Any]]:
    """The documents of a call."""
    for place, count in counts.items():
        numbers = (count.delivered, count.failed, count.dead_lettered, count.lag_ms)
        values = dict(zip(NAMES, numbers, strict=True))
        profile, _, _ = place.stream_id.partition(":")
        fields = {"profile": profile, "stream": place.stream_id, "sink": place.label, "service": service, **values}
        yield embedded(fields, kept(values, by), _DIMENSIONS[by], namespace, now_ms)


def kept(values: Mapping[str, int], by: By) -> list[str]:
    """The names of the numbers that CloudWatch keeps as metrics."""
    return [name for name, value in values.items() if by != "stage" or value]
