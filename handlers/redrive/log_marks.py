"""Puts an event that was in the dead-letter queue into its stream's log, in place of the mark that is there.

What no segment holds is marked in a segment of its own, so the segment is written anew with the event in it, at the
same place in the order. Invariants: a segment that holds an event is never overwritten; a body lies in the bucket
before the segment refers to it.
"""

from typing import Any

from handlers.framing.events import StreamEvent
from handlers.segments.codec import pack
from handlers.segments.known import hashes, key_hash
from handlers.store.control_items import Item
from handlers.store.event_items import StoredEvent
from handlers.store.objects import Objects
from handlers.store.segment_items import (
    BEHIND,
    MAX_SEGMENT_BYTES,
    elsewhere,
    is_segment,
    log_key,
    segment_item,
    segment_of,
    stored_events,
)


class LogMarks:
    """The events table and the bucket."""

    def __init__(self, dynamodb: Any, table: str, objects: Objects) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._objects = objects

    def find(self, stream_id: str, key: str) -> tuple[Item, StoredEvent] | None:
        """The segment and the event, or its mark, with this key; None where the log has none. The newest is first."""
        place: dict[str, Item] = {}
        while True:
            answer = self._dynamodb.query(
                TableName=self._table,
                KeyConditionExpression="PK = :partition AND SK < :bound",
                ExpressionAttributeValues={":partition": {"S": log_key(stream_id)}, ":bound": {"S": BEHIND}},
                ScanIndexForward=False,
                ConsistentRead=True,
                **place,
            )
            for item in answer["Items"]:
                if is_segment(item) and key_hash(key) in hashes(bytes(item["keys"]["B"])):
                    for event in stored_events(item, self._objects.find):
                        if event.key == key:
                            return item, event
            if not answer.get("LastEvaluatedKey"):
                return None
            place = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def replace(self, stream_id: str, mark: Item, event: StreamEvent) -> bool:
        """Whether the event is in the log now in place of the mark; False where the mark is gone."""
        segment = segment_of(mark)
        item = segment_item(stream_id, segment, [event], 0, data := pack([event]))
        if len(data) > MAX_SEGMENT_BYTES:
            key, content, says = elsewhere(stream_id, segment.fence, event)
            self._objects.put(key, content)
            item = segment_item(stream_id, segment, [event], 0, pack([event], bodies=False)) | says
        if "expires_at" in mark:
            item["expires_at"] = mark["expires_at"]
        try:
            self._dynamodb.put_item(
                TableName=self._table, Item=item, ConditionExpression="attribute_exists(dead_letter)"
            )
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True
