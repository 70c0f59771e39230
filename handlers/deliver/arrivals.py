"""Keeps a stream's arrivals in the order in which the events table's stream showed them: a log that sinks read.

An event becomes visible when it is stored, which is not the order of the positions: two connections write at once, a
frozen one writes late, a person puts an event back. So the delivery notes what each call of the table's stream brought
of a stream as an *arrival* with the next free number. A reader that has read up to a number has seen everything noted
before it, and nothing comes before it later. An arrival names the sinks that took it before it was noted
(handlers/deliver/immediate_sending.py).

An arrival is an item of the delivery table: the stream's id, and `arrival#<number>`. Invariants: a stream's numbers
grow, even after all of them have expired; `before` is the number of the preceding one, or of none; what one call
brought is noted once, unless another call noted something in between; a sink that has taken one has taken all before.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from handlers.errors import StoreUnavailable
from handlers.store.control_table import Table, WaitBeforeRetry
from handlers.store.typed_values import Item, expiry, item_key, number_value, read_int, read_text
from handlers.values import dataclass

# How long arrivals are kept. Later, a sink reads the events themselves.
KEEP_DAYS = 14
# An hour before that a later one may be gone: DynamoDB deletes what has expired in any order, and clocks differ.
KEPT_MS = (KEEP_DAYS * 24 - 1) * 3_600_000
PREFIX = "arrival#"
_BEHIND = f"{PREFIX}~"
_DIGITS = 15
UNIT_BYTES = 800  # Of a write unit's 1,024; the rest is for the other fields.
# How often to try for a free number: two shards with parts of one stream hardly collide twice in a row.
MOST_TRIES = 20
# The number of streams whose newest arrival a sandbox remembers, with up to a call's events.
MOST_ENDS = 5_000


class Entry(NamedTuple):
    """An item of the events table: an event, or a segment with this many events, the first received at that time."""

    partition: str
    key: str
    events: int
    received_at_ms: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """The events of one stream that one call brought; `total` counts those of this arrival and all before it.

    `before` is the number of the preceding one, 0 if there was none or it may have expired; `mark` names the records of
    the call. `taken` has the sinks that took this arrival and all before it, and how many events each has taken in all.
    A sink that took only the first events is in `part` too, with how many.
    """

    number: int
    before: int
    total: int
    at_ms: int
    mark: str
    entries: tuple[Entry, ...] = ()
    taken: Mapping[str, int] = field(default_factory=dict)
    part: Mapping[str, int] = field(default_factory=dict)

    @property
    def newest_ms(self) -> int:
        """When the newest of its events came."""
        return max((entry.received_at_ms for entry in self.entries), default=0)

    @property
    def events(self) -> int:
        return sum(entry.events for entry in self.entries)

    def is_newest(self, now_ms: int) -> bool:
        """Whether it is certainly the newest if no later arrival is found: a later one cannot have expired yet."""
        return now_ms < self.at_ms + KEPT_MS

    def is_taken_by(self, label: str) -> bool:
        """Whether the sink took all of it before it was noted."""
        return label in self.taken and label not in self.part

    def entries_from(self, place: int) -> list[tuple[Entry, int, int]]:
        """Returns its entries from the `place`th event on, each with how many come before it, and are done in it."""
        left, before = list[tuple[Entry, int, int]](), 0
        for entry in self.entries:
            if place < before + entry.events:
                left.append((entry, before, max(0, place - before)))
            before += entry.events
        return left


_EMPTY = Arrival(0, 0, 0, 0, "")


class Taken(NamedTuple):
    """What a sink took of an arrival before it is noted: `messages` more than the `before` that it had taken.

    They are those of the first `part` events; `part` is 0 if it took all.
    """

    before: int
    messages: int
    part: int = 0


class SentAtOnce(NamedTuple):
    """What sinks took of an arrival before it is noted; `last_arrival` came before it, and was just read."""

    last_arrival: Arrival = _EMPTY
    taken: Mapping[str, Taken] = {}


class Arrivals:
    """The arrivals of all streams; it remembers the newest of each stream that this sandbox has noted."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._ends: dict[str, Arrival] = {}

    def note(
        self,
        brought: Mapping[str, tuple[Sequence[Entry], str]],
        now_ms: int,
        sent: Mapping[str, SentAtOnce] | None = None,
        wait_before_retry: WaitBeforeRetry | None = None,
    ) -> dict[str, Arrival]:
        """Notes an arrival for each stream and returns it; raises StoreUnavailable.

        `brought` has each stream's entries in order, and the mark of the records; `sent` has what sinks took of them,
        `wait_before_retry` gives a busy table time.
        """
        noted: dict[str, Arrival] = {}
        wanted = dict(brought)
        if len(self._ends) + len(wanted) > MOST_ENDS:
            self._ends = {}
        # The arrivals that were just read are at least as new as those that this sandbox remembers.
        self._ends |= {one: of.last_arrival for one, of in (sent or {}).items() if of.last_arrival.number}
        for _ in range(MOST_TRIES):
            for stream_id in wanted.keys() - self._ends.keys():
                self._ends[stream_id] = self.last_arrival(stream_id) or _EMPTY
            # A repeated call, or one whose answer was lost, finds its own arrival.
            noted |= {one: self._ends[one] for one, (_, mark) in wanted.items() if self._ends[one].mark == mark}
            wanted = {one: wanted[one] for one in wanted if one not in noted}
            if not wanted:
                return noted
            made = [
                self._next_arrival(one, tuple(entries), mark, now_ms, (sent or {}).get(one, SentAtOnce()))
                for one, (entries, mark) in wanted.items()
            ]
            items = [_item(one, arrival) for one, arrival in zip(wanted, made, strict=True)]
            for one, arrival, is_new in zip(wanted, made, self._table.insert(items, wait_before_retry), strict=True):
                if is_new:
                    self._ends[one] = arrival
                else:
                    del self._ends[one]
        raise StoreUnavailable("other calls took every number that an arrival tried")

    def _next_arrival(
        self, stream_id: str, entries: tuple[Entry, ...], mark: str, now_ms: int, sent: SentAtOnce
    ) -> Arrival:
        end = self._ends[stream_id]
        # Once all arrivals may have expired, the preceding one is unknown, and the number is the time. That is above
        # every former number, because no stream has a thousand arrivals a second.
        before, following = end.number, end.number + 1
        if not end.is_newest(now_ms):
            before, following = 0, max(now_ms, following)
        total = end.total + sum(entry.events for entry in entries)
        # If another call has noted events since, a sink must have taken those as well.
        taken = {
            label: end.taken.get(label, one.before) + one.messages
            for label, one in sent.taken.items()
            if end.number == sent.last_arrival.number or end.is_taken_by(label)
        }
        part = {label: one.part for label, one in sent.taken.items() if label in taken and one.part}
        return Arrival(following, before, total, now_ms, mark, entries, taken, part)

    def last_arrival(self, stream_id: str) -> Arrival | None:
        """Returns the newest arrival; None if there is none. Raises StoreUnavailable."""
        return next(iter(self.newest_arrivals(stream_id, 1)), None)

    def newest_arrivals(self, stream_id: str, most: int) -> list[Arrival]:
        """Returns the newest arrivals, the newest first; raises StoreUnavailable."""
        return [arrival_of(item) for item in self._table.newest_records(stream_id, PREFIX, most)]

    def arrivals_from(self, stream_id: str, from_number: int, most: int) -> list[Arrival]:
        """Returns the first arrivals from a number on; raises StoreUnavailable."""
        values = {":stream": stream_id, ":from": _sort_key(from_number), ":behind": _BEHIND}
        condition = "PK = :stream AND SK BETWEEN :from AND :behind"
        return [arrival_of(item) for item in self._table.query_first(most, condition, values, ConsistentRead=True)]

    def arrival_before(self, stream_id: str, number: int) -> Arrival | None:
        """Returns the last arrival before the number; None if there is none. Raises StoreUnavailable."""
        values = {":stream": stream_id, ":first": PREFIX, ":last": _sort_key(number - 1)}
        condition = "PK = :stream AND SK BETWEEN :first AND :last"
        items = self._table.query_first(1, condition, values, ConsistentRead=True, ScanIndexForward=False)
        return arrival_of(items[0]) if items else None


def _sort_key(number: int) -> str:
    return f"{PREFIX}{number:0{_DIGITS}d}"


def _item(stream_id: str, arrival: Arrival) -> Item:
    taken = json.dumps(arrival.taken, ensure_ascii=False, separators=(",", ":"))
    entries = json.dumps(arrival.entries, ensure_ascii=False, separators=(",", ":"))
    return {
        **item_key(stream_id, _sort_key(arrival.number)),
        "before": number_value(arrival.before),
        "total": number_value(arrival.total),
        "at_ms": number_value(arrival.at_ms),
        "mark": {"S": arrival.mark},
        "entries": _pack(entries, UNIT_BYTES - len(taken)),
        **({"taken": {"S": taken}} if arrival.taken else {}),
        **({"part": {"S": json.dumps(arrival.part, ensure_ascii=False)}} if arrival.part else {}),
        **expiry(arrival.at_ms, KEEP_DAYS),
    }


def _pack(entries: str, most: int) -> Item:
    """Returns the text, compressed if it would take more than one write unit: entries resemble each other."""
    return {"S": entries} if len(entries) < most else {"B": zlib.compress(entries.encode())}


def arrival_of(item: Item) -> Arrival:
    entries = item["entries"]
    texts = json.loads(entries["S"] if "S" in entries else zlib.decompress(entries["B"]))
    return Arrival(
        int(item["SK"]["S"][len(PREFIX) :]),
        read_int(item, "before") or 0,
        read_int(item, "total") or 0,
        read_int(item, "at_ms") or 0,
        read_text(item, "mark") or "",
        tuple(Entry(*one) for one in texts),
        json.loads(read_text(item, "taken") or "{}"),
        json.loads(read_text(item, "part") or "{}"),
    )
