"""Labels the boxes and arrows of a drawing: when a transition is taken, how long a Wait waits.

Labels are short and on one line: a Choice Rule becomes `$.n ≥ 3`, the wildcard of a Catcher `any error`. A variable
such as `${self:custom.settings.wait_s}` is shown as its last name, `wait_s`, so a definition can be drawn unresolved.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

Definition = Mapping[str, Any]

_VARIABLE = re.compile(r"\$\{[^}]*?([A-Za-z0-9_]+)\}")
_OPERATORS = {"GreaterThanEquals": "≥", "LessThanEquals": "≤", "GreaterThan": ">", "LessThan": "<", "Equals": "="}
_OTHER_FIELDS = ("Variable", "Next", "Comment", "Assign", "Output")
_KINDS = ("String", "Numeric", "Boolean", "Timestamp")


def targets(state: Definition) -> Iterator[tuple[str, str]]:
    """Yield the states that may follow a state, in the order in which they are tried, each with its arrow's label."""
    for rule in state.get("Choices", []):
        yield rule["Next"], words(rule)
    if "Default" in state:
        yield state["Default"], "otherwise"
    catchers = list(_catchers(state.get("Catch", [])))
    for number, catcher in enumerate(catchers):
        wildcard = "any other error" if number else "any error"
        names = [wildcard if name == "States.ALL" else name for name in catcher["ErrorEquals"]]
        yield catcher["Next"], ", ".join(names)
    if "Next" in state:
        yield state["Next"], ""


def _catchers(catchers: Sequence[Definition]) -> Iterator[Definition]:
    """Yield the Catchers but that of too large a result where a wildcard, which does not match it, leads there too."""
    for catcher, following in pairwise([*catchers, {"ErrorEquals": [], "Next": None}]):
        too_large = catcher["ErrorEquals"] == ["States.DataLimitExceeded"]
        if not (too_large and following["ErrorEquals"] == ["States.ALL"] and following["Next"] == catcher["Next"]):
            yield catcher


def words(rule: Definition) -> str:
    """Return a Choice Rule in words, such as `$.a = 1`."""
    for joint in ("And", "Or"):
        if joint in rule:
            return f" {joint.lower()} ".join(words(one) for one in rule[joint])
    if "Not" in rule:
        return f"not {words(rule['Not'])}"
    if "Condition" in rule:
        return plain(rule["Condition"])
    ((operator, value),) = ((name, one) for name, one in rule.items() if name not in _OTHER_FIELDS)
    if operator == "IsPresent":
        return f"{rule['Variable']} is {'there' if value else 'absent'}"
    if operator.startswith("Is"):
        return f"{rule['Variable']} is {'' if value else 'not '}{operator.removeprefix('Is').lower()}"
    name = operator.removesuffix("Path")
    for kind in _KINDS:
        name = name.removeprefix(kind)
    shown = json.dumps(value) if isinstance(value, bool) or value == "" else plain(value)
    return f"{rule['Variable']} {_OPERATORS.get(name, 'matches' if name == 'Matches' else operator)} {shown}"


def duration(state: Definition) -> str:
    """Return how long a Wait state waits, as its definition says it."""
    field = next(name for name in ("Seconds", "Timestamp", "SecondsPath", "TimestampPath") if name in state)
    return plain(state[field])


def plain(value: Any) -> str:
    """Return a text on one line, a variable as its last name and a JSONata expression without its brackets."""
    return " ".join(_VARIABLE.sub(r"\1", str(value)).removeprefix("{%").removesuffix("%}").split())
