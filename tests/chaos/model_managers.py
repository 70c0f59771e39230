"""Decides which attributes of a real manager distinguish states of the model, and copies a manager.

Every attribute of a manager and of its parts is part of the state unless `IGNORED` gives a reason, so a new attribute
makes more states, never fewer. Invariant: neither function changes its argument.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, TypeVar

from handlers.connection.effects import Outcome
from handlers.connection.lease import Lease
from handlers.connection.manager import Manager

T = TypeVar("T")
# Not part of the state: values that never change, and values that only the ledger and the log get.
IGNORED = frozenset(
    {
        "_profile",
        "_decoder",  # holds nothing between whole lines, and the model's chunks are whole lines
        "_invocation",  # the process's own
        "_heartbeats",  # as long before the deadline as ever
        "_spare_ms",
        "ttl_ms",
        "_stays_ms",
        "_overlap_ms",
        "watch_ms",
        "_is_hot",
        "_execution",  # the process's own
        "_claimed_ms",  # as long before the deadline as a function lives
        "_expires_at_ms",  # a clock of the model never goes back, so earlier requests decide nothing
        "_beside",  # a fence: whether it is the one that is connected is in the key
        "fence",  # its order is in the key
        "resumed",
        "_ending",
        "frames",
        "bytes",
        "events",
        "unterminated_bytes",
        "_known_good_ms",
        "_stored",
        "_duplicates",
        "_dead_lettered",
        "_conflicts",
        "_deadline_ms",  # the process's own
        "_outcome",
        "outcome",  # follows from what it has handled
        "_is_ended",
        "_arrived",
    }
)
# It matters only whether these instants have come.
FACTS = frozenset({"opened_ms", "closed_ms"})
CHANGEABLE = (deque, list, dict, set)
# The parts of a manager.
PARTS = frozenset(
    {"_lifetime", "_draining", "_intake", "_record", "pending", "restart_detector", "liveness", "backlog"}
)


# Objects of these types in a manager are never changed in place, and never replaced.
PLAIN = frozenset({bool, int, str, bytes})


def _plan(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Returns the attributes of a part that are instants, facts and parts, and the rest."""
    counted = [name for name in names if name not in IGNORED]
    parts = tuple(name for name in counted if name in PARTS)
    facts = tuple(name for name in counted if name in FACTS)
    instants = tuple(name for name in counted if name.endswith("_ms") and name not in FACTS)
    return instants, facts, parts, tuple(name for name in counted if name not in {*instants, *facts, *parts})


# The plan of each type of a part, which has all its attributes from the first on; and the parts that are copied with
# it.
_plans: dict[tuple[type, int], tuple[tuple[str, ...], ...]] = {}
_copied: dict[type, tuple[str, ...]] = {}
# The number of each visible state without its instants: a number is compared sooner.
_numbers: dict[tuple[Any, ...], int] = {}


def summary(manager: Manager) -> tuple[tuple[int | None, ...], int]:
    """Returns the visible state of a manager without its fence: its instants, and the number of the rest."""
    instants: list[int | None] = []
    rest: list[Any] = []
    _collect(manager, instants, rest)
    return tuple(instants), _numbers.setdefault(tuple(rest), len(_numbers))


def _collect(part: Any, instants: list[int | None], rest: list[Any]) -> None:
    attributes = part.__dict__
    which = type(part), len(attributes)
    plan = _plans.get(which)
    if plan is None:
        plan = _plans[which] = _plan(tuple(attributes))
    times, facts, parts, others = plan
    instants += [attributes[name] for name in times]
    rest += [attributes[name] is None for name in facts]
    for name in others:
        value = attributes[name]
        rest.append(value if type(value) in PLAIN else _plain(value))
    for name in parts:
        rest.append(attributes[name] is None)
        if attributes[name] is not None:
            _collect(attributes[name], instants, rest)


def _plain(value: Any) -> Any:
    if isinstance(value, Lease):
        return value.execution, value.stop
    if isinstance(value, Outcome):
        return value.error, value.status
    return tuple(value) if isinstance(value, deque) else value


def clone(part: T) -> T:
    """Returns a copy of a manager, or of a part, that can be fed without changing the original."""
    kind = type(part)
    twin: T = object.__new__(kind)
    attributes = twin.__dict__
    attributes.update(part.__dict__)
    names = _copied.get(kind)
    if names is None:
        names = _copied[kind] = tuple(name for name, value in attributes.items() if type(value) not in PLAIN)
    for name in names:
        value = attributes[name]
        if name in PARTS and value is not None:
            attributes[name] = clone(value)
        elif isinstance(value, CHANGEABLE):
            attributes[name] = copy.copy(value)
    return twin
