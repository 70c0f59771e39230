"""Defines a sink: a module of handlers/deliver/sinks with a table of promises, `PROMISES`, and one function.

    def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]

It sends the batch in one request, and returns the refusals by the messages' places in the batch; an empty mapping if
all were taken. It does not catch what a client raises: `make_sender` turns that into a refusal, which is final if
`PROMISES.final` has its code. A module is imported when the first profile needs it. Invariants: a batch is never larger
than the sink promises, and has at least one message; no refusal holds a service's own words, which may quote an event.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

from handlers.errors import StreamkeeperError
from handlers.profile.deliver_field import Target
from handlers.profile.secret_references import Reference
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.values import dataclass

# "request": the sink takes a request whole or not at all, in order. "message": it may refuse part of a request, so one
# request holds one message of each stream, unless the profile needs no order. "none": the sink itself keeps no order.
Order = Literal["request", "message", "none"]
# The modules whose name differs from their kind: `lambda` is a keyword of Python.
_MODULES = {"lambda": "lambda_function"}
# A sink's place after an event: the number of an arrival, and after how many of its events; in a replay, a position.
Step = tuple[int, int] | str


class Message(NamedTuple):
    """An event on its way to one stream's sink; `text` is its JSON."""

    stream_id: str
    key: str
    position: str
    name: str | None
    received_at_ms: int
    text: str
    step: Step = ""

    @property
    def size_bytes(self) -> int:
        """Its size in a request, without what surrounds it there."""
        return len(self.text) if self.text.isascii() else len(self.text.encode())


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a sink did not take a message; a `final` one would be refused for ever.

    `rest_ms` is for how long the sink does not want to be tried again, 0 if it does not say.
    """

    reason: str
    is_final: bool = False
    rest_ms: int = 0


@dataclass(frozen=True, slots=True)
class Promises:
    """What a sink promises; `final` are the error codes that mean the message itself is at fault.

    `around_bytes` is the size of what surrounds a message in a request; `longest_ms` is how long a request may take,
    for an AWS client with its two tries (handlers/aws/lambda_environment.py). Messages that differ in `apart` share no
    request.
    """

    order: Order
    most_messages: int
    most_bytes: int
    most_message_bytes: int
    around_bytes: int = 0
    longest_ms: int = 8_000
    final: frozenset[str] = field(default_factory=frozenset)
    apart: Callable[[Message], object] = lambda _message: None


# Room for what surrounds a batch: the stream's id, escaped.
_AROUND_BYTES = 4096


def promises_of(target: Target) -> Promises:
    """Returns what a target promises: a batch of events is one message, and so taken whole."""
    promises: Promises = sink_module(target.kind).PROMISES
    if target.batch == 1:
        return promises
    most_bytes = promises.most_message_bytes - _AROUND_BYTES
    return replace(
        promises,
        order="request",
        most_messages=target.batch,
        most_bytes=most_bytes,
        most_message_bytes=most_bytes,
        around_bytes=1,
    )


def merge_batch(batch: Sequence[Message]) -> Message:
    """Returns one message with all events of a batch: {"stream": …, "events": [ … ]}."""
    events = ",".join(message.text for message in batch)
    text = f'{{"stream":{json.dumps(batch[0].stream_id)},"events":[{events}]}}'
    return batch[0]._replace(key="\0".join(message.key for message in batch), text=text)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a sink works with: a client of an AWS service, the value of a secret, and the time.

    `post` sends a request and returns the answer's status and headers; if it is None, a webhook opens a socket itself.
    """

    client: Callable[[str], Any]
    secret: Callable[[Reference], str]
    now_ms: Callable[[], int]
    post: Callable[[UpstreamRequest], tuple[int, Mapping[str, str]]] | None = None


@cache
def sink_module(kind: str) -> Any:
    return import_module(f"handlers.deliver.sinks.{_MODULES.get(kind, kind)}")


def make_sender(target: Target, tools: Tools) -> tuple[Promises, Callable[[Sequence[Message]], Mapping[int, Refusal]]]:
    """Returns the target's promises, and a function that sends a batch to it and raises nothing."""
    module = sink_module(target.kind)
    if hasattr(module, "SERVICE"):
        # Making a client takes longer than a request.
        tools.client(module.SERVICE)

    def send(batch: Sequence[Message]) -> Mapping[int, Refusal]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if target.batch > 1:
                whole = module.send([merge_batch(batch)], target, tools).get(0)
                return {} if whole is None else dict.fromkeys(range(len(batch)), whole)
            refusals: Mapping[int, Refusal] = module.send(batch, target, tools)
            return refusals
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "Unknown"))
            refusal = Refusal(code, code in module.PROMISES.final)
        except BotoCoreError as error:
            refusal = Refusal(f"no answer: {type(error).__name__}")
        except StreamkeeperError as error:
            # The secret that signs cannot be read; the sentence names it, and not its value.
            refusal = Refusal(str(error))
        except (LookupError, TypeError, ValueError):
            refusal = Refusal("its answer does not say what it took")
        return dict.fromkeys(range(len(batch)), refusal)

    return promises_of(target), send
