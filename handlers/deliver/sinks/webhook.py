"""Sends to an HTTPS webhook: an event is a POST, signed by Standard Webhooks (version 1 of the specification).

    webhook-id         the same for each delivery of an event: of its stream and its key; of a batch, of all its keys
    webhook-timestamp  when it was sent, epoch seconds
    webhook-signature  v1, and the HMAC-SHA256 of "id.timestamp.body" in Base64

The secret is `whsec_` followed by Base64, or any other text, used as it is. Any 2xx takes the event. With `batch` a
POST has several, {"stream": …, "events": [ … ]}, and is taken whole; without an order several POSTs are under way at
once. A connection is kept for the next POST. Invariants: no redirect is followed; an address that
handlers/upstream/address_policy.py refuses is not connected to.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import urllib3
from urllib3 import exceptions

from handlers.deliver.contract import Message, Promises, Refusal, Tools
from handlers.profile.deliver_field import Target
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.upstream.address_policy import AddressRefused
from handlers.upstream.opening import KeptConnections, RedirectRefused

# StrictResponse allows the lines of an answer twice the limit of a read.
TIMEOUT = urllib3.Timeout(connect=3, read=10)
PROMISES = Promises(
    order="message",
    most_messages=1,
    most_bytes=1024 * 1024,
    most_message_bytes=1024 * 1024,
    longest_ms=24_000,
    # Statuses about the message itself. Any other may pass, or a person mends its cause: 401, 404, 429, 503 …
    final=frozenset({"400", "413", "414", "415", "422", "431"}),
)
_PREFIX = "whsec_"


def promises(target: Target) -> Promises:
    """Returns the promises of this webhook: an event is a request, or a batch is."""
    if target.batch > 1:
        return replace(PROMISES, order="request", most_messages=target.batch, around_bytes=1)
    return PROMISES


def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]:
    """Returns the refusals, by message."""
    if target.batch > 1:
        events = ",".join(message.text for message in batch)
        body = f'{{"stream":{json.dumps(batch[0].stream_id)},"events":[{events}]}}'.encode()
    else:
        body = batch[0].text.encode()
    refusal = _posted(body, message_id(batch), target, tools)
    return {} if refusal is None else dict.fromkeys(range(len(batch)), refusal)


def _posted(body: bytes, id_: str, target: Target, tools: Tools) -> Refusal | None:
    """Returns why the server did not take the request; None if it did."""
    assert target.secret is not None
    headers = signed(tools.secret(target.secret), id_, tools.now_ms() // 1000, body)
    headers |= {"content-type": b"application/json", "user-agent": b"streamkeeper"}
    request = UpstreamRequest("POST", target.name, headers, body, target.allow_private)
    try:
        status = (tools.post or _post)(request)
    except (AddressRefused, RedirectRefused, exceptions.HTTPError, OSError) as error:
        # Its own message may hold the address, whose path may be secret.
        return Refusal(f"no answer: {type(error).__name__}")
    return None if is_taken(status) else Refusal(f"answered {status}", str(status) in PROMISES.final)


def is_taken(status: int) -> bool:
    """Returns whether the server has the event."""
    return 200 <= status < 300


def message_id(batch: Sequence[Message]) -> str:
    """Returns the id that every delivery of these events has."""
    name = "\0".join([batch[0].stream_id, *(message.key for message in batch)])
    return f"msg_{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def signed(secret: str, id_: str, at_s: int, body: bytes) -> dict[str, bytes]:
    """Returns the three headers of a message."""
    content = f"{id_}.{at_s}.".encode() + body
    signature = base64.b64encode(hmac.digest(signing_key(secret), content, "sha256"))
    return {
        "webhook-id": id_.encode(),
        "webhook-timestamp": str(at_s).encode(),
        "webhook-signature": b"v1," + signature,
    }


def signing_key(secret: str) -> bytes:
    """Returns the bytes that sign: the Base64 after `whsec_`, else the text itself."""
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _post(request: UpstreamRequest) -> int:
    return kept.post(request, TIMEOUT)


kept = KeptConnections()
