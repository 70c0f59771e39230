"""Reads and writes the control record of a stream: its lease, its cursor, its back-off, and its newest connection.

It is one item (`SK` `lease`), so that one write renews the lease, saves the cursor and shows the connection. The answer
has everything that a connection must know. Its sum of the ledger (`known`) is for the next connection, up to the one
that the record shows (`live`).

Pure. Invariants: reading returns what was written; an attribute that cannot be read counts as absent, and
`damaged_attributes` names it, so that a person can correct it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from handlers.connection import evidence
from handlers.connection.backoff import Backoff
from handlers.connection.epochs import NO_EPOCH, Epoch
from handlers.connection.evidence import Known
from handlers.connection.inputs import LOG, MOST_PARTITIONS, Layout, Order, Resumption
from handlers.connection.lease import Lease
from handlers.connection.liveness import decay_pause
from handlers.connection.spending import is_pause
from handlers.store import ledger_records, typed_values
from handlers.store.ledger_records import live_record
from handlers.store.typed_values import Item, instant_ms, number_value, read_int, read_text, refusal
from handlers.values import dataclass

if TYPE_CHECKING:
    from handlers.segments.log_requests import Cursor

# The version of the layout, which a stream's first claim writes.
LAYOUT = 2
# The refusal of a record with an unknown layout, which this version would damage.
UNKNOWN_LAYOUT = "the control record has layout {layout}, and this version knows {known}"


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """The record as it was read; `live` has the record of the newest connected connection as attributes, or is None.

    `cursor_fence` is the connection that saved the cursor, at `saved_ms`, when everything that had come on it until
    `cursor_came_ms` was stored. `gaps_recorded_by` is the connection that recorded gaps last. `epoch` is the newest one
    of the stream's keys.
    """

    lease: Lease
    layout: Layout
    cursor: str | None
    cursor_fence: int
    saved_ms: int | None
    cursor_came_ms: int
    rest: Backoff
    ledger_sum: Known
    live: Item | None
    gaps_recorded_by: int
    epoch: Epoch

    def resumption(self, now_ms: int) -> Resumption:
        """Returns where a connection that opens now resumes."""
        record = self.with_stored_until(self.cursor_fence, self.cursor_came_ms)
        known, live = record.ledger_sum_with_live(), record.live or {}
        since_ms = now_ms - (typed_values.read_int(live, "opened_ms") or now_ms)
        behind_ms = known.behind_ms(self.cursor_fence, now_ms)
        return Resumption(
            cursor=self.cursor,
            saved_ms=self.saved_ms,
            known_ms=known.at_ms,
            backlog_from_ms=None if behind_ms is None else now_ms - behind_ms,
            connected_ms=known.until_ms if known.fence else None,
            last_searched=self.gaps_recorded_by,
            event_ms=typed_values.read_int(live, "event_ms"),
            pause_ms=decay_pause(typed_values.read_int(live, "pause_ms"), since_ms),
            spending=typed_values.read_text(live, "spending") or "",
            is_counting="spending" in live and not typed_values.read_text(live, "ended_by"),
            is_logged="spending" in live and self.layout.partitions == LOG,
        )

    def ledger_sum_with_live(self) -> Known:
        """Returns the sum of the ledger including the connection that the record shows."""
        return (
            self.ledger_sum
            if self.live is None
            else evidence.sum_of_records(ledger_records.records_of(self.live), self.ledger_sum)
        )

    def with_stored_until(self, fence: int, came_ms: int) -> ControlRecord:
        """Returns the record if everything that came on connection `fence` until `came_ms` is stored.

        The record of a connection may be older: it shows an earlier one as it was when the next was marked. If the
        heartbeats of a group's function cover a connection, its own record is seldom written.
        """
        record, live = replace(self, ledger_sum=self.ledger_sum.with_stored_until(fence, came_ms)), self.live or {}
        if typed_values.read_int(live, "fence") != fence:
            return record
        known_ms = {name: typed_values.read_int(live, name) for name in ("heard_ms", "seen_ms")}
        later = {name: number_value(max(came_ms, at_ms)) for name, at_ms in known_ms.items() if at_ms is not None}
        return replace(record, live=live | later)

    def with_log_cursor(self, logged: Cursor | None) -> ControlRecord:
        """Returns the record with the cursor of the stream's log, if that is later; the log's may be None.

        The record's own is later if the upstream moved on without an event, or has forgotten a cursor.
        """
        is_own = self.saved_ms is not None and logged is not None and (self.cursor_fence, self.saved_ms) >= logged[:2]
        if logged is None or is_own:
            return self
        fence, at_ms, cursor, came_ms = logged
        return replace(self, cursor=cursor, cursor_fence=fence, saved_ms=at_ms, cursor_came_ms=came_ms)


def to_record(item: Item | None) -> ControlRecord:
    """Returns the record of the item; an empty one if there is none."""
    item = item or {}
    return ControlRecord(
        lease=lease_of(item),
        layout=layout_of(item),
        cursor=typed_values.read_text(item, "cursor"),
        cursor_fence=typed_values.read_int(item, "cursor_fence") or 0,
        saved_ms=typed_values.read_int(item, "saved_at_ms"),
        cursor_came_ms=typed_values.read_int(item, "cursor_came_ms") or 0,
        rest=rest_of(item),
        gaps_recorded_by=typed_values.read_int(item, "looked") or 0,
        ledger_sum=ledger_sum_of(item),
        live=ledger_records.live_record(item),
        epoch=epoch_of(item),
    )


def layout_problem(item: Item | None) -> str:
    """Returns in a sentence why this version must not write to the record; "" if it may."""
    layout = typed_values.read_int(item or {}, "layout")
    return "" if layout in (None, LAYOUT) else UNKNOWN_LAYOUT.format(layout=layout, known=LAYOUT)


def cursor_attributes(value: str, fence: int, now_ms: int, came_ms: int = 0) -> Item:
    """Returns a cursor's attributes, saved by connection `fence`; all that came on it until `came_ms` is stored."""
    return {
        "cursor": {"S": value},
        "cursor_fence": typed_values.number_value(fence),
        "saved_at_ms": typed_values.number_value(now_ms),
        "cursor_came_ms": typed_values.number_value(came_ms),
    }


def lease_of(item: Item) -> Lease:
    """Returns the lease of an item; attributes that are absent or cannot be read are as in an empty lease."""
    known: dict[str, Any] = {f"{name}_ms": instant_ms(read_text(item, name)) or 0 for name in _INSTANTS}
    known["last_stop_ms"] = known["stop_at_ms"]
    known["stop_at_ms"] = instant_ms(read_text(item, "stop_since")) or known["stop_at_ms"]
    known |= {"connected_token": read_int(item, "connected") or 0, "released_token": read_int(item, "released") or 0}
    place, _, moved_at = (read_text(item, "moved_to") or "").partition(" ")
    known["moved_to"] = place if moved_at == read_text(item, "stop_at") else ""
    if is_pause(read_text(item, "rest_kind") or ""):
        known["paused_until_ms"] = read_int(item, "rest_until_ms") or 0
    return typed_values.read_as(Lease, item, connected_by=_connected_by(item), **known)


def mark_value(fence: int, request_id: str) -> Item:
    """Returns the value that a connection writes beside its token when it is marked as connected."""
    return {"S": f"{fence}/{request_id}"}


def _connected_by(item: Item) -> str:
    """Returns the request id of the connected connection; "" if the mark does not have it."""
    fence, _, request_id = (read_text(item, "marked") or "").partition("/")
    return request_id if fence == str(read_int(item, "connected") or 0) else ""


def layout_of(item: Item) -> Layout:
    """Returns how a stream's events are stored, by its lease."""
    if (fixed := partitions_of(item)) != LOG:
        return Layout(fixed, order_of(item))
    return Layout(LOG, "index", read_int(item, "item_partitions") or 0, read_int(item, "log_since_ms") or 0)


def partitions_of(item: Item) -> int:
    """Returns over how many partition keys a stream's events are spread, by its lease; 1 if the lease has no number.

    LOG if they are in a log.
    """
    fixed = fixed_partitions(item)
    return 1 if fixed is None else fixed


def fixed_partitions(item: Item) -> int | None:
    """Returns the lease's `partitions`; None if it has none, or a number that no profile can have."""
    fixed = read_int(item, "partitions")
    return fixed if fixed is not None and LOG <= fixed <= MOST_PARTITIONS else None


def order_of(item: Item) -> Order:
    """Returns whether all of a stream's items are in the index of the order, by its lease; "index" by default.

    Once it is "none", some items are not in the index, so it stays "none". A log has no index, and is in order.
    """
    return "none" if read_text(item, "order") == "none" and partitions_of(item) != LOG else "index"


def ledger_sum_value(ledger_sum: evidence.Known) -> Item:
    """Returns the sum of the ledger over all connections except the newest, as a list of numbers."""
    numbers = (
        ledger_sum.fence,
        ledger_sum.at_ms or 0,
        ledger_sum.connected_ms,
        ledger_sum.until_ms,
        *chain.from_iterable(ledger_sum.waits),
    )
    return {"L": [number_value(value) for value in numbers]}


def ledger_sum_of(item: Item) -> evidence.Known:
    """Reads what `ledger_sum_value` wrote; an empty sum if there is none, or if it cannot be read."""
    numbers = ledger_sum_numbers(item)
    if not numbers or not numbers[0]:
        return evidence.Known()
    fence, at_ms, connected_ms, until_ms, *rest = numbers
    waits = tuple(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
    return evidence.Known(fence, at_ms, connected_ms, until_ms, waits)


def ledger_sum_numbers(item: Item) -> list[int] | None:
    """Returns the numbers that `ledger_sum_value` wrote, four and three for each of `waits`; None if there are none."""
    written: list[Item] = item.get("known", {}).get("L", [])
    numbers = [value for one in written if (value := read_int({"one": one}, "one")) is not None]
    return numbers if len(numbers) == len(written) >= 4 and len(numbers) % 3 == 1 else None


def rest_of(item: Item) -> Backoff:
    """Returns the back-off in the control record; an empty one if it has none."""
    return typed_values.read_as(Backoff, item, "rest_")


def rest_attributes(rest: Backoff) -> Item:
    """Returns the attributes of the control record that hold a back-off."""
    values = {f"rest_{one.name}": getattr(rest, one.name) for one in fields(Backoff)}
    return {name: {"S": value} if isinstance(value, str) else number_value(value) for name, value in values.items()}


def epoch_value(epoch: Epoch) -> Item:
    """Returns the value of the attribute that has the newest epoch of a stream's keys."""
    return {"S": "/".join(str(int(value)) for value in epoch)}


def epoch_of(item: Item) -> Epoch:
    """Reads what `epoch_value` wrote; the first epoch if there is none, or if it cannot be read."""
    numbers = (read_text(item, "epoch") or "").split("/")
    if len(numbers) != len(Epoch._fields) or not all(one.isdecimal() for one in numbers):
        return NO_EPOCH
    which, since_ms, seen_ms, is_stored = map(int, numbers)
    return Epoch(which, since_ms, seen_ms, bool(is_stored))


def check_lease(item: Item) -> None:
    """Raises StoreUnavailable if the control record's layout is unknown."""
    if problem := layout_problem(item):
        raise refusal(problem)


_NUMBERS = ("fence", "connected", "released", "expires_at_ms", "generation", "layout", "rest_until_ms")
_TEXTS = ("execution", "holder", "ending", "ending_cause", "marked")
_INSTANTS = ("started_at", "ended_at", "stop_at", "stopped_at")
# The watch reads only the lease and the conditions of a claim; the record also has cursor and ledger.
_OF_LAYOUT = ("partitions", "order", "item_partitions", "log_since_ms")
ATTRIBUTES = (*_NUMBERS, *_TEXTS, *_INSTANTS, "stop_since", *_OF_LAYOUT, "stop", "epoch")
_OTHER_NUMBERS = (
    *("cursor_fence", "saved_at_ms", "cursor_came_ms", "looked"),
    *("rest_failures", "rest_reconnection_ms", "rest_same_ends"),
    *("rest_refused_since_ms", "rest_final_ms", "rest_tried_ms", "item_partitions", "log_since_ms"),
)


def damaged_attributes(item: Item) -> tuple[str, ...]:
    """Returns the attributes that cannot be read, or that are missing although an execution holds the stream."""
    names = [name for name in (*_NUMBERS, *_OTHER_NUMBERS) if name in item and read_int(item, name) is None]
    names += ["layout"] if read_int(item, "layout") not in (None, LAYOUT) else []
    names += [
        name
        for name in (*_TEXTS, "cursor", "rest_kind", "rest_same_end")
        if name in item and read_text(item, name) is None
    ]
    names += [name for name in (*_INSTANTS, "stop_since") if name in item and instant_ms(read_text(item, name)) is None]
    if "partitions" in item and fixed_partitions(item) is None:
        names.append("partitions")
    if "order" in item and read_text(item, "order") != "none":
        names.append("order")
    if "known" in item and ledger_sum_numbers(item) is None:
        names.append("known")
    if "live" in item and live_record(item) is None:
        names.append("live")
    if "stop" in item and not isinstance(item["stop"].get("BOOL"), bool):
        names.append("stop")
    if "epoch" in item and epoch_of(item) == NO_EPOCH:
        names.append("epoch")
    # Without both it is unknown since when the stream has not been connected.
    if "execution" in item and "started_at" not in item and "expires_at_ms" not in item:
        names.append("started_at")
    return tuple(names)
