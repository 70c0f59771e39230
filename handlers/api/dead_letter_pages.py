"""Builds what `GET /connections/{streamId}/dead-letters` shows: the stream's messages in the dead-letter queue.

They are received, held for a moment, and released. Invariants: no message is deleted or changed; an answer says whether
the whole queue was seen; a message that we did not write belongs to no stream.
"""

import json
from collections.abc import Callable, Collection
from typing import Any

from handlers.api.answers import to_iso
from handlers.api.status_words import cause_words
from handlers.aws.error_translation import translate_errors
from handlers.redrive import redriving

# How many messages a function shows, and for how long it hides them from other receivers.
MOST = 100
HELD_S = 15


def receive_messages(sqs: Any, queue_url: str, is_late: Callable[[], bool]) -> tuple[list[dict[str, Any]], bool]:
    """Returns up to MOST messages as SQS has them, and whether that was the whole queue; raises StoreUnavailable."""
    messages: list[dict[str, Any]] = []
    with translate_errors("ReceiveMessage"):
        try:
            for some in redriving.receive_batches(sqs, queue_url, HELD_S, is_late):
                messages += some
                if len(messages) >= MOST:
                    break
        finally:
            redriving.release(sqs, queue_url, [one["ReceiptHandle"] for one in messages])
    return messages, len(messages) < MOST and not is_late()


def page(stream_id: str, messages: list[dict[str, Any]], is_all: bool, parts: Collection[str] = ()) -> dict[str, Any]:
    """Returns the answer: the stream's messages, or its parts', the oldest first, and whether the queue was seen."""
    shown = [one for message in messages if (one := _message_summary(parts or (stream_id,), message)) is not None]
    return {"stream": stream_id, "dead_letters": sorted(shown, key=lambda one: str(one["sent_at"])), "is_all": is_all}


def _message_summary(stream_ids: Collection[str], message: dict[str, Any]) -> dict[str, Any] | None:
    """Returns what a message says, without the event's body; None if it belongs to another stream."""
    try:
        fields = json.loads(message["Body"])
        if fields["stream"] not in stream_ids:
            return None
        if "error" in fields:
            reason, key = f"{fields['error']}: {cause_words(str(fields['cause']))}", None
        else:
            reason, key = str(fields["reason"]), None if "repair" in fields else str(fields["key"])
            if sink := fields.get("sink"):
                reason = f"not delivered to {sink}: {reason}"
        part = f"{int(fields['part'])} of {int(fields['parts'])}" if "part" in fields else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    sent_ms = int((message.get("Attributes") or {}).get("SentTimestamp", 0)) or None
    return {
        "id": message["MessageId"],
        **({"stream": fields["stream"]} if len(stream_ids) > 1 else {}),
        "sent_at": to_iso(sent_ms),
        "is_event": key is not None,
        "key": key,
        "part": part,
        "reason": reason,
    }
