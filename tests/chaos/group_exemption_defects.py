"""Deliberate defects that lie next to what the rules of groups excuse, or ask only where nobody follows an abort.

`group_chaos_defects.py` lists them with the others. They decide nothing else. Invariant: each is caught although what
the rule excuses is in the schedule as well.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

from handlers.connection.lease import Lease
from handlers.connection.ledger import Known
from handlers.group.lease import GroupLease
from handlers.store import control_record
from handlers.store.group_store import member_lease
from handlers.store.typed_values import Item
from local import stages
from local.chaos.deployments import STAGE
from local.chaos.memory import Memory
from local.chaos.schedule import Fault
from states_language import Machine, load
from tests.chaos.group_defect import CALM, GroupDefect, group, stream

START_MACHINE = "local.chaos.simulate.start_machine"
BEHIND_MS = Known.behind_ms
States = dict[str, Any]


def start_machine(edit: Callable[[States], None]) -> Callable[[int], Machine]:
    """The machine that answers a POST, its states changed by `edit`."""

    @cache
    def edited(together: int) -> Machine:
        definition = deepcopy(stages.definition(stages.ROOT / "statemachines" / "start.asl.yml"))
        edit(definition["States"])
        settings = stages.load(STAGE, {"streams_per_function": together})
        return load(stages.resolve(definition, settings, stages.names(STAGE)))

    return edited


def _replaced(state: States, name: str, text: str, other: str) -> None:
    arguments = state["Arguments"]
    assert text in arguments[name]
    arguments[name] = arguments[name].replace(text, other)


def clears_a_later_stop(states: States) -> None:
    """A POST that a stop request overtook clears that."""
    condition = "(attribute_not_exists(stop_at) OR stop_at < :started) AND "
    _replaced(states["Join stream"], "ConditionExpression", condition, "")


def clears_no_stop(states: States) -> None:
    """A POST clears no stop request."""
    _replaced(states["Join stream"], "UpdateExpression", "REMOVE stop, stop_at, ", "REMOVE ")


def takes_three_times_as_long(known: Known, cursor_fence: int, now_ms: int) -> int | None:
    """Whoever asks for what came after the cursor counts as behind long after it has caught up."""
    behind_ms = BEHIND_MS(known, cursor_fence, now_ms)
    return None if behind_ms is None else 3 * behind_ms


def no_empty_version(_roster: Any) -> None:
    """No version of the group is known to be empty."""


def heeds_no_beat(item: Item, group_lease: GroupLease) -> Lease:
    """A connection counts as open until its function's limit, whatever the group's beats say."""
    return replace(member_lease(item, group_lease), expires_at_ms=control_record.lease(item).expires_at_ms)


def suspects_nobody(_lease: Lease, _now_ms: int) -> bool:
    """No lease is worth asking about."""
    return False


# It is asked to stop before its POST can have joined.
OVERTAKEN = stream("evicts", Fault(20_040, "stop"), joins_ms=20_000)
RETURNS = stream("evicts", Fault(9_500, "stop and post", 0, 800))
# Two of a hot standby that follow an outage have both caught up long before they end.
CAUGHT_UP = stream(
    "tolerates", Fault(6_000, "reset"), Fault(6_000, "no listener", 4_000), hot=True, memory=Memory(keeps=6)
)
# It was cut, so its connection of the newer function counts as behind for long; soon the older one's successor follows.
CUT = stream("tolerates", Fault(20_000, "stall"), resumes=False, memory=Memory(keeps=6))
HOT = stream("tolerates", hot=True)
STOPPED = stream("evicts", Fault(9_500, "stop"))
ABORT = Fault(12_000, "abort", 0, 30_000)

MORE_MS = 60_000
NEXT_TO_EXEMPTIONS = (
    GroupDefect(
        "a POST that a stop request overtook clears it",
        "stuck",
        {START_MACHINE: start_machine(clears_a_later_stop)},
        group(OVERTAKEN, CALM),
    ),
    GroupDefect(
        "a POST clears no stop request",
        "wrong-status",
        {START_MACHINE: start_machine(clears_no_stop)},
        group(RETURNS, CALM),
    ),
    GroupDefect(
        "a catch-up counts for three times as long as it takes",
        "invented",
        {"handlers.connection.ledger.Known.behind_ms": takes_three_times_as_long},
        group(CAUGHT_UP, CALM),
        MORE_MS,
    ),
    GroupDefect(
        "an upstream counts as keeping a second in place of five",
        "invented",
        {"handlers.connection.ledger.KEPT_MS": 1_000},
        group(CUT, HOT, faults=(Fault(40_300, "kill"),)),
    ),
    GroupDefect(
        "a group that nobody is in goes on",
        "stuck",
        {"handlers.group.roster.Roster.empty_version": property(no_empty_version)},
        group(STOPPED),
    ),
    GroupDefect(
        "a status heeds no beat of the group",
        "wrong-status",
        {"handlers.store.stream_records.member_lease": heeds_no_beat},
        group(stream("tolerates"), CALM, faults=(ABORT, Fault(14_000, "kill"))),
    ),
    GroupDefect(
        "nobody looks after a group whose execution was stopped",
        "stuck",
        {"handlers.watching.orphan_recovery.is_suspect": suspects_nobody},
        group(stream("tolerates"), STOPPED, faults=(ABORT,)),
    ),
)
