"""Watches the tables during a run: what was stored, what came twice, where the cursor stood, whether counters fell.

Called after each change of an item; keeps what the invariants need and the violations that only the moment shows. It
changes nothing. Invariant: a violation is one sentence with its time.
"""

from __future__ import annotations

from collections.abc import Callable

from handlers.store import control_items
from handlers.store.event_items import partition_keys, stream_of
from local.chaos.link import Link
from local.chaos.wire import Wire
from local.replay.dynamodb_expressions import Item
from local.replay.table import Key
from states_language.clock import Clock


class Watch:
    """One stream's listener; `link_of` returns the opening that a fencing token had, None where it had none."""

    def __init__(self, clock: Clock, events_table: str, wire: Wire, link_of: Callable[[int], Link | None]) -> None:
        self._clock = clock
        self._origin_ms = clock.now_ms()
        self._events_table = events_table
        self._wire = wire
        self._link_of = link_of
        self._counters = (0, 0, 0)
        self._cursor_fence = 0
        self._passed: dict[int, int] = {}
        self._forgotten: set[int] = set()
        self._partitions = 1
        self.stored: dict[int, int] = {}
        self._positions: dict[str, int] = {}
        self.losses: dict[tuple[int, int], tuple[int, int]] = {}  # by connection and number: from when to when
        self.duplicated: list[str] = []
        self.torn: list[str] = []
        self.misplaced: list[str] = []
        self.ahead: list[str] = []
        self.backwards: list[str] = []

    def changed(self, table: str, key: Key, item: Item) -> None:
        """Records one change."""
        if table == self._events_table:
            self._event(key, item)
        elif key[1] == "cursor":
            self._cursor(item)
        elif key[1] == "lease":
            self._lease(item)
        elif "forgot_ms" in item:
            self._forgotten.add(int(item["fence"]["N"]))
        elif key[1].startswith("gap#") and key[1].count("#") == 2:
            _, fence, count = key[1].split("#")
            self.losses[int(fence), int(count)] = int(item["from_ms"]["N"]), int(item["to_ms"]["N"])

    def _event(self, key: Key, item: Item) -> None:
        number = self._wire.number_of(key[1], item["data"]["S"])
        if number in self.stored:
            self.duplicated.append(self._said(f"event {number} was stored twice"))
        if key[0] not in partition_keys(stream_of(item), self._partitions):
            self.torn.append(self._said(f"event {number} was stored as {key[0]}, where nobody looks"))
        if number < 0:
            self.torn.append(self._said(f"what was stored as {key[1][:20]} is not what the upstream sent"))
        self.stored[number] = self._clock.now_ms()
        other = self._positions.setdefault(item["position"]["S"], number)
        if other != number:
            self.misplaced.append(self._said(f"events {other} and {number} have the same position"))

    def _cursor(self, item: Item) -> None:
        text, fence = item["cursor"]["S"], int(item["fence"]["N"])
        cursor = int(text) if text.isdigit() else -1
        if fence < self._cursor_fence:
            self.backwards.append(self._said(f"connection {fence} replaced the cursor of {self._cursor_fence}"))
        self._cursor_fence = max(self._cursor_fence, fence)
        link = self._link_of(fence)
        if not text and link is not None and link.has_forgotten:
            if fence not in self._forgotten:
                self.ahead.append(self._said("the cursor was given up before the ledger said that it is too old"))
            return
        first = self._passed.get(fence, 0)
        if link is None or cursor not in link.sent:
            self.ahead.append(self._said(f"the cursor {text!r} of connection {fence} was never sent to it"))
            return
        try:
            at = link.sent.index(cursor, first)
        except ValueError:
            return  # the upstream sent it again
        missing = [number for number in link.sent[first : at + 1] if number not in self.stored]
        if missing:
            self.ahead.append(self._said(f"the cursor {cursor} was saved before event {missing[0]} was stored"))
        announced = sum(number in link.notices for number in link.sent[: at + 1]) if link.notices else 0
        if any((fence, count) not in self.losses for count in range(1, announced + 1)):
            self.ahead.append(self._said(f"the cursor {cursor} was saved before a loss that it passes was recorded"))
        self._passed[fence] = at

    def _lease(self, item: Item) -> None:
        self._partitions = control_items.partitions(item)
        fence, connected, released = (int(item.get(n, {}).get("N", "0")) for n in ("fence", "connected", "released"))
        if (fence, connected, released) == self._counters:
            return
        old = self._counters
        self._counters = (fence, connected, released)
        if any(now < before for now, before in zip(self._counters, old, strict=True)) or connected > fence:
            self.backwards.append(self._said(f"fence, connected, released went from {old} to {self._counters}"))

    def _said(self, text: str) -> str:
        return f"{(self._clock.now_ms() - self._origin_ms) / 1000:.3f} s: {text}"
