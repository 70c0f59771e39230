"""Watches the tables during a run for lost or repeated events, a wrong cursor, and counters that fall.

It is called after each change of an item and reports violations that show only at that moment. It changes nothing.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from handlers.connection.inputs import LOG
from handlers.store import control_record, ledger_records, typed_values
from handlers.store.event_items import PLACES, partition_keys, place_of, stream_of
from handlers.store.group_store import group_lease
from handlers.store.segment_reader import LOG_SUFFIX, is_segment, segment_of, stored_events
from local.chaos.account import Account
from local.chaos.id_counts import IdCounts
from local.simulation.dynamodb_expressions import Item
from local.simulation.links import Link
from local.simulation.tables import Key
from local.simulation.unreliable_clients import whole_events
from local.simulation.wire import Wire
from states_language import Execution

# How far behind the newest event another may be written: readers read again from there (docs/store.md).
FOLLOWED_MS = 15_000
Blame = Callable[[str, str], None]


class Holder:
    """Remembers which of `executions` holds a lease."""

    def __init__(self, executions: Mapping[str, Execution]) -> None:
        self._executions = executions
        self._arn = ""

    def take_holder(self, arn: str) -> str:
        """Records the holder; returns a sentence if it may not hold the lease, else "".

        Only its successor, or the execution that it handed its claim to, may take the lease from a running execution.
        """
        if arn == self._arn:
            return ""
        before, self._arn = self._executions.get(self._arn), arn
        after = self._executions.get(arn)
        if before is None or after is None or before is after or before.status != "RUNNING":
            return ""
        if before.arn in (after.input.get("renews"), after.input.get("after")):
            return ""
        return f"{after.name} took the stream from {before.name}, which runs"


class Watch:
    """Watches one stream's items; calls `blame` with the kind and the text of each violation.

    `link_of` returns the link that the connection with a fencing token opened, or None.
    """

    def __init__(self, account: Account, wire: Wire, link_of: Callable[[int], Link | None], blame: Blame) -> None:
        self._clock = account.clock
        self._events_table = account.events_table
        self._queue = account.queue
        self._holder = Holder(account.executions)
        self._wire = wire
        self._blame = blame
        self._link_of = link_of
        self._counters = (0, 0, 0)
        self._cursor_fence = self._log_fence = 0
        self._last_cursor: tuple[str, int, Any] = ("", 0, None)
        self._live: Item = {}
        self._ending = ""
        # By place (log or record) and connection: up to which of its sent events the cursor has passed.
        self._passed: dict[tuple[str, int], int] = {}
        self._forgotten: set[int] = set()
        self._partitions = 1
        self._unordered_from: int | None = None  # the connection whose claim ended the stream's order
        self._newest_ms = 0
        self.stored_by: Counter[int] = Counter()
        self._marked_by: Counter[int] = Counter()
        self.arrivals: list[tuple[int, int]] = []  # the instant and the connection of each event; 0 is a repair
        self.brought_by: dict[int, int] = {}  # the connection of each stored event; 0 is a repair
        self.stored: dict[int, int] = {}  # when each event was stored, those in the dead-letter queue included
        self.ids = IdCounts(wire, self.stored)
        self.marked: set[int] = set()
        self.order: list[tuple[str, int]] = []  # positions and events, in the order that a reader must see
        self.keys: list[tuple[str, int]] = []  # the same by key
        self.counts: dict[int, tuple[int, int, int]] = {}  # by connection, as in its record
        self.most_counts: dict[int, tuple[int, int, int]] = {}  # the highest counts that the record ever had
        self.endings: list[tuple[int, str]] = []  # of a stream in a group: the instant and the error of each end
        self.losses: dict[tuple[int, int], tuple[int, int]] = {}  # by connection and number: begin and end

    def record_change(self, table: str, key: Key, item: Item) -> None:
        """Records one change."""
        if table == self._events_table and key[0].endswith(LOG_SUFFIX):
            self._segment(item)
        elif table == self._events_table:
            self._event(key, item)
        elif key[1] == "lease":
            self._lease(item)
        elif key[1].startswith("connection#"):
            self._connection(item)
        elif key[1].startswith("gap#") and key[1].count("#") == 2:
            _, fence, count = key[1].split("#")
            self.losses[int(fence), int(count)] = int(item["from_ms"]["N"]), int(item["to_ms"]["N"])
            self.ids.record_loss(int(fence), int(count), item, self._clock.now_ms())

    def _event(self, key: Key, item: Item) -> None:
        body, fence = "" if "dead_letter" in item else item["data"].get("S", ""), int(item["fence"]["N"])
        number = self._stored(fence, key[1], body, is_dead="dead_letter" in item)
        self.arrivals.append((int(item["received_at_ms"]["N"]), fence))
        if self._partitions == LOG or key[0] not in partition_keys(stream_of(item), self._partitions):
            self._blame("torn", f"event {number} was stored as {key[0]}, where it is never read")
        self._place(place_of(item), number, int(item["received_at_ms"]["N"]))
        bisect.insort(self.keys, (key[1], number))
        is_indexed, first = PLACES["index"] in item, self._unordered_from
        if not is_indexed and first is None:
            self._blame("misplaced", f"event {number} is not in the index, and it is read there")
        if is_indexed and first is not None and fence >= first:
            self._blame("misplaced", f"event {number} is in the index, and it is not read there")

    def _segment(self, item: Item) -> None:
        """Records a segment: its events come after all others, and its cursor must not pass events that it lacks."""
        if not is_segment(item):
            return
        if self._partitions != LOG:
            self._blame("torn", "a segment was written, and none is ever read")
        for event in stored_events(item, lambda _key: None):
            body = event.data if isinstance(event.data, str) else ""
            number = self._stored(event.fence, event.key, body, is_dead=event.dead_letter is not None)
            self.arrivals.append((event.received_at_ms, event.fence))
            if self.order and event.position <= self.order[-1][0]:
                self._blame("misplaced", f"event {number} was put before others that were there")
            bisect.insort(self.order, (event.position, number))
        cursor = segment_of(item).cursor
        if cursor is not None:
            if cursor.fence < self._log_fence:
                self._blame("backwards", f"the log's cursor went back to connection {cursor.fence}")
            self._log_fence = cursor.fence
            self._check_cursor("log", cursor.text, cursor.fence)

    def _stored(self, fence: int, key: str, body: str, *, is_dead: bool) -> int:
        """Records an event that was stored, or the mark of a dead-lettered one, and returns its number."""
        if is_dead:
            number = self._mark(key)
            self._marked_by[fence] += 1
        else:
            number = self._wire.number_of(key, body)
            self.stored_by[fence] += 1
        if number in self.stored:
            self._blame("duplicated", f"event {number} was stored twice")
        if number < 0:
            self._blame("torn", f"what was stored as {key[:20]} is not what the upstream sent")
        self.stored[number], self.brought_by[number] = self._clock.now_ms(), fence
        return number

    def _mark(self, key: str) -> int:
        """Records the mark that stands in place of a dead-lettered event, and returns the event's number."""
        letters = self.letters()
        number = self._wire.key_number(key)
        if key not in letters:
            self._blame("dead-letters", f"event {number} was marked before its message was in the queue")
        self.marked.add(number)
        return number

    def letters(self) -> dict[str, dict[str, Any]]:
        """Returns the stream's events that are whole in the queue, by key, and blames those that are wrong."""
        events = {}
        for event in (one for one in whole_events(self._queue.messages) if one["stream"] == self._wire.stream):
            events[event["key"]] = event
            number = self._wire.number_of(event["key"], event["data"])
            if number < 0 or event["id"] != self._wire.id_of(number):
                self._blame("dead-letters", f"the message of {event['key'][:20]} is not what the upstream sent")
            elif not self._wire.is_unstorable(number):
                self._blame("dead-letters", f"event {number} is in the queue, and could have been stored")
        return events

    def _place(self, position: str, number: int, received_ms: int) -> None:
        at = bisect.bisect_left(self.order, (position, -1))
        if at < len(self.order) and self.order[at][0] == position:
            self._blame("misplaced", f"events {self.order[at][1]} and {number} have the same position")
        self.order.insert(at, (position, number))
        if received_ms < self._newest_ms - FOLLOWED_MS:
            late_s = (self._newest_ms - received_ms) / 1000
            self._blame("misplaced", f"event {number} was written {late_s:.1f} s behind the newest")
        self._newest_ms = max(self._newest_ms, received_ms)

    def _connection(self, item: Item) -> None:
        """Checks a connection's record: it counts no more events than there are, and all of them once it is closed."""
        fence = int(item["fence"]["N"])
        if "forgot_ms" in item:
            self._forgotten.add(fence)
        # A count of 0 is absent.
        stored, known, dead = (typed_values.read_int(item, n) or 0 for n in ("stored", "duplicates", "dead_lettered"))
        self.counts[fence] = stored, known, dead
        # A late heartbeat may have counted more than the record that a successor had read and then wrote back.
        self.most_counts[fence] = max(self.most_counts.get(fence, (0, 0, 0)), self.counts[fence], key=sum)
        link = self._link_of(fence)
        written = 0 if link is None else link.written
        told = f"connection {fence} tells {stored} stored, {known} duplicates and {dead} dead-lettered"
        there = f"of {written} that were written {self.stored_by[fence]} are there"
        is_all = stored == self.stored_by[fence] and stored + known + dead == written
        is_less = stored <= self.stored_by[fence] and stored + known + dead <= written
        # For a killed connection, its successor writes the record from the last heartbeat.
        is_closed = "closed_ms" in item
        if not (is_all if is_closed else is_less) or dead < (self._marked_by[fence] if is_all and is_closed else 0):
            self._blame("wrong-counts", f"{told}; {there}")
        if int(item.get("conflicts", {}).get("N", "0")) and not self.ids.has_restarted:
            self._blame("wrong-counts", f"connection {fence} tells of conflicts, and each event has one body")

    def _cursor(self, item: Item) -> None:
        text, fence = item["cursor"]["S"], int(item["cursor_fence"]["N"])
        if (text, fence, item["saved_at_ms"]) == self._last_cursor:
            return
        self._last_cursor = text, fence, item["saved_at_ms"]
        if fence < self._cursor_fence:
            self._blame("backwards", f"connection {fence} replaced the cursor of {self._cursor_fence}")
        self._cursor_fence = max(self._cursor_fence, fence)
        self._check_cursor("record", text, fence)

    def _check_cursor(self, place: str, text: str, fence: int) -> None:
        """Checks a saved cursor: each event that it passes was stored, or its loss recorded.

        The cursor of the record may be written after a newer one of the log; readers prefer the log's.
        """
        link, own = self._link_of(fence), int(text) if text.isdigit() else -1
        cursor = own if link is None else own + self._wire.begins[link.count]
        if not text:
            # It still counts as the cursor of the connection that saved it, whichever was told that it is too old.
            if not self._forgotten:
                self._blame("cursor-ahead", "the cursor was given up before the ledger said that it is too old")
            return
        first = self._passed.get((place, fence), 0)
        if link is None or cursor not in link.sent:
            self._blame("cursor-ahead", f"the cursor {text!r} of connection {fence} was never sent to it")
            return
        if cursor not in link.sent[first:]:
            return  # the upstream sent it again
        at = link.sent.index(cursor, first)
        self.ids.record_cursor(own, cursor, self._clock.now_ms())
        missing = [one for one in link.sent[first : at + 1] if not (one in self.stored or self.ids.is_dropped(one))]
        if missing:
            self._blame("cursor-ahead", f"the cursor {cursor} was saved before event {missing[0]} was stored")
        announced = sum(place <= at for place in link.notice_places)
        if any((fence, count) not in self.losses for count in range(1, announced + 1)):
            self._blame("cursor-ahead", f"the cursor {cursor} was saved before a loss that it passes was recorded")
        self._passed[place, fence] = at

    def _lease(self, item: Item) -> None:
        self._partitions = control_record.partitions_of(item)
        if self._unordered_from is None and control_record.order_of(item) == "none":
            self._unordered_from = int(item["fence"]["N"])
        live = ledger_records.live_record(item)
        if live is not None and live != self._live:
            self._live = live
            self._connection(live)
        if "cursor" in item:
            self._cursor(item)
        if usurped := self._holder.take_holder(item.get("execution", {}).get("S", "")):
            self._blame("usurped", usurped)
        ending = item.get("ending", {}).get("S", "")
        if ending != self._ending:
            self._ending = ending
            if ending:
                self.endings.append((self._clock.now_ms(), ending))
        fence, connected, released = (int(item.get(n, {}).get("N", "0")) for n in ("fence", "connected", "released"))
        if (fence, connected, released) == self._counters:
            return
        old, self._counters = self._counters, (fence, connected, released)
        if any(now < before for now, before in zip(self._counters, old, strict=True)) or connected > fence:
            self._blame("backwards", f"fence, connected, released went from {old} to {self._counters}")


class GroupWatch:
    """Watches one group's items: its counters, its functions' heartbeats, and which execution has claimed it."""

    def __init__(self, account: Account, blame: Blame) -> None:
        self._blame = blame
        self._counters = (0, 0)
        self._ended: set[str] = set()
        self._holder = Holder(account.executions)
        self.lease: Item = {}

    def record_change(self, _table: str, key: Key, item: Item) -> None:
        """Records one change."""
        if key[1] != "lease":
            return
        self.lease = item
        lease = group_lease(item)
        if usurped := self._holder.take_holder(lease.execution):
            self._blame("usurped", usurped)
        counters = (lease.token, lease.version)
        if any(now < before for now, before in zip(counters, self._counters, strict=True)):
            self._blame("backwards", f"token and version of {key[0]} went from {self._counters} to {counters}")
        self._counters = counters
        for request_id, heartbeat in lease.heartbeats.items():
            if heartbeat.is_ended:
                self._ended.add(request_id)
            elif request_id in self._ended:
                self._ended.remove(request_id)
                self._blame("backwards", f"function {request_id} of {key[0]} had ended, and sends heartbeats")
