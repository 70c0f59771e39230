"""Finds where the newest events of a stream lie: a reader that begins there shows those. And when the newest one came.

It reads the order from its end: the index backwards, or the log's last segments. Invariant: nothing is written; where a
stream has no order, the place is its beginning.
"""

from __future__ import annotations

from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.connection.inputs import LOG, Order
from handlers.store.event_items import partition_keys
from handlers.store.event_reader import INDEX

# A segment has one event or thousands.
SEGMENTS = 4
# No fencing token and no index within a segment is larger.
_MOST = 10**12 - 1


def place(dynamodb: Any, table: str, stream_id: str, partitions: int, order: Order, count: int) -> str:
    """The position behind which lie the newest `count` events, "" for the beginning; raises StoreUnavailable.

    Of a log it is the one before the last segments, however many events those have.
    """
    if partitions == LOG:
        return _before_segments(dynamodb, table, stream_id)
    if order == "none":
        return ""
    positions = sorted(_newest(dynamodb, table, stream_id, partitions, count + 1), reverse=True)
    return positions[count] if len(positions) > count else ""


def newest_ms(dynamodb: Any, table: str, stream_id: str, partitions: int, order: Order) -> int | None:
    """When the newest event came that is stored, None where there is none or no order; raises StoreUnavailable.

    Of a log it is when its last segment was begun.
    """
    if partitions == LOG:
        from handlers.store.segment_items import BEHIND, is_segment, segment_of
        from handlers.store.segment_reader import heads

        items = heads(dynamodb, table, stream_id, "SK < :bound", BEHIND, ScanIndexForward=False, Limit=1)["Items"]
        return next((segment_of(item).at_ms for item in items if is_segment(item)), None)
    if order == "none":
        return None
    instants = [int(position.partition("/")[0]) for position in _newest(dynamodb, table, stream_id, partitions, 1)]
    return max(instants, default=None)


def _newest(dynamodb: Any, table: str, stream_id: str, partitions: int, count: int) -> list[str]:
    """The positions of the newest events of each partition, `count` of each at most."""
    positions: list[str] = []
    for key in partition_keys(stream_id, partitions):
        with translate_errors("Query"):
            response = dynamodb.query(
                TableName=table,
                IndexName=INDEX,
                KeyConditionExpression="PK = :partition",
                ExpressionAttributeValues={":partition": {"S": key}},
                ScanIndexForward=False,
                Limit=count,
            )
        positions += [item["position"]["S"] for item in response["Items"]]
    return positions


def _before_segments(dynamodb: Any, table: str, stream_id: str) -> str:
    from handlers.store.segment_items import BEHIND, is_segment, position, segment_number
    from handlers.store.segment_reader import heads

    items = heads(
        dynamodb, table, stream_id, "SK < :bound", BEHIND, ScanIndexForward=False, Limit=SEGMENTS + 1
    )["Items"]  # fmt: skip
    segments = [item for item in items if is_segment(item)]
    return position(segment_number(segments[SEGMENTS]), _MOST, _MOST) if len(segments) > SEGMENTS else ""
