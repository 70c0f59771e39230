"""Turns a machine into boxes, frames and arrows with their labels, which `dot` and `mermaid` write.

A state is a box. A Parallel or Map has a frame around the lines of states that it runs; they begin at its box and end
at a point where they join again. Each label fits on one line: a Choice Rule becomes `$.n ≥ 3`, the wildcard of a
Catcher `any error`. A variable such as `${self:custom.settings.wait_s}` becomes its last name, so a definition can be
drawn before it is deployed.
Invariant: the same definition gives the same drawing, in the order of its states.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from states_language.definition.pointers import lines_in

Definition = Mapping[str, Any]

_VARIABLE = re.compile(r"\$\{[^}]*?([A-Za-z0-9_]+)\}")
_OPERATORS = {"GreaterThanEquals": "≥", "LessThanEquals": "≤", "GreaterThan": ">", "LessThan": "<", "Equals": "="}
_OTHER_FIELDS = ("Variable", "Next", "Comment", "Assign", "Output")
_KINDS = ("String", "Numeric", "Boolean", "Timestamp")


def targets(state: Definition) -> Iterator[tuple[str, str]]:
    """Yield the states that may follow a state, in the order in which they are tried, each with its arrow's label."""
    for rule in state.get("Choices", []):
        yield rule["Next"], rule_text(rule)
    if "Default" in state:
        yield state["Default"], "otherwise"
    catchers = list(_shown_catchers(state.get("Catch", [])))
    for number, catcher in enumerate(catchers):
        wildcard = "any other error" if number else "any error"
        names = [wildcard if name == "States.ALL" else name for name in catcher["ErrorEquals"]]
        yield catcher["Next"], ", ".join(names)
    if "Next" in state:
        yield state["Next"], ""


def _shown_catchers(catchers: Sequence[Definition]) -> Iterator[Definition]:
    """Yield the Catchers, without one for an oversized result if a wildcard leads to the same state."""
    for catcher, following in pairwise([*catchers, {"ErrorEquals": [], "Next": None}]):
        too_large = catcher["ErrorEquals"] == ["States.DataLimitExceeded"]
        if not (too_large and following["ErrorEquals"] == ["States.ALL"] and following["Next"] == catcher["Next"]):
            yield catcher


def rule_text(rule: Definition) -> str:
    """Return a Choice Rule in words, such as `$.a = 1`."""
    for joint in ("And", "Or"):
        if joint in rule:
            return f" {joint.lower()} ".join(_bracketed_words(one) for one in rule[joint])
    if "Not" in rule:
        return f"not {_bracketed_words(rule['Not'])}"
    if "Condition" in rule:
        return one_line_text(rule["Condition"])
    ((operator, value),) = ((name, one) for name, one in rule.items() if name not in _OTHER_FIELDS)
    if operator == "IsPresent":
        return f"{rule['Variable']} is {'there' if value else 'absent'}"
    if operator.startswith("Is"):
        return f"{rule['Variable']} is {'' if value else 'not '}{operator.removeprefix('Is').lower()}"
    name = operator.removesuffix("Path")
    for kind in _KINDS:
        name = name.removeprefix(kind)
    shown = json.dumps(value) if isinstance(value, bool) or value == "" else one_line_text(value)
    return f"{rule['Variable']} {_OPERATORS.get(name, 'matches' if name == 'Matches' else operator)} {shown}"


def _bracketed_words(rule: Definition) -> str:
    """Return a rule within another in words, in brackets if it joins several."""
    return f"({rule_text(rule)})" if rule.keys() & {"And", "Or"} else rule_text(rule)


def duration(state: Definition) -> str:
    """Return how long a Wait state waits, in its definition's words."""
    field = next(name for name in ("Seconds", "Timestamp", "SecondsPath", "TimestampPath") if name in state)
    return one_line_text(state[field])


def one_line_text(value: Any) -> str:
    """Return a text on one line; a variable becomes its last name, a JSONata expression loses its brackets."""
    return " ".join(_VARIABLE.sub(r"\1", str(value)).removeprefix("{%").removesuffix("%}").split())


START, JOIN, END = "start", "join", "end"


@dataclass(frozen=True)
class Box:
    """A state, or one of the points START, JOIN and END; a point's `state` is its frame's, or empty."""

    key: str
    kind: str
    state: str
    note: str = ""


@dataclass(frozen=True)
class Arrow:
    """A transition from one box to another. `label` says when it is taken; a `hidden` arrow only keeps its target
    below its source.
    """

    source: str
    target: str
    label: str = ""
    hidden: bool = False


@dataclass
class Frame:
    """Boxes and frames that belong together; the outermost has no title."""

    key: str
    title: str
    boxes: list[Box] = field(default_factory=list)
    frames: list["Frame"] = field(default_factory=list)


@dataclass
class Drawing:
    """The outermost frame, all arrows, and the box of each state by the state's name."""

    frame: Frame
    arrows: list[Arrow]
    boxes_by_state: dict[str, Box]

    def boxes(self, frame: Frame | None = None) -> Iterator[Box]:
        """Yield every box, outer frames first."""
        here = self.frame if frame is None else frame
        yield from here.boxes
        for inner in here.frames:
            yield from self.boxes(inner)


def draw(definition: Definition, *, nested: bool = True) -> Drawing:
    """Return the drawing of a definition that loads; without `nested`, a Parallel or Map is one box."""
    drawer = _Drawer(nested)
    outer = Frame("machine", "")
    first = drawer.draw_line(definition, outer, END)
    start = Box("start", START, "")
    outer.boxes.insert(0, start)
    drawer.arrows.insert(0, Arrow(start.key, first))
    return Drawing(outer, drawer.arrows, drawer.boxes_by_state)


class _Drawer:
    def __init__(self, nested: bool) -> None:
        self.nested = nested
        self.arrows: list[Arrow] = []
        self.boxes_by_state: dict[str, Box] = {}
        self._count = 0

    def draw_line(self, line: Definition, frame: Frame, end: str) -> str:
        """Draw a line of states into a frame and return the key of its first box; `end` is END, or its join's key."""
        keys, leaves = {}, {}
        for name, state in line["States"].items():
            keys[name], leaves[name] = self._draw_state(name, state, frame)
        for name, state in line["States"].items():
            for target, label in targets(state):
                self.arrows.append(Arrow(leaves[name], keys[target], label))
            if state.get("End") or state["Type"] in ("Succeed", "Fail"):
                self._draw_end(state, leaves[name], frame, end)
        return keys[line["StartAt"]]

    def _draw_end(self, state: Definition, key: str, frame: Frame, end: str) -> None:
        if end != END:
            self.arrows.append(Arrow(key, end, hidden=state["Type"] == "Fail"))
        elif state.get("End"):
            point = Box(f"{key}_end", END, "")
            frame.boxes.append(point)
            self.arrows.append(Arrow(key, point.key))

    def _draw_state(self, name: str, state: Definition, frame: Frame) -> tuple[str, str]:
        """Return the keys of the boxes where the state is entered and left; they differ only for a frame."""
        key = f"s{self._count}"
        self._count += 1
        note = duration(state) if state["Type"] == "Wait" else ""
        box = Box(key, state["Type"], name, note)
        self.boxes_by_state[name] = box
        lines = [line for _, line in lines_in(state)]
        if not (lines and self.nested):
            frame.boxes.append(box)
            return key, key
        inner = Frame(f"{key}_frame", "")
        frame.frames.append(inner)
        join = Box(f"{key}_join", JOIN, name)
        inner.boxes.append(box)
        for number, line in enumerate(lines):
            title = one_line_text(line["Comment"]) if line.get("Comment") else f"branch {number + 1}"
            lane = Frame(f"{key}_line{number}", title if state["Type"] == "Parallel" else "each item")
            inner.frames.append(lane)
            self.arrows.append(Arrow(key, self.draw_line(line, lane, join.key)))
        inner.boxes.append(join)
        return key, join.key
