"""Keeps the streams of a group connected for one invocation, on threads.

`handlers/connection_manager.py` imports it for a sandbox's first group, so a stage without groups pays nothing for it.
It decides only what is made anew for each invocation, and what is logged about its streams. Connections of a profile
that a newer function relieved, and that show nothing unusual, are summed up and logged once, at the function's end: a
handover of hundreds is one line. Invariant: `run_group` returns before the deadline, whatever the store and the
upstreams do.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.failures import STUCK_AFTER
from handlers.connection.steps import Invocation, Report
from handlers.group.next_step import Delays, keep_connected
from handlers.profile.behaviour import Profile
from handlers.run.connection_metrics import numbers
from handlers.run.group_function import group_steps
from handlers.run.group_ports import GroupPorts, GroupTables, ReadProfiles, ReportEnd, perform_needs
from handlers.run.ports import LogReport, hard_stop_ms, open_upstream
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
    reports: ReportEnd,
) -> Outcome:
    """Returns the function's outcome; `invocation.stream_id` is the group. Raises StoreUnavailable."""
    bell, stop_ms = Bell(), hard_stop_ms(invocation.deadline_ms, invocation.margin_ms)
    keeps_one = functools.partial(keep_connected, draw=random.uniform)
    with Ticker() as pulse:
        opens, pool = functools.partial(open_upstream, pulse), functools.partial(Pool, bell)
        ports = GroupPorts(
            clock,
            bell,
            pool,
            opens,
            secrets,
            log_report,
            keep_connected=keeps_one,
            profiles=profiles,
            report_end=reports,
        )
        steps = group_steps(invocation, tables, delays, ports)
        return perform_needs(steps, functools.partial(ask_until, stop_ms, clock), bell.wait)


# The maximum of these counts; all others are summed.
_LONGEST = frozenset({"BlockedMs", "ConnectMs"})


def is_usual(report: Report) -> bool:
    """Returns whether the end of this connection needs no log line of its own."""
    progress = report.progress
    remarkable = progress.conflicts or progress.dead_lettered or progress.missing or report.same_ends >= STUCK_AFTER
    return report.outcome.error == "StreamTakenOver" and not remarkable


class GroupLog:
    """The log of one function; `log_one` logs a connection at once."""

    def __init__(self, log_one: LogReport) -> None:
        self._log_one = log_one
        self._sums: dict[str, dict[str, int]] = {}

    def report(self, profile: Profile, who: Invocation, report: Report, blocked_ms: int) -> None:
        """Logs a connection that has ended, or adds it to the others."""
        if not is_usual(report):
            self._log_one(profile, who, report, blocked_ms)
            return
        sums = self._sums.setdefault(profile.name, {})
        for name, value in numbers(report, blocked_ms).items():
            before = sums.get(name, 0)
            sums[name] = max(before, value) if name in _LONGEST else before + value

    def sums(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Returns the sums of each profile that has any, by the names of their metrics."""
        yield from sorted(self._sums.items())
