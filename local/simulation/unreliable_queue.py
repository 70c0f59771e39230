"""A dead-letter queue that fails: while a fault holds, a request is refused, or done and its answer lost.

Invariant: without a fault every message comes into the queue, once.
"""

import base64
import json
import random
from collections.abc import Iterable
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from local.simulation.unreliable_tables import UnreliableDynamoDB
from states_language.clock import Clock

# What a request meets while the queue refuses, and how often.
OUTCOMES = {"passes": 2, "is refused": 4, "loses its answer": 2}


class UnreliableQueue:
    """`messages` are the bodies in it, in order; a kill that waits for a request to the store may meet one here."""

    def __init__(self, clock: Clock, dynamodb: UnreliableDynamoDB, url: str) -> None:
        self._clock = clock
        self._url = url
        self._dynamodb = dynamodb
        self._refuses_until_ms = 0
        self._draws = random.Random(0)
        self.messages: list[dict[str, Any]] = []

    def refuse(self, until_ms: int, draws: random.Random) -> None:
        """Draws the result of every request until then."""
        self._refuses_until_ms, self._draws = max(self._refuses_until_ms, until_ms), draws

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> dict[str, Any]:
        """As boto3's, for the store."""
        assert QueueUrl == self._url
        self._dynamodb.before()
        try:
            return self.take(json.loads(MessageBody))
        finally:
            self._dynamodb.after()

    def take(self, message: dict[str, Any]) -> dict[str, Any]:
        """Puts the message into the queue; raises what boto3 does."""
        outcome = "passes"
        if self._clock.now_ms() < self._refuses_until_ms:
            (outcome,) = self._draws.choices(list(OUTCOMES), list(OUTCOMES.values()))
        if outcome == "is refused":
            answer: Any = {"Error": {"Code": "ServiceUnavailable", "Message": "come again"}}
            raise ClientError(answer, "SendMessage")
        self.messages.append(message)
        if outcome == "loses its answer":
            raise ReadTimeoutError(endpoint_url="https://sqs.invalid")
        return {"MessageId": f"00000000-0000-4000-8000-{len(self.messages):012d}"}


def whole_events(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events that messages hold whole, each as it would be stored again, with its `key` and `stream`."""
    events = []
    parts: dict[tuple[str, str], list[str]] = {}
    for message in messages:
        if "part" not in message:
            continue
        about = message["stream"], message["key"]
        if message["part"] == 1:
            parts[about] = []
        pieces = parts.get(about, [])
        if len(pieces) + 1 != message["part"]:
            continue  # the beginning was not sent with it
        if "event" in message:
            event = message["event"]
        else:
            pieces.append(message["event_base64"])
            if len(pieces) < message["parts"]:
                continue
            event = json.loads(b"".join(map(base64.b64decode, pieces)))
        events.append({**event, "stream": message["stream"], "key": message["key"]})
    return events
