"""Calls a Lambda function with events of one stream, in their order; it answers when it is done with them.

    {"stream": "orders", "events": [{"key": "7", …}, …]}

A function that raises is called again with the same events. As with an event source mapping, it may name keys that it
could not process; it may also name keys that it will never process, which go to the dead-letter queue:

    {"batchItemFailures": [{"itemIdentifier": "9"}], "poison": [{"itemIdentifier": "8"}]}

As there, a list that names anything but keys of the call counts as a failure of all events. Sources: Invoke in the
Lambda API reference; "Implementing partial batch responses" in the Lambda developer guide.
"""

import json
from collections.abc import Mapping, Sequence

from handlers.deliver.contract import Message, Promises, Refusal, Tools
from handlers.profile.deliver_field import Target

# How long to wait for a function. One that always takes longer is called again for ever.
INVOKE_S = 60
SERVICE = "lambda"
PROMISES = Promises(
    order="request",
    most_messages=100,
    most_bytes=5 * 1024 * 1024,
    most_message_bytes=5 * 1024 * 1024,
    around_bytes=1,
    longest_ms=(INVOKE_S + 2) * 1000,
    final=frozenset({"RequestTooLargeException", "InvalidRequestContentException"}),
)


def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]:
    """Returns the messages that it did not process: those from the first failure on and poison before it, or all."""
    events = ",".join(message.text for message in batch)
    payload = f'{{"stream":{json.dumps(batch[0].stream_id)},"events":[{events}]}}'.encode()
    answer = tools.client(SERVICE).invoke(FunctionName=target.name, Payload=payload)
    text = answer["Payload"].read()
    if answer.get("FunctionError"):
        return dict.fromkeys(range(len(batch)), Refusal("the function raised an error"))
    failures, poison = _named(text, "batchItemFailures"), _named(text, "poison")
    if not failures | poison <= {message.key for message in batch}:
        return dict.fromkeys(range(len(batch)), Refusal("the function named an event that it was not called with"))
    first = next((at for at, message in enumerate(batch) if message.key in failures - poison), len(batch))
    refusals = dict.fromkeys(range(first, len(batch)), Refusal("the function reported it as a failure"))
    named = (at for at, message in enumerate(batch[:first]) if message.key in poison)
    return refusals | dict.fromkeys(named, Refusal("the function reported it as poison", is_final=True))


def _named(text: bytes, list_: str) -> frozenset[str]:
    """Returns the keys in this list of the answer, "" for an entry without one; () if there is no such list."""
    try:
        entries = json.loads(text)[list_]
    except (ValueError, KeyError, TypeError):
        return frozenset()
    listed = entries if isinstance(entries, list) else [] if entries is None else [entries]
    named = (one.get("itemIdentifier") if isinstance(one, dict) else None for one in listed)
    return frozenset(key if isinstance(key, str) else "" for key in named)
