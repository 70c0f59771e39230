"""Writes to a bucket: the events of a stream in one hour become an object, NDJSON in gzip.

    <prefix><stream>/2026/11/23/01/<first position>-<hash of the content>.ndjson.gz

An object holds what one invocation of the delivery sends; for larger objects use Firehose. The name follows from the
content, so the same events sent again are the same object. Source: PutObject in the S3 API reference.
"""

import gzip
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from handlers.deliver.contract import Message, Promises, Refusal, Tools
from handlers.profile.deliver_field import Target

SERVICE = "s3"
# A key has 1,024 bytes at most, and a prefix 200. The position of an event without an order holds its dedup key.
_FOLDER_CHARACTERS, _PLACE_CHARACTERS = 600, 120


def _hour(message: Message) -> str:
    return datetime.fromtimestamp(message.received_at_ms / 1000, UTC).strftime("%Y/%m/%d/%H")


PROMISES = Promises(
    order="request",
    most_messages=10_000,
    most_bytes=32 * 1024 * 1024,
    most_message_bytes=32 * 1024 * 1024,
    around_bytes=1,
    final=frozenset({"EntityTooLarge"}),
    apart=_hour,
)


def send(batch: Sequence[Message], target: Target, tools: Tools) -> Mapping[int, Refusal]:
    """Returns no refusals: the object of these events, which came in one hour, is taken whole, or the client raises."""
    lines = "".join(f"{message.text}\n" for message in batch).encode()
    answer = tools.client(SERVICE).put_object(
        Bucket=target.name,
        Key=target.prefix + object_key(batch[0], lines),
        # No object holds the time of its packing, so the same events make the same bytes.
        Body=gzip.compress(lines, mtime=0),
        ContentType="application/x-ndjson",
        ContentEncoding="gzip",
    )
    if not answer.get("ETag"):
        raise LookupError("no store of objects has answered")
    return {}


def object_key(first: Message, lines: bytes) -> str:
    """Returns the object's key without the prefix."""
    folder = _bounded(quote(first.stream_id, safe=":"), _FOLDER_CHARACTERS, first.stream_id)
    place = _bounded(first.position.replace("/", "-"), _PLACE_CHARACTERS, first.position)
    return f"{folder}/{_hour(first)}/{place}-{hashlib.sha256(lines).hexdigest()[:16]}.ndjson.gz"


def _bounded(name: str, most: int, of: str) -> str:
    """Returns the name, or a hash of what it names if it is too long."""
    return name if len(name) <= most else f"={hashlib.sha256(of.encode()).hexdigest()}"
