"""Writes a drawing as one Mermaid flowchart.

Decides how boxes, frames and arrows look; what they are is the drawing's. Invariant: the same drawing gives the same
text.
"""

from collections.abc import Iterator

from states_language.drawing.boxes import END, JOIN, START, Box, Drawing, Frame
from states_language.drawing.dot import FAILED, FAILED_FILL, TAKEN, TAKEN_FILL, times
from states_language.drawing.flowcharts import quoted, shape
from states_language.drawing.way import Marks

_POINTS = {START: "(( ))", JOIN: "(( ))", END: "(( ))"}


def mermaid(drawing: Drawing, marks: Marks | None = None) -> str:
    """Return the flowchart's text; with marks, what an execution visited is shown."""
    boxes = {box.key: box for box in drawing.boxes()}
    shown = [arrow for arrow in drawing.arrows if not arrow.hidden]
    lines = ["flowchart TD", *_frame(drawing.frame, "  ")]
    for arrow in shown:
        words = f'|"{quoted(arrow.words)}"|' if arrow.words else ""
        lines.append(f"  {arrow.source} -->{words} {arrow.target}")
    if marks is not None:
        lines += _marked(drawing, marks)
        taken = [str(at) for at, arrow in enumerate(shown) if times(arrow, boxes, marks)]
        if taken:
            lines.append(f"  linkStyle {','.join(taken)} stroke:{TAKEN},stroke-width:2px")
    return "\n".join(lines)


def _frame(frame: Frame, indent: str) -> Iterator[str]:
    for box in frame.boxes:
        yield f"{indent}{box.key}{_box(box)}"
    for inner in frame.frames:
        yield f'{indent}subgraph {inner.key}["{quoted(inner.title) or " "}"]'
        yield from _frame(inner, indent + "  ")
        yield f"{indent}end"


def _box(box: Box) -> str:
    if box.kind in _POINTS:
        return _POINTS[box.kind]
    return shape(box.kind, box.state, *([box.note] if box.note else []))


def _marked(drawing: Drawing, marks: Marks) -> Iterator[str]:
    visited = [box.key for box in drawing.boxes() if box.kind not in _POINTS and marks.states[box.state]]
    if visited:
        yield f"  classDef visited fill:{TAKEN_FILL},stroke:{TAKEN},stroke-width:2px"
        yield f"  class {','.join(visited)} visited"
    if marks.failed in drawing.named:
        yield f"  style {drawing.named[marks.failed].key} fill:{FAILED_FILL},stroke:{FAILED},stroke-width:2px"
