"""Reads out of a lease and the ledger how a stream stands that an upgrade has asked to hand over.

    code_version   the version of the function that the stream's executions call; absent for the alias
    upgrade_mark   when the stream was asked, which execution held it then, and how it stood

Pure. Invariant: what a version before this one has not written counts as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handlers.connection.lease import Lease, unconnected_ms
from handlers.group import is_group
from handlers.group.lease import alive_until_ms
from handlers.store import control_items
from handlers.store.control_items import Item, count, live_record, number, text
from handlers.store.group_items import group_lease, lease_of_group
from handlers.upgrade.health import Stream, Stretch

CODE, MARK = "code_version", "upgrade_mark"
# A connection without an end that was not seen for so long was killed.
DEAD_AFTER_MS = 60_000
# How a connection ends that has handed over, or ended as it should.
_CLEAN = ("", "StreamTakenOver", "ConnectionExpired", "RenewalDue")
_MADE_ROOM = ("let_go", "claimed_by_successor")

Stretches = tuple[Stretch, Stretch]


def lease_of(item: Item) -> Lease:
    """The lease of a stream or of a group."""
    return lease_of_group(item) if is_group(item["PK"]["S"]) else control_items.lease(item)


def mark(item: Item, now_ms: int) -> Item:
    """What is written down of a stream that is asked now, whose lease is `item`."""
    lease = lease_of(item)
    return {
        "M": {
            "at_ms": number(now_ms),
            "execution": {"S": lease.execution},
            "away": {"BOOL": unconnected_ms(lease, now_ms) > 0},
            "failures": number(_failures(item)),
            "fence": number(lease.fence),
        }
    }


def is_asked(item: Item, version: str) -> bool:
    """Whether the stream was asked to run `version`, "" for the alias, and that holds."""
    return MARK in item and (text(item, CODE) or "") == version


def asked_of(item: Item) -> tuple[int, str]:
    """When the stream was asked, and which execution held it then; 0 and "" where it was not."""
    written: Item = item.get(MARK, {}).get("M", {})
    return count(written, "at_ms") or 0, text(written, "execution") or ""


def has_handed_over(item: Item) -> bool:
    """Whether the stream is kept connected by an execution that was started since it was asked."""
    lease, former = lease_of(item), asked_of(item)[1]
    if not lease.execution or lease.execution == former:
        return False
    if is_group(item["PK"]["S"]):
        asked: Item = item[MARK]["M"]
        return lease.fence > (count(asked, "fence") or 0) and alive_until_ms(group_lease(item)) > 0
    return (text(live_record(item) or {}, "execution") or former) != former


def to_stream(item: Item, version: str, now_ms: int, stretches: Stretches | None = None) -> Stream:
    """How the stream does that was asked to run `version`; `stretches` are what its connections did, where known."""
    lease = lease_of(item)
    asked: Item = item[MARK]["M"]
    before, after = stretches or (None, None)
    return Stream(
        item["PK"]["S"],
        now_ms - asked_of(item)[0],
        is_ours=bool(lease.execution) and not lease.stop and is_asked(item, version),
        has_handed_over=has_handed_over(item),
        away_ms=unconnected_ms(lease, now_ms),
        was_away=asked.get("away", {}).get("BOOL", False) is True,
        failures=_failures(item),
        had_failures=count(asked, "failures") or 0,
        ending="" if lease.execution else lease.ending,
        before=before,
        after=after,
    )


def stretches(item: Item, ledgers: Iterable[Sequence[Item]], now_ms: int) -> Stretches:
    """What connections did before the stream was asked, and after its handover; a ledger has the newest of a stream."""
    asked_ms, former = asked_of(item)
    before: list[Stretch] = []
    after: list[Stretch] = []
    first_ms = asked_ms
    for rows in ledgers:
        newest = max((count(row, "fence") or 0 for row in rows), default=0)
        for row in rows:
            claimed_ms = count(row, "claimed_ms") or 0
            is_after = claimed_ms >= asked_ms and text(row, "execution") != former
            first_ms = min(first_ms, claimed_ms or first_ms)
            (after if is_after else before).append(_of(row, newest, now_ms))
    return _sum(before, asked_ms - first_ms), _sum(after, now_ms - asked_ms)


def _of(row: Item, newest: int, now_ms: int) -> Stretch:
    """What one connection did."""
    seen_ms = max(count(row, "seen_ms") or 0, count(row, "saved_ms") or 0)
    may_live = (count(row, "fence") or 0) == newest or now_ms - seen_ms <= DEAD_AFTER_MS
    is_killed = "closed_ms" not in row and not text(row, "ended_by") and not may_live
    is_error = (text(row, "error") or "") not in _CLEAN and text(row, "ended_by") not in _MADE_ROOM
    return Stretch(
        connections=1,
        errors=int(is_error),
        killed=int(is_killed),
        frames=count(row, "frames") or 0,
        kept=(count(row, "stored") or 0) + (count(row, "duplicates") or 0),
        dead_lettered=count(row, "dead_lettered") or 0,
    )


def _sum(parts: Sequence[Stretch], length_ms: int) -> Stretch:
    return Stretch(
        length_ms,
        connections=len(parts),
        errors=sum(part.errors for part in parts),
        killed=sum(part.killed for part in parts),
        frames=sum(part.frames for part in parts),
        kept=sum(part.kept for part in parts),
        dead_lettered=sum(part.dead_lettered for part in parts),
    )


def _failures(item: Item) -> int:
    """Failures to connect in a row; of a group, how many of its streams its newest function cannot connect."""
    if not is_group(item["PK"]["S"]):
        return control_items.rest_of(item).failures
    beats = group_lease(item).beats.values()
    return max(beats, key=lambda beat: beat.token).away if beats else 0
