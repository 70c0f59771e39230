"""Sends to an HTTPS webhook: an event is a POST, signed by Standard Webhooks (version 1 of the specification).

    webhook-id         the same for each delivery of an event: of its stream and its key; of a batch, of all its keys
    webhook-timestamp  when it was sent, epoch seconds
    webhook-signature  v1, and the HMAC-SHA256 of "id.timestamp.body" in Base64

The secret is `whsec_` followed by Base64, or any other text, used as it is. Any 2xx takes the event; the Retry-After of
another answer is obeyed. Without an order several POSTs are under way at once. A connection is kept for the next POST.
Invariants: no redirect is followed; an address that handlers/upstream/address_policy.py refuses is not connected to.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

import urllib3
from urllib3 import exceptions

from handlers.connection.judging import retry_after_s
from handlers.deliver.contract import Message, Promises, Refusal, Tools
from handlers.profile.deliver_field import Target
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.upstream.end_reasons import explain
from handlers.upstream.opening import KeptConnections, RedirectRefused

# StrictResponse allows the lines of an answer twice the limit of a read.
READ_S = 10
TIMEOUT = urllib3.Timeout(connect=3, read=READ_S)
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


def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]:
    """Returns why the server did not take the one message; nothing if it did."""
    (message,) = batch
    assert target.secret is not None
    body = message.text.encode()
    headers = signed(tools.secret(target.secret), message_id(message), tools.now_ms() // 1000, body)
    headers |= {"content-type": b"application/json", "user-agent": b"streamkeeper"}
    request = UpstreamRequest("POST", target.name, headers, body, target.allow_private)
    try:
        status, said = (tools.post or _post)(request)
    except (RedirectRefused, exceptions.HTTPError, OSError) as error:
        # Its own message may hold the address, whose path may be secret.
        return {0: Refusal(explain(error, READ_S).detail.replace("the upstream", "the server"))}
    if 200 <= status < 300:
        return {}
    rest_s = retry_after_s(said, tools.now_ms()) or 0
    return {0: Refusal(f"answered {status}", str(status) in PROMISES.final, round(rest_s * 1000))}


def message_id(message: Message) -> str:
    """Returns the id that every delivery of this event has."""
    name = f"{message.stream_id}\0{message.key}"
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


def _post(request: UpstreamRequest) -> tuple[int, Mapping[str, str]]:
    return kept.post(request, TIMEOUT)


kept = KeptConnections()
