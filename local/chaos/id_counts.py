"""Remembers the events that ids meant, for an upstream that counts from 0 again: two counts share their ids.

Invariant: without a restart each id means the event of that number, and no event is dropped.
"""

from collections.abc import Container

from handlers.store.typed_values import Item
from local.simulation.wire import Wire


class IdCounts:
    """The ids of one stream; `stored` are its stored events.

    `dropped` has, by connection and number, the count of each loss that was recorded because ids started over;
    `first_loss_ms` is the time of the first one, 0 for never.
    """

    def __init__(self, wire: Wire, stored: Container[int]) -> None:
        self._wire, self._stored = wire, stored
        self.dropped: dict[tuple[int, int], int] = {}
        self.first_loss_ms = 0
        self._cursors: list[tuple[int, int, int]] = []

    @property
    def has_restarted(self) -> bool:
        """Whether the upstream was restarted."""
        return len(self._wire.begins) > 1

    def record_loss(self, fence: int, count: int, gap: Item, now_ms: int) -> None:
        """Records a loss, whether its events had known keys or not."""
        if gap["cause"]["S"] == "ids_restarted":
            self.dropped[fence, count] = int(gap["events"]["N"])
            self.first_loss_ms = self.first_loss_ms or now_ms

    def is_dropped(self, number: int) -> bool:
        """Returns whether the event is not stored, because another one has its key."""
        is_missing = self._wire.drops and self.has_restarted and number not in self._stored
        return is_missing and any(rival in self._stored for rival in self._wire.events_with_same_key(number))

    def record_cursor(self, own: int, number: int, now_ms: int) -> None:
        """Records that a cursor was saved: its id, and the event that it means."""
        self._cursors.append((now_ms, own, number))

    def event_of_cursor(self, own: int, at_ms: int) -> int | None:
        """Returns the event that a saved cursor with this id meant at that instant; None if there was none."""
        saved = (number for saved_ms, one, number in reversed(self._cursors) if one == own and saved_ms <= at_ms)
        return next(saved, None)
