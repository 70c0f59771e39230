"""Appends one connection's events to its stream's log in DynamoDB, as `handlers/segments/appending.py` requests it.

It decides how a segment is put and read, and where events go that are too large for one; the protocol decides what is
appended. A stream that went over to a log has older events as items, which the writer keeps out of the log:

    events 7, 8, 9      7 is stored as an item already; 8 and 9 are appended
    soon after          a function that does not know of the log may still try to store 8 as an item: so 8 and 9 are
                        first *promised* by items without a body; its write is refused, and it reads the record

Only the log decides which events it has: a writer that is killed after its promise has hidden nothing.

Invariants: when `write` returns, each event is stored, was stored already, or is in the dead-letter queue with a mark
in the log; a body is in the bucket, or its message in the queue, before a segment says so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from handlers.connection.epochs import Epochs
from handlers.connection.inputs import IN_A_LOG, LONGEST_WAIT_MS, Layout, Written
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.framing.oversize import Oversize
from handlers.segments.appending import Appender
from handlers.segments.codec import pack, split_into_parts
from handlers.segments.known_keys import KnownKeys
from handlers.segments.log_requests import (
    Anchor,
    Answer,
    Appended,
    Cursor,
    LogBusy,
    LookBack,
    Page,
    Put,
    ReadOn,
    Request,
    Segment,
)
from handlers.store.control_table import IS_NEW, Table
from handlers.store.event_items import (
    PROMISED,
    StoragePolicy,
    body_of,
    event_item,
    partition_key,
    with_object_reference,
)
from handlers.store.event_writer import RetryDelays
from handlers.store.overflow import DeadLetterQueue, Objects
from handlers.store.segment_reader import (
    BEHIND,
    anchor_write,
    heads_query,
    is_segment,
    last_came_ms,
    log_key,
    segment_of,
    sort_key,
)
from handlers.store.typed_values import DAY_S, Item, expiry, has_expired, item_key, number_value, read_int
from handlers.values import dataclass


@dataclass
class SegmentWriter:
    """The log of one stream, for the connection with the token `fence`; `now_ms` is its clock.

    Keys are remembered for `window_ms`, in `known` if that is given. Segments expire after `keep_days`, 0 for never.
    `epochs` are the connection's; `layout` is the stream's. `sleep` is the back-off of a throttled write.
    """

    table: Table
    objects: Objects
    dead_letters: DeadLetterQueue
    now_ms: Callable[[], int]
    stream_id: str
    fence: int
    window_ms: int
    keep_days: int
    epochs: Epochs | None = None
    layout: Layout = IN_A_LOG
    sleep: Callable[[float], None] = time.sleep
    known: KnownKeys | None = None

    def __post_init__(self) -> None:
        more: Any = {"anchors": self.keep_days > 0, "epochs": self.epochs, "known": self.known}
        self._appender = Appender(self.fence, self.window_ms, **more)
        self._lone: tuple[bytes, Item] | None = None  # of the event being written, if its body is stored elsewhere
        # The connection that wrote the log's last event, and when that event came; (0, 0) if unknown.
        self.newest = (0, 0)

    def read_cursor(self) -> Cursor | None:
        """Returns where to resume according to the log; None if it has no cursor. Raises StoreUnavailable."""
        self._perform_all(self._appender.find_end(self.now_ms()))
        return self._appender.cursor

    def read_window(self) -> Iterator[None]:
        """Reads the window, and yields after each request; raises StoreUnavailable."""
        for begin in (self._appender.find_end, partial(self._appender.append, first=0, events=())):
            request = begin(self.now_ms())
            while request is not None and not isinstance(request, Appended):
                request = self._appender.answered(self._perform(request))
                yield

    @property
    def has_all_keys(self) -> bool:
        """Whether it knows every key since the window began; False if there were too many."""
        return self._appender.has_all_keys

    def has_key(self, event_key: str) -> bool:
        """Whether it knows the key of an event in the log."""
        return self._appender.has(event_key)

    def write(self, first: int, events: Sequence[StreamEvent], came_ms: int | None = None) -> Written:
        """Returns how many `events` were new, known already, or dead-lettered; `first` and `came_ms` as in Write."""
        written, has_items = Written(0, 0), self._has_items()
        for part in split_into_parts(events):
            self._lone = None
            items = self._keys_stored_as_items([event.key for event in part]) if has_items else ()
            new = [event for event in part if event.key not in items] if items else part
            request = self._appender.append(self.now_ms(), first, new, came_ms) if new else Appended(0, 0)
            appended = self._perform_all(request)
            assert appended is not None
            is_dead = self._lone is not None and "dead_letter" in self._lone[1]
            written = Written(
                written.stored + (0 if is_dead else appended.stored),
                written.duplicates + appended.duplicates + len(part) - len(new),
                written.dead_lettered + (appended.stored if is_dead else 0),
                written.conflicts + appended.conflicts,
            )
            first += len(part)
        self.epochs = self._appender.epochs
        return written

    # --- events that are items ----------------------------------------------------------------------------------------

    def _has_items(self) -> bool:
        """Returns whether the stream may have items that have not expired."""
        kept_ms = LONGEST_WAIT_MS + 1000 * DAY_S * self.keep_days
        return self.layout.items > 0 and (not self.keep_days or self.now_ms() < self.layout.since_ms + kept_ms)

    def _keys_stored_as_items(self, keys: Sequence[str]) -> set[str]:
        """Returns the keys that have an event as an item; no item will take the others. Raises StoreUnavailable."""
        places = [item_key(partition_key(self.stream_id, one, self.layout.items), one) for one in dict.fromkeys(keys)]
        is_settled = self.now_ms() >= self.layout.since_ms + LONGEST_WAIT_MS
        if not is_settled:
            promise = {PROMISED: {"N": str(self.fence)}} | expiry(self.now_ms(), self.keep_days)
            tries = RetryDelays(self.sleep)
            are_new = self.table.insert([place | promise for place in places], lambda took: tries.wait(took, {}))
            places = [place for place, is_new in zip(places, are_new, strict=True) if not is_new]
        found = self.table.batch_get(places, consistent=not is_settled, only=("SK", PROMISED))
        return {item["SK"]["S"] for item in found if PROMISED not in item}

    # --- requests -----------------------------------------------------------------------------------------------------

    def _perform_all(self, request: Request | Appended | None) -> Appended | None:
        """Performs the protocol's requests until there are no more."""
        try:
            while request is not None and not isinstance(request, Appended):
                request = self._appender.answered(self._perform(request))
        except LogBusy:
            raise StoreUnavailable("other writers took every number of the log") from None
        return request

    def _perform(self, request: Request) -> Answer:
        match request:
            case Put():
                return self._put(request)
            case ReadOn(number_):
                return self._read_page("SK >= :bound", number_, newest_first=False)
            case LookBack(None):
                return self._read_page("SK < :bound", None, newest_first=True, most=1)
            case LookBack(before):
                return self._read_page("SK < :bound", before, newest_first=True)
            case Anchor(number_):
                self.table.put(*anchor_write(self.stream_id, number_))
        return None

    def _read_page(self, condition: str, number_: int | None, *, newest_first: bool, most: int | None = None) -> Page:
        """Returns one answer to a Query: a megabyte of segments, or `most`, each as the protocol knows it.

        `condition` compares with the segment of this number, or with the end of the log.
        """
        bound = BEHIND if number_ is None else sort_key(number_)
        limit: dict[str, Any] = {} if most is None else {"Limit": most}
        query = heads_query(self.stream_id, condition, bound, with_events=most is not None)
        response = self.table.query(**query, ScanIndexForward=not newest_first, **limit)
        items = response["Items"]
        if most is not None:
            self.newest = _last_event(items)
        anchor = next((read_int(item, "number") or 0 for item in items if not is_segment(item)), 0)
        segments = [segment_of(item) for item in items if is_segment(item)]
        # A later segment may have earlier events: a function stores them for as long as it lives.
        is_expired = any(has_expired(item, self.now_ms() + LONGEST_WAIT_MS) for item in items)
        return Page(segments, not response.get("LastEvaluatedKey"), anchor, is_expired)

    def _put(self, put: Put) -> bool:
        # The condition is that the number is free: its first writer has read everything before it.
        return self.table.put(self._item(put), IS_NEW)

    # --- events that are too large for a segment ----------------------------------------------------------------------

    def _item(self, put: Put) -> Item:
        segment, events = put.segment, put.events
        if self._lone is not None:
            data, reference = self._lone
            return segment_item(self.stream_id, segment, events, self.keep_days, data) | reference
        is_lone = len(events) == 1
        if is_lone and isinstance(events[0].data, Oversize):
            return self._item_of_lone(put, self._dead_letter(events[0], events[0].data.reason))
        data = pack(events)
        if len(data) <= MAX_SEGMENT_BYTES:
            return segment_item(self.stream_id, segment, events, self.keep_days, data)
        assert is_lone
        packed_bytes = len(data)
        del data  # the body may have 16 MB, and is compressed again for the bucket
        if not self.objects.has_bucket or len(pack(events, bodies=False)) > MAX_SEGMENT_BYTES:
            return self._item_of_lone(
                put, self._dead_letter(events[0], f"too large for a segment: {packed_bytes} bytes")
            )
        key_, content, reference = object_of_event(self.stream_id, self.fence, events[0], self.keep_days)
        self.objects.put(key_, content)
        return self._item_of_lone(put, reference)

    def _item_of_lone(self, put: Put, reference: Item) -> Item:
        """Returns the item of an event whose body is elsewhere; it is made once, even if its number is taken."""
        # Like an item's mark, it has no text from the upstream.
        is_mark = "dead_letter" in reference
        events = [event._replace(id=None, name=None) if is_mark else event for event in put.events]
        data = pack(events, bodies=False)
        self._lone = data, reference
        return segment_item(self.stream_id, put.segment, put.events, self.keep_days, data) | reference

    def _dead_letter(self, event: StreamEvent, reason: str) -> Item:
        """Sends the event whole, then returns its mark for the log; in the other order a kill could lose the event."""
        self.dead_letters.send(self.stream_id, self.fence, event, reason)
        return {"dead_letter": {"S": reason}}


def _last_event(items: Iterable[Item]) -> tuple[int, int]:
    """Returns the connection that wrote the last event of the first segment among the items, and when that event came.

    It is (0, 0) if there is none, or if it is damaged.
    """
    with contextlib.suppress(StoreUnavailable):  # readers report the damage
        return next(((read_int(one, "fence") or 0, last_came_ms(one)) for one in items if is_segment(one)), (0, 0))
    return 0, 0


# DynamoDB takes 400 KB. A body that makes a segment larger than this goes elsewhere.
MAX_SEGMENT_BYTES = 350 * 1024


def segment_item(
    stream_id: str, segment: Segment, events: Sequence[StreamEvent], keep_days: int, data: bytes | None = None
) -> Item:
    """Returns the item of the segment with the events; `data` is their packed form, if it is known already."""
    newest_ms = max(event.received_at_ms for event in events)
    item: Item = {
        "PK": {"S": log_key(stream_id)},
        "SK": {"S": sort_key(segment.number)},
        "fence": number_value(segment.fence),
        "first": number_value(segment.first),
        "at_ms": number_value(segment.at_ms),
        "events": number_value(len(events)),
        "keys": {"B": segment.keys},
        "data": {"B": pack(events) if data is None else data},
    }
    cursor = segment.cursor
    if segment.came_ms is not None:
        item["came_ms"] = number_value(segment.came_ms)
    if segment.bodies:
        item["bodies"] = {"B": segment.bodies}
    if cursor is not None:
        item |= {"cursor": {"S": cursor.text}, "cursor_fence": number_value(cursor.fence)}
        item |= {"cursor_at_ms": number_value(cursor.at_ms), "cursor_came_ms": number_value(cursor.came_ms)}
    return item | expiry(newest_ms, keep_days)


def object_of_event(stream_id: str, fence: int, event: StreamEvent, keep_days: int) -> tuple[str, str | bytes, Item]:
    """Returns key and content of the object for a body that fits no segment, and the reference in its segment."""
    item = event_item(stream_id, fence, 0, event, StoragePolicy(keep_days=keep_days))
    referring = with_object_reference(item)
    reference = {"object": referring["object"], "encoding": referring["encoding"]}
    return referring["object"]["S"], body_of(item), reference
