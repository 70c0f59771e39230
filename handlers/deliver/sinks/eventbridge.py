"""Sends to an event bus of EventBridge: an event is the detail of an entry, its name the entry's type.

EventBridge keeps no order and drops no duplicates; receivers use `detail.position` and `detail.key` for these. Sources:
PutEvents in the EventBridge API reference, "Calculating the size of an event" in its user guide, and "serverless
services now support payloads up to 1 MB" in the AWS Compute Blog (2026-01).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from handlers.deliver.contract import Message, Promises, Refusal, Tools
from handlers.profile.deliver_field import Target

SOURCE, UNNAMED = "streamkeeper", "event"
# An entry has its time (14 bytes), its source, a type of up to 128 characters, and the stream's id as a resource.
_TYPE_CHARACTERS = 128
SERVICE = "events"
PROMISES = Promises(
    order="none",
    most_messages=10,
    most_bytes=1000 * 1000,
    most_message_bytes=1000 * 1000,
    around_bytes=14 + len(SOURCE) + _TYPE_CHARACTERS * 4 + 1024,
    # A region may still take no more than 256 KB in a request, which it then refuses whole.
    final=frozenset({"MalformedDetail", "InvalidArgument", "NotAuthorizedForSourceException", "ValidationException"}),
)


def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]:
    """Returns the messages that the bus refused."""
    entries = [
        {
            "Source": SOURCE,
            "DetailType": (message.name or UNNAMED)[:_TYPE_CHARACTERS],
            "Detail": message.text,
            "Resources": [message.stream_id],
            "EventBusName": target.name,
            "Time": datetime.fromtimestamp(message.received_at_ms / 1000, UTC),
        }
        for message in batch
    ]
    answers = tools.client(SERVICE).put_events(Entries=entries)["Entries"]
    codes = ((at, answer.get("ErrorCode")) for at, answer in zip(range(len(batch)), answers, strict=True))
    return {at: Refusal(code, code in PROMISES.final) for at, code in codes if code}
