"""Sends to a Firehose stream: an event is a record, a line of NDJSON, which Firehose gathers and files by hour.

Firehose keeps no order and drops no duplicates. Source: PutRecordBatch in the Firehose API reference.
"""

from collections.abc import Mapping, Sequence

from handlers.deliver.contract import Message, Promises, Refusal, Tools
from handlers.profile.deliver_field import Target

SERVICE = "firehose"
PROMISES = Promises(
    order="none",
    most_messages=500,
    most_bytes=4 * 1024 * 1024,
    most_message_bytes=1000 * 1024,
    around_bytes=1,
    final=frozenset({"InvalidArgumentException", "ValidationException"}),
)


def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]:
    """Returns the messages that the stream refused."""
    records = [{"Data": f"{message.text}\n".encode()} for message in batch]
    answer = tools.client(SERVICE).put_record_batch(DeliveryStreamName=target.name, Records=records)
    answers = answer["RequestResponses"]
    each = zip(range(len(batch)), answers, strict=True)
    return {at: Refusal(one["ErrorCode"]) for at, one in each if one.get("ErrorCode")}
