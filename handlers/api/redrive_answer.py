"""Builds the answer of `POST /connections/{streamId}/redrive`: the stream's dead-letter messages are put back.

It is what `streamkeeper redrive --stream` does of one stream, as far as a request has time. Invariant: an event of the
answer that is not `left` is stored, and its message deleted.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.redrive.redriving import Redrive
from handlers.redrive.stage import Stage

# API Gateway waits for 29 s, the function has 20. A walk that ends early is gone on with by the next request.
LATE_S, HELD_S = 8, 30


def answer(stream_id: str, stage: Stage, is_late: Any) -> dict[str, Any]:
    """The answer; raises StoreUnavailable where the queue does not answer."""
    redrive = Redrive(stage, restart=False, dry_run=False)
    with translate_errors("ReceiveMessage"), contextlib.closing(redrive.outcomes(frozenset([stream_id]))) as outcomes:
        shown = [outcome.as_json() for outcome in outcomes]
    return {
        "stream": stream_id,
        "dead_letters": shown,
        "counts": dict(Counter(one["outcome"] for one in shown)),
        "is_all": not is_late(),
    }


def late() -> Any:
    """What says whether a request that begins now has taken too long."""
    late_at_s = time.monotonic() + LATE_S
    return lambda: time.monotonic() > late_at_s
