"""Finds the connections of a run that ignored a back-off, had no random pause before, or began too late to last.

After a connection that was refused or not answered, the upstream is owed a back-off, by its own clock. Invariant: a
connection is blamed only if its function checked after the failed function had recorded the failure, or should have.
"""

import itertools

from handlers.connection.backoff import ACCEPTED_AFTER_MS, JITTER, REFUSAL_PACE, TRY_MS, FailureKind
from handlers.connection.failures import STUCK_AFTER
from local.chaos.draws import REFUSALS
from local.chaos.facts import standstills
from local.chaos.world import World
from local.simulation.chaotic_upstream import CONNECT_TIMEOUT_MS
from local.simulation.links import Link

# How a link ends that was never answered.
UNANSWERED = frozenset({"refused", "unreachable"})
# A connection has recorded that it is open at least this long before its end.
RENEWAL_MS = 2_000
# Refusals that may be temporary.
PASSING = frozenset(REFUSALS)
# The faults that refuse.
REFUSED = ("rejection", "ticket refused")
# The time that a reconnection in place must have left, in margins: one for leaving, and one to be worth an eviction.
LEAST_MARGINS = 2


def impatient(world: World) -> list[str]:
    """Returns the connections that came before the end of a back-off, or together with another try after it."""
    failures = _failures(world)
    return [*_early_tries(world, failures), *_simultaneous_tries(world)]


def most_ms(world: World) -> int:
    """Returns the longest back-off after a failure, plus the time of another try that may come first; 0 for none."""
    owed_ms = [world.schedule.retry_after_s * 1000]
    owed_ms += [round(pace.max_s * 1000) for _, pace in world.version.profile.backoff]
    refused_ms = sum(fault.for_ms for fault in world.schedule.faults if fault.kind in REFUSED)
    if refused_ms:
        # The back-off after refusals doubles each time.
        longest_ms = min(refused_ms + REFUSAL_PACE.backoff_ms(1), 1000 * REFUSAL_PACE.max_s)
        owed_ms.append(round((1 + JITTER) * longest_ms))
    return max(owed_ms) + CONNECT_TIMEOUT_MS + TRY_MS if any(owed_ms) else 0


def in_step(world: World) -> list[str]:
    """Returns the reconnections in place after several failures that had no random pause and no back-off instead."""
    if world.schedule.pace or world.schedule.retry_after_s:
        return []
    return [
        f"link {link.number} came back in place after {link.again.failures} failures in a row, and not by chance"
        for link in world.upstream.links
        if link.again is not None
        and link.again.failures > 1
        and not link.again.draw_most_ms
        # A person's request ends a pause.
        and not any(abs(at_ms - link.asked_ms) <= RENEWAL_MS for at_ms in world.answered)
        and not _has_rested(world.upstream.links[: link.number], link)
    ]


def _has_rested(before: list[Link], link: Link) -> bool:
    """Returns whether the function's previous link led to a back-off, as a refusal or a stuck stream does."""
    own = [other for other in before if other.client is link.client]
    # The last connections requested the same, and got nothing.
    sent = {other.sent_id for other in own[-STUCK_AFTER:]}
    is_stuck = len(own) >= STUCK_AFTER and len(sent) == 1 and None not in sent
    return bool(own) and (own[-1].refused_with in PASSING or is_stuck)


def hasty(world: World) -> list[str]:
    """Returns the executions that were rejected too early: refusals were short, or a connection interrupted them."""
    limit_ms = world.schedule.reject_after_s * 1000
    texts = []
    for name, ended_ms in world.rejections if limit_ms else ():
        links = [link for link in world.upstream.links if link.closed_ms is not None and link.closed_ms <= ended_ms]
        refused_ms = [link.closed_ms or 0 for link in links if link.refused_with in PASSING]
        # Each function counts by its own clock, and a frozen one is notified late. A connection that was too short to
        # be recorded does not count.
        still = [(from_ms, to_ms) for from_ms, to_ms in standstills(world) if from_ms < ended_ms]
        frozen_ms = max((to_ms - from_ms for from_ms, to_ms in still if to_ms > min(refused_ms)), default=0)
        slack_ms = RENEWAL_MS + 2 * world.schedule.skew_ms + frozen_ms
        since_ms = max(refused_ms) - limit_ms + slack_ms
        lived = [link for link in links if link.marked_ms and link.opened_ms]
        lived_ms = [at_ms for one in lived if (at_ms := one.over_ms or 0) - (one.opened_ms or 0) > slack_ms]
        reading = [link for link in world.upstream.links if link.marked_ms and (link.over_ms or ended_ms) >= ended_ms]
        lived_ms += [ended_ms for link in reading if (link.marked_ms or 0) < ended_ms - slack_ms]
        if min(refused_ms) > since_ms or max(lived_ms, default=0) > since_ms:
            texts.append(f"{name} was rejected before it was refused for {limit_ms / 1000:g} s without a pause")
    return texts


def too_late(world: World) -> list[str]:
    """Returns the reconnections in place that began with hardly more time than leaving takes."""
    return [
        f"link {link.number} was begun in place with {link.again.margins_left:.2f} margins left of its function's time"
        for link in world.upstream.links
        if link.again is not None and link.again.margins_left <= LEAST_MARGINS
    ]


def _failures(world: World) -> list[tuple[int, Link]]:
    """Returns the links that lead to a back-off, in the order of their ends, each with the instant of its end.

    The instants are by the upstream's clock.
    """
    failures: list[tuple[int, Link]] = []
    before: tuple[Link, int] | None = None
    first_ms = min((link.closed_ms or 0 for link in world.upstream.links if link.refused_with in PASSING), default=0)
    limit_ms = world.schedule.reject_after_s * 1000
    profile = world.version.profile  # no redeployment changes a pace
    ended = [link for link in world.upstream.links if link.settled_ms is not None and link.closed_ms is not None]
    for link in sorted(ended, key=lambda link: (link.settled_ms, link.closed_ms)):
        kind = _kind(world, link)
        if kind is None:
            before = None
            continue
        pace = profile.pace(kind) if kind != "refused" else REFUSAL_PACE
        is_next = before is not None and _kind(world, before[0]) == kind and _must_know_end(link, before[0])
        is_next = is_next and before is not None and not _lived_between(world, before[0], link)
        count = before[1] + 1 if before is not None and is_next else 1
        before = (link, count)
        assert link.closed_ms is not None
        owed_ms = pace.backoff_ms(count) if pace is not None else 0
        if kind == "refused":  # the last try comes when the refusal becomes final
            owed_ms = min(owed_ms, max(0, first_ms + limit_ms - link.closed_ms))
        owed_ms = max(link.retry_after_s * 1000, owed_ms)
        failures.append((link.closed_ms + owed_ms, link))
    return failures


def _lived_between(world: World, before: Link, link: Link) -> bool:
    """Returns whether a connection between two failures was open long enough to end the series."""
    since_ms, until_ms = before.closed_ms or 0, link.asked_ms
    return any(
        other.opened_ms is not None
        and since_ms <= other.opened_ms
        and min(other.closed_ms or until_ms, until_ms) - other.opened_ms >= ACCEPTED_AFTER_MS
        for other in world.upstream.links
    )


def _kind(world: World, link: Link) -> FailureKind | None:
    if link.refused_with in PASSING:
        # A 404 may refuse only the cursor, if that was sent by default.
        is_of_cursor = link.refused_with == 404 and link.asks and world.schedule.is_left_to_default
        return "refused" if world.schedule.reject_after_s and not is_of_cursor else None
    if link.refused_with:
        # 204, and refusals that a retry cannot help, end the stream: there is no back-off.
        return "throttled" if link.refused_with in (420, 429) else "http" if link.refused_with >= 500 else None
    if link.opened_ms is not None or link.ended_by not in UNANSWERED:
        return None
    # If another connection was answered meanwhile, this one was relieved: the upstream does answer.
    opened = [other.opened_ms for other in world.upstream.links if other.opened_ms is not None]
    return None if any(link.asked_ms <= at_ms <= (link.closed_ms or 0) for at_ms in opened) else "network"


def _must_know_end(link: Link, failed: Link) -> bool:
    """Returns whether the function that opened `link` must have known how `failed` ended."""
    assert failed.settled_ms is not None
    is_same = link.client is failed.client and link.asked_ms > failed.settled_ms
    return is_same or link.checked_ms > failed.settled_ms


def _early_tries(world: World, failures: list[tuple[int, Link]]) -> list[str]:
    # One function records the end of the back-off and another reads it, each by its own clock.
    differ_ms = 2 * world.schedule.skew_ms
    return [
        f"link {link.number} came {(until_ms - link.asked_ms) / 1000:.3f} s before the end of the"
        f" rest that link {failed.number} owed"
        for until_ms, failed in failures
        for link in world.upstream.links
        if link.asked_ms < until_ms - differ_ms and link is not failed and _must_know_end(link, failed)
    ]


def _simultaneous_tries(world: World) -> list[str]:
    """Returns the tries that came at once: after a shared back-off only one may try, until it must be answered."""
    tries = [link for link in world.upstream.links if link.took_ms is not None]
    texts = []
    for earlier, later in itertools.pairwise(tries):
        assert earlier.took_ms is not None
        over_ms = earlier.took_ms + CONNECT_TIMEOUT_MS + TRY_MS - 2 * world.schedule.skew_ms
        ends = [at_ms for at_ms in (earlier.opened_ms, earlier.over_ms) if at_ms is not None]
        if earlier.client is not later.client and later.asked_ms < min([over_ms, *ends]):
            names = " and ".join(str(link.number) for link in (earlier, later))
            texts.append(f"links {names} tried at once after a rest")
    return texts
