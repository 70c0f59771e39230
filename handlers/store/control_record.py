"""What the control record of a stream says: its lease, its cursor, the rest that is owed, the newest connection.

One item (`SK` `lease`), so that one write renews the lease, saves the cursor and shows the connection, and its answer
says all that a connection has to know. Of what the ledger says it holds as much as whoever opens next must know
(`known`), up to the connection that it shows (`live`).

    claim 7 finds       live: connection 6, seen until 12:00:05      known: what all before 6 have brought
    7 is connected      live: connection 7                           known: what all before 7 have brought

Pure. Invariant: what an attribute does not say, or says so that it cannot be read, is as in an empty record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from handlers.connection import ledger
from handlers.connection.backoff import Rest
from handlers.connection.inputs import Order, Resumption
from handlers.connection.lease import Lease
from handlers.connection.ledger import Known
from handlers.store import control_items
from handlers.store.control_items import Item

if TYPE_CHECKING:
    from handlers.segments.appending import Cursor

# The version of the layout, which a stream's first claim writes.
LAYOUT = 2
# What a record of another layout is refused with: this version would do harm to it.
UNKNOWN_LAYOUT = "the control record has layout {layout}, and this version knows {known}"


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """As read. `live` are the attributes of the record of the newest connection that was connected, None for none.

    `cursor_fence` is the connection that saved the cursor at `saved_ms`. `looked` is the connection that recorded gaps
    last.
    """

    lease: Lease
    partitions: int
    order: Order
    cursor: str | None
    cursor_fence: int
    saved_ms: int | None
    rest: Rest
    known: Known
    live: Item | None
    looked: int

    def resumption(self, now_ms: int) -> Resumption:
        """Where a connection that opens now goes on."""
        known = self.known_after()
        return Resumption(
            cursor=self.cursor,
            saved_ms=self.saved_ms,
            known_ms=known.at_ms,
            behind_ms=known.behind_ms(self.cursor_fence, now_ms),
            connected_ms=known.until_ms if known.fence else None,
            looked=self.looked,
        )

    def known_after(self) -> Known:
        """What is known behind the connection that it shows."""
        return self.known if self.live is None else ledger.known(control_items.records(self.live), self.known)

    def heard_by(self, logged: Cursor | None, came_ms: int | None) -> ControlRecord:
        """The record with when its connection was heard, as what it has put into the stream's log says.

        Where the beats of a group's function answer for a connection, the record itself says that seldom: whatever was
        to be stored `lag_ms` ago is. If the log's last event is its own, that came at `came_ms`, and all that came
        before is stored.
        """
        live = self.live or {}
        lag_ms = control_items.count(live, "lag_ms")
        if logged is None or lag_ms is None or control_items.count(live, "fence") != logged.fence:
            return self
        heard_ms = max(logged.at_ms - lag_ms, came_ms or 0, control_items.count(live, "heard_ms") or 0)
        seen_ms = max(came_ms or 0, control_items.count(live, "seen_ms") or 0)
        said = {"heard_ms": control_items.number(heard_ms), "seen_ms": control_items.number(seen_ms)}
        return replace(self, live=live | said)

    def with_logged(self, logged: Cursor | None) -> ControlRecord:
        """The record with the cursor of the stream's log, where that is later; None where there is none.

        The record's own is the later one where the upstream moved on without an event, or has forgotten a cursor.
        """
        is_own = self.saved_ms is not None and logged is not None and (self.cursor_fence, self.saved_ms) >= logged[:2]
        if logged is None or is_own:
            return self
        return replace(self, cursor=logged.text, cursor_fence=logged.fence, saved_ms=logged.at_ms)


def to_record(item: Item | None) -> ControlRecord:
    """What the item says; an empty record where there is none."""
    item = item or {}
    return ControlRecord(
        lease=control_items.lease(item),
        partitions=control_items.partitions(item),
        order=control_items.order(item),
        cursor=control_items.text(item, "cursor"),
        cursor_fence=control_items.count(item, "cursor_fence") or 0,
        saved_ms=control_items.count(item, "saved_at_ms"),
        rest=control_items.rest_of(item),
        known=control_items.known_of(item),
        live=control_items.live_record(item),
        looked=control_items.count(item, "looked") or 0,
    )


def layout_problem(item: Item | None) -> str:
    """Why this version may not write to the record, as a sentence; "" where it may."""
    layout = control_items.count(item or {}, "layout")
    return "" if layout in (None, LAYOUT) else UNKNOWN_LAYOUT.format(layout=layout, known=LAYOUT)


def cursor(value: str, fence: int, now_ms: int) -> Item:
    """The attributes of a cursor that connection `fence` saves."""
    return {
        "cursor": {"S": value},
        "cursor_fence": control_items.number(fence),
        "saved_at_ms": control_items.number(now_ms),
    }
