"""Puts an event from the dead-letter queue into the table, in place of the mark under its key.

The item is the same that a connection would have written, at the place among the events that the mark has kept. In a
log, an event's mark has a segment of its own, so that segment is written anew with the event in it. Invariants: a
stored event is never overwritten, even if it was stored meanwhile; a body is in the bucket before an item or a segment
refers to it; a refusal by AWS is raised.
"""

import zlib
from typing import Any

from handlers.connection.inputs import LOG, Layout
from handlers.framing.events import StreamEvent
from handlers.segments.codec import pack
from handlers.segments.known_keys import hashes, key_hash
from handlers.store import event_items
from handlers.store.control_table import IS_NEW, Table
from handlers.store.overflow import Objects
from handlers.store.segment_reader import BEHIND, is_segment, log_key, segment_of, stored_events
from handlers.store.segment_writer import MAX_SEGMENT_BYTES, object_of_event, segment_item
from handlers.store.typed_values import DAY_S, MAX_ITEM_BYTES, Item, read_int, size_bytes

STORED, KNOWN = "stored", "known"
# The event's number in its connection if no mark has one: greater than any number that a connection reaches.
UNNUMBERED = 500_000_000_000
# The attributes of the event's item that the mark has.
KEPT = (*event_items.PLACES.values(), "fence", "received_at_ms", "expires_at", "conflict_of")


class NotStored(Exception):
    """The event cannot be put back; the message says why."""


class Events:
    """The events table and the bucket."""

    def __init__(self, dynamodb: Any, table: str, objects: Objects) -> None:
        self._table, self.table, self.objects = Table(dynamodb, table), table, objects

    def outcome(self, stream_id: str, fence: int, event: StreamEvent, layout: Layout, *, dry_run: bool) -> str:
        """Puts the event into the table; returns STORED, or KNOWN if it is there. Raises NotStored."""
        partitions = layout.items or layout.partitions
        stored = None if partitions == LOG else self._read(stream_id, event.key, partitions)
        if layout.partitions == LOG and stored is None:
            return self._outcome_in_log(stream_id, event, dry_run=dry_run)
        number = UNNUMBERED + zlib.crc32(event.key.encode())
        item = event_items.event_item(
            stream_id, fence, number, event, event_items.StoragePolicy(partitions, order=layout.order)
        )
        if stored is not None and "dead_letter" not in stored:
            if event_items.to_stored_event(stored, self.objects.find).data != event.data:
                raise NotStored("another body is stored under its key")
            return KNOWN
        if stored is not None:
            # A mark that the index has keeps its place there, even if an item written now had none.
            item = {name: value for name, value in item.items() if name not in KEPT}
            item |= {name: stored[name] for name in KEPT if name in stored}
        body = None
        if size_bytes(item) > MAX_ITEM_BYTES:
            referring, body = event_items.with_object_reference(item), event_items.body_of(item)
            if size_bytes(referring) > MAX_ITEM_BYTES:
                raise NotStored("its id and its name are too large for an item")
            item = referring
        if dry_run:
            return STORED
        if body is not None:
            self.objects.put(item["object"]["S"], body)
        if not self._table.put(item, f"{IS_NEW} OR attribute_exists(dead_letter)"):
            # A connection has stored the event since the key was read, or this request was sent twice.
            return self.outcome(stream_id, fence, event, layout, dry_run=dry_run)
        return STORED

    def _outcome_in_log(self, stream_id: str, event: StreamEvent, *, dry_run: bool) -> str:
        found = self._find(stream_id, event.key)
        if found is None:
            raise NotStored("its stream's log has no mark of it; the upstream is asked for it again")
        mark, stored = found
        if stored.dead_letter is None:
            if stored.data != event.data:
                raise NotStored("another body is stored under its key")
            return KNOWN
        if len(pack([event], bodies=False)) > MAX_SEGMENT_BYTES:
            raise NotStored("its id and its name are too large for a segment")
        if not dry_run and not self._replace(stream_id, mark, event):
            return self._outcome_in_log(stream_id, event, dry_run=dry_run)
        return STORED

    def has_event(self, stream_id: str, key: str, layout: Layout) -> bool:
        """Returns whether the key has an event, not a mark."""
        items = layout.items or layout.partitions
        stored = None if items == LOG else self._read(stream_id, key, items)
        if layout.partitions != LOG or stored is not None:
            return stored is not None and "dead_letter" not in stored
        found = self._find(stream_id, key)
        return found is not None and found[1].dead_letter is None

    def _read(self, stream_id: str, key: str, partitions: int) -> Item | None:
        item = self._table.get(event_items.partition_key(stream_id, key, partitions), key)
        return None if item is not None and event_items.PROMISED in item else item

    # --- the marks of a log -------------------------------------------------------------------------------------------

    def _find(self, stream_id: str, key: str) -> tuple[Item, event_items.StoredEvent] | None:
        """Returns the segment and the event, or its mark, with this key, newest first; None if the log has none."""
        condition, values = "PK = :partition AND SK < :bound", {":partition": log_key(stream_id), ":bound": BEHIND}
        for item in self._table.query_items(condition, values, ScanIndexForward=False, ConsistentRead=True):
            if is_segment(item) and key_hash(key) in hashes(bytes(item["keys"]["B"])):
                for event in stored_events(item, self.objects.find):
                    if event.key == key:
                        return item, event
        return None

    def _replace(self, stream_id: str, mark: Item, event: StreamEvent) -> bool:
        """Replaces the mark in the log by the event; returns False if the mark is gone."""
        segment = segment_of(mark)
        item = segment_item(stream_id, segment, [event], 0, data := pack([event]))
        if len(data) > MAX_SEGMENT_BYTES:
            # The object is kept for as long as the mark's segment is from now on.
            left_s = (read_int(mark, "expires_at") or 0) - event.received_at_ms // 1000
            key, content, reference = object_of_event(stream_id, segment.fence, event, max(0, -(-left_s // DAY_S)))
            self.objects.put(key, content)
            item = segment_item(stream_id, segment, [event], 0, pack([event], bodies=False)) | reference
        if "expires_at" in mark:
            item["expires_at"] = mark["expires_at"]
        return self._table.put(item, "attribute_exists(dead_letter)")
