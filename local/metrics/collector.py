"""Collects the metrics of the local run: what connections wrote, how they ended, and which streams are away.

The numbers come from the control table, so they are the API's. An execution that keeps a group stands for the streams
of its function. Invariant: a counter never falls while the service runs, although records expire.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from handlers.api.connection_records import Connection, Connections, Records
from handlers.api.figures import coverage
from handlers.api.sinks import Sinks
from handlers.api.status_words import status
from handlers.connection.lease import unconnected_ms
from handlers.group import is_group
from handlers.run import metric_names
from handlers.run.connection_metrics import ENDS
from handlers.run.metric_names import Metric
from handlers.store.stream_records import StreamRecords

# A metric, and the values of its labels, in order.
_Key = tuple[Metric, tuple[str, ...]]
_COUNTERS: dict[Metric, Callable[[Connection], int]] = {
    metric_names.STORED: lambda one: one.stored,
    metric_names.DUPLICATES: lambda one: one.duplicates,
    metric_names.CONFLICTS: lambda one: one.conflicts,
    metric_names.DEAD_LETTERED: lambda one: one.dead_lettered,
    metric_names.LEFT_OUT: lambda one: one.left_out,
    metric_names.MISSING: lambda one: one.missing,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric; `labels` are the values of the metric's labels, in order."""

    metric: Metric
    labels: tuple[str, ...]
    value: int | float


class Collector:
    """Collects from the streams that run here, and from those in `ended`, which have run since this was made."""

    def __init__(
        self,
        records: Callable[[], StreamRecords],
        running: Callable[[], Iterable[str]],
        sinks: Callable[[], Sinks | None],
        labels: Callable[[str], Collection[str]],
        ended: Callable[[], Iterable[str]],
        dead_after_ms: int,
    ) -> None:
        self._records = records
        self._running = running
        self._ended = ended
        self._dead_after_ms = dead_after_ms
        self._sinks = sinks
        self._labels = labels
        self._streams: set[str] = set()
        # What was counted of each connection that still has a record, by stream and fencing token.
        self._counted: dict[str, dict[int, dict[_Key, int]]] = {}
        self._totals: Counter[_Key] = Counter()
        self._lock = threading.Lock()

    def collect(self, now_ms: int) -> list[Sample]:
        """All present samples, in the order of the table; raises StoreUnavailable."""
        with self._lock:
            running = list(self._running())
            groups = {one: self._records().members(one) for one in running if is_group(one)}
            for name in {*running, *self._ended()} - {""}:
                self._streams.update(groups.get(name) or (self._records().members(name) if is_group(name) else [name]))
            away_ms: dict[str, int] = {}
            shares: list[Sample] = []
            for stream_id in sorted(self._streams):
                records = self._records().read(stream_id)
                if records is None:
                    continue
                for metric in _COUNTERS:
                    self._totals[metric, (stream_id,)] += 0
                seen = self._counted.get(stream_id, {})
                for one in records.connections:
                    self._count_connection(stream_id, one, seen)
                oldest = min((one.fence for one in records.connections), default=0)
                self._counted[stream_id] = {fence: counts for fence, counts in seen.items() if fence >= oldest}
                shares += _coverage_samples(stream_id, Connections(records, now_ms, self._dead_after_ms), records)
                if records.lease.execution and not records.lease.stop:
                    away_ms[stream_id] = unconnected_ms(records.lease, now_ms)
            away = {stream_id for stream_id, each_ms in away_ms.items() if each_ms}
            gauges: dict[Metric, float] = {
                metric_names.WANTED: len(away_ms),
                metric_names.UNCONNECTED: len(away),
                metric_names.LONGEST: max(away_ms.values(), default=0) / 1000,
                metric_names.RUNNING: len(running),
            }
            own = [
                Sample(metric, labels, value) for (metric, labels), value in sorted(self._totals.items(), key=_sort_key)
            ]
            own += [Sample(metric, (), value) for metric, value in gauges.items()]
            own += [
                sample for stream_id in sorted(self._streams) for sample in self._delivery_samples(stream_id, now_ms)
            ]
            own += [*shares, *_group_samples(groups, away)]
            return sorted(own, key=lambda one: metric_names.ALL.index(one.metric))

    def _delivery_samples(self, stream_id: str, now_ms: int) -> Iterator[Sample]:
        """The counts of the stream's sinks, which never fall by themselves."""
        sinks, names = self._sinks(), self._labels(stream_id)
        for record, behind in sinks.read_all(stream_id, names) if sinks is not None and names else ():
            labels = (stream_id, record.sink)
            yield Sample(metric_names.SENT, labels, record.delivered)
            yield Sample(metric_names.WAITED, labels, record.failed)
            yield Sample(metric_names.UNDELIVERED, labels, record.dead_lettered)
            yield Sample(metric_names.WAITING, labels, behind.events)
            yield Sample(metric_names.LAG, labels, max(0, now_ms - (behind.oldest_ms or now_ms)) / 1000)

    def _count_connection(self, stream_id: str, one: Connection, seen: dict[int, dict[_Key, int]]) -> None:
        counts: dict[_Key, int] = {(metric, (stream_id,)): count(one) for metric, count in _COUNTERS.items()}
        if one.ended_by:
            counts[metric_names.ENDED, (stream_id, ENDS.get(one.error, one.ended_by))] = 1
        for key, count in counts.items():
            self._totals[key] += max(0, count - seen.get(one.fence, {}).get(key, 0))
        seen[one.fence] = counts


def _coverage_samples(stream_id: str, connections: Connections, records: Records) -> Iterator[Sample]:
    """The stream's figures as its status has them; none before the first answer."""
    covered = coverage(status(connections), connections, records)
    if covered is not None:
        figures = covered.as_json()
        yield Sample(metric_names.CONNECTED_PERCENT, (stream_id,), figures["connected_percent"])
        yield Sample(metric_names.COMPLETE_PERCENT, (stream_id,), figures["complete_percent"])
        yield Sample(metric_names.MISSING_SECONDS, (stream_id,), figures["missing"]["seconds"])


def _group_samples(groups: Mapping[str, Collection[str]], away: Set[str]) -> Iterator[Sample]:
    """The groups of streams that share a function, their sizes, and how many streams are not connected."""
    for group, streams in sorted(groups.items()):
        yield from (Sample(metric_names.GROUP, (stream_id, group), 1) for stream_id in sorted(streams))
        yield Sample(metric_names.GROUP_STREAMS, (group,), len(streams))
        yield Sample(metric_names.GROUP_UNCONNECTED, (group,), len(away & set(streams)))


def _sort_key(item: tuple[_Key, int]) -> tuple[int, tuple[str, ...]]:
    (metric, labels), _ = item
    return metric_names.ALL.index(metric), labels
