"""Keeps for each stream and sink its place, what was delivered, and what a person wants of it.

A record is an item of the delivery table: the stream's id, and `sink#<label>`. A worker reads it, works, and saves it
only if nobody has saved it since, so only one of two workers continues. The counts are of deliveries: an event sent
twice counts twice. Invariants: a place moves only past events that the sink took, that the dead-letter queue has, or
that a person skipped; each write raises `turn`, and is refused if the stored `turn` is not the one that was read. If a
sink took an arrival before that was noted, the record has not moved: `with_taken` adds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from handlers.deliver.arrivals import PREFIX as ARRIVAL
from handlers.deliver.arrivals import Arrival, Entry, arrival_of
from handlers.deliver.bells import Place
from handlers.store import typed_values
from handlers.store.control_table import IS_NEW, Table
from handlers.store.typed_values import Item
from handlers.values import dataclass

PREFIX = "sink#"
# Of what was spilled: the label and a line end follow. It sorts before arrivals.
_APART = "apart#"
# How many events that are set apart a record names. The others are spilled.
MOST_APART = 50
# In place of the number of an arrival's events that are done.
ALL = -1


class Apart(NamedTuple):
    """An event that the place has passed though the sink refuses it: the `at`th of its entry, since an instant."""

    entry: Entry
    at: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """How far a stream's sink has come: `done` events of the arrival `number`, or ALL of them; 0 and 0 at first.

    While `replay_until_ms` is not 0, the sink first gets what came from `replay_from_ms` until then, read from the
    events themselves after the position `replay_after`; `is_backfill` is set if none of that was sent before. A replay
    interrupts a backfill, whose rest is kept in `backfill_…` until the replay is over; without a backfill, these keep
    the former `replay_from_ms`, before which nothing is owed. `left_ms` is when the next event came that a worker left:
    one of the backfill, or the one before it, 0 before its first try; without a backfill, 0 if it left none.
    `failures` counts tries in a row without an event taken, `waits` is why, "" if nothing failed; before
    `rest_until_ms` the sink is not tried again. `newest_ms` is when the newest taken event came; `took_ms` is how long
    the slowest of a worker's last requests took, 0 if none is known. `apart` is what `set_apart` reads, which is sent
    again at `again_ms`, after `apart_failures` tries in a row of which the sink took none; `spilled` counts the events
    that are set apart in items of their own, the oldest of which came at `spilled_ms` or later. While the record
    `is_crowded`, what is set apart comes before what follows. At `back_ms` the sink took events again after it was away
    or paused; a refusal before that shows nothing about an event.
    """

    sink: str
    turn: int = 0
    number: int = 0
    done: int = 0
    replay_from_ms: int = 0
    replay_until_ms: int = 0
    replay_after: str = ""
    is_backfill: bool = False
    backfill_from_ms: int = 0
    backfill_until_ms: int = 0
    backfill_after: str = ""
    left_ms: int = 0
    is_paused: bool = False
    delivered: int = 0
    failed: int = 0
    dead_lettered: int = 0
    skipped: int = 0
    failures: int = 0
    waits: str = ""
    rest_until_ms: int = 0
    newest_ms: int = 0
    at_ms: int = 0
    took_ms: int = 0
    apart: str = ""
    again_ms: int = 0
    apart_failures: int = 0
    spilled: int = 0
    spilled_ms: int = 0
    is_crowded: bool = False
    back_ms: int = 0

    @property
    def all_apart(self) -> int:
        """How many events the place has passed and the sink has not taken."""
        return len(self.set_apart) + self.spilled

    @property
    def set_apart(self) -> list[Apart]:
        """Those of them that are sent next, in this order."""
        return [Apart(Entry(*entry), *more) for entry, *more in json.loads(self.apart or "[]")]

    def has_due(self, now_ms: int) -> bool:
        """Whether some of them are to be sent now; not to a sink that takes nothing."""
        return self.all_apart > 0 and not self.failures and self.again_ms <= now_ms

    def with_set_apart(self, several: Iterable[Apart], again_ms: int) -> SinkRecord:
        """Returns the record with just these events set apart."""
        text = json.dumps(list(several), ensure_ascii=False, separators=(",", ":"))
        return replace(self, apart="" if text == "[]" else text, again_ms=again_ms)

    @property
    def is_replaying(self) -> bool:
        """Whether it reads the events themselves."""
        return self.replay_until_ms > 0

    def is_at(self, end: Arrival) -> bool:
        """Whether it has come to the end of an arrival, or beyond: the arrivals after it may have expired first."""
        return (self.number, self.done) == (end.number, ALL) or self.number > end.number

    @property
    def unsent_ms(self) -> int:
        """When the next event came that a backfill has still to send, or that a paused sink waits for; 0 for none.

        It is 0 as well if that is not known: before the first try.
        """
        if self.backfill_until_ms:
            return self.left_ms or self.backfill_from_ms
        if not self.is_replaying:
            return self.left_ms if self.is_paused and self.left_ms > self.newest_ms else 0
        # A backfill that has sent all that is visible waits for what the index may show late.
        is_left = self.is_backfill and self.left_ms != self.replay_until_ms
        return self.left_ms or self.replay_from_ms if is_left else 0

    def with_replay(self, from_ms: int, until_ms: int) -> SinkRecord:
        """Returns the record with a replay of what was sent before, for which a backfill waits."""
        made = replace(self, replay_from_ms=from_ms, replay_until_ms=until_ms, replay_after="", is_backfill=False)
        if not self.is_replaying:
            return replace(made, backfill_from_ms=self.replay_from_ms)
        if not self.is_backfill:
            return made
        return replace(
            made,
            backfill_from_ms=self.replay_from_ms,
            backfill_until_ms=self.replay_until_ms,
            backfill_after=self.replay_after,
        )

    def after_replay(self) -> SinkRecord:
        """Returns the record at the end of a replay: with the backfill that waited for it, if there is one."""
        if not self.backfill_until_ms:
            since_ms = self.replay_until_ms if self.is_backfill else self.backfill_from_ms
            return replace(self, replay_from_ms=since_ms, replay_until_ms=0, replay_after="", left_ms=0)
        return replace(
            self,
            replay_from_ms=self.backfill_from_ms,
            replay_until_ms=self.backfill_until_ms,
            replay_after=self.backfill_after,
            is_backfill=True,
            backfill_until_ms=0,
        )


def with_taken(record: SinkRecord, arrival: Arrival | None) -> SinkRecord:
    """Returns the record with what its sink took of the arrival before it was noted; else as it is."""
    if arrival is None or record.sink not in arrival.taken or arrival.number <= record.number:
        return record
    return replace(
        record,
        number=arrival.number,
        done=arrival.part.get(record.sink, ALL),
        delivered=arrival.taken[record.sink],
        newest_ms=max(record.newest_ms, arrival.newest_ms),
        at_ms=arrival.at_ms,
    )


_NAMES = [one.name for one in fields(SinkRecord) if one.name != "sink"]
# How many characters are kept of why a sink waits.
_MOST_WORDS = 500


class SinkRecords:
    def __init__(self, table: Table) -> None:
        self._table = table

    def read(self, place: Place) -> SinkRecord | None:
        """Returns the record as it is now; None if the sink is new. Raises StoreUnavailable."""
        item = self._table.get(place.stream_id, f"{PREFIX}{place.label}")
        return None if item is None else _to_record(item)

    def read_all(self, stream_id: str) -> list[SinkRecord]:
        """Returns the records of a stream's sinks, with those of former ones; raises StoreUnavailable."""
        condition, values = "PK = :stream AND begins_with(SK, :prefix)", {":stream": stream_id, ":prefix": PREFIX}
        return [_to_record(item) for item in self._table.query_items(condition, values, ConsistentRead=True)]

    def read_with_arrival(self, stream_id: str, sinks: int) -> tuple[Arrival | None, dict[str, SinkRecord]]:
        """Returns a stream's newest arrival and its sinks' records; by one read if it never had more than `sinks`.

        Raises StoreUnavailable.
        """
        more = {"ConsistentRead": True, "ScanIndexForward": False}
        # Records sort behind arrivals.
        items = self._table.query_first(sinks + 1, "PK = :stream", {":stream": stream_id}, **more)
        records = [_to_record(item) for item in items if item["SK"]["S"].startswith(PREFIX)]
        if len(records) > sinks:
            records, items = self.read_all(stream_id), self._table.newest_records(stream_id, ARRIVAL, 1)
        end = next((arrival_of(item) for item in items if item["SK"]["S"].startswith(ARRIVAL)), None)
        return end, {one.sink: one for one in records}

    def with_set_apart(self, place: Place, record: SinkRecord, more: Sequence[Apart], again_ms: int) -> SinkRecord:
        """Returns the record with more events set apart; first spills the others if it would name too many."""
        for first in range(0, len(more), MOST_APART):
            several = more[first : first + MOST_APART]
            if len(record.set_apart) + len(several) > MOST_APART:
                record = self._spill(place, record)
            record = record.with_set_apart([*several, *record.set_apart], again_ms)
        return record

    def save_next_set_apart(self, place: Place, record: SinkRecord) -> SinkRecord | None:
        """Spills what the record sets apart, and saves it with what was spilled first; returns as `save`."""
        item = next(self._read_spilled(place, Limit=1), None) if record.spilled else None
        if item is None:
            return self.save(place, replace(record, spilled=0))
        first = replace(record, apart=item["apart"]["S"], spilled=0)
        left = self._spill(place, record).spilled - first.all_apart
        # Only a read that finds no item shows that none is left.
        saved = self.save(place, replace(first, spilled=max(1, left)))
        if saved is not None:
            # After it: a kill in between repeats events and loses none.
            self._table.delete(typed_values.item_key(place.stream_id, item["SK"]["S"]), "", {})
        return saved

    def delete_spilled(self, place: Place) -> None:
        """Deletes what was spilled; raises StoreUnavailable."""
        for item in self._read_spilled(place):
            self._table.delete(typed_values.item_key(place.stream_id, item["SK"]["S"]), "", {})

    def _spill(self, place: Place, record: SinkRecord) -> SinkRecord:
        if record.apart:
            name = f"{_APART}{place.label}\n{record.turn:015d}-{record.spilled:015d}"
            self._table.set_attributes(typed_values.item_key(place.stream_id, name), {"apart": record.apart})
        came_ms = [one.entry.received_at_ms for one in record.set_apart] + [record.spilled_ms] * (record.spilled > 0)
        return replace(record, apart="", spilled=record.all_apart, spilled_ms=min(came_ms, default=0))

    def _read_spilled(self, place: Place, **more: Any) -> Iterator[Item]:
        values = {":stream": place.stream_id, ":prefix": f"{_APART}{place.label}\n"}
        return self._table.query_items("PK = :stream AND begins_with(SK, :prefix)", values, ConsistentRead=True, **more)

    def save(self, place: Place, record: SinkRecord) -> SinkRecord | None:
        """Returns the record as saved; None if another has saved it since it was read. Raises StoreUnavailable.

        If the answer is lost, the client sends the request again, which is refused because of the first one.
        """
        saved = replace(record, turn=record.turn + 1, waits=record.waits[:_MOST_WORDS])
        key = typed_values.item_key(place.stream_id, f"{PREFIX}{place.label}")
        attributes = {name: getattr(saved, name) for name in _NAMES}
        if record.turn:
            is_saved = self._table.set_attributes(key, attributes, "#turn = :read", read=record.turn)
        else:
            is_saved = self._table.set_attributes(key, attributes, IS_NEW)
        return saved if is_saved or self.read(place) == saved else None


def _to_record(item: Item) -> SinkRecord:
    return typed_values.read_as(SinkRecord, item, sink=item["SK"]["S"][len(PREFIX) :])
