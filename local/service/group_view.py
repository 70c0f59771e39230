"""Follows the streams that share a function of the local run: which are away, and their gaps.

It reads the streams' leases, a hundred per request, and no records of healthy connections. Invariants: a stream that
goes away and comes back is reported once each way; a stream that has left the group is forgotten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from handlers.api.connection_records import Records
from handlers.api.verdict import length_words, plural
from handlers.connection.lease import unconnected_ms
from handlers.store.stream_records import StreamRecords
from local.service.stream_view import AlertReporter, alerts
from timeline import picture
from timeline.coverage import Gap

# How many streams a sentence names before it counts the others, and how many have a line in the picture.
MOST_NAMED, MOST_DRAWN = 5, 8


@dataclass(slots=True)
class GroupView:
    """The streams of one group; `away` has since when each unconnected one should be connected, in epoch ms."""

    group: str
    members: int = 0
    away: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, list[Gap]] = field(default_factory=dict)
    _connected_once: set[str] = field(default_factory=set)  # streams that were connected once
    _alerted: set[str] = field(default_factory=set)
    _alert_reporter: AlertReporter = field(default_factory=AlertReporter)
    _began_ms: int = 0

    def check(self, records: StreamRecords, now_ms: int, since_ms: int, alert_after_ms: int) -> list[str]:
        """Returns the news, a sentence each; gaps that ended before `since_ms` are forgotten."""
        ids = sorted(records.members(self.group))
        read = records.read_for_status(ids)
        streams = {one: found for one in ids if (found := read(one)) is not None}
        return self.update(streams, now_ms, since_ms, alert_after_ms)

    def update(self, streams: Mapping[str, Records], now_ms: int, since_ms: int, alert_after_ms: int) -> list[str]:
        # A stream that should stop, or has ended, leaves the group and needs no connection.
        streams = {one: each for one, each in streams.items() if each.lease.execution and not each.lease.stop}
        self.members = len(streams)
        lengths_ms = {one: unconnected_ms(records.lease, now_ms) for one, records in streams.items()}
        away = {one: now_ms - length_ms for one, length_ms in lengths_ms.items() if length_ms}
        gone = sorted((away.keys() - self.away.keys()) & self._connected_once)
        back = sorted(
            one for one in streams if one not in away and (one in self.away or one not in self._connected_once)
        )
        for one in self._connected_once.intersection(back):
            to_ms = _opened_ms(streams[one]) or now_ms
            self.gaps.setdefault(one, []).append(Gap(self.away[one], max(to_ms, self.away[one]), ""))
        self._connected_once = (self._connected_once | set(back)) & streams.keys()
        self.away = away | {one: min(at_ms, self.away.get(one, at_ms)) for one, at_ms in away.items()}
        kept = {one: [gap for gap in gaps if gap.to_ms > since_ms] for one, gaps in self.gaps.items() if one in streams}
        self.gaps = {one: gaps for one, gaps in kept.items() if gaps}
        # A new run gives streams of an earlier one as much time as newly started ones.
        self._began_ms = self._began_ms or now_ms
        late = sorted(one for one, at_ms in self.away.items() if now_ms - max(at_ms, self._began_ms) >= alert_after_ms)
        fresh = [one for one in late if one not in self._alerted]
        self._alerted = set(late)
        news = [f"group {self.group}: {_name_streams(gone)} not connected"] if gone else []
        news += [f"group {self.group}: {_name_streams(back)} connected"] if back else []
        if fresh:
            news.append(
                f"ALERT: group {self.group}: {_name_streams(fresh)} not connected for {length_words(alert_after_ms)}"
            )
        for one, each in streams.items():
            news += self._alert_reporter.new_lines(one, {} if one in away else alerts(each, now_ms))
        return news

    @property
    def summary(self) -> str:
        """Returns how many streams share the function, and how many are connected."""
        return f"{plural(self.members, 'stream')} in one function, {self.members - len(self.away)} connected"

    def draw(self, since_ms: int, now_ms: int, width: int) -> list[str]:
        """Returns a line for each stream with a gap since then, and a line with their names."""
        gaps = {
            one: [*self.gaps.get(one, ()), *([Gap(self.away[one], now_ms, "")] if one in self.away else [])]
            for one in sorted(self.gaps.keys() | (self.away.keys() & self._connected_once))
        }
        shown = dict(list(gaps.items())[:MOST_DRAWN])
        rows = [[Gap(max(0, g.from_ms - since_ms), g.to_ms - since_ms, "") for g in each] for each in shown.values()]
        names = ", ".join(f"{number} {one}" for number, one in enumerate(shown, 1))
        more = f" and {len(gaps) - MOST_DRAWN} more" if len(gaps) > MOST_DRAWN else ""
        said = f"gaps: {names}{more}" if gaps else "no stream had a gap"
        return [*picture.draw_gaps(rows, now_ms - since_ms, width), said]


def _opened_ms(records: Records) -> int | None:
    """When the newest connection was answered."""
    return max((one.opened_ms for one in records.connections if one.opened_ms is not None), default=None)


def _name_streams(streams: Sequence[str]) -> str:
    """The streams with their verb, some by name."""
    more = len(streams) - MOST_NAMED
    names = ", ".join(streams[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{names} {'is' if len(streams) == 1 else 'are'}"
