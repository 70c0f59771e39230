"""Reads what a sink has not taken: after its place in the arrivals, or from the events themselves for a replay.

A replay reads what came from one instant until another, in the stream's own order, and marks each event as replayed. At
its end it waits for events that the index shows late. A sink for which an arrival has expired replays what came since
it last took something. Invariants: this module writes nothing; no event of an arrival is passed unread, unless it is
gone from the table or is a mark of one in the dead-letter queue; about MOST_BYTES of bodies are held at most.
"""

import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

from handlers.api.event_pages import event_json
from handlers.connection.inputs import Order
from handlers.deliver.arrivals import KEPT_MS, Arrival, Arrivals, Entry
from handlers.deliver.contract import Message, Step
from handlers.deliver.delivery_records import ALL, Apart, SinkRecord, with_taken
from handlers.errors import StoreUnavailable
from handlers.store.control_table import KEYS, Table
from handlers.store.event_items import Entry as Stored
from handlers.store.event_items import StoredEvent, to_stored_event
from handlers.store.segment_reader import LOG_SUFFIX, stored_events
from handlers.store.typed_values import Item, item_key
from handlers.values import dataclass

MOST_BYTES = 4 * 1024 * 1024
ARRIVALS = 50
# How many places a page of a replay reads at most: without an order few of them may be wanted, and none may follow.
MOST_PLACES = 5_000
# DynamoDB answers with 16 MB at most.
BATCH = 25
# How long after its arrival an event may be written. This matters only if arrivals have expired.
LATE_MS = 3_600_000
# How long after its write an event may be missing in the index.
SETTLED_MS = 15_000
# Its multiples, without their whole parts, come near every share.
_GOLDEN = 0.618034


@dataclass(frozen=True, slots=True)
class Page:
    """A sink's next messages, with the record before them and the one once all are done.

    `oldest_ms` is when the first became visible. If there are no messages and `later_ms` is not 0, more may be readable
    at that instant. `broken` are entries that this version cannot read, each with the reason. `is_last` is whether
    nothing came after the page.
    """

    messages: list[Message]
    begin: SinkRecord
    end: SinkRecord
    oldest_ms: int = 0
    later_ms: int = 0
    broken: Sequence[tuple[Entry, str]] = ()
    is_last: bool = False

    def left_ms(self, finished: Container[tuple[str, str]]) -> int:
        """Returns when the first message came that is not done; 0 if all are, or when the last came amid a replay."""
        left = (one.received_at_ms for one in self.messages if (one.key, one.position) not in finished)
        is_part = self.messages and self.end.is_replaying
        return next(left, self.messages[-1].received_at_ms if is_part else 0)

    def record_after(self, finished: Container[tuple[str, str]]) -> SinkRecord:
        """Returns the record after the leading messages that are done."""
        moved = self.begin
        for message in self.messages:
            if (message.key, message.position) not in finished:
                break
            moved = record_after_step(moved, message.step)
        return moved


@dataclass(frozen=True, slots=True)
class Feed:
    """The delivery table's arrivals, the events table, and how a stream's events are read in their order.

    `read_in_order` is `EventReader`'s: it takes a stream, a position and the current instant.
    """

    arrivals: Arrivals
    events: Table
    read_in_order: Any

    def page(self, stream_id: str, record: SinkRecord, most: int, now_ms: int) -> Page:
        """Returns the first messages and broken entries after the place, about `most`; raises StoreUnavailable."""
        if record.is_replaying:
            return self._replay_page(stream_id, record, most, now_ms)
        limit = min(ARRIVALS, most + 1)
        found = self.arrivals.arrivals_from(stream_id, record.number, limit)
        chained = _unbroken_arrivals(found, record)
        is_old = _is_old(record, chained, now_ms)
        ahead, behind = [one for one in chained if not record.is_at(one)], found[len(chained) :]
        if ahead or not (behind or is_old):
            is_last = len(found) < limit and not (behind or is_old)
            return self._arrivals_page(stream_id, record, ahead, most, is_last=is_last)
        # Arrivals have expired. Their events may still be there, and came when those were kept.
        number, done, until_ms = record.number, ALL, now_ms
        if behind:
            number, done, until_ms = behind[0].number, 0, min(behind[0].at_ms, now_ms - KEPT_MS)
        # Without an order, the sink may have taken events that are later than the next one.
        newest_ms = min(record.newest_ms, record.left_ms or record.newest_ms)
        since_ms = max(0, max(newest_ms, record.replay_from_ms) - LATE_MS)
        lost = replace(record.with_replay(since_ms, until_ms), number=number, done=done, is_backfill=True, left_ms=0)
        return self._replay_page(stream_id, lost, most, now_ms)

    # --- what arrived -------------------------------------------------------------------------------------------------

    def _arrivals_page(
        self, stream_id: str, record: SinkRecord, ahead: Sequence[Arrival], most: int, *, is_last: bool
    ) -> Page:
        for arrival in ahead:
            # The call that noted the arrival may have sent all or some of it, and everything before it.
            record = with_taken(record, arrival)
        messages, broken = list[Message](), list[tuple[Entry, str]]()
        oldest_ms, size, is_full, left = 0, 0, False, _entries_left(ahead, record)
        while left and not is_full:
            # If the events so far are small, a request reads as many as DynamoDB allows, whatever arrivals they are in.
            is_small = messages and size * KEYS < MOST_BYTES * len(messages)
            count = min(KEYS if is_small else BATCH, max(1, most - len(messages)))
            part, left = left[:count], left[count:]
            items = self._items([entry for _, entry, _, _ in part])
            for arrival, entry, before, skipped in part:
                made, problem = messages_of(stream_id, items.get((entry.partition, entry.key)))
                if problem:
                    broken.append((entry, problem))
                messages += [
                    one._replace(step=(arrival.number, before + at)) for at, one in enumerate(made, 1) if at > skipped
                ]
                size += sum(one.size_bytes for one in made)
                oldest_ms = oldest_ms or (arrival.at_ms if messages else 0)
            is_full = len(messages) + len(broken) >= most or size > MOST_BYTES
        end = record
        if left:
            is_within = left[0][0] is arrival
            end = replace(record, number=arrival.number, done=before + entry.events if is_within else ALL)
        elif ahead:
            # A skip may have passed the last event of all.
            end = replace(record, number=ahead[-1].number, done=ALL)
        return Page(messages, record, end, oldest_ms, broken=broken, is_last=is_last and not left)

    def has_more(self, stream_id: str, record: SinkRecord) -> bool:
        """Returns whether the sink has not taken everything that was noted; raises StoreUnavailable."""
        end = self.arrivals.last_arrival(stream_id)
        return end is not None and not with_taken(record, end).is_at(end)

    def sample_messages(self, stream_id: str, record: SinkRecord, most: int) -> Iterator[Message]:
        """Yields some of the events behind the place, others after each failure; raises StoreUnavailable."""
        end = self.arrivals.last_arrival(stream_id)
        behind = 0 if end is None else end.number - record.number
        for count in range(most * record.failures, most * (record.failures + 1)):
            share = count * _GOLDEN % 1
            arrival = self.arrivals.arrival_before(stream_id, record.number + round(behind * share) + 1)
            if arrival is not None and not record.is_at(arrival):
                done = max(round((arrival.events - 1) * share), record.done * (arrival.number == record.number))
                at = replace(record, number=arrival.number, done=done)
                yield from self._arrivals_page(stream_id, at, [arrival], 1, is_last=False).messages[:1]

    def messages_set_apart(self, stream_id: str, several: Sequence[Apart]) -> Iterator[tuple[Apart, Message | None]]:
        """Yields each that still exists with its message, None if that cannot be read; raises StoreUnavailable."""
        items = self._items([one.entry for one in several])
        for one in several:
            made, problem = messages_of(stream_id, items.get((one.entry.partition, one.entry.key)))
            if problem or one.at <= len(made):
                yield one, None if problem else made[one.at - 1]

    def _items(self, entries: Sequence[Entry]) -> dict[tuple[str, str], Item]:
        """Returns the items of the entries that still exist, at least as new as their arrivals."""
        keys = {(one.partition, one.key): item_key(one.partition, one.key) for one in entries}
        logs = {name for name in keys if name[0].endswith(LOG_SUFFIX)}
        # An item with an event never changes, so a read at half the price shows the event, or shows nothing yet.
        found = self._read_items([one for name, one in keys.items() if name not in logs], consistent=False)
        unsure = logs | {name for name in keys if name not in found or "dead_letter" in found[name]}
        return found | self._read_items([keys[name] for name in unsure], consistent=True)

    def _read_items(self, keys: list[Item], *, consistent: bool) -> dict[tuple[str, str], Item]:
        found = self.events.batch_get(keys, consistent=consistent) if keys else []
        return {(item["PK"]["S"], item["SK"]["S"]): item for item in found}

    # --- what came before ---------------------------------------------------------------------------------------------

    def _replay_page(self, stream_id: str, record: SinkRecord, most: int, now_ms: int) -> Page:
        messages, place, size = list[Message](), record.replay_after, 0
        waiting = self._waiting_entries(stream_id, record)
        for read, (position, event) in enumerate(self._replay_places(stream_id, record, now_ms), 1):
            place = position
            # An event that waits as an arrival is sent from the arrivals.
            if event is not None and not waiting.keys() & {event.key, position.partition("/")[0]}:
                message = message_of(stream_id, event, {} if record.is_backfill else {"replayed": True})
                messages.append(message._replace(step=position))
                size += message.size_bytes
            if len(messages) >= most or size > MOST_BYTES or read >= MOST_PLACES:
                break
        else:
            is_settled = now_ms >= record.replay_until_ms + SETTLED_MS
            if is_settled:
                end = record.after_replay()
                if record.is_backfill:
                    # Arrivals may expire before they are sent.
                    end = replace(end, replay_from_ms=min((end.replay_from_ms, *waiting.values())))
                return Page(messages, record, end, record.replay_from_ms)
            if not messages:
                # All that is visible was sent.
                left_ms = record.replay_until_ms if record.is_backfill else record.left_ms
                end = replace(record, replay_after=place, left_ms=left_ms)
                return Page([], record, end, later_ms=record.replay_until_ms + SETTLED_MS)
        return Page(messages, record, replace(record, replay_after=place), record.replay_from_ms)

    def _waiting_entries(self, stream_id: str, record: SinkRecord) -> dict[str, int]:
        """Returns when each entry of the next arrivals came, by its key, or by its segment's place in positions."""
        found = self.arrivals.arrivals_from(stream_id, record.number, ARRIVALS)
        return {
            f"{int(entry.key.rpartition('#')[2]):015d}"
            if entry.partition.endswith(LOG_SUFFIX)
            else entry.key: entry.received_at_ms
            for _, entry, _, done in _entries_left(found, record)
            if not done
        }

    def _replay_places(
        self, stream_id: str, record: SinkRecord, now_ms: int
    ) -> Iterator[tuple[str, StoredEvent | None]]:
        """Yields each place after the record's, with its event, None if that is not sent."""
        order: Order
        order, entries = self.read_in_order(stream_id, record.replay_after, record.replay_from_ms, now_ms)
        for stored in entries:
            event = _event_to_replay(stored, record)
            # In the order of keys, or in a log of many writers, an older event may follow.
            if order == "index" and stored.event is not None and stored.event.received_at_ms >= record.replay_until_ms:
                return
            yield stored.position, event


def _entries_left(arrivals: Sequence[Arrival], record: SinkRecord) -> list[tuple[Arrival, Entry, int, int]]:
    """Returns the entries after the record's place, each with its arrival and what `Arrival.entries_from` adds."""
    places = ((one, record.done * (one.number == record.number)) for one in arrivals if not record.is_at(one))
    return [(one, *entry) for one, done in places for entry in one.entries_from(done)]


def _event_to_replay(stored: Stored, record: SinkRecord) -> StoredEvent | None:
    event = stored.event
    if event is None or event.dead_letter is not None:
        return None
    return event if record.replay_from_ms <= event.received_at_ms < record.replay_until_ms else None


def _unbroken_arrivals(found: Sequence[Arrival], record: SinkRecord) -> Sequence[Arrival]:
    """Returns the arrivals up to the first before which others have expired: each names the one before it.

    DynamoDB deletes what has expired in any order. The first arrival of all follows 0, and so does the first after all
    others may have expired.
    """
    is_known = record.done == ALL and (record.number > 0 or not _is_old(record, (), found[0].at_ms if found else 0))
    before = record.number if is_known else -1
    for at, arrival in enumerate(found):
        if arrival.before != before and arrival.number != record.number and record.sink not in arrival.taken:
            return found[:at]
        before = arrival.number
    return found


def _is_old(record: SinkRecord, chained: Sequence[Arrival], now_ms: int) -> bool:
    """Returns whether an arrival behind these may have expired, or behind the record's place if there are none."""
    known_ms = max(record.newest_ms, record.replay_from_ms, *(one.at_ms for one in chained[-1:]))
    return 0 < known_ms < now_ms - KEPT_MS


def messages_of(stream_id: str, item: Item | None) -> tuple[list[Message], str]:
    """Returns an item's messages, none if it is gone or in the dead-letter queue; and what is wrong with it."""
    if item is None:
        return [], ""
    try:
        is_log = item["PK"]["S"].endswith(LOG_SUFFIX)
        events = list(stored_events(item, _no_body)) if is_log else [to_stored_event(item, _no_body)]
    except StoreUnavailable as problem:
        return [], str(problem)
    except (ValueError, KeyError, TypeError) as problem:
        return [], f"it cannot be read: {type(problem).__name__}"
    return [message_of(stream_id, event, {}) for event in events if event.dead_letter is None], ""


def _no_body(_key: str) -> None:
    # A body in the bucket is named, not read.
    return None


def message_of(stream_id: str, event: StoredEvent, more: dict[str, Any]) -> Message:
    """Returns the event as a message: its JSON with the delivery's own fields."""
    text = json.dumps({"stream": stream_id, **event_json(event), **more}, ensure_ascii=False, separators=(",", ":"))
    return Message(stream_id, event.key, event.position, event.name, event.received_at_ms, text)


def record_after_step(record: SinkRecord, step: Step) -> SinkRecord:
    if isinstance(step, str):
        return replace(record, replay_after=step)
    return replace(record, number=step[0], done=step[1])
