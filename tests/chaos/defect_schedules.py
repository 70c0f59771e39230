"""The schedules among which a deliberate defect can show at all.

They decide nothing else. Invariant: each is true of what the fault or the trait is there for, whatever else goes wrong.
"""

from dataclasses import replace

from local.chaos.memory import EVERYTHING, Memory
from local.chaos.schedule import Fault, Schedule, requests


def is_refused_for_a_while(schedule: Schedule) -> bool:
    return schedule.reject_after_s == 300 and any(fault.kind == "rejection" for fault in schedule.faults)


def stays_stopped(schedule: Schedule) -> bool:
    kinds = [fault.kind for fault in schedule.faults]
    return "stop" in kinds and not any("post" in kind for kind in kinds)


def describes_a_holder(schedule: Schedule) -> bool:
    """Whether a POST finds the stream held while nobody can be described."""
    return any(
        one.kind == "no descriptions" and one.at_ms < at_ms < one.at_ms + one.for_ms
        for one in schedule.faults
        for at_ms, method in requests(schedule)
        if method == "POST"
    )


def kills_in_a_slow_store(schedule: Schedule) -> bool:
    return not schedule.resumes and any(
        slow.kind == "slow store"
        and kill.kind.startswith("kill")
        and slow.at_ms < kill.at_ms < slow.at_ms + slow.for_ms
        for slow in schedule.faults
        for kill in schedule.faults
    )


def drops_last(schedule: Schedule) -> bool:
    drops = schedule.faults[-1].kind in ("reset", "truncation", "hang-up")
    return drops and not (schedule.pace or schedule.retry_after_s or schedule.reconnect_tries or schedule.hot)


def bursts(schedule: Schedule) -> bool:
    return any(fault.kind == "burst" and fault.value > 5 for fault in schedule.faults)


def stops_a_takeover(schedule: Schedule) -> bool:
    return schedule.faults[-1].kind == "abort, post and stop"


def cannot_store_all(schedule: Schedule) -> bool:
    return schedule.unstorable == "refused"


def comes_back_in_place(schedule: Schedule) -> bool:
    return bool(schedule.reconnect_tries)


def fails_in_place(schedule: Schedule) -> bool:
    fails = any(fault.kind in ("refusals", "no listener") for fault in schedule.faults)
    return comes_back_in_place(schedule) and not schedule.pace and not schedule.retry_after_s and fails


def owes_rests(schedule: Schedule) -> bool:
    return bool(schedule.pace or schedule.retry_after_s) and any(fault.kind == "refusals" for fault in schedule.faults)


# Both lanes are refused for so long that each writes down a rest while the other's try is under way.
REFUSED_TWICE = Schedule(
    seed=0,
    policy="evicts",
    resumes=False,
    hot=False,
    reconnect_tries=3,
    renews=True,
    skew_ms=0,
    events_every_ms=700,
    faults=(Fault(15_821, "truncation", 0, 22_979), Fault(25_971, "refusals", 5_941, 503)),
    pace="long",
    retry_after_s=9,
)


def kill_after_a_pause(schedule: Schedule) -> bool:
    kinds = [fault.kind for fault in schedule.faults]
    return "pause" in kinds and "kill" in kinds[kinds.index("pause") :]


def leaves_the_default(schedule: Schedule) -> bool:
    """Whether the profile says nothing of resuming, and all clocks agree."""
    return schedule.is_left_to_default and not schedule.skew_ms


def forgets(schedule: Schedule) -> bool:
    return schedule.resumes and schedule.memory.forgets


def has_losses(schedule: Schedule) -> bool:
    return schedule.resumes and any(fault.kind == "losses" for fault in schedule.faults)


# The second outage comes while the first is made up for. Each is shorter than the upstream goes back, both are longer.
TWO_OUTAGES = Schedule(
    seed=0,
    policy="evicts",
    resumes=True,
    hot=False,
    reconnect_tries=0,
    renews=False,
    skew_ms=0,
    events_every_ms=300,
    faults=(
        Fault(10_000, "reset"),
        Fault(10_000, "no listener", 5_000),
        Fault(17_500, "reset"),
        Fault(17_500, "no listener", 5_000),
    ),
    memory=Memory(keeps_ms=10_000),
)


# What it keeps is less than a holder has read between two heartbeats: many a successor's first request is in vain.
SHORT_MEMORY = replace(
    TWO_OUTAGES,
    policy="tolerates",
    faults=(Fault(40_863, "redeploy", 0, 50_116), Fault(47_125, "truncation", 0, 3_118)),
    key="path",
    pace="long",
    memory=Memory(keeps=6, word="frame"),
)


# The peer of the first is dead when it is let go, and whoever goes on is killed while it is sent what that kept back.
DEAD_PEER = replace(
    TWO_OUTAGES,
    policy="forbids",
    events_every_ms=300,
    faults=(Fault(12_000, "stall"), Fault(17_000, "vanish"), Fault(17_000, "no functions", 9_000)),
)


# The answers of the store are lost while the upstream says that the cursor is too old.
LOST_ANSWERS = replace(
    TWO_OUTAGES,
    faults=(
        Fault(10_000, "reset"),
        Fault(10_000, "no listener", 9_000),
        Fault(18_000, "unknown outcomes", 6_000),
    ),
    memory=Memory(keeps_ms=6_000, word="status"),
)


# What a pause held back comes in pieces, and the connection is reset in the middle of one.
CUT_OFF = replace(
    TWO_OUTAGES,
    resumes=False,
    events_every_ms=1_100,
    memory=EVERYTHING,
    faults=tuple(
        fault
        for at_ms in (8_000, 13_000, 18_000, 23_000)
        for fault in (Fault(at_ms, "pause", 1_500), Fault(at_ms + 1_501, "reset"))
    ),
)
