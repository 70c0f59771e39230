"""Loads a definition: `load` returns a machine that can run, or raises DefinitionError.

What this interpreter does not support is refused here, with the place and the rule, and not while an execution runs.
Invariant: in a loaded machine every transition leads to a state that exists, and every state can be reached.
"""

from collections.abc import Container
from typing import Any

from states_language.clock import few_collections
from states_language.definition.fields import (
    JSONPATH,
    CompileLine,
    DefinitionError,
    Fields,
    child_pointer,
    read_query_language,
)
from states_language.definition.shapes import learn_shape, targets_if_sound
from states_language.definition.source import Source, copy_as_json, read_definition
from states_language.definition.templates import Substitutions
from states_language.machine import Machine
from states_language.scheduling.lanes import give_way
from states_language.states.base import Line, State, States
from states_language.states.iterations import Parallel
from states_language.states.map_ import Map
from states_language.states.plain import Choice, Fail, Pass, Succeed, Wait
from states_language.states.task import Task
from states_language.tasks.resources import unrecognized_message

LONGEST_NAME = 80
"""Characters of a state's name (AWS Step Functions)."""
_NESTED = "is nested too deeply"


def load(
    source: Source, *, substitutions: Substitutions | None = None, machine: str | None = None, deployed: bool = False
) -> Machine:
    """Return the machine of a definition: its data, the path of its JSON or YAML file, or its text.

    A string that has several lines or begins with { is a text, any other a path. Each source may be a template of SAM,
    CloudFormation or CDK; `machine` then chooses one state machine by its logical id. substitutions: a value for each
    `${Name}`; a name without a value stays as a placeholder, and a Task whose Resource is a placeholder calls the
    function of this name. deployed: whether the source is data as AWS takes it, which may hold no placeholder. Raises
    DefinitionError, whose `pointer` names the place and whose `rule` says what is wrong there.
    """
    try:
        definition = copy_as_json(source) if deployed else read_definition(source, substitutions, machine)
    except RecursionError:
        raise DefinitionError("/", _NESTED) from None
    return load_deployed(definition) if deployed else _load_machine(definition)


def load_deployed(definition: dict[str, Any]) -> Machine:
    """As `load`, with a definition that was read from JSON and that nobody changes, so it needs no copy."""
    loaded = _load_machine(definition)
    _check_placeholders(loaded.line)
    return loaded


@few_collections()
def _load_machine(definition: dict[str, Any]) -> Machine:
    fields = Fields(definition, "/")
    language = read_query_language(fields, JSONPATH)
    fields.string("Comment")
    if fields.string("Version") not in (None, "1.0"):
        raise fields.error_for("Version", "must be 1.0")
    timeout_s = fields.integer("TimeoutSeconds", 1)
    try:
        line = _load_line(fields, "a state machine", language, ends=True)
        _check_names(line, {})
        _check_scopes(line, {})
    except RecursionError:
        raise DefinitionError("/", _NESTED) from None
    return Machine(line, timeout_s, definition)


def _load_line(fields: Fields, kind: str, language: str, *, ends: bool = False) -> Line:
    """`language` is the machine's, for states within a Parallel or Map do not inherit the language of that state."""

    def load_inner(value: Any, pointer: str, what: str) -> Line:
        inner_fields = Fields(value, pointer)
        inner_fields.string("Comment")
        inner_fields.language = language
        return _load_line(inner_fields, what, language)

    fields.require("StartAt", "States")
    start_at = fields.string("StartAt") or ""
    values = fields.object("States")
    fields.refuse_unread(kind)
    where = fields.pointer_of("States")
    states = States(lambda name: _load_state(name, values[name], child_pointer(where, name), language, load_inner))
    for name, value in values.items():
        give_way()
        names = targets_if_sound(value, language) if 0 < len(name) <= LONGEST_NAME else None
        if names is None:
            names = [target for target, _ in states[name].targets]
            learn_shape(value, language)
        states.target_names[name] = names
    if start_at not in values:
        raise fields.error_for("StartAt", f"there is no state '{start_at}'")
    reached = _find_reachable(states.target_names, start_at)
    if reached != values.keys():
        for name, names in states.target_names.items():
            if not values.keys() >= {*names}:
                raise _missing_target_error(states[name], values)
    # A line within a state may go round for ever, a machine may not (measured by others).
    if ends and not any(value.get("End") is True or value["Type"] in _LAST for value in reversed(values.values())):
        raise DefinitionError(
            fields.pointer, "no state ends the machine: it needs a state with End: true, a Succeed or a Fail"
        )
    for name in values if reached != values.keys() else ():
        if name not in reached:
            raise DefinitionError(child_pointer(where, name), f"the state '{name}' is not reachable")
    return Line(start_at, states, where)


def _load_state(name: str, value: Any, pointer: str, language: str, inner: CompileLine) -> State:
    fields = Fields(value, pointer)
    fields.compile_line = inner
    read_query_language(fields, language)
    if not name or len(name) > LONGEST_NAME:
        raise DefinitionError(pointer, f"a state's name must have 1 to {LONGEST_NAME} characters")
    fields.require("Type")
    kind = fields.string("Type") or ""
    if kind not in TYPES:
        raise fields.error_for("Type", f"'{kind}' is not one of {', '.join(TYPES)}")
    return TYPES[kind](name, fields)


def _missing_target_error(state: State, there: Container[str]) -> DefinitionError:
    target, place = next((target, place) for target, place in state.targets if target not in there)
    return DefinitionError(f"{state.pointer}/{place}", f"there is no state '{target}'")


def _find_reachable(targets: dict[str, list[str]], start_at: str) -> set[str]:
    """Return the names of the states to which the first one leads, and those that no state has."""
    reached, open_names = {start_at}, [start_at]
    while open_names:
        give_way()
        for target in targets.get(open_names.pop(), ()):
            if target not in reached:
                reached.add(target)
                open_names.append(target)
    return reached


def _check_placeholders(line: Line) -> None:
    for state in line.states.values():
        if isinstance(state, Task) and state.resource.is_placeholder:
            raise DefinitionError(child_pointer(state.pointer, "Resource"), unrecognized_message(state.resource.text))
        for inner in (*state.inner_lines, *state.isolated_lines):
            _check_placeholders(inner)


def _check_names(line: Line, known: dict[str, str]) -> None:
    """State names "MUST be unique within the scope of the whole state machine" (Amazon States Language)."""
    names = line.states.target_names
    if twice := next((name for name in names if name in known), None) if known else None:
        places = [child_pointer(pointer, twice) for pointer in (line.pointer, known[twice])]
        raise DefinitionError(places[0], f"the name of the state '{twice}' is used twice, see {places[1]}")
    known.update(dict.fromkeys(names, line.pointer))
    for state in line.states_with_lines:
        for inner in (*state.inner_lines, *state.isolated_lines):
            _check_names(inner, known)


def _check_scopes(line: Line, outer: dict[str, str]) -> None:
    """An inner scope may not assign a variable that an outer scope assigns (Developer Guide, variables)."""
    own = {name: pointer for state in line.states.values() for name, pointer in state.assigned_variables}
    for name, pointer in own.items():
        if name in outer:
            raise DefinitionError(pointer, f"the variable '{name}' belongs to an outer scope, see {outer[name]}")
    for state in line.states_with_lines:
        for inner in state.inner_lines:
            _check_scopes(inner, {**outer, **own})
        for apart in state.isolated_lines:
            _check_scopes(apart, {})


TYPES: dict[str, type[State]] = {kind.type: kind for kind in (Pass, Wait, Task, Parallel, Map, Choice, Succeed, Fail)}
"""The state types that are supported."""
_LAST = (Succeed.type, Fail.type)
