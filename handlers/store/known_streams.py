"""A function's knowledge of its group's streams: their records, pending writes, and until when each was good.

The lease of a stream is composed of its record and the group's lease (`handlers/group/group_lease.py`). A heartbeat of
the function covers all its streams, each with the lag that its record has.

Invariants: no heartbeat makes a stream good for longer than its manager has said, whatever the outcome of writing its
lag; a record that was read before a stream's own last write changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import Any

from handlers.connection import epochs
from handlers.connection.lease import Lease
from handlers.group.group_lease import GroupLease, compose_lease
from handlers.store import ledger_records
from handlers.store.connection_store import Reply, Store
from handlers.store.control_record import ControlRecord, epoch_of, to_record
from handlers.store.group_store import GroupStore, live_of_member
from handlers.store.leases import budget_alert, quiet_alert, silence_of
from handlers.store.typed_values import Item, number_value, read_text
from handlers.values import dataclass

# How often, at most, the cursor of a stream whose events are items is saved. If the upstream ends the older connection
# at once, no connection makes up for an old cursor, so each heartbeat saves it, as for a stream alone.
CURSOR_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupFunction:
    """The function that keeps the group: its token, when it is killed, and the proof of a dead function, if any.

    `lag_ms` is how far its streams' managers may be behind its heartbeats.
    """

    group: str
    token: int
    request_id: str
    execution: str
    limit_ms: int
    lag_ms: int
    died: str = ""


@dataclass(slots=True)
class _StreamState:
    """The known state of one stream: its record's item, the pending writes into it, and until when it was good.

    `fence` is the function's last claim, and `joined` when the stream had joined by then. `turn` is the last connection
    that the record may call connected, because its turn or its mark was requested. `lag_ms` is what the record has, or
    may have; None if it has none. `has_proved` is whether the record says that the connection has caught up.
    `stored` is how many events it had stored at its last heartbeat, and `is_logged` whether the log has its cursor.
    """

    item: Item
    parsed: tuple[Item, ControlRecord] | None = None  # the last item that was parsed
    fence: int = 0
    joined: str = ""
    turn: int = 0
    unsaved: Item = field(default_factory=dict)
    saved_ms: int = 0
    seen_ms: int = 0
    lag_ms: int | None = None
    has_proved: bool = False
    stored: int = 0
    is_logged: bool = False


class KnownStreams(Store):
    """The streams of one function; `lease` is the group's as it was last read.

    By stream, `lags` is how much further it may be behind, and `stalls` the silence after which it is closed. `hot` has
    the streams with a standby, `evicting` those whose older connection ends with the newer's answer. `turns` counts the
    function's own turns.
    """

    def __init__(
        self, dynamodb: Any, sqs: Callable[[], Any], function: GroupFunction, now_ms: Callable[[], int], **more: Any
    ) -> None:
        super().__init__(dynamodb, sqs, **more)
        self._groups = GroupStore(dynamodb, more["control_table"], function.group)
        self._function = function
        self._clock_ms = now_ms
        # A successor begins at the saved cursor, so short functions save it more often.
        self._cursor_every_ms = min(CURSOR_EVERY_MS, (function.limit_ms - now_ms()) // 8)
        self._streams: dict[str, _StreamState] = {}
        self._owed_releases: dict[tuple[str, int], Item] = {}  # the connections whose release the store did not answer
        self.lags: dict[str, int] = {}
        self.stalls: dict[str, int] = {}
        self.hot: set[str] = set()
        self.evicting: set[str] = set()
        self.lease = GroupLease()
        self.turns = 0
        self._turns_lock = threading.Lock()

    # --- what is known ------------------------------------------------------------------------------------------------

    def heartbeat_at_ms(self) -> int:
        """Returns the instant that a heartbeat may cover now: all streams were good until then, less their lags."""
        held = list(self._streams.values())
        bounds = [one.seen_ms + one.lag_ms for one in held if one.lag_ms is not None]
        return min([self._clock_ms(), *bounds])

    def known_lease(self, stream_id: str) -> Lease:
        return self._to_record(self._streams[stream_id].item).lease

    def unwell_count(self) -> int:
        """Returns how many streams are unexpectedly quiet, have ids that start over, or are near their budget."""
        now_ms, every = self._clock_ms(), list(self._streams.values())
        watched = [one for one in every if "epoch" in one.item or silence_of(one.item).expect_ms is not None]
        items = [one.item | one.unsaved for one in watched]
        found = sum(
            bool(quiet_alert(item, now_ms) or epochs.describe_restart(epoch_of(item), now_ms)) for item in items
        )
        return found + sum(bool(budget_alert(one.item | one.unsaved, now_ms)) for one in every)

    def is_stopping(self, stream_id: str) -> bool:
        """Returns whether a stop of the stream is requested, as far as is known."""
        held = self._streams.get(stream_id)
        return held is not None and held.item.get("stop") == {"BOOL": True}

    def refresh(self, items: Iterable[Item]) -> list[str]:
        """Takes records that were read, and returns the streams whose lease has changed."""
        changed = []
        for item in items:
            stream_id = item["PK"]["S"]
            before = self.known_lease(stream_id) if stream_id in self._streams else None
            if before is not None and _is_older(to_record(item).lease, before):
                continue  # it was read before the stream's own last write
            after = self._to_record(item).lease
            if before is not None and replace(after, expires_at_ms=0) != replace(before, expires_at_ms=0):
                changed.append(stream_id)
        return changed

    def forget(self, stream_id: str) -> None:
        """Forgets a stream that another function keeps, or none, so that this function's heartbeats no longer cover it.

        They still cover a connection whose release is owed, because its record has no end yet: so no heartbeat may say
        more than its manager said last.
        """
        if all(owed != stream_id for owed, _ in self._owed_releases):
            self._streams.pop(stream_id, None)

    def _to_record(self, item: Item | None) -> ControlRecord:
        if not item:
            return to_record(item)
        held, record = self._state_of(item["PK"]["S"]), self._parse(item)
        if held.item.get("stop") == {"BOOL": True} and held.item.get("joined") == item.get("joined"):
            # The answer is from before the stop: only a join withdraws a stop.
            item = item | {"stop": held.item["stop"]}
            record = self._parse(item)
        held.item = item
        if read_text(record.live or {}, "request_id") != self._function.request_id or "closed_ms" in (
            record.live or {}
        ):
            held.lag_ms = None  # the record shows another connection, or this one's end
        live = live_of_member(record.live, self.lease)
        return replace(record, lease=compose_lease(record.lease, self.lease), live=live)

    def _parse(self, item: Item) -> ControlRecord:
        """Returns the item's record: parsed once, although each heartbeat needs it."""
        if not item:
            return to_record(item)
        held = self._state_of(item["PK"]["S"])
        read = held.parsed
        if read is None or read[0] is not item:
            held.parsed = read = item, to_record(item)
        return read[1]

    def _state_of(self, stream_id: str) -> _StreamState:
        return self._streams.setdefault(stream_id, _StreamState({}))

    def _is_connected(self, stream_id: str, fence: int) -> bool:
        lease = self._parse(self._state_of(stream_id).item).lease
        return lease.connected_token == fence > lease.released_token

    def _reply_from_known(self, stream_id: str, fence: int) -> Reply:
        return Reply(self._is_connected(stream_id, fence), self._to_record(self._state_of(stream_id).item))

    def _is_alive(self) -> bool:
        """Whether the function's last heartbeat still counts; if not, each stream reads its own lease."""
        heartbeat = self.lease.heartbeats.get(self._function.request_id)
        return (
            heartbeat is not None
            and not heartbeat.is_ended
            and self._clock_ms() < heartbeat.until_ms - self._function.lag_ms // 4
        )

    def _count_turn(self) -> None:
        with self._turns_lock:
            self.turns += 1

    def _lag_ms(self, stream_id: str, seen_ms: int) -> int | None:
        """Returns the lag with which heartbeats may cover a stream, good until `seen_ms`; None if it is behind."""
        own_ms = self.lags.get(stream_id, 0)
        # It has used up half of its lag, without the time for which its events may wait.
        is_behind = self._clock_ms() - seen_ms > self._function.lag_ms // 2 + own_ms
        return None if is_behind else self._function.lag_ms + own_ms

    def _with_lag(self, stream_id: str, shown: Item, lag_ms: int | None) -> Item:
        """Returns the attributes to write: with the lag that heartbeats may cover, and the silence before it."""
        if lag_ms is None:
            return shown
        live: Item = shown["live"]["M"] | {"lag_ms": number_value(lag_ms)}
        if stream_id in self.stalls:
            # The silence includes the events since the saved cursor, which a connection that resumes receives again.
            live["silent_ms"] = number_value(self.stalls[stream_id] + self._cursor_every_ms)
        return shown | {"live": {"M": live}}

    @staticmethod
    def _is_outdated(held: _StreamState) -> bool:
        """Returns whether by its record the watch would take the stream for quieter than it is."""
        written, known = silence_of(held.item), silence_of(held.unsaved)
        limit_ms = None if known.expect_ms is None else known.limit_ms()
        return limit_ms is not None and (known.event_ms or 0) - (written.event_ms or 0) >= limit_ms // 2

    def _record_write(self, held: _StreamState) -> None:
        held.has_proved = held.has_proved or ledger_records.has_caught_up(held.item["live"]["M"])
        held.unsaved, held.saved_ms = {}, self._clock_ms()


def _is_older(read: Lease, known: Lease) -> bool:
    """Returns whether the lease was read before the known one: counters never go back."""
    return (
        read.fence < known.fence
        or read.connected_token < known.connected_token
        or read.released_token < known.released_token
    )
