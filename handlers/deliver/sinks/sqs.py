"""Sends to a FIFO queue of SQS: an event is a message, its group is the stream, its deduplication id is the key.

For a queue that drops duplicates by group, the id is the key itself. If it drops them across groups, two streams'
events with one key would count as one, so the stream is hashed into the id. The queue's `MaximumMessageSize` is the
size of its largest message. Sources: SendMessageBatch and the quotas of messages in the SQS developer guide. Invariant:
no two events of a queue have one deduplication id.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from handlers.deliver.contract import Message, Promises, Refusal, Tools
from handlers.profile.deliver_field import Target

SERVICE = "sqs"
PROMISES = Promises(
    order="message",
    most_messages=10,
    most_bytes=1024 * 1024,
    most_message_bytes=1024 * 1024,
    final=frozenset({"InvalidMessageContents", "InvalidParameterValue", "BatchRequestTooLong"}),
)
# A message may have the characters "#x9 | #xA | #xD | #x20 to #xD7FF | …": all of JSON's but these.
_ESCAPED = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
# The two ids may have "alphanumeric characters and punctuation", 128 of them.
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_queues: dict[tuple[int, str], "Queue"] = {}


class Queue(NamedTuple):
    """A queue's address, whether it drops duplicates by group, and the size of its largest message."""

    url: str
    is_by_group: bool
    most_bytes: int


def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]:
    """Returns the messages that the queue refused."""
    client = tools.client(SERVICE)
    queue = _queue(client, target.name)
    refused = {
        at: Refusal(f"too large for the queue: {message.size_bytes} bytes of {queue.most_bytes}", is_final=True)
        for at, message in enumerate(batch)
        if message.size_bytes > queue.most_bytes
    }
    entries = [
        {
            "Id": str(at),
            "MessageBody": message.text.translate(_ESCAPED),
            "MessageGroupId": group_id(message.stream_id),
            "MessageDeduplicationId": deduplication_id(message, is_by_group=queue.is_by_group),
        }
        for at, message in enumerate(batch)
        if at not in refused
    ]
    if entries:
        answer = client.send_message_batch(QueueUrl=queue.url, Entries=entries)
        taken = {one["Id"] for one in answer.get("Successful", [])}
        failed = {one["Id"]: one["Code"] for one in answer.get("Failed", [])}
        for entry in entries:
            if (id_ := entry["Id"]) not in taken:
                code = failed.get(id_, "its answer does not say what it took")
                refused[int(id_)] = Refusal(code, code in PROMISES.final)
    return refused


def group_id(stream_id: str) -> str:
    """Returns the stream's id, or its SHA-256 where SQS would not take it."""
    return stream_id if _ID.fullmatch(stream_id) else _hashed(stream_id)


def deduplication_id(message: Message, *, is_by_group: bool) -> str:
    """Returns the event's key, with its stream if the queue compares across groups; as a SHA-256 if necessary."""
    if not is_by_group:
        return _hashed(f"{message.stream_id}\0{message.key}")
    return message.key if _ID.fullmatch(message.key) else _hashed(message.key)


def _queue(client: Any, name: str) -> Queue:
    known = _queues.get((id(client), name))
    if known is None:
        url = client.get_queue_url(QueueName=name)["QueueUrl"]
        names = ["DeduplicationScope", "MaximumMessageSize"]
        said = client.get_queue_attributes(QueueUrl=url, AttributeNames=names).get("Attributes", {})
        most_bytes = int(said.get("MaximumMessageSize", PROMISES.most_message_bytes))
        known = _queues[id(client), name] = Queue(url, said.get("DeduplicationScope") == "messageGroup", most_bytes)
    return known


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
