"""Describes an execution of the registry, whether it runs or has ended.

Invariant: the description of an ended execution comes from its last line on disk.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from states_language import Execution
from states_language.place import PERIOD_MS, TOO_MANY_EVENTS
from states_language.server import map_runs
from states_language.server.journals import (
    LONGEST_MS,
    NOT_ENDED,
    NOT_KEPT,
    TOO_LONG,
    TOO_OLD,
    Closing,
    Journal,
    Record,
    not_ended,
)
from states_language.tasks.callbacks import Ended


@dataclass
class KnownExecution(Record):
    """One execution of the registry; `live` is None once it has ended, `serial` counts in the order of starts.

    earlier_runs: the Map Runs from before the last redrive.
    """

    live: Execution | None = None
    journal: Journal | None = field(default=None, repr=False)
    serial: int = 0
    listeners: list[Callable[[Ended], None]] = field(default_factory=list, repr=False)
    earlier_runs: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def status(self) -> str:
        """Returns AWS's status of the execution."""
        return "RUNNING" if self.closing is None else self.closing.status

    @property
    def map_runs(self) -> list[dict[str, Any]]:
        """Returns the descriptions of its Map Runs; times are in milliseconds."""
        if self.live is not None:
            return map_runs.joined(self.earlier_runs, map_runs.described(self.live))
        return self.closing.map_runs if self.closing is not None else []

    def not_redrivable(self, now_ms: int, deleting: bool) -> str | None:
        """Returns why the execution cannot be redriven, in AWS's words if AWS has any; None if it can.

        `deleting` is true while its machine is being deleted. DescribeExecution answers REDRIVABLE for exactly the
        executions that RedriveExecution accepts, and REDRIVABLE_BY_MAP_RUN for exactly those that a redrive of their
        parent runs again.
        """
        closing = self.closing
        if closing is None or self.status in NOT_ENDED:
            return not_ended(self.status)
        reasons = (
            (deleting, "State machine is in DELETING status"),
            (closing.events >= TOO_MANY_EVENTS, TOO_LONG),
            (now_ms - self.opening.started_ms >= LONGEST_MS, "Execution has exceeded the max execution time"),
            (now_ms - closing.stopped_ms > PERIOD_MS, TOO_OLD),
            (self.open_runs is None, NOT_KEPT),
        )
        return next((reason for holds, reason in reasons if holds), None)


def ended(known: KnownExecution, closing: Closing) -> Ended:
    """Returns the outcome for a Task that waits for the execution."""
    opening = known.opening
    return Ended(
        arn=opening.arn, machine_arn=opening.machine_arn, name=opening.name, status=closing.status,
        input=opening.input, started_ms=opening.started_ms, stopped_ms=closing.stopped_ms, output=closing.output,
        error=closing.error, cause=closing.cause,
    )  # fmt: skip


def description(known: KnownExecution) -> dict[str, Any]:
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
