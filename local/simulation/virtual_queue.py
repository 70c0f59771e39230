"""Simulates a standard queue of SQS: visibility time-outs, receive counts, copies, retention.

Standard queues deliver at least once: `copies` decides for each delivery whether the message comes a second time
although it is hidden. Retention counts from the sending. Invariant: a message is delivered only between its delay and
its retention, and never after DeleteMessage with one of its receipt handles.

Source: "Amazon SQS visibility timeout", "At-least-once delivery" and "Quotas", SQS Developer Guide.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from states_language.clock import Clock, Timer

MOST_DELAY_S, MOST_HIDDEN_S = 900, 43_200
COPY_MS = 1000
"""How much later the second copy of a message comes."""


@dataclass(eq=False)
class _Message:
    id: str
    body: str
    sent_ms: int
    received: int = 0
    timer: Timer | None = None


class VirtualQueue:
    """A queue; it calls `deliver` with each record in the form of Lambda's event source mapping.

    `requests` counts all calls, `sent` the messages, `expired` those that were older than the retention.
    """

    def __init__(
        self,
        clock: Clock,
        visibility_s: int,
        retention_s: int,
        deliver: Callable[[dict[str, Any]], None],
        copies: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._retention_s = retention_s
        self._visibility_s = visibility_s
        self._deliver = deliver
        self._copies = copies
        self._messages: dict[str, _Message] = {}
        self.sent = 0
        self.requests = 0
        self.expired = 0

    def send_message(self, *, MessageBody: str, DelaySeconds: int = 0, **_queue: str) -> dict[str, Any]:
        """Returns the MessageId; the message can be received after the delay."""
        self.requests += 1
        _check("SendMessage", "DelaySeconds", DelaySeconds, MOST_DELAY_S)
        self.sent += 1
        message = _Message(f"00000000-0000-4000-8000-{self.sent:012d}", MessageBody, self._clock.now_ms())
        self._messages[message.id] = message
        self._show_after(message, DelaySeconds)
        self._clock.call_at(message.sent_ms + self._retention_s * 1000, partial(self._expire, message))
        return {"MessageId": message.id}

    def change_message_visibility(self, *, ReceiptHandle: str, VisibilityTimeout: int, **_queue: str) -> dict[str, Any]:
        """Hides the message for this time from now; raises InvalidParameterValue if the message no longer exists."""
        self.requests += 1
        _check("ChangeMessageVisibility", "VisibilityTimeout", VisibilityTimeout, MOST_HIDDEN_S)
        message = self._messages.get(ReceiptHandle.partition("#")[0])
        if message is None:
            raise _refused("ChangeMessageVisibility", "The message does not exist or is not available.")
        self._show_after(message, VisibilityTimeout)
        return {}

    def delete_message(self, *, ReceiptHandle: str, **_queue: str) -> dict[str, Any]:
        """Deletes the message, if it still exists."""
        self.requests += 1
        message = self._messages.pop(ReceiptHandle.partition("#")[0], None)
        if message is not None and message.timer is not None:
            message.timer.cancel()
        return {}

    def _show_after(self, message: _Message, seconds: int) -> None:
        if message.timer is not None:
            message.timer.cancel()
        message.timer = self._clock.call_at(self._clock.now_ms() + seconds * 1000, partial(self._receive, message))

    def _receive(self, message: _Message, is_copy: bool = False) -> None:
        if message.id not in self._messages:
            return
        self.requests += 1
        message.received += 1
        self._show_after(message, self._visibility_s)
        if not is_copy and self._copies():
            self._clock.call_at(self._clock.now_ms() + COPY_MS, partial(self._receive, message, True))
        self._deliver(
            {
                "messageId": message.id,
                "receiptHandle": f"{message.id}#{message.received}",
                "body": message.body,
                "attributes": {
                    "ApproximateReceiveCount": str(message.received),
                    "SentTimestamp": str(message.sent_ms),
                },
            }
        )

    def _expire(self, message: _Message) -> None:
        if self._messages.pop(message.id, None) is not None:
            self.expired += 1
            if message.timer is not None:
                message.timer.cancel()


def _check(operation: str, name: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise _refused(operation, f"Value {value} for parameter {name} is invalid. Reason: Must be >= 0 and <= {most}.")


def _refused(operation: str, message: str) -> ClientError:
    answer: Any = {"Error": {"Code": "InvalidParameterValue", "Message": message}}
    return ClientError(answer, operation)
