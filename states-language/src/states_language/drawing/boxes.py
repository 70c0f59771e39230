"""A machine as boxes and arrows, before anybody says how they look.

Decides which boxes, frames and arrows there are: a frame stands around what a Parallel or Map runs, with its own entry
and a point where its lines meet again. It knows no output format. Invariant: the same definition gives the same
drawing, in the order in which its states are written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from states_language.drawing.labels import duration, plain, targets

Definition = Mapping[str, Any]
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
    """A way from one box to another. `words` say when it is taken; `hidden` only keeps what is below from above."""

    source: str
    target: str
    words: str = ""
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


def draw(definition: Definition) -> Drawing:
    """Return the drawing of a definition that loads."""
    found = _Drawer()
    outer = Frame("machine", "")
    first = found.line(definition, outer, END)
    start = Box("start", START, "")
    outer.boxes.insert(0, start)
    found.arrows.insert(0, Arrow(start.key, first))
    return Drawing(outer, found.arrows, found.named)


class _Drawer:
    def __init__(self) -> None:
        self.arrows: list[Arrow] = []
        self.named: dict[str, Box] = {}
        self._count = 0

    def line(self, line: Definition, frame: Frame, end: str) -> str:
        """Draw a line of states into a frame; return the key of its first box. `end`: END, or where it joins."""
        keys, leaves = {}, {}
        for name, state in line["States"].items():
            keys[name], leaves[name] = self._state(name, state, frame)
        for name, state in line["States"].items():
            for target, said in targets(state):
                self.arrows.append(Arrow(leaves[name], keys[target], said))
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
        """Return the keys of the box that is entered and of the one that is left: two where lines lie between."""
        key = f"s{self._count}"
        self._count += 1
        note = duration(state) if state["Type"] == "Wait" else ""
        box = Box(key, state["Type"], name, note)
        self.named[name] = box
        lines = [*state.get("Branches", ()), *(state[one] for one in ("ItemProcessor", "Iterator") if one in state)]
        if not lines:
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
