"""Keeps a fleet's records in the control table: the last applied document, and how far its application is.

The record `fleet` in the partition of the groups names the execution that applies the document. The document lies
beside it, compressed, in parts of PART bytes; their sort keys have its digest, so that two requests at once overwrite
no part of each other's. A dry run has a record of its own. Invariants: only the execution that the record names changes
it, until one that was started later begins; any answer of AWS but a refused condition raises `StoreUnavailable`.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from handlers.fleet.fleet_document import Wanted, read_saved
from handlers.group import GROUP
from handlers.store import typed_values
from handlers.store.control_table import IS_NEW, Table
from handlers.values import dataclass

# An item of DynamoDB has 400 KB at most.
PART = 300_000
# All steps of an application take a day or two at most.
KEEP_DAYS = 7
APPLYING, DONE = "applying", "done"
# For so long after it was replaced, an application may still change streams: by the requests of the last second before
# it saves its progress, and finds that it was replaced. A start takes 29 s at most.
FORMER_MS = 45_000


class Replaced(Exception):
    """Another execution applies a document now; the one that gets this error ends."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The application that runs, or ran last: `execution` is "" if there was none, `position` the id it has reached.

    `not_yet` is JSON: the first streams that are not as wanted, each with why; "" if there are none. Until
    `former_until_ms` requests of the application that it replaced may change streams.
    """

    execution: str = ""
    digest: str = ""
    state: str = ""
    position: str = ""
    parts: int = 0
    connected: int = 0
    stopped_wanted: int = 0
    patterns: int = 0
    started: int = 0
    stopped: int = 0
    refused: int = 0
    as_wanted: int = 0
    left: int = 0
    rounds: int = 0
    per_s: int = 0
    not_yet: str = ""
    begun_ms: int = 0
    ended_ms: int = 0
    former_until_ms: int = 0
    saved_ms: int = 0


class FleetRecords:
    """The control table's records of the fleet, or of a dry run if `is_dry`."""

    def __init__(self, dynamodb: Any, control_table: str, *, is_dry: bool = False) -> None:
        self._table = Table(dynamodb, control_table)
        self._name = "fleet-plan" if is_dry else "fleet"

    def read(self) -> Fleet:
        """Returns the application that runs, or ran last."""
        return typed_values.read_as(Fleet, self._table.get(GROUP, self._name) or {})

    def prepare(self, wanted: Wanted, execution: str, now_ms: int) -> None:
        """Keeps the document for `execution`, which is to start then and begins with it."""
        packed, digest = zlib.compress(wanted.text().encode("utf-8", "surrogatepass"), 9), digest_of(wanted)
        parts = [packed[first : first + PART] for first in range(0, len(packed), PART)]
        # Later than the application that it replaces, whatever the clock says.
        begun_ms, expiry = max(now_ms, self.read().begun_ms + 1), typed_values.expiry(now_ms, KEEP_DAYS)
        for number, part in enumerate(parts):
            self._table.set_attributes(_part(digest, number), {"data": part, **expiry})
        fleet = Fleet(execution, digest, APPLYING, "", len(parts), *wanted.counts(), begun_ms=begun_ms)
        self._table.set_attributes(typed_values.item_key(GROUP, self._record_key(execution)), asdict(fleet) | expiry)

    def begin(self, execution: str, now_ms: int) -> Fleet:
        """Returns the application that runs: that of `execution`, unless it is not prepared or a later one has begun.

        If the same document was unfinished, it continues at its place.
        """
        ready = typed_values.read_as(Fleet, self._table.get(GROUP, self._record_key(execution)) or {})
        while True:
            before = self.read()
            if (ready.begun_ms, ready.execution) <= (before.begun_ms, before.execution):
                return before
            fleet = replace(ready, former_until_ms=now_ms + FORMER_MS if before.state == APPLYING else 0)
            if before.digest == ready.digest and before.state == APPLYING:
                # It keeps what was found up to its place: a round that found a stream not as wanted is not the last.
                fleet = replace(before, execution=execution, begun_ms=ready.begun_ms)
            if self._write(asdict(fleet), before.execution):
                return fleet

    def document(self, fleet: Fleet) -> Wanted:
        """Returns the document that is applied."""
        keys = [_part(fleet.digest, number) for number in range(fleet.parts)]
        items = [self._table.get(GROUP, one["SK"]["S"]) or {} for one in keys]
        packed = b"".join(item["data"]["B"] for item in items)
        return read_saved(zlib.decompress(packed).decode("utf-8", "surrogatepass"))

    def save_progress(
        self,
        execution: str,
        position: str,
        counts: Mapping[str, int],
        not_yet: Sequence[Mapping[str, Any]],
        now_ms: int,
        *,
        is_over: bool = False,
    ) -> None:
        """Saves its place, "" after a round, and what it found up to there; raises Replaced if another one applies."""
        shown = json.dumps(not_yet, ensure_ascii=False)
        more = {"state": DONE, "ended_ms": now_ms} if is_over else {}
        if not self._write({"position": position, "not_yet": shown, "saved_ms": now_ms, **counts, **more}, execution):
            raise Replaced

    def _write(self, values: Mapping[str, Any], execution: str) -> bool:
        """Returns whether the record still named `execution`, "" if there was none, and has the values now."""
        place, named = typed_values.item_key(GROUP, self._name), {"named": execution} if execution else {}
        return self._table.set_attributes(place, values, "#execution = :named" if execution else IS_NEW, **named)

    def _record_key(self, execution: str) -> str:
        return f"{self._name}-next#{execution.rpartition(':')[2]}"


def digest_of(wanted: Wanted) -> str:
    """Returns the document's digest."""
    return hashlib.sha256(wanted.text().encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _part(digest: str, number: int) -> dict[str, Any]:
    return typed_values.item_key(GROUP, f"fleet-document#{digest}#{number:04d}")
