"""Decides in which messages an event that DynamoDB cannot hold goes to the dead-letter queue: whole, whatever its size.

Knows no client. Invariant: nothing of the event is left out or changed, and every message fits a queue whose limit is
256 KiB. (SQS allows 1 MiB since 2025, but an older queue keeps the limit that it was made with.)
"""

import base64
import json
from typing import Any

from handlers.stream.events import StreamEvent

MESSAGE_BYTES = 256 * 1024
# SQS counts the bytes of the message: 189,000 bytes are 252,000 in base64, which leaves 10 KB for what stands beside.
PART_BYTES = 189_000


def letters(stream_id: str, fence: int, event: StreamEvent, reason: str) -> list[str]:
    """The messages for `event`, each JSON in ASCII.

    Where it fits there is one, with the event as an object under `event`; else the UTF-8 bytes of that same JSON object
    are cut into parts, each in base64 under `event_base64`, numbered `part` of `parts`.
    """
    about: dict[str, Any] = {"stream": stream_id, "fence": fence, "reason": reason, "key": event.key}
    if isinstance(event.data, bytes):
        body = {"encoding": "base64", "data": base64.b64encode(event.data).decode()}
    else:
        body = {"encoding": "text", "data": event.data}
    content = {"id": event.id, "name": event.name, "received_at_ms": event.received_at_ms, **body}
    whole = json.dumps({**about, "part": 1, "parts": 1, "event": content})
    if len(whole) <= MESSAGE_BYTES:
        return [whole]
    document = json.dumps(content, ensure_ascii=False).encode()
    pieces = [document[at : at + PART_BYTES] for at in range(0, len(document), PART_BYTES)]
    return [
        json.dumps({**about, "part": n, "parts": len(pieces), "event_base64": base64.b64encode(piece).decode()})
        for n, piece in enumerate(pieces, 1)
    ]
