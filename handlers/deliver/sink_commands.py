"""Shows how far a sink is behind, and carries out commands: pause, resume, replay, skip.

Invariants: a command's change is saved only if the record is still as it was read, and a worker at the sink continues
from it; no stored event is changed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from handlers.deliver.arrivals import Arrival, Arrivals, Entry
from handlers.deliver.bells import Place
from handlers.deliver.delivery_records import ALL, SinkRecord, with_taken
from handlers.deliver.feed import LATE_MS, Feed, record_after_step
from handlers.deliver.table_records import NO_NEW_EVENT, TIMED, entry_of
from handlers.profile.deliver_field import Target
from handlers.store.control_table import KEYS, Table
from handlers.store.event_reader import INDEX
from handlers.store.segment_reader import LOG_SUFFIX
from handlers.values import dataclass

SEGMENTS = 10  # How many segments are read at once: each may have thousands of events.
# How many arrivals may have come late in a row.
RECENT = 50
COMMANDS = ("pause", "resume", "replay", "skip")


class Lag(NamedTuple):
    """How many stored events the sink has not taken, and when the oldest of them came, 0 if none waits."""

    events: int
    oldest_ms: int


def current_record(arrivals: Arrivals, stream_id: str, record: SinkRecord) -> SinkRecord:
    """Returns the record with what its sink has taken at once since it was saved; raises StoreUnavailable.

    Such arrivals follow the record directly, because a worker saves it before another is sent at once. So the last of
    them is found by halving what lies between.
    """
    end = arrivals.last_arrival(stream_id)
    record = with_taken(record, end)
    low, high = record.number, 0 if end is None else end.number
    probe = low + 1
    while low < probe < high:
        arrival = arrivals.arrival_before(stream_id, probe + 1)
        after = with_taken(record, arrival)
        if after is record:
            high = probe
        else:
            record, low = after, after.number
        probe = (low + high) // 2
    return record


def unnoted_lag(arrivals: Arrivals, stream_id: str, events: Table, end: Arrival) -> Lag:
    """Returns how many events are stored but not noted yet, a hundred at most, and when the oldest of them came.

    They follow the newest noted ones, each in its partition. In a partition without a recent arrival, or without an
    index, none is found. Raises StoreUnavailable.
    """
    found = _entries_after(events, [end])
    if found:
        # The newest arrival may have come late, from a connection that stood still, when these were noted.
        found = _entries_after(events, arrivals.newest_arrivals(stream_id, RECENT))
    return Lag(sum(one.events for one in found), min((one.received_at_ms for one in found), default=0))


def _entries_after(events: Table, noted: Sequence[Arrival]) -> list[Entry]:
    """Returns the next entries of the arrivals' partitions, in the order of arrival."""
    entries = sorted((one for arrival in noted for one in arrival.entries), key=_place)
    found = list[Entry]()
    for partition, newest in {one.partition: one for one in entries}.items():
        place, more = "position", dict[str, Any](Limit=KEYS, IndexName=INDEX)
        if partition.endswith(LOG_SUFFIX):
            place, more = "SK", {"Limit": SEGMENTS, "ConsistentRead": True}
        more |= {"ProjectionExpression": "PK, SK", "ExpressionAttributeNames": {"#place": place}}
        values = {":partition": partition, ":after": _place(newest)}
        keys = events.query("PK = :partition AND #place > :after", values, **more)["Items"]
        # Only the attributes that count events, without the bodies.
        items = events.batch_get(keys, consistent=True, only=("PK", "SK", *TIMED, *NO_NEW_EVENT))
        found += filter(None, map(entry_of, items))
    return found


def _place(entry: Entry) -> str:
    """Returns the last place that an entry may have: in a log its key, else in the index."""
    return entry.key if entry.partition.endswith(LOG_SUFFIX) else f"{entry.received_at_ms + 1:015d}"


def lag(arrivals: Arrivals, stream_id: str, record: SinkRecord, stored: Table | None = None) -> Lag:
    """Returns how far the sink is behind, for any reason, a pause included. Raises StoreUnavailable.

    Events that a replay sends again do not count, because they were taken before. For the stored events that a new sink
    reads first, and those whose arrivals have expired, the lag has only an age, not a number. With the events table as
    `stored`, the lag includes what is stored and not noted yet.
    """
    record, end = current_record(arrivals, stream_id, record), arrivals.last_arrival(stream_id)
    events, oldest_ms = 0, 0
    if end is not None and not record.is_at(end):
        for arrival in arrivals.arrivals_from(stream_id, record.number, 2):
            done = record.done if arrival.number == record.number else 0
            if left := [] if done == ALL else arrival.entries_from(done):
                events = end.total - (arrival.total - arrival.events + done)
                oldest_ms = min(entry.received_at_ms for entry, _, _ in left)
                break
    behind = Lag(0, 0) if end is None or stored is None else unnoted_lag(arrivals, stream_id, stored, end)
    apart = [one.entry.received_at_ms for one in record.set_apart] + [record.spilled_ms] * (record.spilled > 0)
    waits = [one for one in (oldest_ms, behind.oldest_ms, record.unsent_ms, *apart) if one]
    return Lag(events + behind.events + record.all_apart, min(waits, default=0))


def new_record(
    arrivals: Arrivals, place: Place, arrival: int, noted_ms: int, from_ms: int | None, now_ms: int
) -> SinkRecord:
    """Returns the record of a sink that begins with an arrival, or after the newest one if `arrival` is 0.

    `noted_ms` is when the arrival was noted, 0 if that is not known. If `from_ms` is not None, the sink first gets what
    came from then until now. Raises StoreUnavailable.
    """
    end = None if arrival else arrivals.last_arrival(place.stream_id)
    number, done = (arrival, 0) if arrival else (end.number, ALL) if end else (0, ALL)
    record = SinkRecord(place.label, number=number, done=done)
    first = [one for one in arrivals.arrivals_from(place.stream_id, arrival, 1) if one.number == arrival]
    entries = (entry.received_at_ms for one in first for entry in one.entries)
    came_ms = min(entries, default=noted_ms if arrival else now_ms)
    if from_ms is None:
        # If arrivals expire before the sink has taken one, it gets no event from before them.
        return replace(record, replay_from_ms=came_ms)
    if noted_ms and not first:
        from_ms = min(from_ms, came_ms - LATE_MS)
    return replace(record, replay_from_ms=from_ms, replay_until_ms=now_ms, is_backfill=True)


@dataclass(frozen=True, slots=True)
class Command:
    """A person's command to a sink; `from_ms` is for a replay, `is_all` for a skip."""

    name: str
    from_ms: int = 0
    is_all: bool = False

    def first_ms(self, target: Target | None) -> int | None:
        """Returns from when on a new sink gets events, None if only later ones: as its target says, or earlier."""
        instants = (None if target is None else target.from_ms, self.from_ms if self.name == "replay" else None)
        return min((one for one in instants if one is not None), default=None)

    def apply(self, place: Place, record: SinkRecord, arrivals: Arrivals, feed: Feed, now_ms: int) -> SinkRecord:
        """Returns the record after the command; raises StoreUnavailable."""
        if self.name == "pause":
            return replace(record, is_paused=True)
        if self.name == "resume":
            back_ms = now_ms if record.is_paused else record.back_ms
            return replace(record, is_paused=False, failures=0, rest_until_ms=0, back_ms=back_ms)
        if self.name == "replay":
            # To a new sink, nothing was sent before.
            replaying = replace(record.with_replay(self.from_ms, now_ms), failures=0, rest_until_ms=0)
            return replaying if record.turn else record
        if self.is_all:
            skipped, end = (
                lag(arrivals, place.stream_id, record).events,
                new_record(arrivals, place, 0, 0, None, now_ms),
            )
            record = replace(
                record,
                number=end.number,
                done=end.done,
                replay_from_ms=now_ms,
                replay_until_ms=0,
                backfill_until_ms=0,
                apart="",
                spilled=0,
                is_crowded=False,
            )
        elif record.apart:
            _, *left = sorted(record.set_apart, key=lambda one: one.entry.received_at_ms)
            return replace(record.with_set_apart(left, record.again_ms), skipped=record.skipped + 1)
        else:
            page = feed.page(place.stream_id, record, 1, now_ms)
            skipped = len(page.broken or page.messages[:1])
            record = record_after_step(page.begin, page.messages[0].step) if page.messages else page.end
        left_ms = record.left_ms if record.is_replaying else 0
        return replace(record, skipped=record.skipped + skipped, failures=0, rest_until_ms=0, waits="", left_ms=left_ms)
