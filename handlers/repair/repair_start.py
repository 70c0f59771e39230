"""Starts the function that repairs gaps without waiting for it, and again where work is left.

Invariant: a start that fails holds nobody up: the request stays, and the watch comes round.
"""

import json
from collections.abc import Callable
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.errors import StoreUnavailable
from handlers.repair.work import RepairWork

# How many are started at once. One invocation repairs all streams of a profile; more wait for the next round.
MOST_STARTED = 20


def start(functions: Callable[[], Any], name: str, stream_id: str) -> bool:
    """Returns whether Lambda took the invocation for the stream; `functions` makes a client of Lambda."""
    try:
        with translate_errors("Invoke"):
            payload = json.dumps({"stream": stream_id}).encode()
            functions().invoke(FunctionName=name, InvocationType="Event", Payload=payload)
    except StoreUnavailable:
        return False
    return True


def start_due(work: RepairWork, now_ms: int, start_one: Callable[[str], bool]) -> list[str]:
    """Starts the function for each profile with something due; returns the streams for which it was started.

    Raises StoreUnavailable.
    """
    due = {one.stream_id.partition(":")[0]: one.stream_id for one in work.requested() if one.due_ms <= now_ms}
    return [stream_id for stream_id in list(due.values())[:MOST_STARTED] if start_one(stream_id)]
