"""Finds the events of a run that are missing, and the excuse that some of them have (docs/chaos.md gives the reasons).

Every event after the first connection must be stored, or lie in an open gap of the ledger. Invariant: an event has an
excuse only if the fault that made it unknowable hit the connection that should have received it.
"""

import sys
from collections.abc import Iterator
from functools import partial

from handlers.connection.evidence import STOPPED, Record
from handlers.connection.gap_record import LOST, Gap
from handlers.connection.ledger import correct_losses
from handlers.connection.liveness import BROKEN
from handlers.store.control_record import to_record
from local.chaos import restarts
from local.chaos.facts import lease, ledger, noticed_ms, open_gaps, uncovered
from local.chaos.schedule import requests
from local.chaos.world import World
from local.simulation.chaotic_upstream import LATE_MS
from local.simulation.links import Link

# How long an event may be on its way to the table.
ON_ITS_WAY_MS = 4_000
# How a connection ends that was closed or evicted before its silence lasted long enough to prove its peer dead.
LET_GO = ("closed_here", "ended_by_upstream")
# The faults with which a store refuses a connection's records.
OF_THE_STORE = ("throttles", "unknown outcomes", "slow store")
# The excuses.
PEER_DIED = "its peer fell silent, and the connection was let go before that counts as dead"
CAME_LATE = "it came late, or never, and the connection's end is not known"
CLOCKS_DIFFER = "in a gap that is shorter than two clocks differ"
NOT_REQUESTED = "nobody asked for the stream after a stop"
NO_NUMBER = "lost before the first message of a socket that began afresh, so its numbers show no hole"
TO_COME = "still to come on the connection that catches up"
FOR_NEXT_CONNECTION = "after the cursor, for the next connection to request"


def missing(world: World) -> dict[int, str]:
    """Returns the events that are neither stored nor in a recorded gap, each with its excuse, "" for none."""
    records = ledger(world)
    first_ms = min(_written_openings(world, records), default=world.clock.now_ms())
    recorded = open_gaps(world, records)
    # One function's clock measures each end of a gap, and half an event may have arrived before the rest was cut off.
    slack_ms = world.schedule.skew_ms + LATE_MS
    until_ms = _until_ms(world, records)
    lost = [
        number
        for number, at_ms in enumerate(world.upstream.emitted_ms)
        if first_ms < at_ms <= until_ms
        and number not in world.watch.stored
        and not any(gap.from_ms - slack_ms <= at_ms <= gap.to_ms + slack_ms for gap in recorded)
        and not (number in world.upstream.lost and _is_recorded(world, number, slack_ms))
        and not (world.watch.ids.is_dropped(number) and restarts.is_counted(world, number, slack_ms))
    ]
    if not lost:
        return {}
    excuses = dict(_excuses(world, records))
    # A connection that has not received the notice cannot know of the loss.
    announced = {
        n: excuses.get(n + 1, "") or _late_excuse(world, records, n, slack_ms) for n in lost if n in world.upstream.lost
    }
    return {n: excuses.get(n, "") or announced.get(n, "") for n in lost}


def _written_openings(world: World, records: list[Record]) -> Iterator[int]:
    """Yields the opening of each connection that was, or could have been, recorded."""
    known = {record.fence for record in records} | set(world.watch.stored_by)
    known_links = [world.link_of(fence) for fence in known]
    for link in world.upstream.links:
        if link.opened_ms is not None and (link in known_links or not _could_not_be_recorded(world, link)):
            yield link.opened_ms


def _could_not_be_recorded(world: World, link: Link) -> bool:
    """Returns whether a connection ended before it could be recorded: its function died, or the store refused it."""
    assert link.opened_ms is not None
    end_ms = link.over_ms or world.clock.now_ms()
    refusals = [fault for fault in world.schedule.faults if fault.kind in OF_THE_STORE]
    was_refused = any(
        world.origin_ms + fault.at_ms <= end_ms and link.opened_ms <= world.origin_ms + fault.at_ms + fault.for_ms
        for fault in refusals
    )
    opened_ms = noticed_ms(world, link.opened_ms) if link.function.was_frozen else link.opened_ms
    return end_ms - opened_ms <= ON_ITS_WAY_MS and (was_refused or _was_killed(link))


def _is_recorded(world: World, number: int, slack_ms: int) -> bool:
    """Returns whether a connection that was sent the notice of a lost event has recorded the loss.

    The recorded interval must contain the instant of the loss, or that of the notice if it came late.
    """
    records = ledger(world)
    for link, told in _recorded_losses(world, number):
        (loss,) = correct_losses([told], records)
        at_ms = link.came_ms.get(number + 1, world.upstream.emitted_ms[number])
        # A peer that closes in order counts as having sent everything. If it had not, the next connection counts as
        # having caught up while it still receives the rest, and a loss in there as having happened when its notice
        # came.
        if loss.from_ms - slack_ms <= at_ms <= loss.to_ms + slack_ms or loss.to_ms <= _behind_until_ms(world, link):
            return True
    return False


def _behind_until_ms(world: World, link: Link) -> int:
    """Returns until when a link receives the events that the one before it lacked at an orderly close; 0 if none."""
    before = [one for one in world.upstream.links if one.fence < link.fence and one.opened_ms is not None]
    if not before or not before[-1].waiting or before[-1].ended_by != "ended_by_upstream" or link.opened_ms is None:
        return 0
    return 2 * link.opened_ms - world.upstream.emitted_ms[before[-1].waiting[0]]


def _recorded_losses(world: World, number: int) -> Iterator[tuple[Link, Gap]]:
    """Yields the links that were sent the notice of a lost event, each with the loss that its connection recorded."""
    for (fence, count), (from_ms, to_ms) in world.watch.losses.items():
        link = None if (fence, count) in world.watch.ids.dropped else world.link_of(fence)
        if count and link is not None and link.notices[count - 1] == number + 1:
            yield link, Gap(fence, from_ms, to_ms, "", LOST, count)


def _late_excuse(world: World, records: list[Record], number: int, slack_ms: int) -> str:
    """Returns the excuse of a loss that was recorded only after the end of a connection that had fallen silent.

    The notice was on its way to that connection when it was closed, before the silence proved its peer dead; or when it
    was killed, before it could record the silence; or the store refused that record.
    """
    waited = [link for link in world.upstream.links if number + 1 in link.waiting]
    unheard = _links_without_end(world, records)
    links = [link for link in waited if link.ended_by in LET_GO or _was_killed(link) or link in unheard]
    let_go_ms = min((link.closed_ms for link in links if link.closed_ms is not None), default=world.clock.now_ms())
    is_told = any(let_go_ms <= loss.to_ms + slack_ms for _, loss in _recorded_losses(world, number))
    return PEER_DIED if is_told else ""


def _until_ms(world: World, records: list[Record]) -> int:
    """Returns until when every event must be accounted for."""
    now_ms = world.clock.now_ms()
    if not uncovered(world, now_ms - 1, now_ms):
        return now_ms - ON_ITS_WAY_MS
    # No connection is open: events after the last recorded end are left to the next connection.
    return max((at_ms for _, at_ms in _known_ends(world, records)), default=0) - LATE_MS


def _known_ends(world: World, records: list[Record]) -> list[tuple[Record, int]]:
    """Returns each record with the instant until which its connection was good, by the world's clock."""
    skews = {link.fence: link.function.skew_ms for link in world.upstream.links}
    return [(record, record.last_ms - skews.get(record.fence, 0)) for record in records]


def _excuses(world: World, records: list[Record]) -> Iterator[tuple[int, str]]:
    links, until_ms = world.upstream.links, world.clock.now_ms()
    unasked = list(_stopped_intervals(world, records))
    for start, end in unasked:
        yield from ((n, NOT_REQUESTED) for n, at_ms in enumerate(world.upstream.emitted_ms) if start <= at_ms <= end)
    for link in world.upstream.open_links:
        yield from ((number, TO_COME) for number in link.backlog)
    for link in links:
        if link.peer is not None and link.cursor is None and link.opened_ms is not None:
            unsaid = world.upstream.lost & set(range(min(link.sent, default=0)))
            yield from ((n, NO_NUMBER) for n in unsaid if world.upstream.emitted_ms[n] >= link.opened_ms)
    if world.schedule.resumes and uncovered(world, until_ms - 1, until_ms):
        cursor = world.watch.ids.event_of_cursor(int(to_record(lease(world)).cursor or -1), until_ms)
        if cursor is not None or not world.schedule.can_forget:
            yield from (
                (number, FOR_NEXT_CONNECTION)
                for number in range((-1 if cursor is None else cursor) + 1, len(world.upstream.emitted_ms))
            )
    # An upstream that forgets cannot send everything again; neither can one that never resumes.
    yield from restarts.excuses(world)
    if world.schedule.resumes and not world.schedule.can_forget:
        # Only the connections count before the last one that began without a cursor, because no later one could resume
        # for them.
        until_ms = max((link.opened_ms or 0 for link in links if link.cursor is None), default=0)
        links = [link for link in links if link.asked_ms < until_ms]
    differ_ms = 2 * world.schedule.skew_ms
    told_until_ms = _recorded_until_ms(world, records)
    killed_ms = {_row_span(world, told_until_ms, link, link.opened_ms or 0)[1] for link in told_until_ms}
    for start, opened_ms in uncovered(world, world.origin_ms, until_ms, span=partial(_row_span, world, told_until_ms)):
        # A stop ends the time in which the stream is wanted, so two clocks may leave no gap between a drop and the
        # stop. But the events that a killed connection had read are in a gap, whatever the clocks say.
        stops = (stop_ms for stop_ms, _ in unasked if start <= stop_ms and start not in killed_ms)
        end = min([opened_ms, *stops])
        if end - start <= differ_ms:
            # If it begins longer before the next opening, it is a gap by any two clocks. Events that waited for a
            # segment died with their function, so the gap in the ledger begins with them.
            from_ms = max(start - world.schedule.flush_ms, end - differ_ms) - LATE_MS
            emitted = enumerate(world.upstream.emitted_ms)
            yield from ((n, CLOCKS_DIFFER) for n, at_ms in emitted if from_ms <= at_ms <= end)
    unheard = _links_without_end(world, records)
    for link in links:
        if link in unheard or _was_killed(link):
            late = [number for number in link.delayed if _was_on_its_way(world, link, number)]
            yield from ((number, CAME_LATE) for number in [*late, *_cut_off_events(world, link)])
        elif link.ended_by in LET_GO:
            yield from ((number, PEER_DIED) for number in link.waiting)


def _stopped_intervals(world: World, records: list[Record]) -> Iterator[tuple[int, int]]:
    """Yields the intervals after a stop: to the first opening after the next POST.

    Each begins with the last recorded end, because a connection may end after the stop, and a handover that meets the
    stop even opens after it.
    """
    skews = {link.fence: link.function.skew_ms for link in world.upstream.links}
    asked = [(world.origin_ms + at_ms, method) for at_ms, method in requests(world.schedule)]
    for stop_ms in (at_ms for at_ms, method in asked if method == "DELETE"):
        post_ms = min((at_ms for at_ms, method in asked if method == "POST" and at_ms > stop_ms), default=sys.maxsize)
        before = [
            (record, end_ms)
            for record, end_ms in _known_ends(world, records)
            if record.opened_ms - skews.get(record.fence, 0) <= post_ms
        ]
        closed = [end_ms for _, end_ms in before]
        opened = sorted(opened_ms for opened_ms in _written_openings(world, records) if opened_ms > post_ms)
        until_ms = min(opened, default=sys.maxsize)
        if not _has_outlived(world, before, post_ms) or _was_void(world, post_ms, until_ms):
            yield max([stop_ms, *closed]), until_ms
        # A connection of the execution before may open after the POST and still see the stop, which lasts until the new
        # execution has claimed the stream.
        stops = (at_ms for at_ms, method in asked if method == "DELETE" and at_ms > post_ms)
        again_ms = min(stops, default=sys.maxsize)
        for record, end_ms in _known_ends(world, records):
            is_late = record.opened_ms - skews.get(record.fence, 0) > post_ms
            if is_late and record.ended_by == STOPPED and end_ms < again_ms:
                yield end_ms, next((opened_ms for opened_ms in opened if opened_ms > end_ms), sys.maxsize)


def _was_void(world: World, post_ms: int, until_ms: int) -> bool:
    """Returns whether an execution of the POST was aborted before it had begun, so that the stop remained."""
    begun = {function.task.invocation.execution for function in world.functions}
    return any(
        one.status == "ABORTED" and one.arn not in begun and post_ms <= one.started_ms < until_ms
        for one in world.executions
    )


def _has_outlived(world: World, before: list[tuple[Record, int]], post_ms: int) -> bool:
    """Returns whether a connection outlived the answer to the POST without having seen the stop before it."""
    answered_ms = min((at_ms for at_ms in world.answered if at_ms >= post_ms), default=post_ms)
    until_ms = answered_ms + 2 * world.schedule.skew_ms
    return any(end_ms > until_ms and record.ended_by != STOPPED for record, end_ms in before)


def _links_without_end(world: World, records: list[Record]) -> list[Link]:
    """Returns the connections whose end is not in the ledger."""
    untold = {record.fence for record in records if record.closed_ms is None}
    return [link for link in world.upstream.links if link.fence in untold]


def _recorded_until_ms(world: World, records: list[Record]) -> dict[Link, int]:
    """Returns until when each connection recorded that it was connected, if it could not record its end.

    It was killed, or the store refused the record; its upstream may have closed it before, while its function stood
    still. The instants are by the world's clock.
    """
    seen_ms = {record.fence: record.seen_ms for record in records if record.closed_ms is None}
    return {
        link: seen_ms[link.fence] - link.function.skew_ms
        for link in world.upstream.links
        if link.fence in seen_ms and link.over_ms is not None
    }


def _row_span(world: World, told_until_ms: dict[Link, int], link: Link, opened_ms: int) -> tuple[int, int]:
    """Returns the interval for which the ledger has the connection.

    It ends with the last byte if the connection broke. If the connection was killed, it ends before the events that
    were read but not stored. If the connection was still catching up, it ends before the events not yet sent.
    """
    last_ms = link.last_byte_ms if link.ended_by in BROKEN else link.closed_ms
    if link.backlog and not link.is_open:
        last_ms = world.upstream.emitted_ms[link.backlog[0]]
    ends = [end for end in (last_ms, link.function.died_ms, told_until_ms.get(link)) if end is not None]
    return opened_ms, max(opened_ms, min(ends, default=sys.maxsize))


def _was_on_its_way(world: World, link: Link, number: int) -> bool:
    """Returns whether an event of a silence had not arrived, or only just, when the connection ended.

    An event that arrives while the function stands still counts from when the function goes on.
    """
    if (came_ms := link.came_ms.get(number)) is None or link.over_ms is None:
        return True
    return link.over_ms - (noticed_ms(world, came_ms) if link.function.was_frozen else came_ms) <= ON_ITS_WAY_MS


def _cut_off_events(world: World, link: Link) -> Iterator[int]:
    """Yields the events whose frames were cut off by the silence."""
    rest_bytes = len(link.held) if link.silent else 0
    for number in reversed(link.sent):
        if rest_bytes <= 0:
            return
        yield number
        rest_bytes -= len(world.upstream.frame(number))


def _was_killed(link: Link) -> bool:
    died_ms = link.function.died_ms
    return died_ms is not None and (link.closed_ms is None or died_ms <= link.closed_ms)
