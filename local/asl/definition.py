"""From a definition to a machine that can run: `load`.

Decides which definitions are accepted; everything that this interpreter does not support is refused here, with the
place and the rule. Invariant: a machine that was loaded leads only to states that exist, and every state can be
reached.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from local.asl.check import DefinitionError, Fields, below, query_language
from local.asl.lines import Line
from local.asl.machine import Machine
from local.asl.source import read_definition
from local.asl.states.base import State
from local.asl.states.choice import Choice
from local.asl.states.fail import Fail
from local.asl.states.parallel import Parallel
from local.asl.states.pass_ import Pass
from local.asl.states.succeed import Succeed
from local.asl.states.task import Task
from local.asl.states.wait import Wait

LONGEST_NAME = 80
"""Characters of a state's name (AWS Step Functions)."""


def load(source: Mapping[str, Any] | str | os.PathLike[str]) -> Machine:
    """Return the machine of a definition, given as data or as the path of a YAML or JSON file.

    Raises DefinitionError, whose pointer names the place and whose rule says what is wrong with it.
    """
    definition = dict(source) if isinstance(source, Mapping) else read_definition(source)
    fields = Fields(definition, "/")
    fields.string("Comment")
    if fields.string("Version") not in (None, "1.0"):
        raise fields.fail("Version", "must be 1.0")
    timeout_s = fields.integer("TimeoutSeconds", 1)
    return Machine(_line(fields, "a state machine"), timeout_s, definition)


def _branch(value: Any, pointer: str) -> Line:
    fields = Fields(value, pointer)
    fields.string("Comment")
    return _line(fields, "a branch")


def _line(fields: Fields, kind: str) -> Line:
    query_language(fields)
    fields.require("StartAt", "States")
    start_at = fields.string("StartAt") or ""
    values = fields.object("States")
    fields.close(kind)
    where = fields.at("States")
    states = {name: _state(name, value, below(where, name)) for name, value in values.items()}
    if start_at not in states:
        raise fields.fail("StartAt", f"there is no state '{start_at}'")
    _check_targets(states, start_at, where)
    return Line(start_at, states)


def _state(name: str, value: Any, pointer: str) -> State:
    fields = Fields(value, pointer)
    if not name or len(name) > LONGEST_NAME:
        raise DefinitionError(pointer, f"a state's name has 1 to {LONGEST_NAME} characters")
    fields.require("Type")
    kind = fields.string("Type") or ""
    if kind == "Map":
        raise fields.fail("Type", "the Map state is not supported")
    if kind not in TYPES:
        raise fields.fail("Type", f"'{kind}' is not one of {', '.join(TYPES)}")
    return TYPES[kind](name, fields)


def _check_targets(states: dict[str, State], start_at: str, where: str) -> None:
    for state in states.values():
        for target, pointer in state.targets():
            if target not in states:
                raise DefinitionError(pointer, f"there is no state '{target}'")
    reached, open_names = {start_at}, [start_at]
    while open_names:
        for target, _ in states[open_names.pop()].targets():
            if target not in reached:
                reached.add(target)
                open_names.append(target)
    for name in states:
        if name not in reached:
            raise DefinitionError(below(where, name), f"the state '{name}' is not reachable")


TYPES: dict[str, Callable[[str, Fields], State]] = {
    "Pass": Pass,
    "Wait": Wait,
    "Task": Task,
    "Parallel": lambda name, fields: Parallel(name, fields, _branch),
    "Choice": Choice,
    "Succeed": Succeed,
    "Fail": Fail,
}
"""The state types that are supported."""
