"""Finds the open gaps of a run that nothing explains ("invented"), and the gaps that the table lacks ("unrecorded").

An open gap says that events may be missing. Open gaps that touch form one interval, from an instant at which everything
was known to one at which a connection began afresh. Such an interval is explained if all of these hold:

    a hole          at some instant in it no connection was open, as far as the records can show; or a connection
                    opened and broke off in it, so that its received events are unknown
    in vain         a connection began afresh in it, or the upstream refused its cursor as too old; or the interval is
                    longer than the upstream keeps events, or it may keep none, or no connection has requested it yet
    none stayed     no connection in it lasted long enough to prove that it had caught up
    announced       a loss that the upstream announced was announced to that connection

It reads the world after the run. Invariant: the run explains a gap, never the ledger, except the last instant
at which a connection without an end was known to be good.
"""

from collections.abc import Iterator
from dataclasses import replace

from handlers.api.figures import length_ms
from handlers.connection.evidence import KEPT_MS, Record
from handlers.connection.gap_record import DELIVERED, LOST, OPEN, Gap
from handlers.connection.ledger import find_gaps
from handlers.store import ledger_records
from local.chaos.facts import last_good_ms, lease_ttl_ms, ledger, noticed_ms, open_gaps, rows_of, standstills, uncovered
from local.chaos.restarts import false_restarts, former_event, has_restart_between, is_doubtful
from local.chaos.world import World
from local.simulation.chaotic_upstream import LATE_MS
from local.simulation.links import Link
from local.simulation.upstream_memory import SPEED

# A connection counts from the upstream's answer, but its cursor is older: by the claim, the reads of the tables and the
# upstream's time to answer, each at its slowest, and by a save that was not yet made.
ASKED_BEFORE_MS = 6_000
# How old an open connection's record is at most, from which its successor begins (`progress_every_s`).
LATE_RECORD_MS = 2_000
# A gap is recorded this long after its end at the latest: when a silent connection counts as dead, plus two heartbeats.
RECORDED_AFTER_MS = 12_000


def invented(world: World) -> list[str]:
    """Returns a sentence for each open gap that nothing explains, and for each recorded loss that was not announced."""
    records, texts = ledger(world), [*false_restarts(world)]
    for gap, ended_by in _touching(open_gaps(world, records)):
        if why := _unexplained(world, records, gap, ended_by):
            texts.append(f"the gap {_span(world, gap)} ({gap.cause}) is open though {why}")
    for fence, count in sorted(world.watch.losses.keys() - world.watch.ids.dropped):
        link = world.link_of(fence)
        if count and (link is None or len(link.notices) < count):
            texts.append(f"connection {fence} recorded loss {count}, and was sent fewer notices")
    return texts


def unrecorded(world: World) -> list[str]:
    """Returns a sentence for each gap of the records and of the table in which they differ, while a connection is open.

    The newest gaps are left out: a connection that was silent may not be dead.
    """
    if not world.upstream.open_links:
        return []
    there = {item["SK"]["S"]: item for item in rows_of(world, "gap#")}
    now_ms = world.clock.now_ms()
    records = ledger(world)
    is_open = [record for record in records if record.end_ms(now_ms, lease_ttl_ms(world)) is None]
    if any(record.opened_ms > now_ms - RECORDED_AFTER_MS for record in records) or not all(
        record.has_caught_up for record in is_open
    ):
        return []  # an open connection may still close an old gap, which it has not checked yet
    texts = []
    shown = find_gaps(records, now_ms, lease_ttl_ms(world))
    for gap in shown:
        item = ledger_records.gap_item(world.stream, gap)
        # The attributes of a repair are left out.
        known = {name: value for name, value in there.get(item["SK"]["S"], {}).items() if name[:6] != "repair"}
        came = [n for n, at_ms in enumerate(world.upstream.emitted_ms) if gap.from_ms <= at_ms < gap.to_ms]
        # A connection knows more of itself than its last record: a kill takes the proof that all of it came.
        proved = item | ({"state": {"S": DELIVERED}} if world.watch.stored.keys() >= {*came} else {})
        if gap.to_ms <= now_ms - RECORDED_AFTER_MS and known not in (item, proved):
            texts.append(f"the gap {_span(world, gap)} does not stand in the table as it is")
    for gap in map(ledger_records.gap_of, there.values()):
        lacking = [other for other in shown if other.state != DELIVERED and other.from_ms < gap.to_ms]
        if gap.state == OPEN and not any(gap.from_ms < other.to_ms for other in lacking):
            texts.append(f"the gap {_span(world, gap)} stands open in the table, and by the records it is none")
    return texts


def _span(world: World, gap: Gap) -> str:
    return f"from {world.stamp(gap.from_ms)} to {world.stamp(gap.to_ms)}"


def _touching(told: list[Gap]) -> Iterator[tuple[Gap, list[Gap]]]:
    """Yields the intervals of open gaps that touch, each with its gaps."""
    parts: list[Gap] = []
    for gap in [*sorted(told, key=lambda gap: gap.from_ms), None]:
        if parts and (gap is None or gap.from_ms > parts[-1].to_ms):
            yield replace(parts[0], to_ms=parts[-1].to_ms), parts
            parts = []
        if gap is not None:
            parts.append(gap)


def _unexplained(world: World, records: list[Record], gap: Gap, parts: list[Gap]) -> str:
    slack_ms = world.schedule.skew_ms + LATE_MS
    is_long = gap.to_ms - gap.from_ms > 2 * world.schedule.skew_ms + LATE_MS
    begin_ms, stop_ms = gap.from_ms - slack_ms, gap.to_ms + slack_ms
    # The connection that ended the gap may not have caught up yet, and neither may the one that it relieved.
    is_covered = is_long and not _is_catching_up(world, records, parts[-1].fence)
    is_covered = is_covered and not uncovered(
        world,
        begin_ms,
        stop_ms,
        # Only the time counts in which the connection was known to be good.
        span=lambda link, opened_ms: (noticed_ms(world, opened_ms), last_good_ms(world, records, link)),
    )
    if is_covered and (_is_kept(world, records, gap) or not _has_broken_off(world, records, begin_ms, stop_ms)):
        return "somebody was connected all the time"
    for link in world.upstream.links:
        if link.opened_ms is not None and _has_caught_up(world, records, link, gap):
            return f"link {link.number} stayed for long enough to have brought what came in it"
    is_explained = _asked_in_vain(world, records, gap, parts, slack_ms) or _is_catching_up(world, records)
    return "" if is_explained else "it was requested of the upstream in time"


def _is_kept(world: World, records: list[Record], gap: Gap) -> bool:
    """Returns whether a connection that resumed by default was relieved so soon that the next one received all events.

    It is False if clocks differ, because the connection may then have opened too late. It is also False if the next
    connection opened later than upstreams are sure to keep events. A connection that was relieved early counts only if
    all were.
    """
    schedule, links = world.schedule, world.upstream.links
    is_unproved = gap.to_ms - gap.from_ms > KEPT_MS or has_restart_between(world, gap.from_ms - KEPT_MS, gap.to_ms)
    if not schedule.is_left_to_default or schedule.skew_ms or is_unproved:
        return False
    after = [link for link in links if (link.opened_ms or 0) >= gap.to_ms - LATE_MS]
    lasting = [link for link in after if _has_lasted(world, records, link, gap.to_ms)] or after
    next_ms = min((link.opened_ms or 0 for link in lasting), default=gap.to_ms)
    return gap.from_ms + LATE_MS > next_ms - KEPT_MS


def _asked_before_ms(world: World) -> int:
    """Returns by how much a connection's cursor may be older than the end of the connection before it."""
    # Events that wait for a segment are not stored yet, so the cursor is behind them.
    return world.schedule.flush_ms + ASKED_BEFORE_MS


def _has_lasted(world: World, records: list[Record], link: Link, until_ms: int) -> bool:
    """Returns whether a connection lasted beyond `until_ms` and did not break off before it had caught up."""
    if link.opened_ms is None or link.is_open:
        return link.is_open
    lived_ms = last_good_ms(world, records, link) - link.opened_ms
    return (link.over_ms or 0) > until_ms and (not link.asks or lived_ms > _catch_up_ms(world, records, link))


def _asked_in_vain(world: World, records: list[Record], gap: Gap, parts: list[Gap], slack_ms: int) -> bool:
    """Returns whether the connections that ended the gap could not receive its events, or none has ended it."""
    schedule = world.schedule
    reach_ms = schedule.memory.reach_ms(schedule.skew_ms) if schedule.resumes else 0
    if reach_ms == 0:
        return True
    ended_by = {part.fence for part in parts}
    # A connection whose cursor was refused as too old never opens.
    answered = [
        (link, link.closed_ms if link.opened_ms is None and link.has_forgotten else link.opened_ms)
        for link in world.upstream.links
    ]
    about = [link for link, at_ms in answered if gap.from_ms - slack_ms <= (at_ms or 0) <= gap.to_ms + slack_ms]
    late = [link for link in about if link.fence in ended_by]
    # After a stop there is no connection until the next start, and the first ones after it may break off.
    after = [link for link, at_ms in answered if (at_ms or 0) > gap.to_ms and link not in about]
    while after and not any(_has_lasted(world, records, link, gap.to_ms + slack_ms) for link in about):
        late.append(after.pop(0))
        about.append(late[-1])
    # After a stop, the gap's events were requested later than the gap ended.
    asked_ms = max([gap.to_ms, *(link.opened_ms for link in late if link.opened_ms is not None)])
    if reach_ms is not None and asked_ms - gap.from_ms + _asked_before_ms(world) + slack_ms > reach_ms:
        return True
    afresh = any(
        link.cursor is None or link.has_forgotten or former_event(world, link) is not None or is_doubtful(world, link)
        for link in about
    )
    # If no connection is open, an open gap is left to the next one.
    return afresh or any(part.state == LOST for part in parts) or not world.upstream.open_links


def _has_caught_up(world: World, records: list[Record], link: Link, gap: Gap) -> bool:
    """Returns whether a connection within the gap certainly lasted long enough to catch up."""
    assert link.opened_ms is not None
    if link.opened_ms < gap.from_ms or former_event(world, link) is not None:
        return False
    end_ms = min(last_good_ms(world, records, link), gap.to_ms)
    # The function noticed the answer later, and was behind by as much more.
    late_ms = noticed_ms(world, link.opened_ms) - link.opened_ms
    lived_ms = end_ms - link.opened_ms - 2 * late_ms
    if link.function.was_frozen:
        # What came while it stood still proves nothing if the connection is stopped right afterwards.
        lived_ms -= length_ms((max(at_ms, link.opened_ms), min(to_ms, end_ms)) for at_ms, to_ms in standstills(world))
    return lived_ms > _catch_up_ms(world, records, link, gap.from_ms)


def _is_catching_up(world: World, records: list[Record], fence: int = 0) -> bool:
    """Returns whether an open connection may not have caught up by its last received byte.

    With a fencing token other than 0 only that connection counts; it may also have ended, if it is the newest.
    """
    newest = [link for link in world.upstream.links if link.opened_ms is not None][-1:] if fence else []
    return any(
        min(last_good_ms(world, records, link), link.last_byte_ms) - (link.opened_ms or 0)
        <= _catch_up_ms(world, records, link)
        for link in [*newest, *world.upstream.open_links]
        if link.asks and fence in (0, link.fence)
    )


def _catch_up_ms(world: World, records: list[Record], link: Link, since_ms: int | None = None) -> int:
    """Returns the longest time until a connection is known to have caught up."""
    assert link.opened_ms is not None
    asked_ms = _cursor_ms(world, records, link)
    return link.opened_ms - (asked_ms if since_ms is None else min(since_ms, asked_ms)) + _asked_before_ms(world)


def _cursor_ms(world: World, records: list[Record], link: Link) -> int:
    """Returns the earliest instant from which a connection may have requested events.

    It resumed from the cursor of the newest connection before it; an older one that outlives that stores events but
    moves no cursor. While the newest was catching up, its cursor may have been as old as the one that it had resumed
    from itself. If it saved none, the request begins with the event after that older cursor.
    """
    assert link.opened_ms is not None
    asks_ms = world.upstream.emitted_ms[link.cursor + 1 : link.cursor + 2] if link.cursor is not None else []
    return min([_newest_cursor_ms(world, records, link), *asks_ms])


def _newest_cursor_ms(world: World, records: list[Record], link: Link) -> int:
    assert link.opened_ms is not None
    links = world.upstream.links
    before = [other for other in links[: link.number] if other.opened_ms is not None]
    if not before:
        return link.opened_ms
    newest = before[-1]
    assert newest.opened_ms is not None
    # If a connection left no end, only its last record shows how far it had come.
    own = [record for record in records if record.fence == newest.fence]
    has_end = any(record.closed_ms is not None for record in own)
    late_ms = 0 if has_end else _asked_before_ms(world)
    asked_ms = min(newest.opened_ms, _cursor_ms(world, records, newest) - late_ms)
    # Events from a silence before its end are sent again too, because its peer may have been dead. Events that arrived
    # while its function stood still may have arrived at any time since the function last ran.
    is_told = newest.function.was_frozen and not has_end
    told_ms = [record.heard_ms - newest.function.skew_ms for record in own if is_told and record.heard_ms is not None]
    end_ms = min([link.opened_ms, last_good_ms(world, records, newest), newest.last_byte_ms, *told_ms])
    return min(end_ms, asked_ms + SPEED * (end_ms - newest.opened_ms))


def _has_broken_off(world: World, records: list[Record], from_ms: int, to_ms: int) -> bool:
    """Returns whether a resuming connection ended before it was known to have caught up.

    Such a connection began and ended in [from_ms, to_ms), or it was too short to receive the requested events. All of
    the short-lived connections right after a long outage are too short.
    """
    for link in world.upstream.links:
        if link.opened_ms is None or not link.asks or link.opened_ms > to_ms:
            continue
        end_ms = last_good_ms(world, records, link)
        behind_ms = max(0, link.opened_ms - _cursor_ms(world, records, link))
        # If the one before was as young, it knew its own predecessors by old records: the time since counts twice.
        since_ms = link.asked_ms - ASKED_BEFORE_MS
        is_second = any((one.opened_ms or 0) > since_ms for one in world.upstream.links[: link.number])
        times = 2 if behind_ms and is_second and world.schedule.is_left_to_default else 1
        is_short = end_ms - link.opened_ms <= behind_ms + times * ASKED_BEFORE_MS
        if end_ms >= from_ms and (is_short or (from_ms <= link.opened_ms and end_ms <= to_ms)):
            return True
    return _is_after_an_outage(world, from_ms, to_ms)


def _is_after_an_outage(world: World, from_ms: int, to_ms: int) -> bool:
    """Returns whether connections that resumed by default made up for an outage then, as far as they knew.

    Those of a group or of two hot lanes know one another by old records, or begin before the one before has caught up.
    The events that they bring count by time alone, even those that the upstream forgot. So all of them together take as
    long as the outage, plus the time that each knew too late of the one before, by another clock.
    """
    late_ms = LATE_RECORD_MS + 2 * world.schedule.skew_ms
    if not (world.schedule.is_left_to_default and (world.schedule.together or world.schedule.hot)):
        return False
    for began_ms, over_ms in uncovered(world, world.origin_ms, from_ms):
        count = sum(over_ms <= (link.opened_ms or 0) <= to_ms for link in world.upstream.links)
        if to_ms <= over_ms + (over_ms - began_ms) + count * late_ms:
            return True
    return False
