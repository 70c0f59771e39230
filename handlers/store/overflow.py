"""Stores single events, and events that are too large for an item: bodies in a bucket, whole events in the queue.

A frame that was too long to be read has only its size, its SHA-256 and its first 64 KB left. Invariants: an object is
written whole before anything refers to it, and its key names its content, so that writing it again changes nothing;
apart from that, an event in the queue is complete and unchanged, and every message fits a queue whose limit is 256 KiB.
(SQS allows 1 MiB since 2025, but an older queue keeps the limit that it was made with.)
"""

import base64
import contextlib
import json
from collections.abc import Callable
from typing import Any

from handlers.aws.error_translation import ConditionFailed, Refused, code_of, translate_errors
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.framing.frames import Body
from handlers.framing.oversize import Oversize
from handlers.store.control_table import IS_NEW, Table
from handlers.store.event_items import body_of, dead_letter_mark, place_of, stream_of, with_object_reference
from handlers.store.typed_values import MAX_ITEM_BYTES, Item, number_value, size_bytes
from handlers.values import dataclass


@dataclass(frozen=True, slots=True)
class Objects:
    """The bucket, "" if there is none; `s3` makes the client at its first use, since few invocations need it."""

    s3: Callable[[], Any]
    bucket: str

    @property
    def has_bucket(self) -> bool:
        return bool(self.bucket)

    def put(self, key: str, content: str | bytes) -> None:
        """Puts the object, a text in UTF-8; raises StoreUnavailable."""
        with translate_errors("PutObject"):
            client = self.s3()
            if isinstance(content, str) and not getattr(client, "takes_text", False):
                content = content.encode()
            client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def get(self, key: str) -> bytes:
        """Returns the object's content; raises StoreUnavailable, also if there is no such object."""
        with translate_errors("GetObject"):
            content: bytes = self.s3().get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return content

    def find(self, key: str) -> bytes | None:
        """As `get`; None if there is no such object, which S3 answers with AccessDenied if listing is forbidden."""
        try:
            return self.get(key)
        except StoreUnavailable as error:
            if code_of(error.__cause__) in ("NoSuchKey", "AccessDenied"):
                return None
            raise


# The outcomes of writing an event.
STORED, DUPLICATE, DEAD_LETTERED = "stored", "duplicate", "dead-lettered"
MESSAGE_BYTES = 256 * 1024
# SQS counts the bytes of the message: 189,000 bytes are 252,000 in base64, which leaves 10 KB for the other fields.
PART_BYTES = 189_000


def dead_letter_messages(stream_id: str, fence: int, event: StreamEvent, reason: str) -> list[str]:
    """Returns the messages for `event`, each JSON in ASCII.

    If it fits, there is one, with the event as an object under `event`; else the UTF-8 bytes of that same JSON object
    are cut into parts, each in base64 under `event_base64`, numbered `part` of `parts`.
    """
    about: dict[str, Any] = {"stream": stream_id, "fence": fence, "reason": reason, "key": event.key}
    content = {"id": event.id, "name": event.name, "received_at_ms": event.received_at_ms, **_body_fields(event.data)}
    whole = json.dumps({**about, "part": 1, "parts": 1, "event": content})
    if len(whole) <= MESSAGE_BYTES:
        return [whole]
    document = json.dumps(content, ensure_ascii=False).encode()
    pieces = [document[at : at + PART_BYTES] for at in range(0, len(document), PART_BYTES)]
    return [
        json.dumps({**about, "part": n, "parts": len(pieces), "event_base64": base64.b64encode(piece).decode()})
        for n, piece in enumerate(pieces, 1)
    ]


def _body_fields(data: Body) -> dict[str, Any]:
    if isinstance(data, Oversize):
        head = {"encoding": "base64", "head": base64.b64encode(data.head).decode(), "is_whole": data.is_whole}
        return {"size_bytes": data.size_bytes, "sha256": data.sha256, **head}
    if isinstance(data, bytes):
        return {"encoding": "base64", "data": base64.b64encode(data).decode()}
    return {"encoding": "text", "data": data}


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """The queue; `sqs` makes its client when the first message is sent, since few invocations need it."""

    sqs: Callable[[], Any]
    queue_url: str

    def send(self, stream_id: str, fence: int, event: StreamEvent, reason: str) -> None:
        """Sends the event's messages; raises StoreUnavailable."""
        with translate_errors("SendMessage"):
            for message in dead_letter_messages(stream_id, fence, event, reason):
                self.sqs().send_message(QueueUrl=self.queue_url, MessageBody=message)


class SingleWriter:
    """Puts single events: into the events table, their bodies into the bucket, or whole into the queue."""

    def __init__(self, dynamodb: Any, table: str, objects: Objects, dead_letters: DeadLetterQueue) -> None:
        self._dynamodb = dynamodb
        self._name = table
        self._table = Table(dynamodb, table)
        self._objects = objects
        self._dead_letters = dead_letters

    def put(self, event: StreamEvent, item: Item) -> str:
        """Puts the item by itself, whatever its size; the rest of an oversize event goes to the queue."""
        if isinstance(event.data, Oversize):
            return self.dead_letter(event, item, event.data.reason)
        is_large = size_bytes(item) > MAX_ITEM_BYTES
        return self.put_large(event, item) if is_large else self.put_alone(event, item, False)

    def put_large(self, event: StreamEvent, item: Item) -> str:
        """Puts the body of an event that is too large for an item into the bucket, then an item that refers to it."""
        referring, objects = with_object_reference(item), self._objects
        if not objects.has_bucket or size_bytes(referring) > MAX_ITEM_BYTES:
            return self.dead_letter(event, item, f"too large for an item: {size_bytes(item)} bytes")
        if self._stored_place(item) is not None:
            return DUPLICATE
        # In this order a kill in between leaves an unreferenced object; in the other order it would lose the body.
        objects.put(referring["object"]["S"], body_of(item))
        return self.put_alone(event, referring, False)

    def put_alone(self, event: StreamEvent, item: Item, was_sent: bool) -> str:
        """Puts an item that fits; `was_sent` is whether an earlier request for it may have been carried out."""
        try:
            return STORED if self._put_once(item, was_sent) else DUPLICATE
        except Refused as refusal:
            return self.dead_letter(event, item, f"refused by DynamoDB: {refusal}")

    def _put_once(self, item: Item, was_sent: bool = False) -> bool:
        """Whether the item was new; `was_sent` is whether an earlier request for it may have been carried out."""
        try:
            with translate_errors("PutItem", refusals=True):
                # The condition is that no item has this key: the first writer wins, every later one is refused.
                self._dynamodb.put_item(TableName=self._name, Item=item, ConditionExpression=IS_NEW)
            return True
        except ConditionFailed as failed:
            # After a lost answer the client sends the item again and finds its own: then it was new.
            return (was_sent or failed.retries > 0) and self.is_same_event(item)

    def is_same_event(self, item: Item) -> bool:
        """Returns whether the event under the item's key is this one."""
        return self._stored_place(item) == place_of(item)

    def _stored_place(self, item: Item) -> str | None:
        """Returns the place of the event under the item's key; None if there is none."""
        stored = self._table.get(item["PK"]["S"], item["SK"]["S"])
        return None if stored is None else place_of(stored)

    def dead_letter(self, event: StreamEvent, item: Item, reason: str) -> str:
        """Sends the event whole, then leaves a mark under its key, so that the next connection knows the event.

        In this order a kill in between sends it twice; in the other order it would lose it. The mark has the checksum
        of a whole body, so that another body under the key is not taken for it.
        """
        # Imported once an event is refused: most connections have none.
        from handlers.segments.known_keys import body_sum

        if self._stored_place(item) is not None:
            return DUPLICATE
        if not isinstance(event.data, Oversize):
            item = item | {"body_sum": number_value(body_sum(event))}
        self._dead_letters.send(stream_of(item), int(item["fence"]["N"]), event, reason)
        with contextlib.suppress(Refused):
            self._put_once(dead_letter_mark(item, reason))
        return DEAD_LETTERED
