"""Decides when each version is deployed: the first one, and what each redeployment changes in code and definition.

New functions and executions have the newest version; running ones keep theirs. Invariants: the same schedule deploys
the same versions; each version differs from the one before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.settings import Settings
from local import stages
from local.chaos.schedule import Schedule
from local.simulation import socket_peer
from local.simulation.chaotic_upstream import CONNECT_TIMEOUT_MS, STALL_AFTER_MS
from local.simulation.wire import LOSS, Wire
from local.upstreams.auth_servers import CLIENT

STAGE = "local"
QUEUE_URL = "https://sqs.us-east-1.amazonaws.com/111111111111/dead-letters"
# The streams of a run; mostly only the first. Each id begins with the one before it, to provoke mistakes with prefixes.
STREAMS = ("chaos", "chaos:b", "chaos:b#1")
# Short limits, so that a minute holds several handovers; the proportions are those of 900 seconds.
LIMITS: Mapping[str, int] = {
    "function_timeout_s": 24,
    "wait_s": 16,
    "margin_s": 4,
    "start_allowance_s": 5,
    "lease_every_s": 1,
    "progress_every_s": 1,
    "retry_max_delay_s": 4,
    "throttle_delay_s": 1,
    "throttle_max_delay_s": 4,
    "cool_down_s": 4,
    "jitter_s": 1,
}
RENEWS_SOON, RENEWS_LATE = 3, 100
# The settings and fields that a redeployment may change, each with its other value: settings of the definition and of
# the functions, and fields of the profile, which ships with the functions' code.
OTHER_SETTINGS: tuple[tuple[str, int], ...] = (("wait_s", 13), ("margin_s", 3), ("progress_every_s", 2))
OTHER_PROFILE: tuple[tuple[str, Any], ...] = (
    ("reconnect_tries", 2),
    ("overlap_s", 2),
    ("standby", "hot"),
    ("partitions", 3),
    ("store", "items"),
    ("order", "none"),
)
# In a group, no connection begins within three margins of a function's end, and the successor must come before. A
# connection must have caught up within its life even if its cursor is as old as an eighth of its function's life.
GROUP_LIMITS: Mapping[str, int] = {"function_timeout_s": 48, "wait_s": 36, "margin_s": 2}
OTHER_GROUP_SETTINGS: Mapping[str, int] = {"wait_s": 33}
# A redeployment may also shorten the limit, and the wait with it: to less than the wait of the running executions.
SHORTER, SHORTER_BY_S, GROUP_SHORTER_BY_S = "function_timeout_s", 4, 14
TOGETHER = "streams_per_function"
# The profile's back-offs. The long one grows beyond the rest of a function's life.
PACES: Mapping[str, Mapping[str, Any]] = {
    "short": {
        "network": {"start_s": 0.25, "step_s": 0.25, "max_s": 2},
        "http": {"start_s": 0.5, "factor": 2, "max_s": 4},
        "throttled": {"start_s": 1, "factor": 2, "max_s": 4},
    },
    "long": {
        "network": {"start_s": 1, "factor": 2, "max_s": 8},
        "http": {"start_s": 2, "factor": 2, "max_s": 8},
        "throttled": {"start_s": 4, "factor": 2, "max_s": 20},
    },
}


@dataclass(frozen=True, slots=True)
class Version:
    """One deployment: `number` counts from 1, `changes` names its differences from the first.

    `settings` are the stage's; `function` has those that the connection manager reads from its environment.
    """

    number: int
    settings: Mapping[str, Any]
    function: Settings
    profile: Profile
    changes: tuple[str, ...]


def versions(schedule: Schedule) -> list[Version]:
    """Returns the first version, and one for each redeployment of the schedule, in order of time."""
    changed: frozenset[str] = frozenset()
    deployed = [_version(schedule, 1, changed)]
    names = changeable_parts(schedule)
    for fault in schedule.faults:
        if fault.kind == "redeploy":
            flipped = frozenset(name for at, name in enumerate(names) if fault.value >> at & 1)
            changed = changed ^ (flipped or frozenset(names))
            deployed.append(_version(schedule, len(deployed) + 1, changed))
    return deployed


def changeable_parts(schedule: Schedule) -> list[str]:
    """Returns the names of the parts that a redeployment may change; each has a bit in the fault's value."""
    names = [*(name for name, _ in (*OTHER_SETTINGS, *OTHER_PROFILE)), SHORTER]
    for name in ("partitions", "order") if schedule.store == "log" else ("store",):
        names.remove(name)
    if schedule.policy != "tolerates":
        names.remove("standby")
    # A repair needs the order in which events arrived.
    if schedule.repair is not None and "order" in names:
        names.remove("order")
    return [*names, TOGETHER] if schedule.together else names


def _version(schedule: Schedule, number: int, changed: frozenset[str]) -> Version:
    first = {
        "reconnect_tries": schedule.reconnect_tries,
        "overlap_s": 1,
        "standby": "hot" if schedule.hot else "cold",
        "partitions": schedule.partitions,
        "store": schedule.store,
        "order": schedule.order,
    }
    table: dict[str, Any] = dict(first)
    for name, other in OTHER_PROFILE:
        if name in changed:
            table[name] = other if first[name] != other else {"standby": "cold", "order": "index"}.get(name, 0)
    limits = {name: other for name, other in OTHER_SETTINGS if name in changed}
    shorter_by_s = SHORTER_BY_S
    if schedule.together:
        shorter_by_s = GROUP_SHORTER_BY_S
        limits |= {name: other for name, other in OTHER_GROUP_SETTINGS.items() if name in changed}
        together = max(2, schedule.together // 2) if TOGETHER in changed else schedule.together
        limits = {**GROUP_LIMITS, TOGETHER: together, **limits}
    if SHORTER in changed:
        limits |= {name: limits.get(name, LIMITS[name]) - shorter_by_s for name in (SHORTER, "wait_s")}
    overrides = tuple(limits.items())
    return Version(
        number,
        settings=stage_settings(schedule.renews, overrides),
        function=_function(schedule.renews, overrides),
        profile=_profile(schedule, table),
        changes=tuple(sorted(changed)),
    )


@cache
def stage_settings(renews: bool, overrides: tuple[tuple[str, int], ...] = ()) -> Mapping[str, Any]:
    """Returns the stage's settings with the short limits, and then with `overrides`."""
    limits = {**LIMITS, "renew_after": RENEWS_SOON if renews else RENEWS_LATE, **dict(overrides)}
    return stages.load(
        STAGE, {name: value for name, value in limits.items() if name in stages.read_schema()["properties"]}
    )


@cache
def _function(renews: bool, overrides: tuple[tuple[str, int], ...]) -> Settings:
    """Returns the function's settings, read from the environment that serverless.yml gives it."""
    limits, names = stage_settings(renews, overrides), stages.names(STAGE)
    seconds = ("margin_s", "lease_every_s", "progress_every_s", "wait_s")
    return Settings.load(
        {name.upper(): str(limits[name]) for name in seconds}
        | {
            "LAMBDA_TASK_ROOT": str(stages.ROOT),
            "EVENTS_TABLE": names["events_table"],
            "CONTROL_TABLE": names["control_table"],
            "DEAD_LETTER_QUEUE_URL": QUEUE_URL,
            "KEEP_DAYS": "0",
            "LEDGER_KEEP_DAYS": "0",
            "METRICS_BY": "stage",
            "SECRETS_PREFIX": "/streamkeeper/test/",
            "POWERTOOLS_METRICS_NAMESPACE": "Streamkeeper",
        }
    )


def _profile(schedule: Schedule, table: Mapping[str, Any]) -> Profile:
    if table["store"] == "log":
        table = {name: value for name, value in table.items() if name != "order"} | {"flush_s": schedule.flush_s}
    fields: dict[str, Any] = {
        "address": "https://upstream.invalid/{streamId}",
        "framing": "sse",
        "loss": {"event": LOSS},
        "overlap": schedule.policy,
        "connect_timeout_s": CONNECT_TIMEOUT_MS / 1000,
        "reject_after": schedule.reject_after_s,
        "stall_after_s": STALL_AFTER_MS / 1000,
        "on_conflict": schedule.on_conflict,
        **Wire("", schedule.key, timed=schedule.is_timed).fields,
        **table,
        **(schedule.repair.fields if schedule.repair is not None else {}),
    }
    if schedule.socket:
        del fields["loss"]
        fields |= socket_peer.fields(resumes=schedule.resumes)
    if schedule.token_lives_s:
        fields["address"] += "?ticket={ticket}"
        fields["token"] = {
            "kind": "client_credentials",
            "address": "https://auth.invalid/token",
            "id": CLIENT,
            "secret": "${secret:key}",
        }
        fields["ticket"] = {"address": "https://auth.invalid/ticket", "path": "$.ticket"}
    if schedule.pace:
        fields["backoff"] = PACES[schedule.pace]
    if not schedule.is_left_to_default and not schedule.socket:
        fields |= schedule.memory.fields(schedule.skew_ms) if schedule.resumes else {"resume": "none"}
    return parse(schedule.name or STREAMS[0], fields, {})
