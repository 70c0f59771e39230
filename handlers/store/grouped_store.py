"""Stores what a connection of a stream in a group needs kept: as `Store` does, but for what the group says for all.

What differs, and nothing else does: the lease in each reply is composed of the stream's record and the group's lease
(`handlers/group/lease.py`); a heartbeat is answered from what is known, and written where a cursor or a stream that is
behind is due; a claim asks for the group's right, not for the execution's; and a turn is taken from a dead function
only once that is buried. So the manager, its loop and the requests of a step are those of a stream alone.

    Heartbeat(cursor "7", seen 12:00:05)   nothing is written; "7" waits, and goes with the next write of the record
    beat at 12:00:05                       says so for all its streams, each by the lag that its record has

The requests of several streams are made by several threads, those of one stream one after the other. Invariants:
nothing that waits is forgotten before it is written; a beat says of no stream that it was good for longer than its
manager has said, whatever became of the write that says by how much; no stream is renewed by a beat that is too old.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from handlers.connection.inputs import LOG
from handlers.connection.lease import Lease
from handlers.errors import StoreUnavailable
from handlers.group.lease import GroupLease, composed, known_over, to_bury
from handlers.store import control_record, typed_values
from handlers.store.connection_store import Reply, Store
from handlers.store.control_record import ControlRecord, to_record
from handlers.store.control_writes import Change
from handlers.store.group_store import GroupStore, live_of_member
from handlers.store.typed_values import Item, count, number, text

# How often the cursor of a stream whose events are items is saved at most: but where the upstream ends the older
# connection at once, which nobody could go back to. There each heartbeat saves it, as of a stream alone.
CURSOR_EVERY_MS = 60_000
# What the record of a connection says for the beats.
_OF_BEATS = ("lag_ms", "silent_ms")
# What the lease of a stream says as its execution that a newer function has claimed: none is called so.
NEWER = "(a newer function)"
_ITS_PLACE = "#group = :group AND (attribute_not_exists(#group_fence) OR #group_fence <= :group_fence{})"


@dataclass(frozen=True, slots=True)
class GroupFunction:
    """The function that keeps the group: its token, when it is killed, and what it was told of one that died.

    `lag_ms` is by how much its streams' managers may be behind its beats.
    """

    group: str
    token: int
    request_id: str
    execution: str
    limit_ms: int
    lag_ms: int
    died: str = ""


@dataclass(slots=True)
class _Held:
    """What is known of a stream: its record's item, what waits to be written into it, and until when it was good.

    `lag_ms` is what the record says, or may say; None where it says nothing.
    """

    item: Item
    read: tuple[Item, ControlRecord] | None = None  # the last item that was parsed
    fence: int = 0
    unsaved: Item = field(default_factory=dict)
    saved_ms: int = 0
    seen_ms: int = 0
    lag_ms: int | None = None


class GroupedStore(Store):
    """Of one function; `lease` is the group's as it was last read.

    `lags` says by how much more a stream may be behind, `stalls` after how long a silent one is closed, `hot` which
    have a standby, and `evicting` whose older connection ends with the newer's answer. `turns` counts its own turns.
    """

    def __init__(
        self, dynamodb: Any, sqs: Callable[[], Any], who: GroupFunction, now_ms: Callable[[], int], **more: Any
    ) -> None:
        super().__init__(dynamodb, sqs, **more)
        self._groups = GroupStore(dynamodb, more["control_table"], who.group)
        self._who = who
        self._clock_ms = now_ms
        # A successor begins where the cursor stands: short functions save it oftener.
        self._cursor_every_ms = min(CURSOR_EVERY_MS, (who.limit_ms - now_ms()) // 8)
        self._streams: dict[str, _Held] = {}
        self._owed: dict[tuple[str, int], Item] = {}  # releases that the store did not answer, of which connections
        self.lags: dict[str, int] = {}
        self.stalls: dict[str, int] = {}
        self.hot: set[str] = set()
        self.evicting: set[str] = set()
        self.lease = GroupLease()
        self.turns = 0
        self._counting = threading.Lock()

    # --- what is known ------------------------------------------------------------------------------------------------

    def beat_at_ms(self) -> int:
        """Of which instant a beat may speak now: all streams were good until then, less the lag of each."""
        held = list(self._streams.values())
        bounds = [one.seen_ms + one.lag_ms for one in held if one.lag_ms is not None]
        return min([self._clock_ms(), *bounds])

    def known(self, stream_id: str) -> Lease:
        """The lease of a stream as far as it is known."""
        return self._to_record(self._streams[stream_id].item).lease

    def stops(self, stream_id: str) -> bool:
        """Whether a stop of the stream is requested, as far as is known."""
        held = self._streams.get(stream_id)
        return held is not None and held.item.get("stop") == {"BOOL": True}

    def refreshed(self, items: Iterable[Item]) -> list[str]:
        """Takes in records that were read, and returns whose lease is another since."""
        changed = []
        for item in items:
            stream_id = item["PK"]["S"]
            before = self.known(stream_id) if stream_id in self._streams else None
            if before is not None and _is_older(to_record(item).lease, before):
                continue  # it was read before the stream's own last write
            after = self._to_record(item).lease
            if before is not None and replace(after, expires_at_ms=0) != replace(before, expires_at_ms=0):
                changed.append(stream_id)
        return changed

    def forget(self, stream_id: str) -> None:
        """Forgets a stream that another function keeps, or none: no record says any more that beats answer for it."""
        self._streams.pop(stream_id, None)

    def _to_record(self, item: Item | None) -> ControlRecord:
        if not item:
            return to_record(item)
        held, record = self._held(item["PK"]["S"]), self._parsed(item)
        if held.item.get("stop") == {"BOOL": True} and held.item.get("joined") == item.get("joined"):
            # The answer to a request that was made before the stop: only who joins anew takes it back.
            item = item | {"stop": held.item["stop"]}
            record = self._parsed(item)
        held.item = item
        if text(record.live or {}, "request_id") != self._who.request_id or "closed_ms" in (record.live or {}):
            held.lag_ms = None  # another connection is shown, or the end of this one's
        live = live_of_member(record.live, self.lease)
        return replace(record, lease=composed(record.lease, self.lease), live=live)

    def _parsed(self, item: Item) -> ControlRecord:
        """What the item says: parsed once, for each beat and each heartbeat asks for it."""
        if not item:
            return to_record(item)
        held = self._held(item["PK"]["S"])
        read = held.read
        if read is None or read[0] is not item:
            held.read = read = item, to_record(item)
        return read[1]

    def _held(self, stream_id: str) -> _Held:
        return self._streams.setdefault(stream_id, _Held({}))

    # --- claiming and connecting --------------------------------------------------------------------------------------

    def claim(self, stream_id: str, *, execution: str, turn: Item | None = None, **more: Any) -> Reply:
        """As a stream's; refused where a newer function has claimed the stream, or it is in the group no more."""
        who = self._who
        attributes = {"group_fence": number(who.token), "execution": {"S": execution}}
        beside = " OR #execution = :execution" if stream_id in self.hot else ""
        place = Change(_ITS_PLACE.format(beside), attributes, {":group": {"S": who.group}})
        if turn is not None:
            turn = turn | {":expires_at_ms": number(who.limit_ms)}
        held = self._held(stream_id)
        if held.fence and self._parsed(held.item).lease.fence == held.fence:
            # It claims again and again under one name: its last claim is no answer to this one.
            more["after_fence"] = max(more.get("after_fence", 0), held.fence)
        reply = super().claim(stream_id, execution="", turn=turn, place=place, **more)
        if reply.is_done:
            self._counts()
            held.fence, held.unsaved = reply.record.lease.fence, {}
            return reply
        lease = reply.record.lease
        if text(held.item, "group") != who.group:
            lease = replace(lease, stop=True)
        elif (count(held.item, "group_fence") or 0) > who.token and not lease.stop:
            lease = replace(lease, execution=NEWER)
        return Reply(False, replace(reply.record, lease=lease))

    def take_turn(self, stream_id: str, fence: int, expires_at_ms: int, now_ms: int, **more: Any) -> Reply:
        """As a stream's; whoever holds the turn and is dead is buried before."""
        who, own = self._who, self._parsed(self._held(stream_id).item).lease
        limit_ms = max(expires_at_ms, who.limit_ms)
        self._buries(own, fence)
        over = more.pop("over", 0) or known_over(own, self.lease)
        reply = super().take_turn(stream_id, fence, limit_ms, now_ms, over=over, **more)
        if reply.is_done:
            self._counts()
        return reply

    def renew(self, stream_id: str, fence: int, expires_at_ms: int) -> Reply:
        """What is known: the turn lasts as long as the function lives."""
        if expires_at_ms > self._who.limit_ms or not self._is_alive():
            return super().renew(stream_id, fence, max(expires_at_ms, self._who.limit_ms))
        return self._from_known(stream_id, fence)

    def mark_connected(
        self,
        stream_id: str,
        fence: int,
        expires_at_ms: int,
        *,
        request_id: str = "",
        shown: Item | None = None,
        rest: Change | None = None,
    ) -> Reply:
        """As a stream's, until the function's limit; from now on its beats answer for the stream."""
        held, shown = self._held(stream_id), shown or {}
        limit_ms, seen_ms = max(expires_at_ms, self._who.limit_ms), _seen_ms(shown)
        lag_ms = self._lag_ms(stream_id, seen_ms)
        if held.lag_ms is None:
            held.seen_ms, held.lag_ms = seen_ms, lag_ms  # else the record may still show the one before
        # Where the answer is lost it may stand there, and no beat is to answer for it once the connection is over.
        held.unsaved = shown = self._lagging(stream_id, shown, lag_ms)
        reply = super().mark_connected(stream_id, fence, limit_ms, request_id=request_id, shown=shown, rest=rest)
        if reply.is_done:
            self._counts()
            # The reply is the record from before the mark.
            held.seen_ms, held.lag_ms = seen_ms, lag_ms
            marked = {"connected": number(fence), "marked": control_record.mark(fence, request_id)}
            held.item = held.item | shown | marked | {"expires_at_ms": number(limit_ms)}
            self._has_written(held)
        return reply

    # --- while it is connected, and after -----------------------------------------------------------------------------

    def heartbeat(
        self, stream_id: str, fence: int, expires_at_ms: int, shown: Item, rest: Change | None = None
    ) -> Reply:
        """What is known, or the reply to a write that is due; what is not written waits."""
        held, now_ms = self._held(stream_id), self._clock_ms()
        held.unsaved |= shown
        held.seen_ms = _seen_ms(shown)
        is_first = "cursor" in held.unsaved and "cursor" not in held.item
        is_behind = held.lag_ms is not None and self._lag_ms(stream_id, held.seen_ms) is None
        # In a log each segment has the cursor. All else that waits goes with the next write, at the latest the last.
        waits = held.lag_ms is None or ("cursor" in held.unsaved and control_record.partitions(held.item) != LOG)
        every_ms = 0 if stream_id in self.evicting else self._cursor_every_ms
        is_due = waits and now_ms - held.saved_ms >= every_ms
        if not (is_due or is_first or is_behind or rest is not None) and self._is_alive():
            return self._from_known(stream_id, fence)
        lag_ms = self._lag_ms(stream_id, held.seen_ms)
        if held.lag_ms is None:
            held.lag_ms = lag_ms
        shown = self._lagging(stream_id, held.unsaved, lag_ms)
        reply = super().heartbeat(stream_id, fence, max(expires_at_ms, self._who.limit_ms), shown, rest)
        if reply.is_done:
            held.lag_ms = lag_ms
            self._has_written(held)
        return reply

    def read_lease(self, stream_id: str) -> Lease:
        """What is known of one that is connected by this function, for that hears of changes; else as it stands."""
        held = self._held(stream_id)
        if held.fence and self._holds(stream_id, held.fence) and self._is_alive():
            return self.known(stream_id)
        return super().read_lease(stream_id)

    def release(self, stream_id: str, fence: int, shown: Item, rest: Change | None = None) -> Reply:
        """As a stream's, with what waited to be written, unless nothing is to be shown."""
        shown = self._held(stream_id).unsaved | shown if shown else {}
        self._owed[stream_id, fence] = shown
        reply = super().release(stream_id, fence, shown, rest)
        self._has_released(stream_id, fence)
        return reply

    def over(self, stream_id: str) -> None:
        """Records that the function's connection of the stream is over: where that is not released, it is owed.

        Its record is left open, as of one that was killed, and no beat answers for it any more.
        """
        held = self._streams.get(stream_id)
        if held is None or not held.fence or (stream_id, held.fence) in self._owed:
            return
        if self._parsed(held.item).lease.released_token < held.fence:
            shown = held.unsaved if "live" in held.unsaved else held.unsaved | {"live": held.item.get("live", {})}
            live = {name: value for name, value in shown["live"].get("M", {}).items() if name not in _OF_BEATS}
            is_own = text(live, "request_id") == self._who.request_id
            self._owed[stream_id, held.fence] = shown | {"live": {"M": live}} if is_own else {}

    def releases_again(self) -> None:
        """Makes the releases that are owed.

        No lease runs out that says that they are connected: the function's own beats renew it.
        """
        for (stream_id, fence), shown in list(self._owed.items()):
            try:
                super().release(stream_id, fence, shown)
            except StoreUnavailable:
                return
            self._has_released(stream_id, fence)

    def _has_released(self, stream_id: str, fence: int) -> None:
        self._owed.pop((stream_id, fence), None)
        held = self._streams.get(stream_id)
        if held is not None and held.fence == fence:
            held.lag_ms = None

    def lets_go(self, stream_id: str, joined: str, ending: str, cause: str) -> bool:
        """Whether the stream's record says that it is over, as the machine writes it; not where it has joined anew.

        Whoever is dead and has a connection of it is buried before: no beat says so where the stream is in no group.
        Whoever lives closes it within its beat, and could not say so where the store refuses its release: the record
        says so by itself, for that function's limit is minutes away.
        """
        own = self._parsed(self._held(stream_id).item).lease
        self._buries(own, own.connected_token + 1)
        names: tuple[str, ...] = ("ending", "ending_cause", "ended_at", "execution", "group", "joined")
        values: Item = {
            ":ending": {"S": ending},
            ":cause": {"S": cause[:1000]},
            ":now": {"S": typed_values.instant(self._clock_ms())},
            ":joined": {"S": joined},
            ":group": {"S": self._who.group},
        }
        update = "SET #ending = :ending, #ending_cause = :cause, #ended_at = :now"
        beat = self.lease.beats.get(own.connected_by)
        if beat is not None:
            over_ms = beat.at_ms if beat.is_buried else min(beat.until_ms, own.expires_at_ms)
            names, update = (*names, "expires_at_ms"), f"{update}, #expires_at_ms = :over"
            values |= {":over": number(over_ms)}
        return self._change(
            stream_id,
            f"{update} REMOVE #execution, #group",
            "#joined = :joined AND #group = :group",
            names,
            values,
        ).is_done

    def _buries(self, own: Lease, fence: int) -> None:
        """Buries whoever is dead and has the turn before connection `fence`."""
        request_id = to_bury(own, self.lease, fence, self._clock_ms(), self._who.died)
        if request_id:
            _, self.lease = self._groups.bury(request_id, self.lease.beats[request_id])

    def _holds(self, stream_id: str, fence: int) -> bool:
        lease = self._parsed(self._held(stream_id).item).lease
        return lease.connected_token == fence > lease.released_token

    def _from_known(self, stream_id: str, fence: int) -> Reply:
        return Reply(self._holds(stream_id, fence), self._to_record(self._held(stream_id).item))

    def _is_alive(self) -> bool:
        """Whether the function's last beat still answers for it; else each stream asks for itself."""
        beat = self.lease.beats.get(self._who.request_id)
        return beat is not None and not beat.is_buried and self._clock_ms() < beat.until_ms - self._who.lag_ms // 4

    def _counts(self) -> None:
        with self._counting:
            self.turns += 1

    def _lag_ms(self, stream_id: str, seen_ms: int) -> int | None:
        """By how much the beats may say more of one that was good until then; None of one that is behind."""
        own_ms = self.lags.get(stream_id, 0)
        # It has used up half of its lag, beside what its events may wait for one another.
        is_behind = self._clock_ms() - seen_ms > self._who.lag_ms // 2 + own_ms
        return None if is_behind else self._who.lag_ms + own_ms

    def _lagging(self, stream_id: str, shown: Item, lag_ms: int | None) -> Item:
        """What is to be written, with by how much the beats may say more, and how long before that it was heard."""
        if lag_ms is None:
            return shown
        live: Item = shown["live"]["M"] | {"lag_ms": number(lag_ms)}
        if stream_id in self.stalls:
            # And whoever goes on from its cursor is sent again what came since that was saved.
            live["silent_ms"] = number(self.stalls[stream_id] + self._cursor_every_ms)
        return shown | {"live": {"M": live}}

    def _has_written(self, held: _Held) -> None:
        held.unsaved, held.saved_ms = {}, self._clock_ms()


def _is_older(read: Lease, known: Lease) -> bool:
    """Whether it was read before what is known: no counter goes back."""
    return (
        read.fence < known.fence
        or read.connected_token < known.connected_token
        or read.released_token < known.released_token
    )


def _seen_ms(shown: Item) -> int:
    return count(shown["live"]["M"], "seen_ms") or 0
