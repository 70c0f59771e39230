"""Keeps the streams of a group connected for one invocation, on threads, then returns or raises as for one stream.

`handlers/connection_manager.py` imports it for the first group that a sandbox is asked for, so a stage that has none
pays nothing for it. It decides nothing but what is made anew for each invocation. Invariants: `run_group` returns
before the deadline, whatever the store and the upstreams do; a log line and an error hold ids and our own words alone.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

from handlers import errors
from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.steps import Invocation, Steps
from handlers.group.keeping import Keeps, Kept, kept
from handlers.group.next_step import Delays
from handlers.profile.behaviour import Profile
from handlers.run.group_function import group_steps
from handlers.run.group_ports import Ask, GroupPorts, GroupTables, ReadProfiles, Reports, reports_to
from handlers.run.performer import hard_stop_ms
from handlers.run.ports import LogReport, open_upstream
from handlers.run.threads import Bell, Pool, SystemClock, ask_until
from handlers.settings import load_delays


def keep(
    invocation: Invocation,
    tables: GroupTables,
    secrets: SecretValues,
    sqs: Callable[[], Any],
    queue_url: str,
    profiles: ReadProfiles,
    log_report: LogReport,
) -> dict[str, Any]:
    """How the function ended: `status` as of a stream; raises a class of `handlers.errors` for any other end."""
    if not invocation.execution:
        raise errors.InvalidRequest("the event must name the execution of a group as a text")

    delays = Delays(*(delay_ms / 1000 for delay_ms in load_delays(os.environ)))
    reports = reports_to(sqs, queue_url)
    outcome = run_group(invocation, tables, secrets, delays, SystemClock(), profiles, log_report, reports)
    if outcome.error:
        error: type[errors.StreamkeeperError] = getattr(errors, outcome.error)
        raise error(outcome.message)
    return {"status": outcome.status}


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
    """As what the function has ended; `invocation.stream_id` is the group. Raises StoreUnavailable."""
    bell, stop_ms = Bell(), hard_stop_ms(invocation.deadline_ms, invocation.margin_ms)

    def pool(threads: int, name: str) -> Pool:
        return Pool(threads, bell, name)

    ports = GroupPorts(clock, secrets, bell, pool, open_upstream, _kept, profiles, log_report, reports)
    steps = group_steps(invocation, tables, delays, ports)
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


def _kept(profile: Profile, who: Invocation, now_ms: int, delays: Delays, keeps: Keeps) -> Steps[Kept]:
    return kept(profile, who, now_ms, random.uniform, delays, keeps)
