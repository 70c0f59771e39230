"""Lists every problem of a definition, where `load` stops at the first.

It calls `load` on a copy, repairs the place that `load` complains about, and calls `load` again until it succeeds. A
problem that only a repair has caused is left out. So `load` alone knows the rules of the language.
Invariant: the first problem is the one that `load` raises, and a definition without problems loads.
"""

import copy
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from states_language.definition.fields import DefinitionError
from states_language.definition.load import load
from states_language.definition.pointers import Key, Place, keys, locate, transitions, value_at
from states_language.definition.source import Source, copy_as_json, read_definition
from states_language.definition.templates import Substitutions

MOST = 200
"""How many problems of one definition are listed at most."""

_FUNCTION = "arn:aws:lambda:us-east-1:111111111111:function:f"
_STAND_IN_STATE = "state that stands in"
_LINE = {"StartAt": _STAND_IN_STATE, "States": {_STAND_IN_STATE: {"Type": "Succeed"}}}
# A value for a required field that is missing, so that the loader gets to the rest.
_STAND_INS: dict[str, Any] = {
    "Resource": _FUNCTION,
    "Seconds": 1,
    "Variable": "$",
    "IsPresent": True,
    "Condition": "{% true %}",
    "FunctionName": "f",
    "Choices": [],
    "Branches": [_LINE],
    "ItemProcessor": _LINE,
    "Iterator": _LINE,
    "And": [{"Variable": "$", "IsPresent": True}],
    "Or": [{"Variable": "$", "IsPresent": True}],
    "Not": {"Variable": "$", "IsPresent": True},
}
_REQUIRED = re.compile(r"(one of )?these fields (?:is|are) required: (.+)")
_ONE_ONLY = re.compile(r"only one of these fields may be present: (.+)")
_NO_STATE = re.compile(r"there is no state '(.*)'")
_NAME_TWICE = re.compile(r"is used twice, see (.+)", re.DOTALL)
_NO_END = "no state ends the machine"
_TRANSITION_FIELDS = frozenset({"Next", "End", "Default", "StartAt", "Choices", "Catch", "Type"})


def problems(
    source: Source,
    most: int = MOST,
    *,
    substitutions: Substitutions | None = None,
    machine: str | None = None,
    deployed: bool = False,
) -> list[DefinitionError]:
    """Return a definition's problems in the order in which `load` meets them: the first `most` of them, at most MOST.

    The other arguments are those of `load`. Each problem takes another call of `load`; an unreadable source has one.
    """
    try:
        definition = copy_as_json(source) if deployed else read_definition(source, substitutions, machine)
    except DefinitionError as problem:
        return [problem]
    repairs = _Repairs(_copy_unshared(definition))
    reported: list[DefinitionError] = []
    while len(reported) < max(1, min(most, MOST)):
        try:
            load(repairs.copy, deployed=deployed)
        except DefinitionError as problem:
            if not reported or repairs.is_new(problem):
                reported.append(problem)
            if not repairs.repair(problem):
                break
        else:
            break
    return reported


def _copy_unshared(value: Any) -> Any:
    """Return a copy in which no two places share an object, as a YAML alias does."""
    if isinstance(value, Mapping):
        return {key: _copy_unshared(member) for key, member in value.items()}
    return [_copy_unshared(element) for element in value] if isinstance(value, list) else value


class _Repairs:
    """A copy of the definition, and the repairs that were made in it."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.copy = definition
        self._tries: Counter[tuple[Key, ...]] = Counter()
        self._reported: set[tuple[tuple[Key, ...], str]] = set()
        self._repaired: set[tuple[Key, ...]] = set()
        self._removed: dict[tuple[Key, ...], set[Key]] = {}
        self._lines_missing_targets: set[tuple[Key, ...]] = set()
        self._renamed: set[Key] = set()

    def is_new(self, problem: DefinitionError) -> bool:
        """Return whether the problem is the definition's own and not one that a repair made."""
        path = keys(problem.pointer)
        if (path, problem.rule) in self._reported or self._is_consequence(path, problem.rule):
            return False
        twin = _NAME_TWICE.search(problem.rule)
        if self._renamed & set(path) or (twin and (keys(twin[1]) in self._repaired or path in self._repaired)):
            return False
        for ours in self._repaired:
            # A rule or a Catcher that was replaced still leads where it led before.
            if path[: len(ours)] == ours and not (path[len(ours) :] == ("Next",) and "no state" in problem.rule):
                return False
        return True

    def _is_consequence(self, path: tuple[Key, ...], rule: str) -> bool:
        """Return whether a problem exists only because a repair removed something."""
        if rule.startswith(_NO_END):
            return () in self._lines_missing_targets
        if "not reachable" in rule:
            return locate(path).line.path in self._lines_missing_targets
        if match := _NO_STATE.search(rule):
            return match[1] in self._removed.get((*locate(path).line.path, "States"), ())
        gone = self._removed.get(path, set())
        return bool(gone) and ("operator" in rule or bool(gone & set(re.findall(r"\w+", rule))))

    def repair(self, problem: DefinitionError) -> bool:
        """Change the copy so that `load` gets past the problem; return False if that cannot be done."""
        path = keys(problem.pointer)
        self._reported.add((path, problem.rule))
        place = locate(path)
        tries = self._tries[path]
        self._tries[path] += 1
        if "not reachable" in problem.rule:
            self._remove(path)
            return True
        if "is used twice" in problem.rule:
            self._rename(path)
            return True
        named = {str(place.rest[0])} if place.rest else set(re.findall(r"\w+", problem.rule))
        if named & _TRANSITION_FIELDS and not self._is_consequence(path, problem.rule):
            self._lines_missing_targets.add(place.line.path)
        if tries == 0:
            return self._repair_field(place) if place.rest else self._repair_object(place, problem.rule)
        for _ in range(tries - 1):
            if not place.path:
                return False
            place = place.parent()
        return self._replace(place)

    def _repair_field(self, place: Place) -> bool:
        """Repair one field of an object: give it a valid value, or remove it."""
        name, path = str(place.rest[-1]), (*place.path, *place.rest)
        owner = value_at(self.copy, path[:-1])
        line = value_at(self.copy, place.line.path)
        if name in ("Next", "Default", "StartAt") and len(place.rest) == 1 and isinstance(owner, dict):
            if not isinstance(line.get("States"), dict) or not line["States"]:
                return False
            target = owner.get(name)
            if isinstance(target, str) and target not in self._removed.get((*place.line.path, "States"), ()):
                line["States"][target] = {"Type": "Succeed"}
                self._repaired.add((*place.line.path, "States", target))
            else:
                owner[name] = next(iter(line["States"]))
        elif name in ("Parameters", "Arguments") and isinstance(owner, dict):
            owner[name] = {"FunctionName": "f"}
        elif name == "Type" and isinstance(owner, dict):
            return self._replace(place)
        elif name == "ErrorEquals" and isinstance(owner, dict):
            owner[name] = [f"repaired {len(self._reported)}"]
        elif name in _STAND_INS and isinstance(owner, dict):
            owner[name] = copy.deepcopy(_STAND_INS[name])
        else:
            self._remove(path)
            return True
        self._repaired.add(path)
        return True

    def _repair_object(self, place: Place, rule: str) -> bool:
        """Repair an object as a whole; the rule's text names the fields that are missing or superfluous."""
        owner = value_at(self.copy, place.path)
        if not isinstance(owner, dict):
            return self._replace(place)
        if match := _REQUIRED.fullmatch(rule):
            names = match[2].split(", ")
            for name in names[:1] if match[1] else names:
                if name not in owner and not self._repair_field(Place(place.kind, place.path, (name,))):
                    return False
        elif match := _ONE_ONLY.fullmatch(rule):
            for name in match[1].split(", ")[1:]:
                owner.pop(name, None)
        elif rule.startswith("exactly one of Next and End"):
            if "Next" in owner:
                owner.pop("End", None)
            else:
                owner["End"] = True
        else:
            return self._replace(place)
        return True

    def _replace(self, place: Place) -> bool:
        """Replace the object by the simplest valid one of its kind, which leads where the object led."""
        if not place.path:
            return False
        old = value_at(self.copy, place.path)
        target = {"Next": old["Next"]} if isinstance(old, dict) and isinstance(old.get("Next"), str) else {}
        stand_ins: dict[str, dict[str, Any]] = {
            "line": _LINE,
            "rule": {"Variable": "$", "IsPresent": True, **target},
            "retrier": {"ErrorEquals": [f"repaired {len(self._reported)}"]},
            "catcher": {"ErrorEquals": [f"repaired {len(self._reported)}"], **target},
            "state": _stand_in_task(old),
        }
        owner, key = value_at(self.copy, place.path[:-1]), place.path[-1]
        owner[int(key) if isinstance(owner, list) else key] = copy.deepcopy(stand_ins[place.kind])
        self._repaired.add(place.path)
        return True

    def _rename(self, path: tuple[Key, ...]) -> None:
        """Give a state another name, in the fields that lead to it too."""
        line, old, new = value_at(self.copy, path[:-2]), path[-1], f"{path[-1]} {len(self._reported)}"
        line["States"] = {new if name == old else name: state for name, state in line["States"].items()}
        if line.get("StartAt") == old:
            line["StartAt"] = new
        for state in line["States"].values():
            for target, way in list(transitions(state)):
                if target == old:
                    value_at(state, way[:-1])[way[-1]] = new
        self._renamed.add(new)

    def _remove(self, path: tuple[Key, ...]) -> None:
        owner = value_at(self.copy, path[:-1])
        if isinstance(owner, dict):
            owner.pop(path[-1], None)
            self._removed.setdefault(path[:-1], set()).add(path[-1])
        elif isinstance(owner, list):
            owner[int(path[-1])] = {}
            self._repaired.add(path)


def _stand_in_task(state: Any) -> dict[str, Any]:
    """Return a Task that leads wherever the state leads. The state's Next stays, so a wrong one is still found."""
    targets = {way: target for target, way in transitions(state)}
    end = {"Next": targets.pop(("Next",))} if ("Next",) in targets else {"End": True}
    others = dict.fromkeys(targets.values())
    catch = [{"ErrorEquals": [f"E{number}"], "Next": target} for number, target in enumerate(others)]
    return {"Type": "Task", "QueryLanguage": "JSONPath", "Resource": _FUNCTION, "Catch": catch, **end}
