"""Receives the messages of the dead-letter queue, and gives them back.

SQS shows a message to one receiver, and hides it from all others for a while. Invariants: a walk receives each message
once; an empty answer means an empty queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# With a wait SQS queries all of its servers. Without a wait it queries a few, whose answer may be empty although other
# servers have messages ("Amazon SQS short and long polling").
WAIT_S = 1
# The most messages of a request.
BATCH = 10


def receive_batches(
    sqs: Any, queue_url: str, held_s: int, is_late: Callable[[], bool]
) -> Iterator[list[dict[str, Any]]]:
    """Yields the messages in batches, as SQS has them, until it is late; each is hidden from others for `held_s`."""
    seen: set[str] = set()
    while not is_late():
        answer = sqs.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=BATCH,
            WaitTimeSeconds=WAIT_S,
            VisibilityTimeout=held_s,
            MessageSystemAttributeNames=["SentTimestamp"],
        )
        fresh = [one for one in answer.get("Messages", ()) if one["MessageId"] not in seen]
        if not fresh:
            return
        seen.update(one["MessageId"] for one in fresh)
        yield fresh


def release(sqs: Any, queue_url: str, receipts: Sequence[str]) -> None:
    """Makes the messages with these receipts visible to others at once."""
    from botocore.exceptions import BotoCoreError, ClientError

    for first in range(0, len(receipts), BATCH):
        some = enumerate(receipts[first : first + BATCH])
        entries = [{"Id": str(number), "ReceiptHandle": one, "VisibilityTimeout": 0} for number, one in some]
        # If the request fails, the messages become visible later by themselves.
        with contextlib.suppress(BotoCoreError, ClientError):
            sqs.change_message_visibility_batch(QueueUrl=queue_url, Entries=entries)
