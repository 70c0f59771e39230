"""The facts of a world that the rules read: the records in its tables, its standstills, and its connections."""

import sys
from collections.abc import Callable

from handlers.connection.evidence import Record
from handlers.connection.gap_record import DELIVERED, Gap
from handlers.connection.lease import LEASE_TTL_READS
from handlers.connection.ledger import find_gaps
from handlers.connection.liveness import BROKEN
from handlers.store import ledger_records, typed_values
from handlers.store.control_record import to_record
from handlers.store.control_table import Table
from local.chaos.world import World
from local.simulation.chaotic_upstream import LATE_MS
from local.simulation.links import Link
from local.simulation.socket_peer import WITHIN_S

Span = Callable[[Link, int], tuple[int, int]]


def uncovered(
    world: World,
    from_ms: int,
    to_ms: int,
    *,
    span: Span = lambda link, opened_ms: (opened_ms, link.over_ms or sys.maxsize),
) -> list[tuple[int, int]]:
    """Returns the intervals within [from_ms, to_ms) in which no living function was connected.

    `span` maps a link and its opening to the interval for which it counts; by default until it was over.
    """
    holes = []
    at_ms = from_ms
    for opened_ms, closed_ms in sorted(
        span(link, link.opened_ms) for link in world.upstream.links if link.opened_ms is not None
    ):
        if opened_ms > at_ms:
            holes.append((at_ms, min(opened_ms, to_ms)))
        at_ms = max(at_ms, closed_ms)
        if at_ms >= to_ms:
            break
    if at_ms < to_ms:
        holes.append((at_ms, to_ms))
    return [(start, end) for start, end in holes if start < end]


def standstills(world: World) -> list[tuple[int, int]]:
    """Returns the intervals in which functions stood still, or ran only for moments; overlapping ones are joined."""
    joined: list[tuple[int, int]] = []
    for fault in world.schedule.faults:
        if fault.kind in ("freeze", "starvation"):
            from_ms = to_ms = world.origin_ms + fault.at_ms
            if joined and from_ms <= joined[-1][1]:
                from_ms, to_ms = joined.pop()
            joined.append((from_ms, max(to_ms, world.origin_ms + fault.at_ms + fault.for_ms)))
    return joined


def noticed_ms(world: World, at_ms: int) -> int:
    """Returns when a function can have noticed its upstream's act at `at_ms`: after a freeze, if it was frozen."""
    # An input from just before the freeze may wait in a queue of the function.
    still = [to_ms for from_ms, to_ms in standstills(world) if from_ms - LATE_MS <= at_ms < to_ms]
    return max([at_ms, *still])


def open_gaps(world: World, records: list[Record]) -> list[Gap]:
    """Returns the gaps that follow from the records, except those that were delivered later."""
    return [gap for gap in find_gaps(records, world.clock.now_ms(), lease_ttl_ms(world)) if gap.state != DELIVERED]


def lease_ttl_ms(world: World) -> int:
    """Returns the time after which a silent holder counts as dead."""
    return LEASE_TTL_READS * int(max(world.settings["lease_every_s"], world.settings["progress_every_s"])) * 1000


def lease(world: World) -> typed_values.Item:
    """Returns the stream's own record; empty if it has none."""
    key = typed_values.item_key(world.stream, "lease")
    item: typed_values.Item = world.tables.get_item(TableName=world.control_table, Key=key).get("Item", {})
    return item


def ledger(world: World) -> list[Record]:
    """Returns the records of the stream's answered connections."""
    return [record for row in ledger_rows(world) for record in ledger_records.records_of(row)]


def ledger_rows(world: World) -> list[typed_values.Item]:
    """Returns the items of all the stream's connections, as they are in the tables."""
    record = lease(world)
    live = world.live_of(record, to_record(record).live)
    return ledger_records.with_live_record(rows_of(world, "connection#"), live)


def rows_of(world: World, prefix: str) -> list[typed_values.Item]:
    """Returns the stream's items in the control table whose sort key begins with `prefix`."""
    values = {":stream": world.stream, ":prefix": prefix}
    return [*Table(world.tables, world.control_table).query_items("PK = :stream AND begins_with(SK, :prefix)", values)]


def last_good_ms(world: World, records: list[Record], link: Link) -> int:
    """Returns until when a connection was good, as far as its successors can know.

    If it was killed, could not record its end, or broke, the record decides: it was good until the last byte, or until
    the events that it had read were stored.
    """
    end_ms = link.over_ms or world.clock.now_ms()
    record = next((record for record in records if record.fence == link.fence and not record.refused), None)
    if record is None:
        return link.opened_ms or 0
    # A broken connection may be recorded as taken over, if a successor explains its end.
    is_mute = link.pinged_ms > 0 and end_ms - link.pinged_ms >= 1000 * WITHIN_S
    is_broken = is_mute or record.ended_by in BROKEN or link.ended_by in BROKEN
    # A connection that ended inside a frame was good until before that frame.
    last_ms = min(end_ms, record.last_ms - link.function.skew_ms)
    if record.closed_ms is None or is_broken or link.has_forgotten or link.held:
        return last_ms
    # If a connection ended while its function stood still, it may have ended at any time since the function last ran.
    stood_ms = [from_ms for from_ms, to_ms in standstills(world) if from_ms <= end_ms <= to_ms]
    return max(last_ms, *stood_ms) if stood_ms and link.function.was_frozen else end_ms
