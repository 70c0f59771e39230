"""Finds in the tables which gaps of a stream need repair, and the events at the edges of a gap.

It reads the events from the events table, in the order in which they came. So nothing is recorded for repairs while a
stream is connected, and a gap from before its profile had a repair can be repaired too
(docs/decisions/0116-read-the-edges-of-a-gap.md). Invariants: an event before the gap came when its connection was known
to be good, so everything before it is stored or lies in an earlier gap. An event after the gap came on the connection
that ended the gap or on a later one, because an older connection may bring earlier events after a standstill. It came
after that connection had caught up, because the events before that happened in the gap. It came while the connection
was known to be good, because events that a function reads after a standstill came earlier.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from handlers.api.connection_records import Connection
from handlers.connection.gap_record import DELIVERED, REPAIRED, Gap, Interval, Repair, covers
from handlers.connection.inputs import Layout
from handlers.connection.spending import OVER_BUDGET
from handlers.framing.events import StreamEvent, hash_key
from handlers.framing.frames import Frame
from handlers.profile.repair_field import Repair as Field
from handlers.repair.proof import IDS_RESTARTED, Border, Borders, current_repair, restart_repair
from handlers.store.event_items import Entry, StoredEvent
from handlers.store.event_reader import EventReader
from handlers.store.stream_records import StreamRecords

# If clocks differ, an event may appear on the other side of the gap. So each try that proves nothing begins some events
# earlier and ends some later.
EACH, MORE, MOST_EACH = 2, 2, 30
# How many events are read at most to find them: repaired events lie between, and in a log late ones.
MOST_READ = 20_000
# How many connections from the one that ended the gap on are searched for such an event.
MOST_LATER = 100
# How many gaps of a stream are read; and how many at most, if these do not reach back far enough.
MOST_GAPS, FARTHEST = 500, 20_000
# A long poll ends with its events. They count from when they were handled, and the end from when it came.
HANDLED_MS = 1_000


def gaps_since(records: StreamRecords, stream_id: str, since_ms: int) -> list[Gap]:
    """Returns the gaps that ended since then, and some that ended before, newest first; raises StoreUnavailable."""
    gaps = records.newest_gaps(stream_id, MOST_GAPS)
    if len(gaps) == MOST_GAPS and gaps[-1].to_ms > since_ms:
        return records.newest_gaps(stream_id, FARTHEST)
    return gaps


def incomplete_gaps(gaps: Sequence[Gap]) -> list[Gap]:
    """Returns the gaps in which events may be missing, even if their repair is not tried any more."""
    done = repaired_spans(gaps)
    return [gap for gap in gaps if gap.state != DELIVERED and not covers(done, gap.span)]


def repaired_spans(gaps: Sequence[Gap]) -> list[Interval]:
    """Returns the intervals that were repaired, in their order."""
    return sorted(gap.repair.span for gap in gaps if gap.repair is not None and gap.repair.state == REPAIRED)


def gaps_to_repair(gaps: Sequence[Gap], now_ms: int) -> list[tuple[int, Gap]]:
    """Returns the gaps that are neither repaired nor given up, each with when it is due, the most urgent first.

    Events that a budget left out, or that were dropped as known, are fetched only on request.
    """
    wanted = [
        gap for gap in incomplete_gaps(gaps) if gap.cause not in (OVER_BUDGET, IDS_RESTARTED) or gap.repair is not None
    ]
    due = [(repair.next_ms or now_ms, gap) for gap in wanted if not (repair := current_repair(gap)).is_over]
    return sorted(due, key=lambda one: (one[0], one[1].from_ms))


def repair_again(gap: Gap, now_ms: int) -> Repair:
    """Returns the repair of a gap that a person wants tried now, even if it was over."""
    repair = current_repair(gap)
    return replace(restart_repair(repair, repair.span), next_ms=min(repair.next_ms or now_ms, now_ms))


def find_edges(
    reader: EventReader, records: StreamRecords, stream_id: str, layout: Layout, gap: Gap, field: Field, now_ms: int
) -> Borders:
    """Returns the events at the edges of the gap; raises StoreUnavailable."""
    each = min(MOST_EACH, EACH + MORE * current_repair(gap).tries)
    # An announced loss lies between events of one connection. Events that came with the notice are before it.
    before_fence, after_ms = gap.fence + (gap.number is not None), gap.span[1]
    at_ms, earlier = gap.from_ms, reader.entries_before(stream_id, layout, now_ms, gap.from_ms + 1)
    begin = reader.place_at(stream_id, layout, after_ms)
    later = reader.entries(stream_id, layout, now_ms, begin, MOST_READ)
    read = records.read_connections_from(stream_id, gap.fence, MOST_LATER)
    good = {} if read is None else {one.fence: _good(one) for one in read.connections}
    borders = Borders(
        _borders(field, each, (e for e in _live(earlier) if e.received_at_ms <= at_ms and e.fence < before_fence)),
        _borders(field, each, (e for e in _live(later) if _is_after(e, after_ms, good))),
    )
    return borders._replace(
        restarted=gap.cause == IDS_RESTARTED or (read is not None and borders.may_span_restart(read.epoch))
    )


def _good(one: Connection) -> Interval | None:
    """Returns the interval in which the connection is known to be good, after its backlog; None if there is none."""
    live_ms = one.live_ms if one.resumed else one.opened_ms
    handled_ms = HANDLED_MS if one.ended_by == "ended_by_upstream" else 0
    return None if live_ms is None else (live_ms, one.last_ms + handled_ms)


def _is_after(event: StoredEvent, after_ms: int, good: Mapping[int, Interval | None]) -> bool:
    span = good.get(event.fence)
    return span is not None and max(after_ms, span[0]) <= event.received_at_ms <= span[1]


def existing_events(entries: Iterable[Entry]) -> Iterable[StoredEvent]:
    """Yields the events that still exist among the first MOST_READ entries."""
    return (entry.event for entry in islice(entries, MOST_READ) if entry.event is not None)


def _live(entries: Iterable[Entry]) -> Iterable[StoredEvent]:
    return (event for event in existing_events(entries) if not event.is_repaired)


def _borders(field: Field, each: int, events: Iterable[StoredEvent]) -> tuple[Border, ...]:
    named = (one for one in events if field.key == "hash" or is_named(one))
    return tuple(Border(one.key, one.received_at_ms, field.time.event_ms(one.data)) for one in islice(named, each))


def is_named(event: StoredEvent | StreamEvent) -> bool:
    """Returns whether the upstream named the event; no address has a notice that lies under its own hash."""
    return event.data is None or event.key != hash_key(Frame(event.data, event.id, event.name))
