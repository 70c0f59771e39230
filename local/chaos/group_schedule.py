"""Decides the faults in groups of streams: various upstreams, joins and leaves, and the faults of each stream.

A schedule of groups has streams in `group`; a fault of functions, the store or the machine affects all of them.
Invariant: the same seed gives the same schedule.
"""

import random
from dataclasses import replace

from local.chaos import draws
from local.chaos.draws import (
    FIRST_MS,
    GUARDED,
    KINDS,
    LAST_MS,
    OF_FUNCTIONS,
    maybe_on_socket,
    shorten_fault,
    with_guard,
    with_restart,
    with_socket,
    with_store,
)
from local.chaos.plans import Fault, in_order
from local.chaos.schedule import SHARED, Schedule, requests

# One of GROUP_EVERY seeds has groups: the one with this remainder.
GROUP_EVERY, GROUP_REST = 10, 7
# The faults near the restart of one stream's upstream.
APART = ("no listener", "refusals", "reset", "pause")
# The numbers of streams: mostly few, because each costs as much as a schedule of its own.
SIZES = (*(2,) * 8, *(3,) * 8, *(4,) * 4, 5, 6, 8, 12, 20)
MOST_SHARED, MOST_OWN = 4, 3
# The share of streams without a fault of their own.
CALM = 0.4
# The share of schedules without faults that affect all streams: there the calm streams must not notice anything.
UNSHARED = 0.35
# Redeployments and people's stops of an execution are drawn separately (`_with_people`).
ALL = [kind for kind in KINDS if kind in OF_FUNCTIONS | SHARED and kind != "redeploy"]
OWN = [kind for kind in KINDS if kind not in OF_FUNCTIONS | SHARED and "abort" not in kind]
# A flood: an upstream sends `FLOOD` events at once, every `FLOOD_EVERY_MS`.
FLOOD, FLOOD_EVERY_MS = 15, 100
# How often a flood replaces another fault, and how often a stream leaves and returns.
FLOODS, LEAVES = 0.08, 0.25
# How often there are redeployments, how often a person stops the executions, and how often the streams are not
# requested again for long: for less than a function lives, for more than that, or until all functions have long ended.
REDEPLOYED, ABORTED, ABANDONED = 0.3, 0.2, 0.4
ABANDONED_MS = (15_000, 60_000, 150_000)
# How often executions are stopped and not all streams are requested again, in schedules without another stop: the watch
# must find that, and comes within `WATCHED_MS`. In half of these a person requests one stream again.
FORSAKEN, WATCHED_MS = 0.06, 60_000
# How often a stream that joins after a redeployment got its profile with that redeployment.
NEW_PROFILES = 0.5
RETURNS_MS = (400, 3_000, 15_000, 60_000)


def generate(seed: int, store: str = "", *, groups: bool = False) -> Schedule:
    """Returns the schedule of a seed: one of groups for a tenth of the seeds, or for all with `groups`."""
    if groups or seed % GROUP_EVERY == GROUP_REST:
        return generate_groups(seed, store)
    return draws.generate(seed, store)


def generate_groups(seed: int, store: str = "") -> Schedule:
    """Returns the schedule of groups for a seed."""
    drawn = random.Random(f"groups {seed}")
    count = drawn.choice(SIZES)
    shared = 0 if drawn.random() < UNSHARED else drawn.randrange(1, MOST_SHARED + 1)
    whole = draws.draw_schedule(seed, drawn, ALL, shared)
    # Some schedules fit into one group, some fill several groups one after the other.
    together = drawn.choice((20, 20, max(2, count // 2)))
    whole = replace(whole, policy="tolerates", hot=False, together=together, faults=whole.faults)
    streams = tuple(_draw_stream(seed, drawn, number, whole, store) for number in range(count))
    if maybe_on_socket(whole).socket:  # then about every second stream
        apart = random.Random(f"sockets of groups {seed}")
        streams = tuple(with_socket(one) if apart.random() < 0.5 else one for one in streams)
    if draws.is_restarted(seed):  # about every second stream too
        apart = random.Random(f"restarts of groups {seed}")
        streams = tuple(with_restart(one, apart, APART) if apart.random() < 0.5 else one for one in streams)
    still, meanwhile = draws.draw_standstill(seed)
    whole = replace(whole, faults=in_order((*whole.faults, *still)))
    streams = (replace(streams[0], faults=in_order((*streams[0].faults, *meanwhile))), *streams[1:])
    if any(one.policy == "forbids" for one in streams):
        whole = replace(whole, faults=tuple(shorten_fault(fault, whole.skew_ms) for fault in whole.faults))
    return _maybe_guarded(_with_people(replace(whole, most_items=draws.draw_page_limit(seed), group=streams)))


def _with_people(schedule: Schedule) -> Schedule:
    """Returns the schedule, perhaps with redeployments, and with stopped executions if faults affect all streams.

    Drawn separately, so that everything else of a seed stays the same.
    """
    drawn = random.Random(f"people of groups {schedule.seed}")
    kinds = ["redeploy"] * (drawn.choice((1, 1, 2)) if drawn.random() < REDEPLOYED else 0)
    kinds += ["abort and post"] if drawn.random() < ABORTED and schedule.faults else []
    done = [Fault(drawn.randrange(FIRST_MS, LAST_MS), kind, *KINDS[kind][1](drawn)) for kind in kinds]
    later = random.Random(f"abandoned groups {schedule.seed}")
    if done and done[-1].kind == "abort and post" and later.random() < ABANDONED:
        done[-1] = replace(done[-1], value=later.choice(ABANDONED_MS))
    return _maybe_with_new_profiles(_maybe_forsaken(replace(schedule, faults=in_order((*schedule.faults, *done)))))


def _maybe_guarded(schedule: Schedule) -> Schedule:
    """Returns the schedule, perhaps with streams that require tokens and tickets, all from the same two servers.

    Drawn separately, so that everything else of a seed stays the same.
    """
    drawn = random.Random(f"guards of groups {schedule.seed}")
    return with_guards(schedule, drawn) if drawn.random() < GUARDED else schedule


def with_guards(schedule: Schedule, drawn: random.Random) -> Schedule:
    """Returns the schedule of groups in which the first stream, and about half of the others, require both."""
    whole = with_guard(schedule, drawn)
    lives_s = whole.token_lives_s
    group = tuple(
        replace(one, token_lives_s=lives_s) if not at or drawn.random() < 0.5 else one
        for at, one in enumerate(schedule.group)
    )
    return replace(whole, group=group)


def _maybe_with_new_profiles(schedule: Schedule) -> Schedule:
    """Returns the schedule, perhaps with streams whose profile is deployed after their functions have started.

    A stream is not requested before it has a profile. Drawn separately, so that everything else of a seed stays the
    same.
    """
    drawn = random.Random(f"new profiles of groups {schedule.seed}")
    deployed_ms = min((fault.at_ms for fault in schedule.faults if fault.kind == "redeploy"), default=LAST_MS)
    group = [*schedule.group]
    for at, (one, whole) in enumerate(zip(group, schedule.all, strict=True)):
        is_later = one.joins_ms == requests(whole)[0][0] > deployed_ms
        group[at] = replace(one, has_new_profile=is_later and drawn.random() < NEW_PROFILES)
    return replace(schedule, group=tuple(group))


def _maybe_forsaken(schedule: Schedule) -> Schedule:
    """Returns the schedule, perhaps with executions that a person stops and nobody starts again.

    Drawn separately, and last, so that everything else of a seed stays the same.
    """
    drawn = random.Random(f"forsaken groups {schedule.seed}")
    is_stopped = any("abort" in fault.kind for fault in schedule.faults)
    if is_stopped or not schedule.faults or drawn.random() >= FORSAKEN:
        return schedule
    abort = Fault(drawn.randrange(FIRST_MS, LAST_MS), "abort", 0, drawn.randrange(WATCHED_MS))
    group = [*schedule.group]
    if drawn.random() < 0.5:
        at, returns_ms = drawn.randrange(len(group)), drawn.choice(RETURNS_MS)
        again = Fault(abort.at_ms + returns_ms, "post")
        group[at] = replace(group[at], faults=in_order((*group[at].faults, again)))
    return replace(schedule, faults=in_order((*schedule.faults, abort)), group=tuple(group))


def _draw_stream(seed: int, drawn: random.Random, number: int, whole: Schedule, store: str) -> Schedule:
    own = 0 if drawn.random() < CALM else drawn.randrange(1, MOST_OWN + 1)
    one = draws.draw_schedule(seed * 100 + number, drawn, OWN, own)
    faults = [*one.faults]
    if faults and drawn.random() < FLOODS:
        faults[0] = Fault(faults[0].at_ms, "flood", drawn.randrange(500, 3_000))
    if own and drawn.random() < LEAVES:
        at_ms = drawn.randrange(FIRST_MS, LAST_MS)
        faults.append(Fault(at_ms, "stop and post", 0, drawn.choice((50, 800, 3_000, 9_000))))
    return replace(
        with_store(one, number, store),
        faults=in_order(faults),
        name=f"m{number}",
        joins_ms=drawn.choice((0, 0, 0, drawn.randrange(LAST_MS))),
        together=whole.together,
        renews=whole.renews,
        skew_ms=whole.skew_ms,
    )
