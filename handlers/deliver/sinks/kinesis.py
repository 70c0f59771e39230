"""Sends to a data stream of Kinesis: an event is a record, its stream's id the partition key, which keeps order.

Kinesis drops no duplicates; receivers recognize them by the record's `key`. Source: PutRecords in the Kinesis API
reference ("A record that is unsuccessfully processed ..." does not stop those behind it).
"""

import hashlib
from collections.abc import Mapping, Sequence

from handlers.deliver.contract import Message, Promises, Refusal, Tools
from handlers.profile.deliver_field import Target

_KEY_CHARACTERS = 256
SERVICE = "kinesis"
PROMISES = Promises(
    order="message",
    most_messages=500,
    most_bytes=5 * 1024 * 1024,
    most_message_bytes=1024 * 1024,
    around_bytes=_KEY_CHARACTERS * 4,
    final=frozenset({"InvalidArgumentException", "ValidationException"}),
)


def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]:
    """Returns the messages that the stream refused."""
    records = [{"Data": message.text.encode(), "PartitionKey": partition_key(message.stream_id)} for message in batch]
    answers = tools.client(SERVICE).put_records(StreamName=target.name, Records=records)["Records"]
    each = zip(range(len(batch)), answers, strict=True)
    return {at: Refusal(one["ErrorCode"]) for at, one in each if one.get("ErrorCode")}


def partition_key(stream_id: str) -> str:
    """Returns the stream's id, or its SHA-256 if it is too long."""
    return stream_id if len(stream_id) <= _KEY_CHARACTERS else hashlib.sha256(stream_id.encode()).hexdigest()
