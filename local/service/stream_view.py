"""Turns a stream's records into news: connections that opened and ended, and lost events.

The state of a connection follows from its record (handlers/api/connection_records.py), and from failures of functions
in the history. Invariants: news is returned once; a connection whose function was killed ends when its record was last
written; a function is reported as killed only if the history says so, because a slow or paused function, or one that
cannot write, is also silent.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from handlers.api import status_words
from handlers.api.connection_records import Connection, Connections, Records
from handlers.api.verdict import plural
from handlers.connection.evidence import UNRECORDED
from handlers.connection.gap_record import Gap
from handlers.connection.lease import Lease, unconnected_ms
from local.service.function_failures import Failure
from timeline import coverage

# An open connection writes its record every PROGRESS_EVERY_S; after this silence its state is unknown.
SILENT_MS = 8_000
_RATE_OVER_MS = 10_000
# More than are ever read at once (handlers/store/stream_records.py, NEWEST), so each is forgotten and counted once.
_KEPT = 150
# Errors that end a cycle as expected.
_EXPECTED = ("StreamTakenOver", "ConnectionExpired", "RenewalDue")
SILENT_IN_WORDS = "silent: its function is slow, paused or gone"


class AlertReporter:
    """Reports each alert of a stream once, as the watch does; an alert that ends and begins again is reported again."""

    def __init__(self) -> None:
        # The reported alerts of each connected stream that still hold.
        self._reported: dict[str, frozenset[str]] = {}

    def new_lines(self, stream_id: str, shown: Mapping[str, str]) -> list[str]:
        """Returns a line for each new alert; `shown` has the words of the present alerts, by kind."""
        before, self._reported[stream_id] = self._reported.get(stream_id, frozenset()), frozenset(shown)
        return [f"ALERT: {stream_id}{words}" for what, words in shown.items() if what not in before]


def alerts(records: Records, now_ms: int) -> dict[str, str]:
    """Returns the alerts of a connected stream by kind; the words follow its id."""
    shown = status_words.alerts(Connections(records, now_ms, SILENT_MS), records)
    return {what: f": {words}" for what, words in shown.items()}


def _counts_in_words(connection: Connection) -> str:
    """Returns a connection's counts, as in "3 stored, 1 dead-lettered, 2 duplicates turned away"."""
    words = [f"{connection.stored} stored"]
    if connection.dead_lettered:
        words.append(f"{connection.dead_lettered} dead-lettered")
    words.append(f"{plural(connection.duplicates, 'duplicate')} turned away")
    if connection.conflicts:
        words.append(f"{connection.conflicts} under a known key with another body")
    if connection.left_out:
        words.append(f"{connection.left_out} left out")
    return ", ".join(words)


def _is_opened_by(connection: Connection, failure: Failure) -> bool:
    """Returns whether the failed attempt opened the connection."""
    opened_ms = connection.opened_ms
    return opened_ms is not None and connection.lane == failure.lane and failure.from_ms <= opened_ms <= failure.at_ms


@dataclass
class StreamView:
    """The connections and losses of one stream; those before `since_ms` are not news. Times are epoch milliseconds.

    `seen` has the newest connections by fencing token, `_forgotten` the counts (stored, duplicates) of earlier ones.
    """

    stream_id: str
    since_ms: int
    seen: dict[int, Connection] = field(default_factory=dict)
    _records: Records = field(default_factory=lambda: Records(Lease(), None, None, ()))
    _open: set[int] = field(default_factory=set)
    _unrecorded: set[int] = field(default_factory=set)
    _silent: set[int] = field(default_factory=set)
    _reported: set[tuple[str, int]] = field(default_factory=set)
    _counts: deque[tuple[int, int]] = field(default_factory=deque)
    _forgotten: tuple[int, int] = (0, 0)
    _failures: deque[Failure] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _failing: Failure | None = None

    def update(
        self, records: Records | None, now_ms: int, failures: Iterable[Failure] = (), losses: Iterable[Gap] = ()
    ) -> list[str]:
        """Returns the news, a sentence each.

        `records` were read now, or are None if that failed; `failures` are those of functions since the last update,
        found before the records were read; `losses` are the newest gaps that the upstream announced.
        """
        if records is not None:
            self._records = records
            self.seen |= {one.fence: one for one in records.connections}
        for fence in sorted(self.seen)[:-_KEPT]:
            forgotten = self.seen.pop(fence)
            self._forgotten = (self._forgotten[0] + forgotten.stored, self._forgotten[1] + forgotten.duplicates)
        now = Connections(replace(self._records, connections=[*self.seen.values()]), now_ms, SILENT_MS)
        self._open = {one.fence for one in now.open}
        self._unrecorded = {one.fence for one in now.all if now.cause(one) == UNRECORDED}
        self._counts.append((now_ms, self.stored))
        while len(self._counts) > 2 and self._counts[0][0] < now_ms - _RATE_OVER_MS:
            self._counts.popleft()
        news = [sentence for failure in failures for sentence in self._failure_news(failure)]
        recent = [one for one in now.all if (one.opened_ms or 0) >= self.since_ms]
        news += [sentence for one in recent for sentence in self._connection_news(one, now_ms)]
        for loss in losses:
            # A loss that goes on, as while ids start over, grows with each event.
            if loss.to_ms >= self.since_ms and self._report_once(f"loss {loss.number}", loss.fence):
                length_s, cause = (loss.to_ms - loss.from_ms) / 1000, loss.cause.replace("_", " ")
                news.append(f"{self.stream_id}: events of {length_s:.1f} s are lost: {cause}")
        return news

    @property
    def stored(self) -> int:
        """Events that the seen connections stored."""
        return self._forgotten[0] + sum(connection.stored for connection in self.seen.values())

    @property
    def duplicates(self) -> int:
        """Duplicates that the seen connections turned away."""
        return self._forgotten[1] + sum(connection.duplicates for connection in self.seen.values())

    def events_per_s(self) -> float:
        """Returns the events stored a second, over the last ten seconds."""
        if len(self._counts) < 2:
            return 0.0
        (from_ms, before), (to_ms, after) = self._counts[0], self._counts[-1]
        return (after - before) * 1000 / max(1, to_ms - from_ms)

    def holder_in_words(self) -> str:
        """Returns a phrase with the lane that holds the stream."""
        holder = self.seen.get(self._records.lease.connected_token)
        if holder is None or self._is_over(holder):
            return "no lane holds it"
        since = f", {SILENT_IN_WORDS}" if self._is_silent(holder) else ""
        return f"lane {holder.lane} holds it (fencing token {holder.fence}){since}"

    def connections(self, now_ms: int) -> list[coverage.Connection]:
        """Returns the answered connections, in order of opening."""
        return [
            coverage.Connection(one.lane, one.opened_ms, self._end_ms(one, now_ms), one.ended_by or UNRECORDED)
            for _, one in sorted(self.seen.items())
            if one.opened_ms is not None
        ]

    def unconnected_ms(self, now_ms: int) -> int:
        """Returns for how long the stream should have been connected but was not; 0 if it is.

        A restored lease does not know a connection that has written its record since.
        """
        is_connected = any(self._is_open(one) for one in self.seen.values())
        return 0 if is_connected else unconnected_ms(self._records.lease, now_ms)

    def summary(self, now_ms: int) -> str:
        """Returns a line with the rate of events, the counts, overlap and gaps."""
        overlap_s = coverage.overlap_ms(self.connections(now_ms)) / 1000
        return (
            f"{self.events_per_s():.1f} events/s · {self.stored} stored · "
            f"{plural(self.duplicates, 'duplicate')} turned away ·"
            f" overlap {overlap_s:.1f} s · gap {self.gap_ms(now_ms) / 1000:.1f} s"
        )

    def gap_ms(self, now_ms: int) -> int:
        """Returns how long no connection was open, between the first opening and now."""
        return sum(gap.to_ms - gap.from_ms for gap in coverage.gaps(self.connections(now_ms), now_ms))

    def _end_ms(self, one: Connection, now_ms: int) -> int:
        # While its events wait to be stored, a connection is not known good, and yet it is open.
        written_ms = one.wrote_ms if one.closed_ms is None else one.closed_ms
        return now_ms if self._is_open(one) else written_ms

    def _is_open(self, one: Connection) -> bool:
        """Returns whether the connection was answered and is known to be open now."""
        return one.fence in self._open and self._failure_of(one) is None

    def _is_over(self, one: Connection) -> bool:
        """Returns whether the connection has certainly ended: by its record, the history or its time limit."""
        return one.closed_ms is not None or one.fence in self._unrecorded or self._failure_of(one) is not None

    def _is_silent(self, one: Connection) -> bool:
        """Returns whether the connection has been silent for so long that its state is unknown."""
        return not (self._is_open(one) or self._is_over(one))

    def _failure_of(self, connection: Connection) -> Failure | None:
        """Returns the failure that ended this connection's function, if one is known."""
        failures = (failure for failure in self._failures if failure.is_certain)
        return next((failure for failure in failures if _is_opened_by(connection, failure)), None)

    def _failure_news(self, failure: Failure) -> list[str]:
        """Returns news of the first failed opening of a series, and of each one with a new reason."""
        self._failures.append(failure)
        if failure.error in _EXPECTED or any(_is_opened_by(connection, failure) for connection in self.seen.values()):
            return []
        before, self._failing = self._failing, failure
        if before is not None and before.reason == failure.reason:
            return []
        return [f"{self.stream_id}: lane {failure.lane} cannot connect: {failure.reason}"]

    def _connection_news(self, connection: Connection, now_ms: int) -> list[str]:
        if connection.opened_ms is None:
            return []
        news, head = [], f"{self.stream_id}: lane {connection.lane} is"
        if self._report_once("opened", connection.fence):
            again = self._failing is not None and connection.opened_ms > self._failing.at_ms
            self._failing = None if again else self._failing
            word = "connected again" if again else "connected"
            news.append(f"{head} {word} (fencing token {connection.fence}){self._gap_before(connection)}")
        news += self._silence_news(connection)
        if self._is_over(connection) and self._report_once("closed", connection.fence):
            failure = self._failure_of(connection)
            unrecorded = failure.reason if failure else "nobody recorded how it ended"
            ended_by = connection.ended_by.replace("_", " ") or unrecorded
            lasted_s = (self._end_ms(connection, now_ms) - connection.opened_ms) / 1000
            came = f"{_counts_in_words(connection)}{self._overlap_in_words(connection, now_ms)}"
            news.append(f"{head} closed after {lasted_s:.1f} s: {ended_by}; {came}")
        return news

    def _silence_news(self, connection: Connection) -> list[str]:
        """Returns news of a connection that falls silent, or sends heartbeats again."""
        is_silent, fence = self._is_silent(connection), connection.fence
        if is_silent == (fence in self._silent):
            return []
        self._silent ^= {fence}
        if not is_silent and self._is_over(connection):
            return []
        words = SILENT_IN_WORDS if is_silent else "alive again"
        return [f"{self.stream_id}: lane {connection.lane} is {words} (fencing token {fence})"]

    def _gap_before(self, connection: Connection) -> str:
        """Returns the length of the gap before this connection, in words; "" if there was none."""
        earlier = [one for one in self.seen.values() if one.fence < connection.fence and one.opened_ms is not None]
        if not earlier or connection.opened_ms is None or any(one.closed_ms is None for one in earlier[-1:]):
            return ""
        missed = coverage.gaps(self.connections(connection.opened_ms), connection.opened_ms)
        gap_ms = sum(gap.to_ms - gap.from_ms for gap in missed[-1:] if gap.to_ms == connection.opened_ms)
        return f" after a gap of {gap_ms} ms" if gap_ms > 0 else ""

    def _overlap_in_words(self, connection: Connection, now_ms: int) -> str:
        """Returns how long this connection and its successor were open together, in words."""
        successors = [one for one in self.seen.values() if one.fence > connection.fence and one.opened_ms is not None]
        if not successors or successors[0].opened_ms is None:
            return ""
        shared_ms = self._end_ms(connection, now_ms) - successors[0].opened_ms
        return f"; handed over to lane {successors[0].lane}, overlap {shared_ms} ms" if shared_ms >= 0 else ""

    def _report_once(self, what: str, fence: int) -> bool:
        if (what, fence) in self._reported:
            return False
        self._reported.add((what, fence))
        return True
