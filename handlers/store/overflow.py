"""Takes what no item of DynamoDB holds: bodies into a bucket of S3, whole events into the dead-letter queue.

Of a frame that was too long to be read there is no more than its size, its SHA-256 and its first 64 KB. Invariants: an
object is written whole before anything refers to it, and its key names its content, so that writing it again changes
nothing; nothing else of an event in the queue is left out or changed, and every message fits a queue whose limit is
256 KiB. (SQS allows 1 MiB since 2025, but an older queue keeps the limit that it was made with.)
"""

import base64
import json
from collections.abc import Callable
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.framing.frames import Body
from handlers.framing.oversize import Oversize


class Objects:
    """The bucket, "" where there is none; `s3` makes its client at its first use, for few invocations need it."""

    def __init__(self, s3: Callable[[], Any], bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket

    @property
    def exist(self) -> bool:
        """Whether there is a bucket."""
        return bool(self._bucket)

    def put(self, key: str, content: str | bytes) -> None:
        """Returns when the object is there, a text in UTF-8; raises StoreUnavailable."""
        with translate_errors("PutObject"):
            client = self._s3()
            if isinstance(content, str) and not getattr(client, "takes_text", False):
                content = content.encode()
            client.put_object(Bucket=self._bucket, Key=key, Body=content)

    def get(self, key: str) -> bytes:
        """The object's content; raises StoreUnavailable, also where it is not there."""
        with translate_errors("GetObject"):
            content: bytes = self._s3().get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return content

    def find(self, key: str) -> bytes | None:
        """As `get`; None where it is not there, which S3 answers with AccessDenied to who may not list a bucket."""
        try:
            return self.get(key)
        except StoreUnavailable as error:
            code = getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", "")
            if code in ("NoSuchKey", "AccessDenied"):
                return None
            raise


def no_client() -> Any:
    """Stands in for the client's factory where there is no bucket; it is never called."""
    raise RuntimeError("there is no bucket")


MESSAGE_BYTES = 256 * 1024
# SQS counts the bytes of the message: 189,000 bytes are 252,000 in base64, which leaves 10 KB for the other fields.
PART_BYTES = 189_000


def messages(stream_id: str, fence: int, event: StreamEvent, reason: str) -> list[str]:
    """The messages for `event`, each JSON in ASCII.

    Where it fits there is one, with the event as an object under `event`; else the UTF-8 bytes of that same JSON object
    are cut into parts, each in base64 under `event_base64`, numbered `part` of `parts`.
    """
    about: dict[str, Any] = {"stream": stream_id, "fence": fence, "reason": reason, "key": event.key}
    content = {"id": event.id, "name": event.name, "received_at_ms": event.received_at_ms, **_body(event.data)}
    whole = json.dumps({**about, "part": 1, "parts": 1, "event": content})
    if len(whole) <= MESSAGE_BYTES:
        return [whole]
    document = json.dumps(content, ensure_ascii=False).encode()
    pieces = [document[at : at + PART_BYTES] for at in range(0, len(document), PART_BYTES)]
    return [
        json.dumps({**about, "part": n, "parts": len(pieces), "event_base64": base64.b64encode(piece).decode()})
        for n, piece in enumerate(pieces, 1)
    ]


def _body(data: Body) -> dict[str, Any]:
    if isinstance(data, Oversize):
        head = {"encoding": "base64", "head": base64.b64encode(data.head).decode(), "is_whole": data.is_whole}
        return {"size_bytes": data.size_bytes, "sha256": data.sha256, **head}
    if isinstance(data, bytes):
        return {"encoding": "base64", "data": base64.b64encode(data).decode()}
    return {"encoding": "text", "data": data}


class DeadLetterQueue:
    """The queue; `sqs` makes its client when the first message is sent, for few invocations need it."""

    def __init__(self, sqs: Callable[[], Any], queue_url: str) -> None:
        self._sqs = sqs
        self._queue_url = queue_url

    def send(self, stream_id: str, fence: int, event: StreamEvent, reason: str) -> None:
        """Sends the event's messages; raises StoreUnavailable."""
        with translate_errors("SendMessage"):
            for message in messages(stream_id, fence, event, reason):
                self._sqs().send_message(QueueUrl=self._queue_url, MessageBody=message)
