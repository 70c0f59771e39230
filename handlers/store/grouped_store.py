"""Stores the state of a connection in a group: as `Store` does, except for the parts that the group's lease covers.

Four things differ. The lease in each reply is composed of the stream's record and the group's lease
(`handlers/group/group_lease.py`). A heartbeat is answered from what is known, and written only if a cursor is due or
the stream is behind. A claim needs the group's right, not the execution's. A turn is taken from a dead function only
once that function is marked as ended.

Several threads make the requests of several streams; those of one stream follow one another. Invariants: a pending
write is kept until it is made; a heartbeat that is too old renews no stream.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from handlers.connection.inputs import LOG
from handlers.connection.lease import Lease
from handlers.connection.spending import spending_of
from handlers.errors import StoreUnavailable
from handlers.group.group_lease import function_to_mark_ended, known_ended_turn
from handlers.store import control_record, ledger_records, typed_values
from handlers.store.connection_store import Reply
from handlers.store.control_writes import Change
from handlers.store.known_streams import KnownStreams
from handlers.store.typed_values import Item, number_value, read_int, read_text

# The attributes of a connection's record that the heartbeats need.
_HEARTBEAT_ATTRIBUTES = ("lag_ms", "silent_ms")
# Stands for the execution in the lease of a stream that a newer function has claimed; no execution has this name.
NEWER = "(a newer function)"
_HAS_PLACE = "#group = :group AND (attribute_not_exists(#group_fence) OR #group_fence <= :group_fence{})"


class GroupedStore(KnownStreams):
    """The store of one function that keeps many streams."""

    # --- claiming and connecting --------------------------------------------------------------------------------------

    def claim(self, stream_id: str, *, execution: str, turn: Item | None = None, **more: Any) -> Reply:
        """As for a stream alone; refused if a newer function has claimed the stream, or if it has left the group."""
        function = self._function
        attributes = {"group_fence": number_value(function.token), "execution": {"S": execution}}
        # A function that may be marked as ended opens no second connection. No heartbeat would show it to the newer
        # function, which would go on as the holder without a record of its own.
        beside = " OR #execution = :execution" if stream_id in self.hot and self._is_alive() else ""
        place = Change(_HAS_PLACE.format(beside), attributes, {":group": {"S": function.group}})
        turn = (
            turn | {":expires_at_ms": number_value(function.limit_ms)}
            if turn is not None and self._is_alive()
            else None
        )
        held = self._state_of(stream_id)
        if held.fence and self._parse(held.item).lease.fence == held.fence:
            # The function's claims all have one name, so its earlier claim must not be taken for this one.
            more["after_fence"] = max(more.get("after_fence", 0), held.fence)
        reply = super().claim(stream_id, execution="", turn=turn, place=place, **more)
        held.joined = read_text(held.item, "joined") or ""
        if reply.is_done:
            self._count_turn()
            held.fence, held.unsaved, held.stored = reply.record.lease.fence, {}, 0
            held.turn = reply.record.lease.connected_token
            return reply
        lease = reply.record.lease
        if not self._is_member(stream_id):
            lease = replace(lease, stop=True)
        elif (read_int(held.item, "group_fence") or 0) > function.token and not lease.stop:
            lease = replace(lease, execution=NEWER)
        return Reply(False, replace(reply.record, lease=lease))

    def take_turn(self, stream_id: str, fence: int, expires_at_ms: int, now_ms: int, **more: Any) -> Reply:
        """As for a stream alone; a dead function that holds the turn is marked as ended first."""
        # If this function's own heartbeat has run out, the next function would take the turn back at once, and open
        # beside it.
        if not self._is_alive():
            return self._reply_from_known(stream_id, fence)
        function, own = self._function, self._parse(self._state_of(stream_id).item).lease
        limit_ms = max(expires_at_ms, function.limit_ms)
        self._mark_dead_function(own, fence)
        over = more.pop("over", 0) or known_ended_turn(own, self.lease)
        self._state_of(stream_id).turn = fence
        reply = super().take_turn(stream_id, fence, limit_ms, now_ms, over=over, **more)
        if reply.is_done:
            self._count_turn()
        return reply

    def renew(self, stream_id: str, fence: int, expires_at_ms: int) -> Reply:
        """Replies from what is known: the turn lasts as long as the function lives."""
        if expires_at_ms > self._function.limit_ms or not (self._is_alive() and self._is_member(stream_id)):
            return super().renew(stream_id, fence, max(expires_at_ms, self._function.limit_ms))
        return self._reply_from_known(stream_id, fence)

    def mark_connected(
        self, stream_id: str, fence: int, expires_at_ms: int, *, shown: Item | None = None, **more: Any
    ) -> Reply:
        """As for a stream alone, until the function's limit; from now on the function's heartbeats cover the stream."""
        held, shown = self._state_of(stream_id), shown or {}
        limit_ms, seen_ms = max(expires_at_ms, self._function.limit_ms), _seen_ms(shown)
        lag_ms, held.turn = self._lag_ms(stream_id, seen_ms), fence
        if held.lag_ms is None:
            held.seen_ms, held.lag_ms = seen_ms, lag_ms  # otherwise the record may still show the connection before
        # If the answer is lost, the record may have the mark, but no heartbeat may cover it once the connection is
        # over.
        held.unsaved = shown = self._with_lag(stream_id, shown, lag_ms)
        reply = super().mark_connected(stream_id, fence, limit_ms, shown=shown, **more)
        if reply.is_done:
            self._count_turn()
            # The reply has the record from before the mark.
            held.seen_ms, held.lag_ms = seen_ms, lag_ms
            marked = {
                "connected": number_value(fence),
                "marked": control_record.mark_value(fence, more.get("request_id", "")),
            }
            held.item = held.item | shown | marked | {"expires_at_ms": number_value(limit_ms)}
            held.has_proved = False
            self._record_write(held)
        return reply

    def _change(self, stream_id: str, update: str, condition: str, values: Item, answer: str = "ALL_NEW") -> Reply:
        """Makes a write; a lease lasts until the function's limit only while the stream is in the group.

        After the end of a stream, an older function's connection may read on. No heartbeat of the group covers it, so
        it renews its lease as for a stream alone.
        """
        if values.get(":expires_at_ms") != number_value(self._function.limit_ms):
            return super()._change(stream_id, update, condition, values, answer)
        if self._is_member(stream_id):
            ours = {":its_group": {"S": self._function.group}}
            reply = super()._change(stream_id, update, f"{condition} AND #group = :its_group", values | ours, answer)
            if reply.is_done or self._is_member(stream_id):
                return reply
        alone = {":expires_at_ms": number_value(self._clock_ms() + self._function.lag_ms)}
        return super()._change(stream_id, update, condition, values | alone, answer)

    def _is_member(self, stream_id: str) -> bool:
        """Returns whether the stream is in the function's group, as far as is known."""
        return read_text(self._state_of(stream_id).item, "group") == self._function.group

    # --- while it is connected, and after -----------------------------------------------------------------------------

    def heartbeat(
        self, stream_id: str, fence: int, expires_at_ms: int, shown: Item, rest: Change | None = None
    ) -> Reply:
        """Replies from what is known, or after a write that is due; everything else waits."""
        held, now_ms = self._state_of(stream_id), self._clock_ms()
        held.unsaved |= shown
        held.seen_ms = _seen_ms(shown)
        stored, is_log = read_int(shown["live"]["M"], "stored") or 0, control_record.partitions_of(held.item) == LOG
        if "cursor" in shown:
            # In a log each segment has the cursor, but a connection appends none if another one brings every event
            # first.
            held.is_logged = is_log and stored > held.stored
        held.stored = stored
        is_first = "cursor" in held.unsaved and "cursor" not in held.item
        lag_ms = self._lag_ms(stream_id, held.seen_ms)
        is_behind = held.lag_ms is not None and lag_ms is None
        # Everything else, except a budget's count, waits for the next write, at the latest the last one.
        spent = spending_of(read_text(held.unsaved["live"]["M"], "spending") or "")
        saved = spending_of(read_text(ledger_records.live_record(held.item) or {}, "spending") or "")
        counts = spent is not None
        waits = held.lag_ms is None or counts or ("cursor" in held.unsaved and not held.is_logged)
        every_ms = 0 if stream_id in self.evicting else self._cursor_every_ms
        if is_log:
            # The connection's own next event saves it, so a handover alone is no reason to write.
            every_ms += self._cursor_every_ms + self.lags.get(stream_id, 0)
        # A proof that closes a gap is written once and at once: the function's heartbeats do not contain it.
        proves = not held.has_proved and ledger_records.has_caught_up(held.unsaved["live"]["M"])
        is_due = waits and now_ms - held.saved_ms >= every_ms
        is_due = is_due or (spent is not None and saved is not None and spent.is_worth_saving(saved))
        is_due = is_due or self._is_outdated(held)
        # The same holds for a change that the first events show: ids have started over, or numbers go on.
        shown_live, known_live = held.unsaved["live"]["M"], ledger_records.live_record(held.item) or {}
        is_due = is_due or shown_live.get("resumed") != known_live.get("resumed")
        # Once it is behind no longer, heartbeats may cover it again; until then its events are shown as waiting.
        is_shown_behind = read_int(known_live, "fence") == fence and "lag_ms" not in known_live
        is_due = is_due or (is_shown_behind and lag_ms is not None)
        is_due = is_due or not self._is_member(stream_id)
        if not (is_due or is_first or is_behind or proves or rest is not None) and self._is_alive():
            return self._reply_from_known(stream_id, fence)
        if held.lag_ms is None:
            held.lag_ms = lag_ms
        shown = self._with_lag(stream_id, held.unsaved, lag_ms)
        reply = super().heartbeat(stream_id, fence, max(expires_at_ms, self._function.limit_ms), shown, rest)
        if reply.is_done:
            held.lag_ms = lag_ms
            self._record_write(held)
        return reply

    def read_lease(self, stream_id: str) -> Lease:
        """Returns the known lease if this function has the stream connected and so sees changes; else reads it."""
        held = self._state_of(stream_id)
        if held.fence and self._is_connected(stream_id, held.fence) and self._is_alive():
            return self.known_lease(stream_id)
        return super().read_lease(stream_id)

    def release(self, stream_id: str, fence: int, shown: Item, rest: Change | None = None) -> Reply:
        """As for a stream alone, with the pending writes, unless nothing is shown."""
        shown = self._state_of(stream_id).unsaved | shown if shown else {}
        self._owed_releases[stream_id, fence] = shown
        reply = super().release(stream_id, fence, shown, rest)
        self._forget_owed_release(stream_id, fence)
        return reply

    def record_connection_end(self, stream_id: str) -> None:
        """Records that the function's connection of the stream is over; a release that failed is repeated later.

        Until then its record stays open, as after a kill, and no heartbeat covers it any more.
        """
        held = self._streams.get(stream_id)
        # Releasing a connection that was never connected would release an older one that still is.
        if held is None or not held.fence or held.turn != held.fence or (stream_id, held.fence) in self._owed_releases:
            return
        if self._parse(held.item).lease.released_token < held.fence:
            shown = held.unsaved if "live" in held.unsaved else held.unsaved | {"live": held.item.get("live", {})}
            live = {
                name: value for name, value in shown["live"].get("M", {}).items() if name not in _HEARTBEAT_ATTRIBUTES
            }
            is_own = read_text(live, "request_id") == self._function.request_id
            self._owed_releases[stream_id, held.fence] = shown | {"live": {"M": live}} if is_own else {}

    def retry_releases(self) -> None:
        """Repeats the releases that failed.

        Otherwise their leases would not run out, because the function's own heartbeats renew them.
        """
        for (stream_id, fence), shown in list(self._owed_releases.items()):
            try:
                super().release(stream_id, fence, shown)
            except StoreUnavailable:
                return
            self._forget_owed_release(stream_id, fence)

    def _forget_owed_release(self, stream_id: str, fence: int) -> None:
        self._owed_releases.pop((stream_id, fence), None)
        held = self._streams.get(stream_id)
        if held is not None and held.fence == fence:
            held.lag_ms = None

    def record_stream_end(self, stream_id: str, joined: str, ending: str, cause: str) -> str:
        """Writes into the stream's record that it is over, as the machine does; returns when it joined if it goes on.

        It goes on if it joined again, or if a newer function has claimed it and no stop is requested.

        A dead function that has a connection of the stream is marked as ended first, because no heartbeat shows that
        once the stream has left the group. A live function closes the connection after a stop, or renews it as for a
        stream alone. If the store refuses its release, the record itself shows that the connection is over, because
        that function's limit is minutes away.
        """
        held = self._state_of(stream_id)
        own = self._parse(held.item).lease
        self._mark_dead_function(own, own.connected_token + 1)
        # The run that has ended began with the function's last claim. A later POST, though the members show it, began
        # another run.
        joined = held.joined or joined
        values: Item = {
            ":ending": {"S": ending},
            ":cause": {"S": cause[:1000]},
            ":now": {"S": typed_values.instant_text(self._clock_ms())},
            ":joined": {"S": joined},
            ":group": {"S": self._function.group},
            ":group_fence": number_value(self._function.token),
            ":yes": {"BOOL": True},
        }
        update = "SET #ending = :ending, #ending_cause = :cause, #ended_at = :now"
        heartbeat = self.lease.heartbeats.get(own.connected_by)
        if heartbeat is not None:
            over_ms = heartbeat.at_ms if heartbeat.is_ended else min(heartbeat.until_ms, own.expires_at_ms)
            update += ", #expires_at_ms = :over"
            values[":over"] = number_value(over_ms)
        # A stream that a newer function has claimed is ended only by that function, or by a stop.
        condition = f"#joined = :joined AND {_HAS_PLACE.format(' OR #stop = :yes')}"
        if self._change(stream_id, f"{update} REMOVE #execution, #group", condition, values).is_done:
            return ""
        return (read_text(held.item, "joined") or "") if self._is_member(stream_id) else ""

    def _mark_dead_function(self, own: Lease, fence: int) -> None:
        """Marks the dead function as ended that has the turn before connection `fence`."""
        request_id = function_to_mark_ended(own, self.lease, fence, self._clock_ms(), self._function.died)
        if request_id not in ("", self._function.request_id):
            _, self.lease = self._groups.mark_ended(request_id, self.lease.heartbeats[request_id])


def _seen_ms(shown: Item) -> int:
    return read_int(shown["live"]["M"], "seen_ms") or 0
