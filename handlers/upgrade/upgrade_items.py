"""Reads a stream's state since an upgrade asked it to hand over, from its lease and the ledger.

    code_version   the version of the function that the stream's executions call; absent for the alias
    upgrade_mark   when the stream was asked, the execution that held it then, and its state; if it goes back, also the
                   instant since when the version has lost events, for each stream of a group

Pure. Invariant: a field that a former version did not write counts as empty.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from handlers.connection.effects import RecordLoss
from handlers.connection.lease import Lease, unconnected_ms
from handlers.group import is_group
from handlers.group.group_lease import alive_until_ms
from handlers.store import control_record, ledger_records
from handlers.store.group_store import group_lease, lease_of_group
from handlers.store.ledger_records import live_record
from handlers.store.typed_values import Item, read_flag, read_int, read_text, typed_item
from handlers.upgrade.health import BAD_ENDINGS, EXPECTED, Stream, Stretch

CODE, MARK = "code_version", "upgrade_mark"
# A connection without an end counts as killed if it was not seen for this long, or for the time of a handover.
DEAD_AFTER_MS = 60_000
# The number of the newest connections that may be alive at once: one is claimed, one connected, one closing.
AT_ONCE = 3
# The number of a gap of lost events in its connection; upstreams announce fewer gaps.
LOSS = 999_999
# The endings of a connection that handed over or ended as it should.
_CLEAN = ("", "StreamTakenOver", "ConnectionExpired", "RenewalDue")
_MADE_ROOM = ("let_go", "claimed_by_successor")
Stretches = tuple[Stretch, Stretch]


def lease_of(item: Item) -> Lease:
    """Returns the lease of a stream or of a group."""
    return lease_of_group(item) if is_group(item["PK"]["S"]) else control_record.lease_of(item)


def execution_of(item: Item) -> str:
    """Returns the execution that holds the stream, or else the one that held it when it was asked."""
    return lease_of(item).execution or asked_of(item)[1]


def to_lost(lease: Item, newest_ms: int | None, now_ms: int) -> "Lost | None":
    """Returns the loss of a stream whose connection counts events as stored but stores none; None if it stores them.

    The newest stored event came at `newest_ms`. The cursor has moved past the lost events, so no connection requests
    them again.
    """
    live = live_record(lease) or {}
    opened_ms, stored = read_int(live, "opened_ms"), read_int(live, "stored") or 0
    if newest_ms is None or opened_ms is None or stored < EXPECTED or newest_ms >= (opened_ms + now_ms) // 2:
        return None
    return Lost(newest_ms, read_int(live, "fence") or 0)


class Lost(NamedTuple):
    """The instant since when a stream's events are lost, and the token of the connection that lost them."""

    from_ms: int
    fence: int


def lost_of(item: Item) -> dict[str, Lost]:
    """Returns the losses by stream id that were recorded when the stream or the group went back."""
    written: Item = item.get(MARK, {}).get("M", {}).get("lost", {}).get("M", {})
    parts = {stream_id: (read_text(written, stream_id) or "").split("/") for stream_id in written}
    return {stream_id: Lost(*map(int, two)) for stream_id, two in parts.items() if len(two) == len(Lost._fields)}


def loss_gap(item: Item, lease: Item, lost: Lost, now_ms: int) -> tuple[Item, bool]:
    """Returns the gap of a stream whose events were lost, and whether another execution's connection has ended it.

    `item` is the lease that has the mark, `lease` that of the stream. The gap lasts until such a connection opens.
    """
    live = live_record(lease) or {}
    opened_ms, execution = read_int(live, "opened_ms"), read_text(live, "execution") or ""
    has_ended = opened_ms is not None and execution not in ("", asked_of(item)[1])
    to_ms = opened_ms if opened_ms is not None and has_ended else now_ms
    announced = RecordLoss(lost.fence, LOSS, lost.from_ms, max(lost.from_ms, to_ms), "not_stored")
    return ledger_records.loss_item(lease["PK"]["S"], announced), has_ended


def upgrade_mark(item: Item, now_ms: int, lost: Mapping[str, Lost]) -> Item:
    """Returns the mark of a stream that is asked now; `item` is its lease, `lost` its losses."""
    lease = lease_of(item)
    since = typed_item({stream_id: f"{one.from_ms}/{one.fence}" for stream_id, one in lost.items()})
    fields = typed_item({
        "at_ms": now_ms,
        "execution": execution_of(item),
        "away": unconnected_ms(lease, now_ms) > 0,
        "failures": _failures(item),
        "fence": lease.fence,
    })  # fmt: skip
    return {"M": fields | ({"lost": {"M": since}} if since else {})}


def is_asked(item: Item, version: str) -> bool:
    """Returns whether the stream was asked to run `version`, "" for the alias, and still should."""
    return MARK in item and (read_text(item, CODE) or "") == version


def asked_of(item: Item) -> tuple[int, str]:
    """Returns when the stream was asked, and the execution that held it then; 0 and "" if it was not asked."""
    written: Item = item.get(MARK, {}).get("M", {})
    return read_int(written, "at_ms") or 0, read_text(written, "execution") or ""


def was_ended(item: Item) -> bool:
    """Returns whether the stream's execution ended since it was asked, by an error that may be the version's fault."""
    lease = lease_of(item)
    asked_ms, execution = asked_of(item)
    is_over = bool(execution) and not lease.execution and lease.ended_at_ms >= asked_ms
    return is_over and lease.ending in BAD_ENDINGS


def has_handed_over(item: Item) -> bool:
    """Returns whether an execution that was started since the stream was asked keeps it connected."""
    lease, former = lease_of(item), asked_of(item)[1]
    if not lease.execution or lease.execution == former:
        return False
    if is_group(item["PK"]["S"]):
        mark: Item = item[MARK]["M"]
        return lease.fence > (read_int(mark, "fence") or 0) and alive_until_ms(group_lease(item)) > 0
    return (read_text(live_record(item) or {}, "execution") or former) != former


def to_stream(
    item: Item, version: str, now_ms: int, stretches: Stretches | None = None, newest_ms: int | None = None
) -> Stream:
    """Returns the state of a stream that was asked to run `version`.

    `stretches` has the numbers of its connections, `newest_ms` is the instant of its newest stored event, if known.
    """
    lease = lease_of(item)
    mark: Item = item[MARK]["M"]
    before, after = stretches or (None, None)
    # A stream that is started again after a bad end has no execution yet.
    is_held = bool(lease.execution) or (not version and lease.ending in BAD_ENDINGS and not was_ended(item))
    return Stream(
        item["PK"]["S"],
        now_ms - asked_of(item)[0],
        is_ours=is_held and not lease.stop and is_asked(item, version),
        has_handed_over=has_handed_over(item),
        away_ms=unconnected_ms(lease, now_ms),
        was_away=read_flag(mark, "away"),
        failures=_failures(item),
        had_failures=read_int(mark, "failures") or 0,
        ending="" if lease.execution else lease.ending,
        silent_ms=None if newest_ms is None else now_ms - newest_ms,
        before=before,
        after=after,
    )


def stretches(item: Item, ledgers: Iterable[Sequence[Item]], now_ms: int, answer_ms: int) -> Stretches:
    """Returns the numbers of connections before the stream was asked and after its handover, from the newest records.

    A handover takes `answer_ms` at most.
    """
    asked_ms, former = asked_of(item)
    before: list[Stretch] = []
    after: list[Stretch] = []
    first_ms, began_ms = asked_ms, now_ms
    for rows in ledgers:
        newest = max((read_int(row, "fence") or 0 for row in rows), default=0)
        for row in rows:
            claimed_ms = read_int(row, "claimed_ms") or 0
            is_after = claimed_ms >= asked_ms and read_text(row, "execution") != former
            first_ms = min(first_ms, claimed_ms or first_ms)
            began_ms = min(began_ms, claimed_ms) if is_after else began_ms
            (after if is_after else before).append(_stretch_of(row, newest, now_ms - min(DEAD_AFTER_MS, answer_ms)))
    return _sum(before, asked_ms - first_ms), _sum(after, now_ms - began_ms)


def _stretch_of(row: Item, newest: int, alive_ms: int) -> Stretch:
    """Returns the numbers of one connection; a connection that was seen since `alive_ms` may be alive."""
    seen_ms = max(read_int(row, "seen_ms") or 0, read_int(row, "saved_ms") or 0)
    fence = read_int(row, "fence") or 0
    may_live = fence == newest or (fence > newest - AT_ONCE and seen_ms >= alive_ms)
    is_killed = "closed_ms" not in row and not read_text(row, "ended_by") and not may_live
    is_error = (read_text(row, "error") or "") not in _CLEAN and read_text(row, "ended_by") not in _MADE_ROOM
    return Stretch(
        connections=1,
        errors=int(is_error),
        killed=int(is_killed),
        frames=read_int(row, "frames") or 0,
        kept=(read_int(row, "stored") or 0) + (read_int(row, "duplicates") or 0),
        dead_lettered=read_int(row, "dead_lettered") or 0,
        memory_mb=read_int(row, "memory_mb") or 0,
    )


_SUMMED = ("errors", "killed", "frames", "kept", "dead_lettered")


def _sum(parts: Sequence[Stretch], length_ms: int) -> Stretch:
    return Stretch(
        length_ms,
        connections=len(parts),
        memory_mb=max((part.memory_mb for part in parts), default=0),
        **{name: sum(getattr(part, name) for part in parts) for name in _SUMMED},
    )


def _failures(item: Item) -> int:
    """Returns the failures to connect in a row; for a group, how many streams its newest function cannot connect."""
    if not is_group(item["PK"]["S"]):
        return control_record.rest_of(item).failures
    heartbeats = group_lease(item).heartbeats.values()
    return max(heartbeats, key=lambda heartbeat: heartbeat.token).away if heartbeats else 0
