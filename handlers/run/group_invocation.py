"""Keeps the streams of a group connected for one invocation, on threads: what `group_function.py` needs, performed.

It decides nothing but what is made anew for each invocation. Invariant: `run_group` returns before the deadline,
whatever the store and the upstreams do.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.steps import Invocation, Steps
from handlers.group.fates import Delays
from handlers.group.keeping import Keeps, Kept, kept
from handlers.profile.behaviour import Profile
from handlers.run.driver import Clock
from handlers.run.group_function import group_steps
from handlers.run.group_ports import Ask, GroupPorts, GroupTables, ReadProfiles, Reports
from handlers.run.performer import open_upstream
from handlers.run.ports import LogReport
from handlers.run.threads import Bell, Pool
from handlers.store.worker import Worker


def run_group(
    invocation: Invocation,
    tables: GroupTables,
    secrets: SecretValues,
    delays: Delays,
    clock: Clock,
    profiles: ReadProfiles,
    log_report: LogReport,
    reports: Reports,
) -> Outcome:
    """As what the function has ended; `invocation.stream_id` is the group. Raises StoreUnavailable."""
    bell, worker = Bell(), Worker(invocation, clock.now_ms)

    def pool(threads: int, name: str) -> Pool:
        return Pool(threads, bell, name)

    ports = GroupPorts(clock, secrets, bell, pool, open_upstream, _kept, profiles, log_report, reports)
    steps = group_steps(invocation, tables, delays, ports)
    move: Callable[[], Any] = functools.partial(next, steps)
    try:
        while True:
            need = move()
            try:
                answer = worker.ask(need.request) if isinstance(need, Ask) else bell.wait(need.for_s)
                move = functools.partial(steps.send, answer)
            except Exception as error:
                move = functools.partial(steps.throw, error)
    except StopIteration as ended:
        outcome: Outcome = ended.value
        return outcome
    finally:
        worker.stop()


def _kept(profile: Profile, who: Invocation, now_ms: int, delays: Delays, keeps: Keeps) -> Steps[Kept]:
    return kept(profile, who, now_ms, random.uniform, delays, keeps)
