"""Reports the problems of a definition with AWS's codes, places and words.

The interpreter finds the problems; this module words them for ValidateStateMachineDefinition and CreateStateMachine.
Codes and places are recorded. Example: `there is no state 'X'` is MISSING_TRANSITION_TARGET at `/States/A/Next`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from states_language import DefinitionError, Machine, problems
from states_language.definition.fields import JSONATA, child_pointer
from states_language.definition.load import TYPES, load_deployed
from states_language.definition.pointers import LINES, Found, keys, states_of, value_at
from states_language.jsonata.evaluation import compile_query, is_query
from states_language.jsonata.functions import functions_frame
from states_language.jsonpath.expressions import Call, Expression, compile_expression
from states_language.jsonpath.selection import Path
from states_language.server.definition_reader import BoundedCache
from states_language.server.json_messages import message_and_place
from states_language.server.requests import Refusal
from states_language.server.sdk import is_action
from states_language.tasks.resources import Resource, read_resource, unrecognized_message
from states_language.values import parse_json, unique_members_hook

_SCHEMA = "SCHEMA_VALIDATION_FAILED"
MOST_REMEMBERED = 3_000_000
MOST_READ = 4_000_000
"""How many characters of definitions are remembered, and are read to list the problems of one definition."""
_RESOURCE = "The resource provided "
_BOUNDS = re.compile(r"must be between (-?\d+) and (\d+)")
_NO_STATE = re.compile(r"there is no state '.*'", re.DOTALL)


def refuse_invalid_definition(definition: str, kind: str) -> None:
    """Raises Refusal InvalidDefinition with the diagnostics of a definition that cannot run."""
    if reports := diagnostics(definition, kind):
        raise _refusal(reports)


def invalid_definition(problem: DefinitionError, definition: Any) -> Refusal:
    return _refusal([_diagnostic(problem, definition)])


def _refusal(reports: list[dict[str, str]]) -> Refusal:
    # Each problem has a code, a message and a place; "null" if it has no place (measured by others).
    words = ", ".join(f"{one['code']}: {one['message']} at {one.get('location', 'null')}" for one in reports)
    return Refusal("InvalidDefinition", f"Invalid State Machine Definition: '{words}'")


@dataclass(frozen=True)
class Examination:
    """A definition's diagnostics, those only of an Express machine, and the machine: None if it cannot run.

    variables: those that each state reads.
    """

    reports: list[dict[str, str]]
    express: list[dict[str, str]]
    machine: Machine | None
    variables: dict[str, list[str]] = field(default_factory=dict)


_examinations: BoundedCache[Examination] = BoundedCache(MOST_REMEMBERED)


def is_examined(text: str) -> bool:
    """Returns whether a definition is known, so that `diagnostics` and `load_remembered` take no time."""
    return _examinations.get(text) is not None


def examine(text: str) -> Examination:
    """Returns what is known of a definition; the first call reads it and remembers the result."""
    known = _examinations.get(text)
    if known is None:
        known = _examine(text)
        _examinations.put(text, known)
    return known


def load_remembered(text: str) -> Machine:
    """Returns the machine of a definition; raises ValueError (such as DefinitionError) if it cannot run."""
    known = _examinations.get(text)
    if known is not None and known.machine is not None:
        return known.machine
    definition = parse_json(text, members=unique_members_hook())
    if not isinstance(definition, dict):
        raise DefinitionError("/", "must be a JSON object")
    return load_deployed(definition)


def diagnostics(text: str, kind: str) -> list[dict[str, str]]:
    """Returns the diagnostics of a definition for a STANDARD or EXPRESS machine; none if it can run."""
    known = examine(text)
    return known.reports or (known.express if kind == "EXPRESS" else [])


def _examine(text: str) -> Examination:
    try:
        definition = parse_json(text, members=unique_members_hook())
        if not isinstance(definition, dict):
            return Examination([_error(_SCHEMA, "Definition must be a valid JSON object")], [], None)
        try:
            machine = load_deployed(definition)
            states = [(path, state) for path, state in states_of(definition) if state["Type"] in ("Task", "Map")]
            if unknown := list(unknown_actions(states)):
                return Examination([_diagnostic(problem, definition) for problem in unknown], [], None)
            variables = variable_references(definition) if '"Assign"' in text else {}
            return Examination([], _express_problems(states), machine, variables)
        except DefinitionError:
            # Each problem takes another reading of the definition.
            defects = problems(definition, MOST_READ // len(text), deployed=True)
        words = [_diagnostic(problem, definition) for problem in defects] + _missing_end_report(definition, defects)
        return Examination(words, [], None)
    except RecursionError:
        return Examination([_error(_SCHEMA, "Definition is nested too deeply")], [], None)
    except ValueError as problem:
        if not text.strip():
            return Examination([_error(_SCHEMA, "Definition must be a valid JSON object")], [], None)
        message, place = message_and_place(text, problem)
        return Examination([_error("INVALID_JSON_DESCRIPTION", message, place)], [], None)


def unknown_actions(states: Iterable[Found]) -> Iterator[DefinitionError]:
    """Yields a problem for each action of an SDK integration that no service has."""
    for path, state in states:
        resource = read_resource(state["Resource"]) if state["Type"] == "Task" else ""
        if isinstance(resource, Resource) and resource.sdk and not is_action(resource.service, resource.action):
            yield DefinitionError(child_pointer("/", *path, "Resource"), unrecognized_message(resource.text))


def _missing_end_report(definition: dict[str, Any], defects: list[DefinitionError]) -> list[dict[str, str]]:
    """Returns AWS's second report, "no state ends the machine", where the interpreter only reports a missing target."""
    if not all(_NO_STATE.fullmatch(each.rule) and keys(each.pointer)[-1] == "Next" for each in defects):
        return []
    states = definition["States"].values()
    lead_on = all(isinstance(state, dict) and "Next" in state for state in states)
    return [_error("MISSING_END_STATE", "Workflow has no terminal state")] if lead_on else []


def _diagnostic(problem: DefinitionError, definition: Any) -> dict[str, str]:
    for pattern, code, words in _DIAGNOSTICS:
        match = re.fullmatch(pattern, problem.rule, re.DOTALL)
        if match is not None:
            path = keys(problem.pointer)
            names = {"field": path[-1] if path else "", **match.groupdict("")}
            if "names" in names:
                names["names"] = ", ".join(sorted(names["names"].split(", "), reverse=True))
            where = _location(definition, path[:-1] if "{field}" in words else path)
            return _error(code, words.format(**names), None if code == "MISSING_END_STATE" else where)
    if (bounds := _BOUNDS.fullmatch(problem.rule)) is not None:
        value = value_at(definition, keys(problem.pointer))
        low = isinstance(value, int | float) and value < int(bounds[1])
        words = f"Minimum value is {bounds[1]}" if low else f"Maximum value is {bounds[2]}"
        return _error(_SCHEMA, words, _location(definition, keys(problem.pointer)))
    rule = problem.rule.partition(" (")[0] if problem.rule.startswith(_RESOURCE) else problem.rule
    return _error(_SCHEMA, f"{rule[:1].upper()}{rule[1:]}", _location(definition, keys(problem.pointer)))


def _location(definition: Any, path: tuple[str, ...]) -> str:
    """Returns a place as AWS writes it: names unchanged, an element's number in brackets."""
    written = ""
    for at, part in enumerate(path):
        written += f"[{part}]" if isinstance(value_at(definition, path[:at]), list) else f"/{part}"
    return written or "/"


_TRANSITION = "MISSING_TRANSITION_TARGET"
_UNSUPPORTED = "UNSUPPORTED_JSONATA_EXPRESSION"
_TYPES = "[Task, Wait, Pass, Succeed, Fail, Choice, Parallel, Map]"
_DIAGNOSTICS = (
    (r"there is no state '(?P<name>.*)'", _TRANSITION, "Missing 'Next' target: {name}"),
    (r"the state '(?P<name>.*)' is not reachable", _TRANSITION, 'State "{name}" is not reachable.'),
    (r"no state ends the machine.*", "MISSING_END_STATE", "Workflow has no terminal state"),
    (r"the name of the state '(?P<name>.*)' is used twice.*", "DUPLICATE_STATE_NAME", "Duplicate State name: {name}"),
    (r"these fields are required: (?P<names>.*)", _SCHEMA, "These fields are required: [{names}]"),
    (r"is not a field of .*", _SCHEMA, "Field '{field}' is not supported"),
    (r"is a field of (?P<only>\w+); the query language here is (?P<here>\w+)", _SCHEMA,
     "The QueryLanguage is set to '{here}', but field '{field}' is only supported for the '{only}' QueryLanguage"),
    (r"must be JSONPath or JSONata", _SCHEMA, "Value should be one of the following: [JSONPath, JSONata]"),
    (r"must be a string", _SCHEMA, "Expected value of type [STRING]"),
    (r"must hold at least one branch", _SCHEMA, "Value cannot be empty"),
    (rf"'.*' is not one of {', '.join(TYPES)}", _SCHEMA, f"The field 'Type' should have one of these values: {_TYPES}"),
    (r"'.*' is not a valid JSONata expression: (?:[A-Z][0-9]+: )?(?P<what>.*)", "INVALID_JSONATA_EXPRESSION",
     "{what}"),
    (r"a reference to '(?P<name>.*)' (?P<where>at the top level )?is not supported; .*", _UNSUPPORTED,
     "Reference to '{name}' {where}is not supported."),
    (r"there is no \$states.errorOutput but in a Catcher", _UNSUPPORTED, "Field '$states.errorOutput' does not exist."),
)  # fmt: skip
"""AWS's diagnostic for each rule of the loader: the rule's pattern, the code, the words. If they name the field, the
place is the object that has it. Recorded, or measured by others."""


def _express_problems(states: Iterable[Found]) -> list[dict[str, str]]:
    """What an Express machine may not have: activities, and Tasks that wait for a token or a job (recorded)."""
    refused = []
    for path, state in states:
        place = child_pointer("/", *path)
        mode = value_at(state, ("ItemProcessor", "ProcessorConfig", "Mode"))
        for pattern, what in _NOT_EXPRESS.items():
            if re.search(pattern, state.get("Resource", "")):
                refused.append(_error(_SCHEMA, f"Express state machine does not support {what}", f"{place}/Resource"))
        if mode == "DISTRIBUTED":
            message = "Express state machine does not support Distributed Map"
            refused.append(_error(_SCHEMA, message, f"{place}/ItemProcessor/ProcessorConfig/Mode"))
    return refused


_NOT_EXPRESS = {
    ":activity:": "Activity ARN",
    r"\.waitForTaskToken$": "'.waitForTaskToken' service integration ",
    r"\.sync(:2)?$": "'.sync' service integration",
}
"""The Resources that an Express machine may not have, and AWS's names of them."""


def _error(code: str, message: str, location: str | None = None) -> dict[str, str]:
    diagnostic = {"severity": "ERROR", "code": code, "message": message}
    return diagnostic if location is None else diagnostic | {"location": location}


_TEMPLATES = ("Parameters", "ResultSelector", "ItemSelector", "BatchInput", "Assign", "Credentials")
_OTHERS = (*LINES, "Branches", "Result", "ResultPath")


def variable_references(definition: dict[str, Any]) -> dict[str, list[str]]:
    """Returns the names of the variables by the name of the state that reads them; both in their order."""
    functions, found = functions_frame(lambda: 0, lambda: 0.0), {}
    for path, state in states_of(definition):
        fields = {name: value for name, value in state.items() if name not in _OTHERS}
        is_jsonata = state.get("QueryLanguage", definition.get("QueryLanguage")) == JSONATA
        names = set(_names_in_queries(fields) if is_jsonata else _names_in_paths(fields, template=False))
        if read := sorted(name for name in names if not is_jsonata or functions.lookup(name) is None):
            found[str(path[-1])] = read
    return found


def _names_in_paths(value: Any, *, template: bool) -> Iterator[str]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        name = str(key)
        if isinstance(member, str) and (name.endswith(".$") if template else name.endswith(("Path", "Variable"))):
            yield from _names_read(compile_expression(member))
        else:
            yield from _names_in_paths(member, template=template or name in _TEMPLATES)


def _names_read(expression: Expression) -> Iterator[str]:
    if isinstance(expression, Path) and expression.variable is not None:
        yield expression.variable
    for argument in expression.arguments if isinstance(expression, Call) else ():
        yield from _names_read(argument)


def _names_in_queries(value: Any) -> Iterator[str]:
    if is_query(value):
        yield from compile_query(value, "/", in_catcher=True).free_names
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names_in_queries(part)
