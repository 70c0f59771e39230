"""The names of all metrics, in CloudWatch and in the dashboard, for Prometheus, and for OpenTelemetry.

They are in one table, so that a number has one meaning wherever it is shown. `cloudwatch` is its field in the documents
that functions print (connection_metrics.py, delivery_metrics.py, handlers/watch.py), which the dashboard's queries
name. Invariant: every name that is published anywhere is here; tests compare them.
"""

from typing import Literal

from handlers.values import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; `labels` distinguish its values, `unit` is OpenTelemetry's (UCUM)."""

    cloudwatch: str
    prometheus: str
    kind: Literal["counter", "gauge"]
    unit: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def opentelemetry(self) -> str:
        """Its name with dots, without the suffix that Prometheus requires."""
        return self.prometheus.removesuffix("_total").removesuffix("_seconds").replace("_", ".", 2)


def _events(cloudwatch: str, name: str, help_: str) -> Metric:
    return Metric(cloudwatch, f"streamkeeper_events_{name}_total", "counter", "{event}", help_, ("stream",))


STORED = _events("Stored", "stored", "Events stored.")
DUPLICATES = _events("Duplicates", "duplicate", "Events that were stored already, and not stored again.")
CONFLICTS = _events("Conflicts", "conflicting", "Events under a known key with another body.")
DEAD_LETTERED = _events("DeadLettered", "dead_lettered", "Events that went to the dead-letter queue.")
LEFT_OUT = _events("LeftOut", "left_out", "Events that the profile does not keep, each as often as it came.")
MISSING = Metric(
    "Missing",
    "streamkeeper_gaps_missing_total",
    "counter",
    "{gap}",
    "Losses that the upstream announced, and gaps outside handovers that were not requested in full.",
    ("stream",),
)
# The API's figures of the same names (handlers/api/figures.py), since the last start. CloudWatch has none of them,
# because it would charge for each stream.
CONNECTED_PERCENT = Metric(
    "",
    "streamkeeper_stream_connected_percent",
    "gauge",
    "%",
    "The share of the time in which a connection was open.",
    ("stream",),
)
COMPLETE_PERCENT = Metric(
    "",
    "streamkeeper_stream_complete_percent",
    "gauge",
    "%",
    "The share of the time from which every event is known to be stored.",
    ("stream",),
)
MISSING_SECONDS = Metric(
    "",
    "streamkeeper_stream_missing_seconds",
    "gauge",
    "s",
    "The length of the gaps in which events are missing, or may be.",
    ("stream",),
)
# In CloudWatch each end is a metric of its own, by the name in the label `end`.
ENDED = Metric(
    "",
    "streamkeeper_connections_ended_total",
    "counter",
    "{connection}",
    "Connections that ended, by outcome.",
    ("stream", "end"),
)
WANTED = Metric("Wanted", "streamkeeper_streams_wanted", "gauge", "{stream}", "Streams that should be connected.")
UNCONNECTED = Metric(
    "Unconnected",
    "streamkeeper_streams_unconnected",
    "gauge",
    "{stream}",
    "Streams that should be connected and are not.",
)
LONGEST = Metric(
    "LongestUnconnected",
    "streamkeeper_unconnected_longest_seconds",
    "gauge",
    "s",
    "The longest time for which a stream has now been away.",
)
# In CloudWatch the documents of connections have the field `group`, by which the dashboard sums them up.
GROUP = Metric(
    "",
    "streamkeeper_stream_group",
    "gauge",
    "{stream}",
    "1 for each stream with its group: join on it to sum other metrics by group.",
    ("stream", "group"),
)
GROUP_STREAMS = Metric(
    "", "streamkeeper_group_streams", "gauge", "{stream}", "Streams that share the function of a group.", ("group",)
)
GROUP_UNCONNECTED = Metric(
    "",
    "streamkeeper_group_unconnected",
    "gauge",
    "{stream}",
    "Streams of a group that should be connected and are not.",
    ("group",),
)
RUNNING = Metric("", "streamkeeper_executions_running", "gauge", "{execution}", "Executions that run on this machine.")


def _delivery(cloudwatch: str, name: str, help_: str) -> Metric:
    prometheus = f"streamkeeper_delivery_{name}_total"
    return Metric(cloudwatch, prometheus, "counter", "{event}", help_, ("stream", "sink"))


SENT = _delivery("Delivered", "sent", "Events that a sink took, repetitions included.")
WAITED = _delivery("DeliveryFailed", "waited", "How often an event was left for a later try.")
UNDELIVERED = _delivery(
    "DeliveryDeadLettered", "dead_lettered", "Events that a sink did not take, and that went to the dead-letter queue."
)
WAITING = Metric(
    "DeliveryWaiting",
    "streamkeeper_delivery_waiting",
    "gauge",
    "{event}",
    "Stored events that a sink has not taken, whoever is at fault.",
    ("stream", "sink"),
)
# In CloudWatch it is that of the sink which is furthest behind, measured each minute.
LAG = Metric(
    "DeliveryLagMs",
    "streamkeeper_delivery_lag_seconds",
    "gauge",
    "s",
    "The age of the oldest event that a sink has not taken.",
    ("stream", "sink"),
)

ALL = (
    *(STORED, DUPLICATES, CONFLICTS, DEAD_LETTERED, LEFT_OUT, MISSING, ENDED, SENT, WAITED, UNDELIVERED),
    *(CONNECTED_PERCENT, COMPLETE_PERCENT, MISSING_SECONDS),
    *(WANTED, UNCONNECTED, LONGEST, GROUP, GROUP_STREAMS, GROUP_UNCONNECTED, RUNNING, WAITING, LAG),
)
# Fields of a connection's document that are times, for which the local run has no counters.
TIMES = ("BlockedMs", "ConnectMs")
