"""Answers about a stream that is read in parts (`parts` of its profile), from the records of its parts.

Invariants: nothing is written; a part that was never started has no page, and keeps the whole from being connected; a
whole is listed once in a walk, before the first of its parts that was started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from handlers.api import part_status
from handlers.api.bill import cost
from handlers.api.connection_records import Records
from handlers.api.known_profiles import KnownProfiles
from handlers.api.last_error import Retries
from handlers.api.status import SHOWN
from handlers.store.stream_records import StreamRecords


class PartedStreams:
    """The answers at one instant; `first_execution` has the records of a part whose POST was just answered."""

    def __init__(
        self,
        store: StreamRecords,
        known: KnownProfiles,
        first_execution: Callable[[str], Records | None],
        now_ms: int,
        dead_after_ms: int,
        retries: Retries,
    ) -> None:
        self._store, self._known, self._first_execution = store, known, first_execution
        self._instants = now_ms, dead_after_ms
        self._answer = partial(part_status.answer, now_ms=now_ms, dead_after_ms=dead_after_ms, retries=retries)

    def status(self, stream_id: str, part_ids: Sequence[str]) -> dict[str, Any]:
        """Returns the status; raises Problem if no part was ever started."""
        records = {
            one: self._known.enrich(one, self._store.read(one) or self._first_execution(one)) for one in part_ids
        }
        found = self._answer(stream_id, records)
        if found is None:
            raise self._known.problem_without(stream_id, stream_id)
        return found

    def merge_rows(self, rows: list[dict[str, Any]], lag: Callable[[str], int | None]) -> list[dict[str, Any]]:
        """Returns the rows of a page of streams, with one for each whole; `lag` returns a part's lag."""
        found = list(rows)
        for name in dict.fromkeys(row["stream"].partition(":")[0] for row in rows):
            part_ids = self._known.parts(name)
            read = self._store.read_for_status(part_ids)
            records = {one: read(one) for one in part_ids}
            first = min((one for one in part_ids if records[one] is not None), key=str.encode, default=None)
            at = next((at for at, row in enumerate(found) if row["stream"] == first), None)
            whole = None if at is None else self._answer(name, records, is_brief=True)
            if at is not None and whole is not None:
                lags = (lag(one) for one in part_ids)
                row = {field: whole[field] for field in (*SHOWN, "parts") if field in whole}
                found.insert(at, row | {"lag_ms": max((one for one in lags if one is not None), default=None)})
        return found

    def cost(self, stream_id: str, part_ids: Sequence[str]) -> dict[str, Any]:
        """Returns about what the parts have cost together; raises Problem if none was started."""
        costs = [cost(one, found, *self._instants) for one in part_ids if (found := self._store.read(one)) is not None]
        if not costs:
            raise self._known.problem_without(stream_id, stream_id)
        return part_status.cost(stream_id, costs)
