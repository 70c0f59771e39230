"""Builds one page of all streams for the control API, each with the most important fields of its own `GET`.

Invariants: streams come in the order of their ids, so a stream that exists throughout appears exactly once in a walk
over the pages; a status is the one that handlers/api/status.py computes.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from handlers.api import status
from handlers.api.connection_records import Records
from handlers.api.last_error import Retries
from handlers.api.queries import Listing
from handlers.profile.addresses import STREAM_ID_LENGTH

# A stream that is well costs a twentieth of a request to the table, and a hundredth of one for its lease.
LIMIT, MOST = 100, 1000
LISTING = Listing(re.compile(rf"[^\0-\x1f]{{1,{STREAM_ID_LENGTH}}}"), "a stream id", LIMIT, MOST)
# `GET` of the stream shows more: its cursor and its newest connections.
SHOWN = (
    *("stream", "status", "reason", "execution", "group", "generation", "fence", "started_at", "stop_requested_at"),
    *("ended_at", "holder", "last_error"),
)


def page(
    stream_ids: Iterable[str],
    read: Callable[[str], Records | None],
    limit: int,
    now_ms: int,
    dead_after_ms: int,
    retries: Retries,
    is_late: Callable[[], bool],
) -> dict[str, Any]:
    """The answer: {"streams", "next"}; `next` is None where no id was left.

    It holds the streams up to `limit`, and fewer where it is late; one id is passed at least. A stream whose records
    are gone by now is left out.
    """
    streams: list[dict[str, Any]] = []
    ids = list(stream_ids)
    for count, stream_id in enumerate(ids, 1):
        records = read(stream_id)
        if records is not None:
            stream = status.answer(stream_id, records, now_ms, dead_after_ms, retries)
            streams.append({name: stream[name] for name in SHOWN if name in stream})
        if count < len(ids) and (count == limit or is_late()):
            return {"streams": streams, "next": stream_id}
    return {"streams": streams, "next": None}
