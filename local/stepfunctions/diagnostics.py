"""What is wrong with a definition, in AWS's codes.

Decides which code, place and words a problem has in ValidateStateMachineDefinition and CreateStateMachine. What is
wrong the interpreter says. Codes and places are recorded.
"""

import re
from typing import Any

from local.stepfunctions.json_messages import strict, told
from local.stepfunctions.parameters import Action, Answer, Parameters, Refusal
from states_language import DefinitionError
from states_language.definition.fields import below
from states_language.definition.place import keys, value_at
from states_language.definition.problems import problems

_SCHEMA = "SCHEMA_VALIDATION_FAILED"
_USUAL = 100
_EXPRESS = "Express state machine does not support"
_RESOURCE = "The resource provided "
_BOUNDS = re.compile(r"must be between (-?\d+) and (\d+)")
_NO_STATE = re.compile(r"there is no state '.*'", re.DOTALL)


class VerdictActions:
    """ValidateStateMachineDefinition."""

    def actions(self) -> dict[str, Action]:
        """Returns the action by name."""
        return {"ValidateStateMachineDefinition": self._validate}

    def _validate(self, parameters: Parameters) -> Answer:
        found = diagnostics(parameters["definition"], parameters.get("type") or "STANDARD")
        # "The default value is 100. … If the number of diagnostics exceeds it, truncated is true" (API reference).
        shown = found[: parameters.get("maxResults") or _USUAL]
        return {"result": "FAIL" if found else "OK", "diagnostics": shown, "truncated": len(shown) < len(found)}


def refuse_bad(definition: str, kind: str) -> None:
    """Returns nothing; raises Refusal InvalidDefinition with the diagnostics of a definition that cannot run."""
    if found := diagnostics(definition, kind):
        raise _refusal(found)


def invalid(problem: DefinitionError, definition: Any) -> Refusal:
    """Returns the refusal of a definition with this problem."""
    return _refusal([_told(problem, definition)])


def _refusal(found: list[dict[str, str]]) -> Refusal:
    # One code, message and place each, "null" for a problem of no place (measured by others).
    words = ", ".join(f"{one['code']}: {one['message']} at {one.get('location', 'null')}" for one in found)
    return Refusal("InvalidDefinition", f"Invalid State Machine Definition: '{words}'")


def diagnostics(text: str, kind: str) -> list[dict[str, str]]:
    """Returns the diagnostics of a definition for a STANDARD or EXPRESS machine; none where it can run."""
    try:
        definition = strict(text)
        if not isinstance(definition, dict):
            return [_error(_SCHEMA, "Definition must be a valid JSON object")]
        if found := problems(definition):
            return [_told(problem, definition) for problem in found] + _without_end(definition, found)
        return [] if kind == "STANDARD" else _express(definition, "/")
    except RecursionError:
        return [_error(_SCHEMA, "Definition is nested too deeply")]
    except ValueError as problem:
        if not text.strip():
            return [_error(_SCHEMA, "Definition must be a valid JSON object")]
        message, place = told(text, problem)
        return [_error("INVALID_JSON_DESCRIPTION", message, place)]


def _without_end(definition: dict[str, Any], found: list[DefinitionError]) -> list[dict[str, str]]:
    """What AWS says beside a missing target, and we do not: that no state ends the machine either."""
    if not all(_NO_STATE.fullmatch(each.rule) and keys(each.pointer)[-1] == "Next" for each in found):
        return []
    states = definition["States"].values()
    lead_on = all(isinstance(state, dict) and "Next" in state for state in states)
    return [_error("MISSING_END_STATE", "Workflow has no terminal state")] if lead_on else []


def _told(problem: DefinitionError, definition: Any) -> dict[str, str]:
    for pattern, code, words, of_owner in _WORDS:
        found = re.fullmatch(pattern, problem.rule, re.DOTALL)
        if found is not None:
            path = keys(problem.pointer)
            names = {"field": path[-1] if path else "", **found.groupdict("")}
            if "names" in names:
                names["names"] = ", ".join(sorted(names["names"].split(", "), reverse=True))
            where = _location(definition, path[:-1] if of_owner else path)
            return _error(code, words.format(**names), None if code == "MISSING_END_STATE" else where)
    if (bounds := _BOUNDS.fullmatch(problem.rule)) is not None:
        low = _below(value_at(definition, keys(problem.pointer)), int(bounds[1]))
        words = f"Minimum value is {bounds[1]}" if low else f"Maximum value is {bounds[2]}"
        return _error(_SCHEMA, words, _location(definition, keys(problem.pointer)))
    rule = problem.rule.partition(" (")[0] if problem.rule.startswith(_RESOURCE) else problem.rule
    return _error(_SCHEMA, f"{rule[:1].upper()}{rule[1:]}", _location(definition, keys(problem.pointer)))


def _below(value: Any, least: int) -> bool:
    return isinstance(value, int | float) and value < least


def _location(definition: Any, path: tuple[str, ...]) -> str:
    """Returns a place as AWS writes it: names as they are, an element's number in brackets."""
    written = ""
    for at, part in enumerate(path):
        written += f"[{part}]" if isinstance(value_at(definition, path[:at]), list) else f"/{part}"
    return written or "/"


_TRANSITION = "MISSING_TRANSITION_TARGET"
_WORDS: tuple[tuple[str, str, str, bool], ...] = (
    (r"there is no state '(?P<name>.*)'", _TRANSITION, "Missing 'Next' target: {name}", False),
    (r"the state '(?P<name>.*)' is not reachable", _TRANSITION, 'State "{name}" is not reachable.', False),
    (r"no state ends the machine.*", "MISSING_END_STATE", "Workflow has no terminal state", False),
    (
        r"the name of the state '(?P<name>.*)' is used twice.*",
        "DUPLICATE_STATE_NAME",
        "Duplicate State name: {name}",
        False,
    ),
    (r"these fields are required: (?P<names>.*)", _SCHEMA, "These fields are required: [{names}]", False),
    (r"is not a field of .*", _SCHEMA, "Field '{field}' is not supported", True),
    (
        r"is a field of (?P<only>\w+); the query language here is (?P<here>\w+)",
        _SCHEMA,
        "The QueryLanguage is set to '{here}', but field '{field}' is only supported for the '{only}' QueryLanguage",
        True,
    ),
    (r"must be JSONPath or JSONata", _SCHEMA, "Value should be one of the following: [JSONPath, JSONata]", False),
    (r"must be a string", _SCHEMA, "Expected value of type [STRING]", False),
    (
        r"'.*' is not a valid JSONata expression: (?:[A-Z][0-9]+: )?(?P<what>.*)",
        "INVALID_JSONATA_EXPRESSION",
        "{what}",
        False,
    ),
    (
        r"a reference to '(?P<name>.*)' (?P<where>at the top level )?is not supported; .*",
        "UNSUPPORTED_JSONATA_EXPRESSION",
        "Reference to '{name}' {where}is not supported.",
        False,
    ),
    (
        r"there is no \$states.errorOutput but in a Catcher",
        "UNSUPPORTED_JSONATA_EXPRESSION",
        "Field '$states.errorOutput' does not exist.",
        False,
    ),
)
"""What a rule of the loader is called by AWS: a pattern of the rule, the code, the words, and whether the place is the
object that has the field. Recorded, or measured by others."""


def _express(line: dict[str, Any], pointer: str) -> list[dict[str, str]]:
    """What only a Standard machine may have: activities, and Tasks that are waited for (recorded)."""
    found = []
    states = line.get("States", {})
    for name, state in states.items():
        place = below(pointer, "States", name)
        resource = state.get("Resource", "")
        if ":activity:" in resource:
            found.append(_error(_SCHEMA, f"{_EXPRESS} Activity ARN", f"{place}/Resource"))
        elif resource.endswith(".waitForTaskToken"):
            told = f"{_EXPRESS} '.waitForTaskToken' service integration "
            found.append(_error(_SCHEMA, told, f"{place}/Resource"))
        elif re.search(r"\.sync(:2)?$", resource):
            found.append(_error(_SCHEMA, f"{_EXPRESS} '.sync' service integration", f"{place}/Resource"))
        for index, branch in enumerate(state.get("Branches", [])):
            found += _express(branch, below(place, "Branches", index))
        for member in ("ItemProcessor", "Iterator"):
            found += _express(state[member], below(place, member)) if isinstance(state.get(member), dict) else []
    return found


def _error(code: str, message: str, location: str | None = None) -> dict[str, str]:
    found = {"severity": "ERROR", "code": code, "message": message}
    return found if location is None else found | {"location": location}
