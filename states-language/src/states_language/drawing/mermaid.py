"""Writes Mermaid flowcharts: of a whole drawing, with frames, or of one line of states without what runs in it.

Invariant: the same definition gives the same text, to the byte; no name of a state is read as markup.
"""

import re
from collections.abc import Iterator

from states_language.drawing.boxes import END, JOIN, START, Box, Drawing, Frame
from states_language.drawing.dot import FAILED, FAILED_FILL, TAKEN, TAKEN_FILL, times
from states_language.drawing.labels import Definition, duration, plain, targets
from states_language.drawing.visits import Marks

# How a state of a type is drawn; the name stands for {}.
_SHAPES = {
    "Choice": '{"{}"}',
    "Wait": '(["{}"])',
    "Succeed": '(("{}"))',
    "Fail": '((("{}")))',
    "Parallel": '[["{}"]]',
    "Map": '[["{}"]]',
}
_BOX = '["{}"]'
_ENTITIES = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", "&": "#amp;", "`": "#96;"})
_LIST = re.compile(r"^(\d+)\.(?= )")
"""What Mermaid's Markdown would read as a numbered list."""
_POINTS = {START: "(( ))", JOIN: "(( ))", END: "(( ))"}


def mermaid(drawing: Drawing, marks: Marks | None = None) -> str:
    """Return the flowchart's text; with marks, what an execution visited is shown."""
    boxes = {box.key: box for box in drawing.boxes()}
    shown = [arrow for arrow in drawing.arrows if not arrow.hidden]
    lines = ["flowchart TD", *_frame(drawing.frame, "  ")]
    for arrow in shown:
        words = f'|"{_quoted(arrow.words)}"|' if arrow.words else ""
        lines.append(f"  {arrow.source} -->{words} {arrow.target}")
    if marks is not None:
        lines += _marked(drawing, marks)
        taken = [str(at) for at, arrow in enumerate(shown) if times(arrow, boxes, marks)]
        if taken:
            lines.append(f"  linkStyle {','.join(taken)} stroke:{TAKEN},stroke-width:2px")
    return "\n".join(lines)


def flowchart(line: Definition) -> str:
    """Returns the Mermaid text of one line of states: a machine, or a branch."""
    states = line["States"]
    key = {name: f"s{number}" for number, name in enumerate(states)}
    drawn = ["flowchart TD", f"  start(( )) --> {key[line['StartAt']]}"]
    for name, state in states.items():
        rows = [name, duration(state)] if state["Type"] == "Wait" else [name]
        drawn.append(f"  {key[name]}{_shape(state['Type'], *rows)}")
    for name, state in states.items():
        for target, said in targets(state):
            drawn.append(f"  {key[name]} -->{f'|{chr(34)}{_quoted(said)}{chr(34)}|' if said else ''} {key[target]}")
        if state.get("End"):
            drawn.append(f"  {key[name]} --> stop(( ))")
    return "\n".join(drawn)


def _frame(frame: Frame, indent: str) -> Iterator[str]:
    for box in frame.boxes:
        yield f"{indent}{box.key}{_box(box)}"
    for inner in frame.frames:
        yield f'{indent}subgraph {inner.key}["{_quoted(inner.title) or " "}"]'
        yield from _frame(inner, indent + "  ")
        yield f"{indent}end"


def _box(box: Box) -> str:
    if box.kind in _POINTS:
        return _POINTS[box.kind]
    return _shape(box.kind, box.state, *([box.note] if box.note else []))


def _marked(drawing: Drawing, marks: Marks) -> Iterator[str]:
    visited = [box.key for box in drawing.boxes() if box.kind not in _POINTS and marks.states[box.state]]
    if visited:
        yield f"  classDef visited fill:{TAKEN_FILL},stroke:{TAKEN},stroke-width:2px"
        yield f"  class {','.join(visited)} visited"
    if marks.failed in drawing.named:
        yield f"  style {drawing.named[marks.failed].key} fill:{FAILED_FILL},stroke:{FAILED},stroke-width:2px"


def _quoted(*rows: str) -> str:
    """Returns a text as it stands between quotes in Mermaid: nothing in it is markup, whatever a state is called."""
    return "<br/>".join(_LIST.sub(r"\1#46;", plain(row).translate(_ENTITIES)) for row in rows)


def _shape(kind: str, *rows: str) -> str:
    """Returns the Mermaid text of a box for a state of this type."""
    return _SHAPES.get(kind, _BOX).replace("{}", _quoted(*rows))
