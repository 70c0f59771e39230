"""An HTTPS webhook: an event is a POST, signed as Standard Webhooks says (version 1 of the specification).

    webhook-id         the same for each delivery of an event: of its stream and its key
    webhook-timestamp  when it was sent, epoch seconds
    webhook-signature  v1, and the HMAC-SHA256 of "id.timestamp.body" in Base64

The secret is `whsec_` and Base64, or a text that is taken as it is. Any 2xx takes the event. Invariants: no redirect is
followed; an address that handlers/upstream/address_policy.py refuses is not connected to.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

import urllib3
from urllib3 import exceptions

from handlers.deliver.contract import Message, Promises, Refusal, Tools
from handlers.profile.behaviour import UpstreamRequest
from handlers.profile.deliver_field import Target
from handlers.upstream.address_policy import AddressRefused
from handlers.upstream.opening import RedirectRefused, opened
from handlers.upstream.strict_response import StrictResponse

# StrictResponse gives the lines of an answer twice the limit of a read.
TIMEOUT = urllib3.Timeout(connect=3, read=10)
PROMISES = Promises(
    order="message",
    most_messages=1,
    most_bytes=1024 * 1024,
    most_message_bytes=1024 * 1024,
    longest_ms=24_000,
    # What a server says of the message itself. All else may pass, or a person mends it: 401, 404, 429, 503 …
    final=frozenset({"400", "413", "414", "415", "422", "431"}),
)
_PREFIX = "whsec_"


def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]:
    """Why the one message was refused, if it was."""
    (message,) = batch
    assert target.secret is not None
    body = message.text.encode()
    headers = signed(tools.secret(target.secret), message_id(message), tools.now_ms() // 1000, body)
    headers |= {"content-type": b"application/json", "user-agent": b"streamkeeper"}
    request = UpstreamRequest("POST", target.name, headers, body, target.allow_private)
    try:
        status = (tools.post or _post)(request)
    except (AddressRefused, RedirectRefused, exceptions.HTTPError, OSError) as error:
        # Its own words may hold the address, whose path may be secret.
        return {0: Refusal(f"no answer: {type(error).__name__}")}
    return {} if is_taken(status) else {0: Refusal(f"answered {status}", str(status) in PROMISES.final)}


def is_taken(status: int) -> bool:
    """Whether the server has the event."""
    return 200 <= status < 300


def message_id(message: Message) -> str:
    """What every delivery of the event has in common."""
    name = f"{message.stream_id}\0{message.key}"
    return f"msg_{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def signed(secret: str, id_: str, at_s: int, body: bytes) -> dict[str, bytes]:
    """The three headers of a message."""
    content = f"{id_}.{at_s}.".encode() + body
    signature = base64.b64encode(hmac.digest(signing_key(secret), content, "sha256"))
    return {
        "webhook-id": id_.encode(),
        "webhook-timestamp": str(at_s).encode(),
        "webhook-signature": b"v1," + signature,
    }


def signing_key(secret: str) -> bytes:
    """The bytes that sign: what follows `whsec_` in Base64, else the text itself."""
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _post(request: UpstreamRequest) -> int:
    with opened(request, TIMEOUT, lambda _socket: None, StrictResponse, most_redirects=0) as response:
        return response.status
