"""What is wrong with a definition, in AWS's codes.

Decides which code, place and words a problem has in ValidateStateMachineDefinition and CreateStateMachine. What is
wrong the interpreter says. Codes and places are recorded.
"""

import re
from typing import Any

from local.api.asking import Action, Answer, Parameters
from local.asl import DefinitionError
from local.asl.check import below
from local.asl.functions import parse_json
from local.asl.problems import problems
from local.requests import Refusal

_SCHEMA = "SCHEMA_VALIDATION_FAILED"
_USUAL = 100
_EXPRESS = "Express state machine does not support"
_TARGET = re.compile(r"there is no state '(.*)'", re.DOTALL)
_REQUIRED = re.compile(r"these fields are required: (.*)", re.DOTALL)
_RESOURCE = "The resource provided "
_TOKEN = re.compile(r"[A-Za-z_$][\w$]*")
_UNREACHED = re.compile(r"the state '(.*)' is not reachable", re.DOTALL)


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
    """Returns nothing; raises Refusal InvalidDefinition with the first diagnostic of a definition that cannot run."""
    for found in diagnostics(definition, kind):
        place = f" at {found['location']}" if "location" in found else ""
        told = f"{found['code']}: {found['message']}{place}"
        raise Refusal("InvalidDefinition", f"Invalid State Machine Definition: '{told}'")


def invalid(problem: DefinitionError) -> Refusal:
    """Returns the refusal of a definition with this problem."""
    found = _told(problem)
    told = f"{found['code']}: {found['message']} at {found['location']}"
    return Refusal("InvalidDefinition", f"Invalid State Machine Definition: '{told}'")


def diagnostics(text: str, kind: str) -> list[dict[str, str]]:
    """Returns the diagnostics of a definition for a STANDARD or EXPRESS machine; none where it can run."""
    try:
        definition = parse_json(text)
        if not isinstance(definition, dict):
            return [_error(_SCHEMA, "Definition must be a valid JSON object")]
        if found := problems(definition):
            return [_told(problem) for problem in found]
        return [] if kind == "STANDARD" else _express(definition, "/")
    except RecursionError:
        return [_error(_SCHEMA, "Definition is nested too deeply")]
    except ValueError as problem:
        if not text.strip():
            return [_error(_SCHEMA, "Definition must be a valid JSON object")]
        return [_no_json(text, problem)]


def _told(problem: DefinitionError) -> dict[str, str]:
    if _TARGET.fullmatch(problem.rule):
        return _error("MISSING_TRANSITION_TARGET", f"Missing 'Next' target: {problem.rule}", problem.pointer)
    if _UNREACHED.fullmatch(problem.rule):
        return _error("MISSING_TRANSITION_TARGET", f"{problem.rule[0].upper()}{problem.rule[1:]}.", problem.pointer)
    if (found := _REQUIRED.fullmatch(problem.rule)) is not None:
        names = sorted(found[1].split(", "), reverse=True)
        return _error(_SCHEMA, f"These fields are required: [{', '.join(names)}]", problem.pointer)
    rule = problem.rule.partition(" (")[0] if problem.rule.startswith(_RESOURCE) else problem.rule
    return _error(_SCHEMA, f"{rule[:1].upper()}{rule[1:]}", problem.pointer)


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


def _no_json(text: str, problem: ValueError) -> dict[str, str]:
    """AWS's parser is Jackson: it names the token that it did not expect, and the column after it (recorded)."""
    at, line, column = getattr(problem, "pos", 0), getattr(problem, "lineno", 1), getattr(problem, "colno", 1)
    token = _TOKEN.match(text, at)
    message = str(problem)
    if token is not None:
        column += len(token[0])
        message = (
            f"Unrecognized token '{token[0]}': was expecting (JSON String, Number, Array, Object or token 'null', "
        )
        message += "'true' or 'false')"
    place = f'[Source: (String)"{text}"; line: {line}, column: {column}]'
    return _error("INVALID_JSON_DESCRIPTION", f"{message}\n at {place}", place)


def _error(code: str, message: str, location: str | None = None) -> dict[str, str]:
    found = {"severity": "ERROR", "code": code, "message": message}
    return found if location is None else found | {"location": location}
