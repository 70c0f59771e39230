"""Decides which connections of a run came too early or too late.

Too early: before a rest that their upstream was owed was over, or in place without a pause drawn by chance, so that all
that fail together would come back together. Too late: in place, with hardly more time left than leaving takes.

The upstream counts: what it refused with Retry-After, refused, or did not answer owes it a rest, by its own clock. From
the instant on at which the failed connection's function has written that down, or should have, whoever looks must wait.
It reads the world after the run. Invariant: a connection is blamed only where its function looked after that instant.
"""

from __future__ import annotations

import itertools

from handlers.connection.backoff import FailureKind
from handlers.connection.reconnection import TRY_MS
from local.chaos.chaotic_upstream import CONNECT_TIMEOUT_MS
from local.chaos.link import Link
from local.chaos.world import World

# Ends of a link that was never answered.
UNANSWERED = frozenset({"refused", "unreachable"})
# What a connection that is begun in place must have left: one margin for leaving, and one to be worth an eviction.
LEAST_MARGINS = 2


def impatient(world: World) -> list[str]:
    """What came before a rest was over, and what came beside another try after one."""
    failures = _failures(world)
    return [*_early(world, failures), *_together(world)]


def most_ms(world: World) -> int:
    """The longest rest that may be owed after a failure; another try may have to be waited for then."""
    owed_ms = [world.schedule.retry_after_s * 1000]
    owed_ms += [round(pace.max_s * 1000) for _, pace in world.version.profile.backoff]
    return max(owed_ms) + CONNECT_TIMEOUT_MS + TRY_MS if any(owed_ms) else 0


def in_step(world: World) -> list[str]:
    """What came back in place after failures in a row without a drawn pause, where no rest is owed in its stead."""
    if world.schedule.pace or world.schedule.retry_after_s:
        return []
    return [
        f"link {number} came back in place after {link.again.failures} failures in a row, and not by chance"
        for number, link in enumerate(world.upstream.links)
        if link.again is not None and link.again.failures > 1 and not link.again.draw_most_ms
    ]


def too_late(world: World) -> list[str]:
    """What was begun in place when there was hardly time for more than leaving."""
    return [
        f"link {number} was begun in place with {link.again.margins_left:.2f} margins left of its function's time"
        for number, link in enumerate(world.upstream.links)
        if link.again is not None and link.again.margins_left <= LEAST_MARGINS
    ]


def _failures(world: World) -> list[tuple[int, Link]]:
    """The links that owe a rest, with the instant of the upstream until which it lasts, in the order of their ends."""
    failures: list[tuple[int, Link]] = []
    before: tuple[Link, int] | None = None
    profile = world.version.profile  # no redeployment changes a pace
    ended = [link for link in world.upstream.links if link.settled_ms is not None and link.closed_ms is not None]
    for link in sorted(ended, key=lambda link: (link.settled_ms, link.closed_ms)):
        kind = _kind(link)
        if kind is None:
            before = None
            continue
        pace = profile.pace(kind)
        is_next = before is not None and _kind(before[0]) == kind and _knows(link, before[0])
        count = before[1] + 1 if before is not None and is_next else 1
        before = (link, count)
        owed_ms = max(link.retry_after_s * 1000, pace.rest_ms(count) if pace is not None else 0)
        assert link.closed_ms is not None
        failures.append((link.closed_ms + owed_ms, link))
    return failures


def _kind(link: Link) -> FailureKind | None:
    if link.refused_with:
        # 204 and what a retry cannot help owe nothing: they end the stream.
        return "throttled" if link.refused_with in (420, 429) else "http" if link.refused_with >= 500 else None
    return "network" if link.opened_ms is None and link.ended_by in UNANSWERED else None


def _knows(link: Link, failed: Link) -> bool:
    """Whether the function that opened `link` must have known how `failed` ended."""
    assert failed.settled_ms is not None
    is_same = link.client is failed.client and link.asked_ms > failed.settled_ms
    return is_same or link.looked_ms > failed.settled_ms


def _early(world: World, failures: list[tuple[int, Link]]) -> list[str]:
    # One function writes down until when the rest lasts, another reads it: each by its own clock.
    differ_ms = 2 * world.schedule.skew_ms
    return [
        f"link {world.upstream.links.index(link)} came {(until_ms - link.asked_ms) / 1000:.3f} s before the end of the"
        f" rest that link {world.upstream.links.index(failed)} owed"
        for until_ms, failed in failures
        for link in world.upstream.links
        if link.asked_ms < until_ms - differ_ms and link is not failed and _knows(link, failed)
    ]


def _together(world: World) -> list[str]:
    """Of those that rested together one tries: until it was answered, or must have been, no other does."""
    tries = [link for link in world.upstream.links if link.took_ms is not None]
    texts = []
    for earlier, later in itertools.pairwise(tries):
        assert earlier.took_ms is not None
        over_ms = earlier.took_ms + CONNECT_TIMEOUT_MS + TRY_MS - 2 * world.schedule.skew_ms
        ends = [at_ms for at_ms in (earlier.opened_ms, earlier.closed_ms, earlier.client.died_ms) if at_ms is not None]
        if earlier.client is not later.client and later.asked_ms < min([over_ms, *ends]):
            names = " and ".join(str(world.upstream.links.index(link)) for link in (earlier, later))
            texts.append(f"links {names} tried at once after a rest")
    return texts
