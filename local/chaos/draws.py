"""Decides the faults and their times: draws a schedule, an upstream's policy and a list of timed faults, from a seed.

Invariants: the same seed gives the same schedule on every machine; removing a fault leaves the others as they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from local.chaos.plans import Fault, draw_delivery_plan, draw_repair_plan, in_order
from local.chaos.schedule import SHARED, Schedule
from local.simulation.upstream_memory import EVERYTHING, MEMORIES
from local.simulation.wire import KEYS

POLICIES = ("evicts", "tolerates", "forbids")
# Faults begin between these instants; the first connection needs some time to open.
FIRST_MS, LAST_MS = 500, 50_000
MOST_FAULTS = 8
# The statuses with which an upstream refuses: 200 is a page for people in place of the stream. PAGES is its share.
PAGE, PAGES = 200, 0.4
REFUSALS = (403, 404, PAGE)
# How long each request of a slow store takes. A holder that cannot renew its lease in time counts as dead; so if a
# second connection is forbidden, an even slower store would be a mistake of the settings.
SLOW_MS, SLOW_WHERE_FORBIDDEN_MS = (200, 400, 900, 1_800), 400
# The time left of a lease at its last renewal: for a standstill, and for two clocks that are wrong in opposite ways.
STILL_WHERE_FORBIDDEN_MS, LEFT_MS = 2_000, 2_600
Draw = Callable[[random.Random], tuple[int, int]]


def _lasting(least_ms: int, most_ms: int, values: tuple[int, ...] = ()) -> Draw:
    """Returns a draw of a duration and a value; without `values` the value is a seed for the fault's own draws."""
    return lambda drawn: (
        drawn.randrange(least_ms, most_ms),
        drawn.choice(values) if values else drawn.randrange(1 << 16),
    )


def _instant(values: tuple[int, ...] = ()) -> Draw:
    return lambda drawn: (0, drawn.choice(values) if values else drawn.randrange(1 << 16))


# By kind of fault: its weight, and how its duration and value are drawn.
KINDS: dict[str, tuple[int, Draw]] = {
    # Functions: `value` is how long the dead function's socket lingers at the upstream.
    "kill": (6, _instant((0, 0, 300, 2_500))),
    "kill in the store": (4, _instant()),
    "kill between steps": (4, _instant()),
    "vanish": (2, _instant((0, 2_000))),
    "orphan": (2, _instant()),
    "freeze": (2, _lasting(100, 2_000)),
    "slow starts": (2, _lasting(2_000, 10_000, (800, 2_500, 6_000))),
    "no functions": (2, _lasting(500, 5_000)),
    # The store: `value` seeds the choice of requests, or is how long each takes.
    "throttles": (3, _lasting(200, 6_000)),
    "unknown outcomes": (4, _lasting(500, 8_000)),
    "slow store": (2, _lasting(1_000, 6_000, SLOW_MS)),
    # The upstream: `value` is a status, or seeds the choice of the cut.
    "reset": (5, _instant()),
    "hang-up": (2, _instant()),
    "truncation": (5, _instant()),
    "stall": (3, _instant()),
    "pause": (2, _lasting(500, 6_000)),
    "silence": (2, _lasting(1_000, 8_000)),
    "refusals": (3, _lasting(500, 9_000, (503, 500, 429, 420))),
    "no listener": (2, _lasting(500, 6_000)),
    "no answers": (2, _lasting(500, 5_000)),
    "duplicates": (3, _lasting(1_000, 15_000)),
    "reorders": (3, _lasting(1_000, 15_000)),
    "burst": (3, _instant((5, 20))),
    "losses": (3, _lasting(1_000, 15_000)),
    # The upstream ends the stream: `value` is the status of its answer.
    "rejection": (1, _lasting(1_000, 6_000, (403, 404))),
    "the end": (1, _lasting(1_000, 6_000, (204,))),
    # The queue of dead-letter messages.
    "queue refuses": (1, _lasting(500, 8_000)),
    # People. A redeployment changes code and definition; `value` chooses the changes. With "no successors" an execution
    # cannot renew, or gets no answer when it does; with "no descriptions" it cannot learn whether a holder is dead.
    "redeploy": (3, _instant()),
    "no successors": (1, _lasting(2_000, 20_000)),
    "no descriptions": (1, _lasting(500, 8_000)),
    "post": (2, _instant((0,))),
    "stop": (1, _instant()),
    "abort and post": (1, _instant((0, 400, 3_000))),
    "stop and post": (1, _instant((50, 800, 3_000, 9_000))),
    # The stop request meets a POST that is taking the stream over from an execution that is dead.
    "abort, post and stop": (2, _instant(tuple(range(20, 100, 5)))),
}
# The faults that affect a function, and so every stream of a group.
OF_FUNCTIONS = frozenset(
    {"kill", "kill in the store", "kill between steps", "vanish", "orphan", "freeze", "starvation"}
)
# The share of schedules with a standstill of a function besides, its length, and how often its upstream hangs up then.
STANDSTILLS, STANDSTILL_MS, HUNG_UP = 0.2, (1_000, 12_000), 0.7
HANG_UPS = ("reset", "hang-up", "truncation")
# The share of streams whose upstream is a WebSocket. The number of the draw was chosen so that no seed in
# tests/planted, and none that once broke a rule, is one of them.
SOCKETS, SOCKET_DRAW = 0.12, 737
# The share of upstreams whose events have their times; drawn as sockets are.
TIMED, TIME_DRAW = 0.12, 2972
# The share of upstreams that require a token and a ticket, how long a token may live, and how many faults both have;
# drawn as sockets are.
GUARDED, GUARD_DRAW, LIVES_S, MOST_OF_GUARD = 0.1, 71, (4, 15, 3_600), 4
GUARD_FAULTS = ("token server away", "ticket server away", "token revoked")
# How often a ticket is refused besides. Drawn separately, so that everything else of a seed stays the same.
TICKETS_REFUSED = 0.4
# The share of runs whose tables cut their answers, and the most items of a page then; drawn as sockets are.
CUT, CUT_DRAW, MOST_ITEMS = 0.08, 7657, (2, 3, 10)
# The share of upstreams that are restarted and count their ids from 0 again, the profile's rule for that, and the other
# faults, within this time before or after it; drawn as sockets are.
RESTARTS, RESTART_DRAW, ON_CONFLICT, AROUND_MS = 0.08, 11216, ("first", "epoch", "both"), 4_000
AROUND = (
    "kill",
    "kill between steps",
    "kill in the store",
    "vanish",
    "freeze",
    "no listener",
    "refusals",
    "slow store",
)
# Faults that make events differ in more than their ids.
NOT_RESTARTED = {"reorders", "losses"}
# How often other streams run beside the first, and how many faults of its own each has at most.
BESIDE, MOST_BESIDE = 0.07, 3
# The share of streams that store events in a log, and the share of the others that have no index.
LOGS, UNORDERED = 0.35, 0.3


def generate(seed: int, store: str = "") -> Schedule:
    """Returns a seed's schedule for lone streams; `store` is how events are stored, "" leaves that to the seed."""
    drawn = random.Random(seed)
    schedule = draw_schedule(seed, drawn, list(KINDS), drawn.randrange(1, MOST_FAULTS + 1))
    if drawn.random() < BESIDE:
        own = [kind for kind in KINDS if kind not in SHARED]
        beside = [
            draw_schedule(seed, drawn, own, drawn.randrange(MOST_BESIDE + 1)) for _ in range(drawn.choice((1, 1, 2)))
        ]
        schedule = replace(schedule, beside=tuple(beside))
    schedule = replace(schedule, beside=tuple(with_store(one, n, store) for n, one in enumerate(schedule.beside, 1)))
    schedule = with_store(schedule, 0, store)
    schedule = maybe_guarded(maybe_restarted(maybe_on_socket(schedule)))
    still, meanwhile = draw_standstill(seed)
    schedule = replace(schedule, faults=in_order((*schedule.faults, *still, *meanwhile)))
    if any(one.policy == "forbids" for one in schedule.all):
        schedule = replace(schedule, faults=tuple(shorten_fault(fault, schedule.skew_ms) for fault in schedule.faults))
    schedule = replace(schedule, delivery=draw_delivery_plan(seed), most_items=draw_page_limit(seed))
    plan = draw_repair_plan(seed)
    if plan is None or schedule.beside or schedule.has_restarts:
        return schedule
    # Only events with a key and an order can be repaired.
    ordered = tuple(fault for fault in schedule.faults if fault.kind != "reorders")
    return replace(schedule, key="path", unstorable="", order="index", faults=ordered, repair=plan)


def draw_page_limit(seed: int) -> int:
    """Returns how many items a page of the tables has at most; 0 for any number, in most runs."""
    drawn = random.Random(f"cut {CUT_DRAW} {seed}")
    return drawn.choice(MOST_ITEMS) if drawn.random() < CUT else 0


def maybe_on_socket(schedule: Schedule) -> Schedule:
    """Returns the schedule, perhaps over a socket; drawn apart, so that everything else of a seed stays the same."""
    if random.Random(f"socket {SOCKET_DRAW} {schedule.seed}").random() >= SOCKETS:
        return schedule
    return with_socket(schedule)


def with_socket(schedule: Schedule) -> Schedule:
    """Returns the schedule over a socket, whose upstream keys events by number, and forgets and reorders nothing."""
    faults = tuple(fault for fault in schedule.faults if fault.kind not in ("reorders", "restart"))
    return replace(schedule, socket=True, key="path", memory=EVERYTHING, faults=faults)


def maybe_guarded(schedule: Schedule) -> Schedule:
    """Returns the schedule, perhaps with an upstream that requires a token and a ticket; drawn apart as sockets are."""
    drawn = random.Random(f"guard {GUARD_DRAW} {schedule.seed}")
    return with_guard(schedule, drawn) if drawn.random() < GUARDED else schedule


def with_guard(schedule: Schedule, drawn: random.Random) -> Schedule:
    """Returns the schedule with such an upstream: tokens expire and are revoked, and the servers of both go away."""
    faults = [
        Fault(drawn.randrange(FIRST_MS, LAST_MS), kind, 0 if kind == "token revoked" else drawn.randrange(500, 9_000))
        for kind in drawn.choices(GUARD_FAULTS, k=drawn.randrange(1, MOST_OF_GUARD + 1))
    ]
    lives_s = drawn.choice(LIVES_S)
    apart = random.Random(f"ticket {schedule.seed}")
    if apart.random() < TICKETS_REFUSED:
        faults.append(Fault(apart.randrange(FIRST_MS, LAST_MS), "ticket refused", apart.randrange(1_000, 12_000)))
    return replace(schedule, token_lives_s=lives_s, faults=in_order((*schedule.faults, *faults)))


def maybe_restarted(schedule: Schedule) -> Schedule:
    """Returns the schedule, perhaps with an upstream whose ids start over; drawn apart as sockets are."""
    drawn = random.Random(f"restarts {schedule.seed}")
    return with_restart(schedule, drawn) if is_restarted(schedule.seed) else schedule


def is_restarted(seed: int) -> bool:
    """Returns whether ids start over in the seed's schedule."""
    return random.Random(f"restart {RESTART_DRAW} {seed}").random() < RESTARTS


def with_restart(schedule: Schedule, drawn: random.Random, around: Sequence[str] = AROUND) -> Schedule:
    """Returns the schedule with one or two restarts, each perhaps beside another fault, and events that can be stored.

    It stays as it is if events already differ in more than their ids.
    """
    if schedule.socket or any(fault.kind in NOT_RESTARTED for fault in schedule.faults):
        return schedule
    faults = []
    for _ in range(drawn.choice((1, 1, 2))):
        at_ms, kind = drawn.randrange(FIRST_MS + AROUND_MS, LAST_MS - AROUND_MS), drawn.choice(("", *around))
        faults.append(Fault(at_ms, "restart", 0, drawn.randrange(4)))
        if kind:
            for_ms, value = KINDS[kind][1](drawn)
            faults.append(Fault(at_ms + drawn.randrange(-AROUND_MS, AROUND_MS), kind, for_ms, value))
    rule = drawn.choice(ON_CONFLICT[: 2 if schedule.store == "log" else 3])
    return replace(schedule, on_conflict=rule, unstorable="", faults=in_order((*schedule.faults, *faults)))


def draw_standstill(seed: int) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
    """Returns a long freeze or starvation of a function, and a hang-up of its upstream meanwhile; often neither.

    Drawn apart, so that everything else of a seed stays the same.
    """
    drawn = random.Random(f"standstill {seed}")
    if drawn.random() >= STANDSTILLS:
        return (), ()
    at_ms, for_ms = drawn.randrange(FIRST_MS, LAST_MS - STANDSTILL_MS[1]), drawn.randrange(*STANDSTILL_MS)
    still = Fault(at_ms, drawn.choice(("freeze", "freeze", "starvation")), for_ms, drawn.randrange(1 << 16))
    hang_up = Fault(at_ms + drawn.randrange(for_ms), drawn.choice(HANG_UPS), 0, drawn.randrange(1 << 16))
    return (still,), (hang_up,) if drawn.random() < HUNG_UP else ()


def with_store(schedule: Schedule, number: int, store: str) -> Schedule:
    """Returns the schedule, perhaps with its events in a log, or as items without an order.

    Drawn apart, so that everything else of a seed stays the same.
    """
    drawn = random.Random(f"log {schedule.seed} {number}")
    is_log = drawn.random() < LOGS
    if store == "items" or not (is_log or store == "log"):
        is_unordered = random.Random(f"order {schedule.seed} {number}").random() < UNORDERED
        return replace(schedule, order="none") if is_unordered else schedule
    # A successor resumes after the newest segment; if events waited too long for it, the upstream has forgotten them.
    flushes = (0, 0.3) if schedule.resumes and schedule.memory.forgets else (0, 0.3, 1, 3)
    return replace(schedule, store="log", partitions=1, flush_s=drawn.choice(flushes))


def shorten_fault(fault: Fault, skew_ms: int) -> Fault:
    """Returns the fault, shortened for an upstream that forbids a second connection.

    A holder that stands still for longer than its lease counts as dead, and only the upstream knows of its open socket.
    """
    if fault.kind in ("freeze", "starvation"):
        return replace(fault, for_ms=min(fault.for_ms, STILL_WHERE_FORBIDDEN_MS, LEFT_MS - 2 * skew_ms))
    return replace(fault, value=min(fault.value, SLOW_WHERE_FORBIDDEN_MS)) if fault.kind == "slow store" else fault


def draw_schedule(seed: int, drawn: random.Random, kinds: list[str], count: int) -> Schedule:
    """Returns a stream's schedule with `count` faults of these kinds, in order of time."""
    policy = drawn.choice(POLICIES)
    faults = []
    for kind in drawn.choices(kinds, [KINDS[kind][0] for kind in kinds], k=count):
        for_ms, value = KINDS[kind][1](drawn)
        # Drawn apart, so that everything else of a seed stays the same.
        value = PAGE if kind == "rejection" and random.Random(seed ^ for_ms).random() < PAGES else value
        faults.append(Fault(drawn.randrange(FIRST_MS, LAST_MS), kind, for_ms, value))
    return Schedule(
        seed=seed,
        policy=policy,
        resumes=drawn.random() < 0.75,
        hot=policy == "tolerates" and drawn.random() < 0.3,
        reconnect_tries=drawn.choice((0, 0, 3)),
        renews=drawn.random() < 0.4,
        skew_ms=drawn.choice((0, 0, 300, 1_000)),
        events_every_ms=drawn.choice((300, 700, 1_100)),
        faults=in_order(faults),
        partitions=drawn.choice((1, 1, 5)),
        pace=drawn.choice(("", "", "short", "long")),
        retry_after_s=drawn.choice((0, 0, 2, 9)),
        key=drawn.choice(("id", "id", *KEYS)),
        unstorable=drawn.choices(("", "refused", "large"), (90, 8, 2))[0],
        memory=drawn.choice(MEMORIES),
        # Drawn apart, so that everything else of a seed stays the same.
        reject_after_s=random.Random(seed ^ 0x403).choice((0, 3, 300)),
        timed=random.Random(f"time {TIME_DRAW} {seed}").random() < TIMED,
    )
