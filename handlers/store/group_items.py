"""Turns a group's lease and its members into items of DynamoDB and back.

The lease is an item as a stream's is (`PK` the group, `SK` `lease`), for the machine claims and releases both alike.
Each function has its beat in an attribute of its own, so that it is written, and found missing, by its name.

    beat:8f5a…   "3/1767225600000/1767225620000/12"     token 3, when, until when, 12 turns
                 "3/1767225600000/1767225620000/12/2"   the same, and two streams are connected by nobody
    dead:51c0…   "2/1767224900000/1767224920000/40"     the same of one that is buried

Pure. Invariant: reading what was written returns it; what cannot be read is as if it were not there.
"""

from __future__ import annotations

from dataclasses import replace

from handlers.connection.lease import Lease
from handlers.group import GROUP
from handlers.group.lease import Beat, GroupLease, alive_until_ms, composed, good_until_ms
from handlers.store.control_items import Item, count, key, lease, live_record, number, text

MEMBER = "stream#"
# What begins the names of the attributes that say which groups have a free place.
OPEN = "open:"
_BEAT, _DEAD = "beat:", "dead:"


def beat_name(request_id: str, *, is_buried: bool = False) -> str:
    """The attribute that has a function's beat."""
    return f"{_DEAD if is_buried else _BEAT}{request_id}"


def beat_value(beat: Beat) -> Item:
    """The value of that attribute."""
    away = f"/{beat.away}" if beat.away else ""
    return {"S": f"{beat.token}/{beat.at_ms}/{beat.until_ms}/{beat.turns}{away}"}


def directory_key() -> Item:
    """The key of the record that names the groups with a free place: an attribute `open:#7` for each."""
    return key(GROUP, "groups")


def group_lease(item: Item | None) -> GroupLease:
    """The lease of an item; an empty one where there is none."""
    item = item or {}
    beats: dict[str, Beat] = {}
    for name in item:
        is_buried, request_id = name.startswith(_DEAD), name.partition(":")[2]
        if not is_buried and not name.startswith(_BEAT):
            continue
        numbers = (text(item, name) or "").split("/")
        if len(numbers) in (4, 5) and all(number.isdecimal() for number in numbers):
            token, at_ms, until_ms, turns, away = map(int, [*numbers, "0"][:5])
            beats[request_id] = Beat(token, at_ms, until_ms, turns, is_buried, away)
    return GroupLease(
        token=count(item, "fence") or 0,
        execution=text(item, "execution") or "",
        stop=item.get("stop", {}).get("BOOL", False) is True,
        version=count(item, "version") or 0,
        size=count(item, "size") or 0,
        beats=beats,
    )


def lease_of_group(item: Item) -> Lease:
    """The group's lease as one of a stream that is connected while a function lives."""
    return replace(lease(item), expires_at_ms=alive_until_ms(group_lease(item)))


def member_lease(item: Item, group: GroupLease) -> Lease:
    """The lease of a stream in a group: composed of its own item and the group's lease.

    Of a connection that was let go it lasts until then.
    """
    seen = composed(lease(item), group)
    if seen.connected_token > seen.released_token:
        return seen
    live = live_record(item) or {}
    return replace(seen, expires_at_ms=count(live, "closed_ms") or count(live, "seen_ms") or 0)


def live_of_member(live: Item | None, group: GroupLease) -> Item | None:
    """The record of a stream's newest connection, which is good until its function's beats say so.

    And was heard not long before: one that is silent for longer is closed, so that a successor which asks while it is
    open need not count all of its life as a silence of a dead peer.
    """
    beat = group.beats.get(text(live or {}, "request_id") or "")
    if live is None or "closed_ms" in live or beat is None:
        return live
    lag_ms = count(live, "lag_ms")
    seen_ms = good_until_ms(count(live, "seen_ms") or 0, lag_ms, beat)
    # A beat is a word of each connection that it answers for: none of them counts as silent for its lag.
    told_ms = seen_ms if lag_ms is None else max(seen_ms, beat.at_ms)
    said = {"seen_ms": number(seen_ms), "saved_ms": number(max(told_ms, count(live, "saved_ms") or 0))}
    silent_ms = count(live, "silent_ms")
    if silent_ms is not None:
        said["heard_ms"] = number(max(count(live, "heard_ms") or 0, seen_ms - silent_ms))
    return live | said


def member_key(group: str, stream_id: str) -> Item:
    """The key of a stream's place in a group."""
    return key(group, f"{MEMBER}{stream_id}")


def member(item: Item) -> tuple[str, str] | None:
    """The stream and when it joined; None of one that has left."""
    joined = text(item, "joined")
    return None if joined is None else (item["SK"]["S"].removeprefix(MEMBER), joined)
