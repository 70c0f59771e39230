"""One deliberate defect of groups: what is replaced, the rule that this must break, and the schedule that shows it.

Invariant: the ways of a stream that a schedule does not name are the plainest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from local.chaos.schedule import Fault, Schedule

PLAIN = Schedule(0, "evicts", True, False, 0, False, 0, 1_100, (), together=20)


@dataclass(frozen=True)
class GroupDefect:
    """What is replaced, by what, the rule that this breaks, and where: the schedule, and how much longer it runs.

    `always` is in place in the sound run as well.
    """

    name: str
    shows_as: str
    replaced: Mapping[str, Any]
    like: Schedule
    more_ms: int = 0
    always: Mapping[str, Any] = field(default_factory=dict)


def group(*streams: Schedule, faults: tuple[Fault, ...] = ()) -> Schedule:
    """A schedule of one group; `faults` meet all of it."""
    named = tuple(replace(one, name=f"m{number}") for number, one in enumerate(streams))
    return replace(PLAIN, policy="tolerates", faults=faults, group=named)


def stream(policy: str, *faults: Fault, **ways: Any) -> Schedule:
    """One stream of it, with its own faults."""
    return replace(PLAIN, policy=policy, faults=faults, **ways)


# A stream that nothing meets, beside which the others are put.
CALM = stream("evicts")
