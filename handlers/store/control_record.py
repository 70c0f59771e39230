"""Reads and writes the control record of a stream: its lease, its cursor, its back-off, and its newest connection.

It is one item (`SK` `lease`), so that one write renews the lease, saves the cursor and shows the connection. The answer
has everything that a connection must know. `known` sums up the ledger for the next connection, up to the connection
that the record shows (`live`).

Pure. Invariants: reading returns what was written; an attribute that cannot be read counts as absent, and `damage`
names it, so that a person can correct it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from handlers.connection import evidence
from handlers.connection.backoff import Rest
from handlers.connection.epochs import NO_EPOCH, Epoch
from handlers.connection.evidence import Known
from handlers.connection.inputs import LOG, MOST_PARTITIONS, Layout, Order, Resumption
from handlers.connection.lease import Lease
from handlers.connection.liveness import remembered
from handlers.connection.spending import is_pause
from handlers.store import ledger_records, typed_values
from handlers.store.ledger_records import live_record
from handlers.store.typed_values import Item, count, instant_ms, number, refusal, text
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
    `cursor_came_ms` was stored. `looked` is the connection that recorded gaps last. `epoch` is the newest one of the
    stream's keys.
    """

    lease: Lease
    layout: Layout
    cursor: str | None
    cursor_fence: int
    saved_ms: int | None
    cursor_came_ms: int
    rest: Rest
    known: Known
    live: Item | None
    looked: int
    epoch: Epoch

    def resumption(self, now_ms: int) -> Resumption:
        """Returns where a connection that opens now resumes."""
        record = self.heard(self.cursor_fence, self.cursor_came_ms)
        known, live = record.known_after(), record.live or {}
        since_ms = now_ms - (typed_values.count(live, "opened_ms") or now_ms)
        return Resumption(
            cursor=self.cursor,
            saved_ms=self.saved_ms,
            known_ms=known.at_ms,
            behind_ms=known.behind_ms(self.cursor_fence, now_ms),
            connected_ms=known.until_ms if known.fence else None,
            looked=self.looked,
            event_ms=typed_values.count(live, "event_ms"),
            pause_ms=remembered(typed_values.count(live, "pause_ms"), since_ms),
            spending=typed_values.text(live, "spending") or "",
            is_counting="spending" in live and not typed_values.text(live, "ended_by"),
            is_logged="spending" in live and self.layout.partitions == LOG,
        )

    def known_after(self) -> Known:
        """Returns the sum of the ledger including the connection that the record shows."""
        return self.known if self.live is None else evidence.known(ledger_records.records_of(self.live), self.known)

    def heard(self, fence: int, came_ms: int) -> ControlRecord:
        """Returns the record if everything that came on connection `fence` until `came_ms` is stored.

        The record of a connection may be older: it shows an earlier one as it was when the next was marked. If the
        heartbeats of a group's function cover a connection, its own record is seldom written.
        """
        record, live = replace(self, known=self.known.heard(fence, came_ms)), self.live or {}
        if typed_values.count(live, "fence") != fence:
            return record
        known_ms = {name: typed_values.count(live, name) for name in ("heard_ms", "seen_ms")}
        later = {name: number(max(came_ms, at_ms)) for name, at_ms in known_ms.items() if at_ms is not None}
        return replace(record, live=live | later)

    def with_logged(self, logged: Cursor | None) -> ControlRecord:
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
        lease=lease(item),
        layout=layout(item),
        cursor=typed_values.text(item, "cursor"),
        cursor_fence=typed_values.count(item, "cursor_fence") or 0,
        saved_ms=typed_values.count(item, "saved_at_ms"),
        cursor_came_ms=typed_values.count(item, "cursor_came_ms") or 0,
        rest=rest_of(item),
        looked=typed_values.count(item, "looked") or 0,
        known=known_of(item),
        live=ledger_records.live_record(item),
        epoch=epoch_of(item),
    )


def layout_problem(item: Item | None) -> str:
    """Returns in a sentence why this version must not write to the record; "" if it may."""
    layout = typed_values.count(item or {}, "layout")
    return "" if layout in (None, LAYOUT) else UNKNOWN_LAYOUT.format(layout=layout, known=LAYOUT)


def cursor(value: str, fence: int, now_ms: int, came_ms: int = 0) -> Item:
    """Returns a cursor's attributes, saved by connection `fence`; all that came on it until `came_ms` is stored."""
    return {
        "cursor": {"S": value},
        "cursor_fence": typed_values.number(fence),
        "saved_at_ms": typed_values.number(now_ms),
        "cursor_came_ms": typed_values.number(came_ms),
    }


def lease(item: Item) -> Lease:
    """Returns the lease of an item; attributes that are absent or cannot be read are as in an empty lease."""
    known: dict[str, Any] = {f"{name}_ms": instant_ms(text(item, name)) or 0 for name in _INSTANTS}
    known["last_stop_ms"] = known["stop_at_ms"]
    known["stop_at_ms"] = instant_ms(text(item, "stop_since")) or known["stop_at_ms"]
    known |= {"connected_token": count(item, "connected") or 0, "released_token": count(item, "released") or 0}
    place, _, moved_at = (text(item, "moved_to") or "").partition(" ")
    known["moved_to"] = place if moved_at == text(item, "stop_at") else ""
    if is_pause(text(item, "rest_kind") or ""):
        known["paused_until_ms"] = count(item, "rest_until_ms") or 0
    return typed_values.read_as(Lease, item, connected_by=_connected_by(item), **known)


def mark(fence: int, request_id: str) -> Item:
    """Returns the value that a connection writes beside its token when it is marked as connected."""
    return {"S": f"{fence}/{request_id}"}


def _connected_by(item: Item) -> str:
    """Returns the request id of the connected connection; "" if the mark does not have it."""
    fence, _, request_id = (text(item, "marked") or "").partition("/")
    return request_id if fence == str(count(item, "connected") or 0) else ""


def layout(item: Item) -> Layout:
    """Returns how a stream's events are stored, by its lease."""
    if (fixed := partitions(item)) != LOG:
        return Layout(fixed, order(item))
    return Layout(LOG, "index", count(item, "item_partitions") or 0, count(item, "log_since_ms") or 0)


def partitions(item: Item) -> int:
    """Returns over how many partition keys a stream's events are spread, by its lease; 1 if the lease has no number.

    LOG if they are in a log.
    """
    fixed = fixed_partitions(item)
    return 1 if fixed is None else fixed


def fixed_partitions(item: Item) -> int | None:
    """Returns the lease's `partitions`; None if it has none, or a number that no profile can have."""
    fixed = count(item, "partitions")
    return fixed if fixed is not None and LOG <= fixed <= MOST_PARTITIONS else None


def order(item: Item) -> Order:
    """Returns whether all of a stream's items are in the index of the order, by its lease; "index" by default.

    Once it is "none", some items are not in the index, so it stays "none". A log has no index, and is in order.
    """
    return "none" if text(item, "order") == "none" and partitions(item) != LOG else "index"


def known(what: evidence.Known) -> Item:
    """Returns the sum of the ledger over all connections except the newest, as a list of numbers."""
    numbers = (what.fence, what.at_ms or 0, what.connected_ms, what.until_ms, *chain.from_iterable(what.waits))
    return {"L": [number(value) for value in numbers]}


def known_of(item: Item) -> evidence.Known:
    """Reads what `known` wrote; an empty sum if there is none, or if it cannot be read."""
    numbers = known_numbers(item)
    if not numbers or not numbers[0]:
        return evidence.Known()
    fence, at_ms, connected_ms, until_ms, *rest = numbers
    waits = tuple(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
    return evidence.Known(fence, at_ms, connected_ms, until_ms, waits)


def known_numbers(item: Item) -> list[int] | None:
    """Returns the numbers that `known` wrote, four and three for each of `waits`; None if there are none."""
    written: list[Item] = item.get("known", {}).get("L", [])
    numbers = [value for one in written if (value := count({"one": one}, "one")) is not None]
    return numbers if len(numbers) == len(written) >= 4 and len(numbers) % 3 == 1 else None


def rest_of(item: Item) -> Rest:
    """Returns the back-off in the control record; an empty one if it has none."""
    return typed_values.read_as(Rest, item, "rest_")


def rest(owed: Rest) -> Item:
    """Returns the attributes of the control record that hold a back-off."""
    values = {f"rest_{one.name}": getattr(owed, one.name) for one in fields(Rest)}
    return {name: {"S": value} if isinstance(value, str) else number(value) for name, value in values.items()}


def epoch(what: Epoch) -> Item:
    """Returns the value of the attribute that has the newest epoch of a stream's keys."""
    return {"S": "/".join(str(int(value)) for value in what)}


def epoch_of(item: Item) -> Epoch:
    """Reads what `epoch` wrote; the first epoch if there is none, or if it cannot be read."""
    numbers = (text(item, "epoch") or "").split("/")
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


def damage(item: Item) -> tuple[str, ...]:
    """Returns the attributes that cannot be read, or that are missing although an execution holds the stream."""
    names = [name for name in (*_NUMBERS, *_OTHER_NUMBERS) if name in item and count(item, name) is None]
    names += ["layout"] if count(item, "layout") not in (None, LAYOUT) else []
    names += [
        name for name in (*_TEXTS, "cursor", "rest_kind", "rest_same_end") if name in item and text(item, name) is None
    ]
    names += [name for name in (*_INSTANTS, "stop_since") if name in item and instant_ms(text(item, name)) is None]
    if "partitions" in item and fixed_partitions(item) is None:
        names.append("partitions")
    if "order" in item and text(item, "order") != "none":
        names.append("order")
    if "known" in item and known_numbers(item) is None:
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
