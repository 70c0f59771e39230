"""Keeps the streams of a group connected for one invocation, on threads.

`handlers/connection_manager.py` imports it for a sandbox's first group, so a stage without groups pays nothing for it.
It only decides what is made anew for each invocation. Invariant: `run_group` returns before the deadline, whatever the
store and the upstreams do.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.steps import Invocation
from handlers.group.keeping import kept
from handlers.group.next_step import Delays
from handlers.run.group_function import group_steps
from handlers.run.group_ports import Ask, GroupPorts, GroupTables, Needs, ReadProfiles, Reports
from handlers.run.performer import hard_stop_ms
from handlers.run.ports import LogReport, open_upstream
from handlers.run.threads import Bell, Pool, SystemClock, ask_until
from handlers.upstream.standstill import Ticker


def run_group(
    invocation: Invocation,
    tables: GroupTables,
    secrets: SecretValues,
    delays: Delays,
    clock: SystemClock,
    profiles: ReadProfiles,
    log_report: LogReport,
    reports: Reports,
) -> Outcome:
    """Returns the function's outcome; `invocation.stream_id` is the group. Raises StoreUnavailable."""
    bell, stop_ms = Bell(), hard_stop_ms(invocation.deadline_ms, invocation.margin_ms)
    keeps_one = functools.partial(kept, draw=random.uniform)
    with Ticker() as pulse:
        opens, pool = functools.partial(open_upstream, pulse), functools.partial(Pool, bell)
        ports = GroupPorts(
            clock, bell, pool, opens, secrets, log_report, kept=keeps_one, profiles=profiles, reports=reports
        )
        return _perform(group_steps(invocation, tables, delays, ports), stop_ms, clock, bell)


def _perform(steps: Needs, stop_ms: int, clock: SystemClock, bell: Bell) -> Outcome:
    move: Callable[[], Any] = functools.partial(next, steps)
    try:
        while True:
            need = move()
            try:
                answer = ask_until(stop_ms, clock, need.request) if isinstance(need, Ask) else bell.wait(need.for_s)
                move = functools.partial(steps.send, answer)
            except Exception as error:
                move = functools.partial(steps.throw, error)
    except StopIteration as ended:
        outcome: Outcome = ended.value
        return outcome
