"""Computes three figures of a stream since its last start, which are never mixed: connected, complete and missing.

    connected   the time in which a connection was open, and nothing else
    complete    the time of which every event is known to be stored: all but open and lost gaps, and what waits
    missing     those gaps: how many, how long, and how many events if the upstream gave a number

    connection 1   [0, 60) s     gap [60, 70) s, delivered     connected 95 % of 200 s
    connection 2   [70, 200) s   lost [100, 104) s, announced  complete 98 %, missing 1 interval of 4 s

Time in which no connection was wanted does not count: until the next `POST` after a stop, after the stream's end or
rejection, or after a stream that is requested only once broke off. Invariants: figures that do not reach back to the
start say so; a percentage is rounded down, so 100 means all of it; a stop does not change the figures before it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from handlers.api.answers import to_iso
from handlers.api.connection_records import OVER, Connection, Connections, Records
from handlers.connection import evidence, gap_record, ledger
from handlers.connection.evidence import UNRECORDED, Record
from handlers.connection.gap_record import FAILED, INCOMPLETE, LOST, OPEN, Gap, Interval, Repair
from handlers.connection.ledger import find_gaps
from handlers.values import dataclass


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the connections since the last start covered, in [since_ms, to_ms).

    `spans` are the intervals of the connections, `gaps` the ended gaps, oldest first. `away` is the gap that still
    lasts, or the last one if the stream needs no connection any more: then it `is_over`. `connected_since_ms` is None
    while no connection is open. Events have waited to be stored since `waiting_since_ms`, None if not for long.
    """

    since_ms: int
    to_ms: int
    spans: tuple[Interval, ...]
    gaps: tuple[Gap, ...]
    away: Gap | None
    connected_since_ms: int | None
    reaches_start: bool
    is_over: bool
    dead_lettered: int
    waiting_since_ms: int | None = None

    @property
    def missing(self) -> list[Gap]:
        """The gaps in which events may be missing, or are."""
        every = self.gaps if self.away is None else (*self.gaps, self.away)
        return [gap for gap in every if gap.state in INCOMPLETE]

    def as_json(self) -> dict[str, Any]:
        """Returns the figures and the gaps."""
        whole_ms = self.to_ms - self.since_ms
        # A loss that an upstream announced may have no length, or lie in a gap, or before the first answer.
        open_parts = map(gap_record.open_part, self.missing)
        within = ((max(from_ms, self.since_ms), min(to_ms, self.to_ms)) for from_ms, to_ms in open_parts)
        lacking = [(from_ms, max(from_ms + 1, to_ms)) for from_ms, to_ms in within]
        waiting = [] if self.waiting_since_ms is None else [(self.waiting_since_ms, self.to_ms)]
        away = [] if self.away is None else [gap_json(self.away, goes_on=not self.is_over)]
        return {
            "since": to_iso(self.since_ms),
            "to_at": to_iso(self.to_ms),
            "reaches_start": self.reaches_start,
            "connected_since_at": to_iso(self.connected_since_ms),
            "connections": len(self.spans),
            "connected_percent": percent(whole_ms, whole_ms - length_ms(self.spans)),
            "complete_percent": percent(whole_ms, length_ms([*lacking, *waiting])),
            "waiting_since_at": to_iso(self.waiting_since_ms),
            "missing": {
                "intervals": len(lacking),
                "seconds": length_ms(lacking) / 1000,
                "events": lost_events(self.missing),
            },
            "overlap_ms": sum(to_ms - from_ms for from_ms, to_ms in self.spans) - length_ms(self.spans),
            "gaps": [*map(gap_json, self.gaps), *away],
        }


def coverage(status: str, connections: Connections, records: Records) -> Coverage | None:
    """Returns what the connections since the last start covered; None if none was answered."""
    run = connections.since_start()
    shown_records = [record for one in run for record in _records(connections, one)]
    if not shown_records:
        return None
    if len(run) < len(connections.all) or (shown_records[0].since_ms or 0) < records.lease.started_at_ms:
        # The time before the start is no gap: the stream was stopped.
        shown_records = _without_leading_gaps(shown_records)
    missed = find_gaps(shown_records, connections.now_ms, connections.dead_after_ms)
    # An answer that the cursor is too old is not a connection.
    answered = (record for record in shown_records if record.refused != evidence.CURSOR_EXPIRED)
    spans = [(record.opened_ms, _end_ms(connections, record)) for record in answered]
    since_ms = min([record.opened_ms for record in shown_records] + [gap.from_ms for gap in missed])
    away = _gap_that_goes_on(status, connections, shown_records)
    ends = [_end_ms(connections, record) for record in shown_records] + [gap.to_ms for gap in missed]
    losses = ledger.correct_losses((loss for loss in records.losses if loss.fence >= run[0].fence), shown_records)
    return Coverage(
        since_ms,
        max(ends if away is None else [*ends, away.to_ms]),
        tuple(spans),
        tuple(sorted(gap_record.apply_repairs([*missed, *losses], records.repairs), key=lambda gap: gap.from_ms)),
        away,
        connected_since_ms(spans) if connections.open else None,
        has_all_since_start(connections, records),
        _wanted_until_ms(status, connections) < connections.now_ms,
        sum(one.dead_lettered for one in run),
        _waiting_since_ms(connections),
    )


def _waiting_since_ms(connections: Connections) -> int | None:
    """Returns since when received events wait to be stored; None if no connection is open, or its store keeps up.

    A connection that still writes, but was known to be good only long ago, has not stored what came since. It does not
    count if another connection has caught up, which brings the same events.
    """
    late_ms = connections.now_ms - connections.dead_after_ms
    written = [one for one in connections.open if (one.saved_ms or 0) >= late_ms]
    waiting = [one.seen_ms for one in written if one.seen_ms + one.lag_ms < late_ms]
    brought = [record for one in written for record in _records(connections, one) if record.has_caught_up]

    def is_brought(since_ms: int) -> bool:
        return any(record.from_ms <= since_ms < record.seen_ms for record in brought)

    return min((since_ms for since_ms in waiting if not is_brought(since_ms)), default=None)


def connected_since_ms(spans: Iterable[Interval]) -> int | None:
    """Returns since when connections have followed one another without a pause; None if there is none."""
    since_ms: int | None = None
    for from_ms, to_ms in sorted(spans, key=lambda span: -span[1]):
        if since_ms is None or from_ms < since_ms <= to_ms:
            since_ms = from_ms
    return since_ms


def known_gaps(status: str, connections: Connections) -> tuple[list[Gap], Gap | None, list[Record]]:
    """Returns the gaps of the newest connections, the gap that goes on, and the records that both follow from."""
    shown_records = [record for one in connections.all for record in _records(connections, one)]
    if not shown_records:
        return [], None, []
    # Gaps before the oldest of them are recorded.
    shown_records = _without_leading_gaps(shown_records)
    missed = find_gaps(shown_records, connections.now_ms, connections.dead_after_ms)
    return missed, _gap_that_goes_on(status, connections, shown_records), shown_records


def _without_leading_gaps(shown_records: list[Record]) -> list[Record]:
    """Returns the records without a gap before them, which only those of a single connection could leave."""
    first, *rest = shown_records
    if any(record.fence != first.fence for record in rest):
        return shown_records  # what the first one requested shows what it left to the next if it broke off
    return [replace(first, since_ms=None), *rest]


def _gap_that_goes_on(status: str, connections: Connections, shown_records: list[Record]) -> Gap | None:
    """Returns the gap that no connection has ended: it ends when no connection is wanted any more."""
    ends = [_end_ms(connections, record) for record in shown_records]
    from_ms = max(ends)
    last = shown_records[ends.index(from_ms)]
    # As in the ledger once another connection ends the gap: events that were read and not stored were requested.
    to_ms = max(_wanted_until_ms(status, connections), *(record.read_ms for record in shown_records))
    if connections.open or last.ended_by in OVER or from_ms >= to_ms:
        return None
    return Gap(0, from_ms, to_ms, last.ended_by, OPEN)


def _wanted_until_ms(status: str, connections: Connections) -> int:
    """Returns until when a connection was wanted: now, unless something has ended that."""
    lease, newest = connections.lease, connections.newest
    until = [connections.now_ms]
    if lease.stop and lease.stop_at_ms:
        until.append(lease.stop_at_ms)
    # A repeated stop request is younger than the end that it requested.
    is_over = status in ("ended", "rejected") or lease.ending == "StreamBroken"
    if is_over or (status == "stopped" and lease.ended_at_ms):
        until.append(lease.ended_at_ms)
    if newest is not None and newest.claimed_ms < lease.started_at_ms:
        # No connection was made since the last start, so these are from before it.
        if newest.ended_by in OVER or newest.is_rejected:
            until.append(newest.last_ms)
        if connections.between_runs_ms is not None:
            until.append(lease.stopped_at_ms)
    return min(until)


def has_all_since_start(connections: Connections, records: Records) -> bool:
    """Returns whether every connection since the last start is among these.

    They are complete if one from before the start is among them too; otherwise if no older record was left out or has
    expired since.
    """
    if records.losses_since_ms > records.lease.started_at_ms:
        return False
    if len(connections.since_start()) < len(connections.all):
        return True
    return records.is_all and records.kept_since_ms <= records.lease.started_at_ms


def _records(connections: Connections, one: Connection) -> list[Record]:
    """Returns the connection for the ledger's rules; one that may be dead counts as closed when last seen."""
    opened_ms = one.seen_ms if one.opened_ms is None else one.opened_ms
    closed_ms = one.closed_ms
    if closed_ms is None and one not in connections.open:
        closed_ms = max(opened_ms, one.seen_ms)
    record = Record(
        one.fence,
        opened_ms,
        one.seen_ms,
        closed_ms,
        one.ended_by or ("" if one in connections.open else UNRECORDED),
        one.resumed,
        one.reach_ms,
        one.since_ms,
        one.live_ms,
        saved_ms=one.saved_ms or 0,
        heard_ms=one.heard_ms,
        stopped_ms=one.stopped_ms,
        started_ms=one.started_ms,
    )
    return evidence.records(record, one.opened_ms, one.forgot_ms)


def _end_ms(connections: Connections, record: Record) -> int:
    # If clocks differ, an open connection may seem to begin in the future.
    return max(record.opened_ms, connections.now_ms) if record.closed_ms is None else record.closed_ms


def gap_json(gap: Gap, *, goes_on: bool = False) -> dict[str, Any]:
    """Returns a gap for JSON; one that goes on has no end yet."""
    return {
        "from_at": to_iso(gap.from_ms),
        "to_at": None if goes_on else to_iso(gap.to_ms),
        "length_ms": gap.to_ms - gap.from_ms,
        "cause": gap.cause,
        "state": gap.state,
        "events": lost_events([gap]),
        **({} if gap.repair is None else {"repair": repair_json(gap.repair)}),
    }


def repair_json(repair: Repair) -> dict[str, Any]:
    """Returns the outcome of a gap's repair as JSON; `next_at` is null if it is not tried again."""
    instants = ("first_ms", "last_ms", "open_from_ms", "open_to_ms")
    return {
        "stored": repair.stored,
        "tries": repair.tries,
        **{f"{name[:-3]}_at": to_iso(getattr(repair, name)) for name in instants},
        "next_at": to_iso(repair.next_ms or None),
        "reason": repair.reason or None,
    }


def is_lost(gap: Gap) -> bool:
    """Returns whether events of the gap are known to be missing: a repair that fetched none leaves their number."""
    return gap.state == LOST or (gap.state == FAILED and gap.events is not None)


def lost_events(gaps: Iterable[Gap]) -> int | None:
    """Returns how many events are missing in the gaps; None if that is unknown for one of them.

    It is unknown too if two connections lost some at the same time, because these may be the same events.
    """
    total = 0
    last: Gap | None = None
    for gap in sorted((gap for gap in gaps if gap.state in INCOMPLETE), key=lambda gap: gap.from_ms):
        if not is_lost(gap) or gap.events is None or (last and gap.fence != last.fence and gap.from_ms < last.to_ms):
            return None
        total += gap.events
        last = gap if last is None or gap.to_ms > last.to_ms else last
    return total


def percent(whole_ms: int, lacking_ms: int) -> float:
    """Returns the percentage that is not lacking, rounded down to four digits: 100 only if nothing is lacking."""
    whole_ms = max(1, whole_ms)
    return max(0, whole_ms - lacking_ms) * 1_000_000 // whole_ms / 10_000


def length_ms(intervals: Iterable[Interval]) -> int:
    """Returns how long at least one of them lasted."""
    total = 0
    until_ms: int | None = None
    for from_ms, to_ms in sorted(intervals):
        total += max(0, to_ms - (from_ms if until_ms is None else max(from_ms, until_ms)))
        until_ms = to_ms if until_ms is None else max(until_ms, to_ms)
    return total
