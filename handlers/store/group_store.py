"""Keeps a group's lease and its members: each method is one conditional write, or one reading.

The lease is an item like a stream's (`PK` the group, `SK` `lease`), because the machine claims and releases both in the
same way. Each function's heartbeat is in an attribute of its own, so that it can be written, or found missing, by name:
`heartbeat_value` spells it. Any write may be sent twice and may arrive late; each is made so that this changes nothing.

Invariants: reading returns what was written, and what cannot be read counts as absent; the token and the version only
grow; a function that is marked as ended never sends a heartbeat again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from handlers.connection.lease import Lease
from handlers.group import GROUP
from handlers.group.group_lease import GroupHeartbeat, GroupLease, alive_until_ms, compose_lease, good_until_ms
from handlers.store.control_record import lease_of
from handlers.store.control_table import Table
from handlers.store.ledger_records import live_record
from handlers.store.typed_values import Item, item_key, number_value, read_flag, read_int, read_text

MEMBER = "stream#"
# The prefix of the attributes that name groups with a free place: `open:#7` in the record `groups`.
OPEN = "open:"
_HEARTBEAT, _DEAD = "beat:", "dead:"


def heartbeat_name(request_id: str, *, is_ended: bool = False) -> str:
    """Returns the name of the attribute with a function's heartbeat."""
    return f"{_DEAD if is_ended else _HEARTBEAT}{request_id}"


def heartbeat_value(heartbeat: GroupHeartbeat) -> Item:
    """Returns the value of that attribute: token, instant, expiry, turns, and how many streams are away, if any."""
    away = f"/{heartbeat.away}" if heartbeat.away else ""
    return {"S": f"{heartbeat.token}/{heartbeat.at_ms}/{heartbeat.until_ms}/{heartbeat.turns}{away}"}


def group_lease(item: Item | None) -> GroupLease:
    """Returns the lease of an item; an empty one if there is none."""
    item = item or {}
    heartbeats: dict[str, GroupHeartbeat] = {}
    for name in item:
        is_ended, request_id = name.startswith(_DEAD), name.partition(":")[2]
        if not is_ended and not name.startswith(_HEARTBEAT):
            continue
        numbers = (read_text(item, name) or "").split("/")
        if len(numbers) in (4, 5) and all(number.isdecimal() for number in numbers):
            token, at_ms, until_ms, turns, away = map(int, [*numbers, "0"][:5])
            heartbeats[request_id] = GroupHeartbeat(token, at_ms, until_ms, turns, is_ended, away)
    return GroupLease(
        token=read_int(item, "fence") or 0,
        execution=read_text(item, "execution") or "",
        stop=read_flag(item, "stop"),
        version=read_int(item, "version") or 0,
        size=read_int(item, "size") or 0,
        heartbeats=heartbeats,
    )


def lease_of_group(item: Item) -> Lease:
    """Returns the group's lease as if the group were a stream that is connected while a function lives."""
    return replace(lease_of(item), expires_at_ms=alive_until_ms(group_lease(item)))


def member_lease(item: Item, group: GroupLease) -> Lease:
    """Returns the lease of a stream in a group: composed of its own item and the group's lease.

    If its connection was let go, the lease lasts until then.
    """
    own = lease_of(item)
    # A group is stopped when no member is left. So a member has joined since, and is about to begin.
    seen = replace(compose_lease(own, group), stop=own.stop)
    if seen.connected_token > seen.released_token:
        return seen
    live = live_record(item) or {}
    return replace(seen, expires_at_ms=read_int(live, "closed_ms") or read_int(live, "seen_ms") or 0)


def live_of_member(live: Item | None, group: GroupLease) -> Item | None:
    """Returns the record of a stream's newest connection, good until the time that its function's heartbeats give.

    The connection's last sign of life is not long before that, because a connection that is silent for longer is
    closed. So a successor that opens beside it need not count its whole life as the silence of a dead peer.
    """
    heartbeat = group.heartbeats.get(read_text(live or {}, "request_id") or "")
    if live is None or "closed_ms" in live or heartbeat is None:
        return live
    lag_ms = read_int(live, "lag_ms")
    seen_ms = good_until_ms(read_int(live, "seen_ms") or 0, lag_ms, heartbeat)
    # A heartbeat is a sign of life of each connection that it covers, so its lag makes no connection count as silent.
    covered_ms = seen_ms if lag_ms is None else max(seen_ms, heartbeat.at_ms)
    times = {
        "seen_ms": number_value(seen_ms),
        "saved_ms": number_value(max(covered_ms, read_int(live, "saved_ms") or 0)),
    }
    silent_ms = read_int(live, "silent_ms")
    if silent_ms is not None:
        times["heard_ms"] = number_value(max(read_int(live, "heard_ms") or 0, seen_ms - silent_ms))
    return live | times


def member_key(group: str, stream_id: str) -> Item:
    """Returns the key of a stream's place in a group."""
    return item_key(group, f"{MEMBER}{stream_id}")


def to_member(item: Item) -> tuple[str, str] | None:
    """Returns the stream and when it joined; None if it has left."""
    joined = read_text(item, "joined")
    return None if joined is None else (item["SK"]["S"].removeprefix(MEMBER), joined)


# After this long a function is certainly over: Lambda's longest limit and a minute.
FORGOTTEN_MS = 960_000
# The record of a member that left is kept for a day.
LEFT_S = 86_400
_ONE: Item = {":one": {"N": "1"}}


class GroupStore:
    """The group's records in the control table; the client is made once and shared."""

    def __init__(self, dynamodb: Any, control_table: str, group: str) -> None:
        self._table = Table(dynamodb, control_table)
        self._group = group
        self._key = item_key(group, "lease")

    def read(self) -> GroupLease:
        """Returns the lease as it is now, read consistently."""
        return group_lease(self._table.get(self._group, "lease"))

    def version(self) -> int:
        """Returns the version of the membership as it was a moment ago: not read consistently, for half the price."""
        return group_lease(self._table.get(self._group, "lease", consistent=False)).version

    # --- the group's lease --------------------------------------------------------------------------------------------

    def claim(self, execution: str) -> tuple[bool, GroupLease]:
        """Returns whether the claim was granted, and the lease, whose token is the function's own."""
        condition = "#execution = :execution AND (attribute_not_exists(#stop) OR #stop = :no)"
        return self._change(
            "SET #fence = if_not_exists(#fence, :zero) + :one",
            condition,
            {":execution": {"S": execution}, ":no": {"BOOL": False}, ":zero": {"N": "0"}, **_ONE},
        )

    def first_heartbeat(self, request_id: str, execution: str, heartbeat: GroupHeartbeat) -> tuple[bool, GroupLease]:
        """Returns whether the function now counts as alive, and the lease; False if the group was lost meanwhile."""
        values = {":beat": heartbeat_value(heartbeat), ":execution": {"S": execution}}
        names = {"#beat": heartbeat_name(request_id)}
        return self._change("SET #beat = :beat", "#execution = :execution", values, names)

    def heartbeat(self, request_id: str, heartbeat: GroupHeartbeat, known: GroupLease) -> tuple[bool, GroupLease]:
        """Returns whether the function still counts as alive, and the lease; removes `known` heartbeats long over."""
        # The limit of such a function has passed, so the records of its connections have expired by themselves.
        gone = [
            name
            for name, one in known.heartbeats.items()
            if name != request_id and one.at_ms + FORGOTTEN_MS < heartbeat.at_ms
        ]
        names = {"#beat": heartbeat_name(request_id)}
        places = {
            f"#gone{at}": heartbeat_name(name, is_ended=known.heartbeats[name].is_ended) for at, name in enumerate(gone)
        }
        update = "SET #beat = :beat" + (f" REMOVE {', '.join(places)}" if places else "")
        # A heartbeat that arrives late replaces no later one. Until the year 2286 instants have equally many digits, so
        # they compare as texts; and "~" sorts after everything that follows the instants.
        latest = f"{heartbeat.token}/{heartbeat.at_ms}/{heartbeat.until_ms}~"
        values = {":beat": heartbeat_value(heartbeat), ":latest": {"S": latest}}
        return self._change(update, "#beat < :latest", values, names | places)

    def mark_ended(self, request_id: str, known: GroupHeartbeat) -> tuple[bool, GroupLease]:
        """Marks the function as ended, unless it has sent another heartbeat; returns whether it is, and the lease."""
        names = {"#beat": heartbeat_name(request_id), "#dead": heartbeat_name(request_id, is_ended=True)}
        values = {":known": heartbeat_value(known)}
        return self._change("SET #dead = :known REMOVE #beat", "#beat = :known", values, names)

    def raise_version(self) -> GroupLease:
        """Raises the version, so that functions read the members again with their next heartbeat; returns the lease."""
        update = "SET #version = if_not_exists(#version, :zero) + :one"
        return self._change(update, "", {":zero": {"N": "0"}, **_ONE})[1]

    def end_group(self, execution: str, version: int) -> tuple[bool, GroupLease]:
        """Returns whether the group is ended, because it has no member at that version, and the lease."""
        condition = "#execution = :execution AND (#version = :version OR attribute_not_exists(#version))"
        values = {":yes": {"BOOL": True}, ":execution": {"S": execution}, ":version": number_value(version)}
        return self._change("SET #stop = :yes", condition, values)

    def record_size(self, version: int, size: int, *, frees_places: bool) -> None:
        """Records the number of members at that version and, if that `frees_places`, that there are free ones.

        A POST counts a place before it writes the member; only this frees the place of a stream that leaves.
        """
        condition = "#version = :version OR attribute_not_exists(#version)"
        values = {":size": number_value(size), ":version": number_value(version)}
        is_done, _ = self._change("SET #size = :size", condition, values)
        if is_done and frees_places:
            names = {"#open": f"{OPEN}{self._group}"}
            self._table.update(item_key(GROUP, "groups"), "SET #open = :yes", "", {":yes": {"BOOL": True}}, names)

    # --- its members --------------------------------------------------------------------------------------------------

    def members(self) -> Mapping[str, str]:
        """Returns the streams of the group, each with when it joined, read consistently."""
        values = {":group": self._group, ":member": MEMBER}
        items = self._table.query_items("PK = :group AND begins_with(SK, :member)", values, ConsistentRead=True)
        return dict(one for item in items if (one := to_member(item)) is not None)

    def add_member(self, stream_id: str, joined: str) -> None:
        """Gives the stream a place, or a new stamp to the place that it has."""
        self._table.put(member_key(self._group, stream_id) | {"joined": {"S": joined}})

    def remove_member(self, stream_id: str, joined: str, now_ms: int) -> bool:
        """Returns whether the stream that joined at `joined` has given up its place; False if it joined again."""
        left = {"expires_at": now_ms // 1000 + LEFT_S}
        place = member_key(self._group, stream_id)
        return self._table.set_attributes(place, left, "#joined = :joined", remove=["joined"], joined=joined)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _change(
        self, update: str, condition: str, values: Item, names: Mapping[str, str] | None = None
    ) -> tuple[bool, GroupLease]:
        """Returns whether the condition held, and the lease after the write, or as it was."""
        is_done, item = self._table.try_update(self._key, update, condition, values, names)
        return is_done, group_lease(item)
