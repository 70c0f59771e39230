"""Turns a machine into boxes, frames and arrows, which `dot` and `mermaid` write.

A state is a box. A Parallel or Map has a frame around the lines of states that it runs; they begin at its box and end
at a point where they join again.
Invariant: the same definition gives the same drawing, in the order of its states.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from states_language.drawing.labels import Definition, duration, plain, targets

START, JOIN, END = "start", "join", "end"


@dataclass(frozen=True)
class Box:
    """A state, or one of the points START, JOIN and END (then `state` is the frame's, or empty)."""

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
    named: dict[str, Box]

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
    first = drawer.line(definition, outer, END)
    start = Box("start", START, "")
    outer.boxes.insert(0, start)
    drawer.arrows.insert(0, Arrow(start.key, first))
    return Drawing(outer, drawer.arrows, drawer.named)


class _Drawer:
    def __init__(self, nested: bool) -> None:
        self.nested = nested
        self.arrows: list[Arrow] = []
        self.named: dict[str, Box] = {}
        self._count = 0

    def line(self, line: Definition, frame: Frame, end: str) -> str:
        """Draw a line of states into a frame and return the key of its first box; `end` is END, or its join's key."""
        keys, leaves = {}, {}
        for name, state in line["States"].items():
            keys[name], leaves[name] = self._state(name, state, frame)
        for name, state in line["States"].items():
            for target, label in targets(state):
                self.arrows.append(Arrow(leaves[name], keys[target], label))
            if state.get("End") or state["Type"] in ("Succeed", "Fail"):
                self._ends(state, leaves[name], frame, end)
        return keys[line["StartAt"]]

    def _ends(self, state: Definition, key: str, frame: Frame, end: str) -> None:
        if end != END:
            self.arrows.append(Arrow(key, end, hidden=state["Type"] == "Fail"))
        elif state.get("End"):
            point = Box(f"{key}_end", END, "")
            frame.boxes.append(point)
            self.arrows.append(Arrow(key, point.key))

    def _state(self, name: str, state: Definition, frame: Frame) -> tuple[str, str]:
        """Return the keys of the boxes by which the state is entered and left; only a frame's differ."""
        key = f"s{self._count}"
        self._count += 1
        note = duration(state) if state["Type"] == "Wait" else ""
        box = Box(key, state["Type"], name, note)
        self.named[name] = box
        lines = [*state.get("Branches", ()), *(state[one] for one in ("ItemProcessor", "Iterator") if one in state)]
        if not (lines and self.nested):
            frame.boxes.append(box)
            return key, key
        inner = Frame(f"{key}_frame", "")
        frame.frames.append(inner)
        join = Box(f"{key}_join", JOIN, name)
        inner.boxes.append(box)
        for number, line in enumerate(lines):
            lane = Frame(f"{key}_line{number}", _title(line, number) if state["Type"] == "Parallel" else "each item")
            inner.frames.append(lane)
            self.arrows.append(Arrow(key, self.line(line, lane, join.key)))
        inner.boxes.append(join)
        return key, join.key


def _title(line: Definition, number: int) -> str:
    return plain(line["Comment"]) if line.get("Comment") else f"branch {number + 1}"
