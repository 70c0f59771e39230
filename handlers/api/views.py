"""What the page shows of one stream beside its status: timeline, machine, cost, dead letters, and where it ends.

Each is a route below `/connections/{streamId}`. They are apart from handlers/control.py because a page asks for them
again and again and a program seldom does. Invariant: nothing is written; what has no answer yet is null, not an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from handlers.api import cost, dead_letter_pages, machine, timeline
from handlers.api.connection_records import Records
from handlers.aws import executions
from handlers.store import latest_events
from handlers.store.stream_records import Layout, StreamRecords

# Clients of AWS's are made when they are first asked for.
Client = Callable[[], Any]
# A look at the queue ends after this time.
LOOK_S = 6
LATEST = 100


class Views:
    """The routes by the last part of their paths; each answers with the stream's id and its records."""

    def __init__(
        self, states: Client, sqs: Client, queue_url: str, dead_after_ms: int, store: StreamRecords, events_table: str
    ) -> None:
        self._states = states
        self._sqs = sqs
        self._queue_url = queue_url
        self._dead_after_ms = dead_after_ms
        self._store = store
        self._events_table = events_table
        self.by_name = {
            "timeline": self._timeline,
            "machine": self._machine,
            "cost": self._cost,
            "dead-letters": self._dead_letters,
            "latest": self._latest,
        }

    def _timeline(self, stream_id: str, records: Records, now_ms: int) -> dict[str, Any]:
        return timeline.answer(stream_id, records, now_ms, self._dead_after_ms)

    def _machine(self, stream_id: str, records: Records, _: int) -> dict[str, Any]:
        """Of the execution that holds the stream, else of the last one that connected it."""
        newest = max(records.connections, key=lambda one: one.fence, default=None)
        arn = records.lease.execution or (newest.execution if newest is not None else "")
        found = executions.read(self._states, arn, machine.NEWEST) if arn else None
        if found is None:
            return {"stream": stream_id, "execution": None, "execution_status": None, "graph": None, "current": []}
        answer: dict[str, Any] = machine.answer(stream_id, found.description, found.definition, found.newest)
        return answer

    def _cost(self, stream_id: str, records: Records, now_ms: int) -> dict[str, Any]:
        partitions, order = self._store.layout(stream_id) or Layout()
        return cost.answer(stream_id, records, partitions, order, now_ms, self._dead_after_ms)

    def _latest(self, stream_id: str, _: Records, __: int) -> dict[str, Any]:
        """The position behind which `GET …/events` has the newest events; null for the beginning."""
        partitions, order = self._store.layout(stream_id) or Layout()
        dynamodb = self._store.dynamodb
        place = latest_events.place(dynamodb, self._events_table, stream_id, partitions, order, LATEST)
        return {"stream": stream_id, "after": place or None}

    def _dead_letters(self, stream_id: str, _: Records, __: int) -> dict[str, Any]:
        late_at_s = time.monotonic() + LOOK_S
        messages, is_all = dead_letter_pages.look(self._sqs(), self._queue_url, lambda: time.monotonic() > late_at_s)
        return dead_letter_pages.page(stream_id, messages, is_all)
