"""Keeps the executions of the local service, whether they run or have ended, and describes them.

Invariants: an execution that this process does not run is not RUNNING; the description of an ended execution comes from
its closing line on disk.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from states_language import Execution
from states_language.clock import Clock
from states_language.place import PERIOD_MS, TOO_MANY_EVENTS
from states_language.server import journals, map_runs
from states_language.server.requests import Refusal
from states_language.server.stored_events import StoredEvents
from states_language.tasks.callbacks import Ended

STOPPED_ERROR = "LocalServiceStopped"
STOPPED_CAUSE = "The local service stopped while this execution ran."
LARGE_PART = 20_000
"""Up to how many values, as `has_more_values` counts, the event loop itself writes where an execution stands."""


@dataclass
class KnownExecution(journals.Record):
    """One execution of the registry; `live` is None once it has ended, `serial` counts in the order of starts.

    earlier_runs: the Map Runs from before the last redrive. keeping: the writing of a large part, if any.
    """

    live: Execution | None = None
    journal: journals.Journal | None = field(default=None, repr=False)
    serial: int = 0
    listeners: list[Callable[[Ended], None]] = field(default_factory=list, repr=False)
    earlier_runs: list[dict[str, Any]] = field(default_factory=list, repr=False)
    keeping: "asyncio.Future[None] | None" = field(default=None, repr=False)

    @property
    def status(self) -> str:
        """Returns AWS's status of the execution."""
        return "RUNNING" if self.closing is None else self.closing.status

    @property
    def map_runs(self) -> list[dict[str, Any]]:
        """Returns the descriptions of its Map Runs; times are in milliseconds."""
        if self.live is not None:
            return map_runs.merge_redriven(self.earlier_runs, map_runs.describe_map_runs(self.live))
        return self.closing.map_runs if self.closing is not None else []

    def redrive_refusal_reason(self, now_ms: int, deleting: bool) -> str | None:
        """Returns why the execution cannot be redriven, in AWS's words if AWS has any; None if it can.

        `deleting` is true while its machine is being deleted. DescribeExecution answers REDRIVABLE for exactly the
        executions that RedriveExecution accepts, and REDRIVABLE_BY_MAP_RUN for exactly those that a redrive of their
        parent runs again.
        """
        closing = self.closing
        if closing is None or self.status in journals.NOT_REDRIVABLE_STATUSES:
            return journals.reason_not_ended(self.status)
        reasons = (
            (deleting, "State machine is in DELETING status"),
            (closing.events >= TOO_MANY_EVENTS, journals.TOO_LONG),
            (now_ms - self.opening.started_ms >= journals.LONGEST_MS, "Execution has exceeded the max execution time"),
            (now_ms - closing.stopped_ms > PERIOD_MS, journals.TOO_OLD),
            (self.open_runs is None, journals.PLACE_UNKNOWN),
        )
        return next((reason for holds, reason in reasons if holds), None)


@dataclass(frozen=True)
class Retention:
    """Which executions are kept after their end: the last `count` to end, each for `age_s`."""

    count: int = 1_000
    age_s: int = 90 * 86_400


class Registry:
    """All executions by ARN: the running ones, and the ended ones that the retention keeps."""

    def __init__(self, records: journals.Journals, clock: Clock, retention: Retention | None) -> None:
        self._records = records
        self._clock = clock
        self._retention = retention or Retention()
        self._known: dict[str, KnownExecution] = {}
        self._ended_at_ms: dict[str, int] = {}  # when each ended execution ended, in the order of the ends
        self._serials = itertools.count(1)

    def now_ms(self) -> int:
        """Returns the time of the executions' clock."""
        return self._clock.now_ms()

    def all(self) -> list[KnownExecution]:
        """Returns every execution, oldest first."""
        return list(self._known.values())

    def running(self) -> list[KnownExecution]:
        return [known for known in self._known.values() if known.closing is None]

    def get(self, arn: str) -> KnownExecution:
        """Returns one execution; raises Refusal for an unknown ARN."""
        if arn not in self._known:
            raise Refusal("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
        return self._known[arn]

    def history(self, known: KnownExecution) -> Sequence[dict[str, Any]]:
        """Returns the stored history events of an execution."""
        if known.journal is None or known.redrives:
            return StoredEvents(known.path)
        return known.journal.events

    def on_end(self, arn: str, listener: Callable[[Ended], None]) -> None:
        """Calls the listener once, when the execution has ended; KeyError for an unknown ARN."""
        known = self._known[arn]
        if known.closing is not None:
            listener(outcome_of(known, known.closing))
        else:
            known.listeners.append(listener)

    def restore(self) -> list[KnownExecution]:
        """Reads every execution from disk, and returns those that an earlier service left running, now ABORTED."""
        left = []
        for record in self._records.read_all():
            known = KnownExecution(**vars(record), serial=next(self._serials))
            self._known[record.opening.arn] = known
            if record.closing is None:
                known.closing = self._abort(record)
                left.append(known)
        ends = sorted((known.closing.stopped_ms, arn) for arn, known in self._known.items() if known.closing)
        self._ended_at_ms = {arn: stopped_ms for stopped_ms, arn in ends}
        self._prune()
        return left

    def _forget(self, gone: Iterable[KnownExecution]) -> None:
        for known in list(gone):
            known.path.unlink(missing_ok=True)
            self._ended_at_ms.pop(known.opening.arn, None)
            del self._known[known.opening.arn]

    def _prune(self) -> None:
        """Forgets the executions that ended first, beyond those to keep; running executions do not count."""
        oldest_ms = self._clock.now_ms() - self._retention.age_s * 1000
        while self._ended_at_ms:
            arn = next(iter(self._ended_at_ms))
            if len(self._ended_at_ms) <= self._retention.count and self._ended_at_ms[arn] >= oldest_ms:
                break
            self._forget([self._known[arn]])

    def _abort(self, record: journals.Record) -> journals.Closing:
        history = StoredEvents(record.path)
        now_ms = self._clock.now_ms()
        closing = journals.Closing("ABORTED", now_ms, None, STOPPED_ERROR, STOPPED_CAUSE)
        journal = self._records.reopen_journal(record.path)
        journal.write_event(
            {
                "timestamp": now_ms,
                "type": "ExecutionAborted",
                "id": len(history) + 1,
                "previousEventId": 0,
                "executionAbortedEventDetails": {"error": STOPPED_ERROR, "cause": STOPPED_CAUSE},
            }
        )
        journal.write_closing(closing)
        return closing


def outcome_of(known: KnownExecution, closing: journals.Closing) -> Ended:
    """Returns the outcome for a Task that waits for the execution."""
    opening = known.opening
    return Ended(
        arn=opening.arn,
        machine_arn=opening.machine_arn,
        name=opening.name,
        status=closing.status,
        input=opening.input,
        started_ms=opening.started_ms,
        stopped_ms=closing.stopped_ms,
        output=closing.output,
        error=closing.error,
        cause=closing.cause,
    )


def describe(known: KnownExecution) -> dict[str, Any]:
    """Returns the API's description, without whether it can be redriven; None marks what it does not have."""
    opening, closing = known.opening, known.closing
    answer: dict[str, Any] = {
        "executionArn": opening.arn,
        "stateMachineArn": opening.machine_arn,
        "name": opening.name,
        "status": known.status,
        "startDate": opening.started_ms,
        "input": opening.input,
        "redriveCount": len(known.redrives),
        "redriveDate": known.redrives[-1].at_ms if known.redrives else None,
        "stateMachineVersionArn": opening.version_arn,
        "stateMachineAliasArn": opening.alias_arn,
    }
    if closing is None:
        return answer
    ends = {"stopDate": closing.stopped_ms, "output": closing.output, "error": closing.error, "cause": closing.cause}
    return answer | ends
