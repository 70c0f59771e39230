"""Keeps in the control table which streams have gaps to repair, and which function repairs those of a profile.

    a stream, `repair`       due_ms, asked_ms, asks     generation: while a repair may still be due
    a profile, `repairing`   holder, until_ms           one function at a time asks an upstream

The index `by-record` has the attribute `generation`, so the watch finds open requests without reading finished ones.
Every write may be sent twice. Invariants: a request ends only if nothing was requested since it was read; the turn of a
killed function can be taken once it has run out; a start that fails loses nothing, because the request stays and the
watch tries again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.connection.gap_record import Interval
from handlers.errors import StoreUnavailable
from handlers.store.control_table import BY_RECORD, Table
from handlers.store.typed_values import expiry, item_key, number_value, read_as, read_int
from handlers.values import dataclass

REPAIR, REPAIRING = "repair", "repairing"
# Finished requests are kept for a day.
DONE_KEPT_DAYS = 1
# How old a request must be before it may be over: its gap may still be on its way to the table.
SETTLED_MS = 60_000
# A list of streams reads only this many newest connections of each, so no more gaps matter.
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Request:
    """A request to repair a stream's gaps at `due_ms`; `asks` counts how often it was made."""

    stream_id: str
    due_ms: int
    asked_ms: int
    asks: int


class RepairWork:
    def __init__(self, dynamodb: Any, control_table: str) -> None:
        self._table = Table(dynamodb, control_table)

    def request(self, stream_id: str, now_ms: int, due_ms: int) -> None:
        """Requests that the stream's gaps be repaired at that instant."""
        update = "SET #due_ms = :due, #asked_ms = :now, #generation = :one ADD #asks :one REMOVE #expires_at"
        values = {":due": number_value(due_ms), ":now": number_value(now_ms), ":one": number_value(1)}
        self._table.update(item_key(stream_id, REPAIR), update, "", values)

    def requests_of(self, profile: str = "", *others: str) -> list[Request]:
        """Returns the requests of a profile's streams, or of all, by the index, and of others; most urgent first."""
        is_open = {"IndexName": BY_RECORD, "FilterExpression": "attribute_exists(generation)"}
        ids = [item["PK"]["S"] for item in self._table.query_items("SK = :repair", {":repair": REPAIR}, **is_open)]
        wanted = [*(one for one in ids if profile in ("", one.partition(":")[0])), *others]
        items = self._table.batch_get([item_key(one, REPAIR) for one in dict.fromkeys(wanted)], consistent=True)
        requests = [read_as(Request, item, stream_id=item["PK"]["S"]) for item in items if "generation" in item]
        return sorted(requests, key=lambda one: (one.due_ms, one.stream_id))

    def finish_request(self, read: Request, now_ms: int, next_ms: int | None) -> None:
        """Makes the request due at `next_ms`, or ends it if that is None, unless it was repeated since."""
        if next_ms is None and now_ms - read.asked_ms < SETTLED_MS:
            next_ms = read.asked_ms + SETTLED_MS
        place, condition = item_key(read.stream_id, REPAIR), "#asks = :asks"
        if next_ms is not None:
            self._table.set_attributes(place, {"due_ms": next_ms}, condition, asks=read.asks)
        else:
            over = expiry(now_ms, DONE_KEPT_DAYS)
            self._table.set_attributes(place, over, condition, remove=["generation"], asks=read.asks)

    def show_repaired(self, stream_id: str, spans: Iterable[Interval]) -> None:
        """Writes the newest repaired intervals into the lease, from which the list of streams reads them."""
        text = " ".join(f"{from_ms}/{to_ms}" for from_ms, to_ms in sorted(spans)[-SHOWN:])
        self._table.set_attributes(item_key(stream_id, "lease"), {"repaired": text}, "attribute_exists(PK)")

    # --- turns --------------------------------------------------------------------------------------------------------

    def take_turn(self, profile: str, holder: str, now_ms: int, until_ms: int) -> bool:
        """Takes the profile's turn until that instant; returns whether `holder` has it and may ask the upstream."""
        condition = "attribute_not_exists(#until_ms) OR #until_ms <= :now OR #holder = :holder"
        turn = {"holder": holder, "until_ms": until_ms}
        return self._table.set_attributes(item_key(profile, REPAIRING), turn, condition, now=now_ms)

    def free_profiles(self, profiles: Iterable[str], now_ms: int) -> list[str]:
        """Returns the profiles whose turn can be taken now."""
        named = list(profiles)
        turns = self._table.batch_get([item_key(profile, REPAIRING) for profile in named], consistent=True)
        taken = {turn["PK"]["S"] for turn in turns if (read_int(turn, "until_ms") or 0) > now_ms}
        return [profile for profile in named if profile not in taken]

    def end_turn(self, profile: str, holder: str, until_ms: int) -> None:
        """Ends the turn; the next one begins at that instant at the earliest."""
        turn = {"holder": "", "until_ms": until_ms}
        self._table.set_attributes(item_key(profile, REPAIRING), turn, "#holder = :me", me=holder)


# How many invocations are started at once. Each repairs all streams of a profile; the others wait for the next round.
MOST_STARTED = 20


def start_repair(functions: Callable[[], Any], name: str, stream_id: str) -> bool:
    """Starts an invocation for the stream; returns whether Lambda took it. `functions` returns a client of Lambda."""
    try:
        with translate_errors("Invoke"):
            payload = json.dumps({"stream": stream_id}).encode()
            functions().invoke(FunctionName=name, InvocationType="Event", Payload=payload)
    except StoreUnavailable:
        return False
    return True


def start_due(work: RepairWork, now_ms: int, start_one: Callable[[str], bool]) -> list[str]:
    """Starts the function for each profile with something due and a free turn; returns the streams it was started for.

    Raises StoreUnavailable.
    """
    due = {one.stream_id.partition(":")[0]: one.stream_id for one in work.requests_of() if one.due_ms <= now_ms}
    return [due[profile] for profile in work.free_profiles(due, now_ms)[:MOST_STARTED] if start_one(due[profile])]
