"""What a sink is: a table of what it promises, `PROMISES`, and one function, `send`.

    def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]

It sends the batch in one request, and returns which of its messages were refused, by their place in the batch; none
where all were taken. What a client raises it lets through: handlers/deliver/sending.py finds by `PROMISES.final`
whether that passes. Invariant: a batch is never larger than the sink promises, and has one message at least.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from handlers.profile.behaviour import UpstreamRequest
from handlers.profile.deliver_field import Target
from handlers.profile.secret_references import Reference

# "request": one is taken whole or not at all, in its order. "message": one may be refused in part, so that it holds one
# message of each stream, unless the profile does without the order. "none": the sink itself keeps no order.
Order = Literal["request", "message", "none"]


class Message(NamedTuple):
    """An event on its way; `text` is its JSON, `place` the number of its record among those of the invocation."""

    stream_id: str
    key: str
    position: str
    name: str | None
    received_at_ms: int
    text: str
    place: int

    @property
    def size_bytes(self) -> int:
        """What it takes in a request, without what surrounds it there."""
        return len(self.text) if self.text.isascii() else len(self.text.encode())


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a sink did not take a message; one that is `final` would be refused for ever."""

    reason: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Promises:
    """What a sink takes and keeps; `final` are the error codes that are the message's own fault.

    `around_bytes` is what surrounds a message in a request. With `is_per_stream` a request has one stream's messages.
    `longest_ms` is how long a request may take: of a client of AWS's two tries (handlers/aws/clients.py).
    """

    order: Order
    most_messages: int
    most_bytes: int
    most_message_bytes: int
    around_bytes: int = 0
    is_per_stream: bool = False
    longest_ms: int = 8_000
    final: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a sink works with: a client of an AWS service, the value of a secret, and the time.

    `post` sends a request and returns the status of the answer; where it is None a webhook opens a socket itself.
    """

    client: Callable[[str], Any]
    secret: Callable[[Reference], str]
    now_ms: Callable[[], int]
    post: Callable[[UpstreamRequest], int] | None = None


class Sink(Protocol):
    """A module of handlers/deliver/sinks."""

    PROMISES: Promises

    def send(self, batch: Sequence[Message], target: Target, tools: Tools, /) -> Mapping[int, Refusal]:
        """Which messages of the batch were refused, by their place in it."""
