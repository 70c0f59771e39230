"""Sums up what a group's function reports of its streams, so that a handover of hundreds is one line.

A connection that a newer function relieved, and that shows nothing unusual, is added to the others of its profile and
logged once, at the function's end. Every other end is logged as it comes.

    100 streams of a profile, 99 relieved, one dropped     the drop's line and document; at the end one of each for 99
"""

from __future__ import annotations

from collections.abc import Iterator

from handlers.connection.steps import Invocation, Report
from handlers.connection.stuck import STUCK_AFTER
from handlers.profile.behaviour import Profile
from handlers.run.connection_metrics import numbers
from handlers.run.ports import LogReport

# Of these the longest counts; everything else is summed.
_LONGEST = frozenset({"BlockedMs", "ConnectMs"})


def is_usual(report: Report) -> bool:
    """Returns whether nobody needs to read how just this connection ended."""
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

    def summed(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Returns the sums of each profile that has any, by the names of their metrics."""
        yield from sorted(self._sums.items())
