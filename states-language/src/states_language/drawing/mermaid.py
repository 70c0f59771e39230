"""Writes a drawing as a Mermaid flowchart, the form that a Markdown page on GitHub shows.

Invariant: no name or label is read as markup, and the same drawing gives the same text.
"""

import re
from collections.abc import Iterator

from states_language.drawing.boxes import END, JOIN, START, Box, Definition, Drawing, Frame, draw, one_line_text
from states_language.drawing.dot import FAILED, FAILED_FILL, TAKEN, TAKEN_FILL, times
from states_language.drawing.histories import Marks

_POINTS = {START: "(( ))", JOIN: "(( ))", END: "(( ))"}
# The form of each type of state; the state's name replaces {}.
_SHAPES = {
    "Choice": '{"{}"}',
    "Wait": '(["{}"])',
    "Succeed": '(("{}"))',
    "Fail": '((("{}")))',
    "Parallel": '[["{}"]]',
    "Map": '[["{}"]]',
}
_RECTANGLE = '["{}"]'
_MARKUP = re.compile(r"""[#"<&`*~\[\\@]|(?<!\w)_|_(?!\w)|\$(?=\$)|(?<=:)/|(?<=www)\.|^[-+>=]|^\d(?=\d*[.)])""")
"""What Mermaid reads as an entity, the end of the text, HTML, Markdown, mathematics or an address."""
_NAMED_ENTITIES = {"#": "#35;", '"': "#quot;", "<": "#lt;", "&": "#amp;"}


def mermaid(drawing: Drawing, marks: Marks | None = None) -> str:
    """Return the flowchart's text; with marks, the states and transitions of an execution are highlighted."""
    boxes = {box.key: box for box in drawing.boxes()}
    shown = [arrow for arrow in drawing.arrows if not arrow.hidden]
    lines = ["flowchart TD", *_frame_lines(drawing.frame, "  ")]
    for arrow in shown:
        label = f'|"{_quote_rows(arrow.label)}"|' if arrow.label else ""
        lines.append(f"  {arrow.source} -->{label} {arrow.target}")
    if marks is not None:
        lines += _mark_lines(drawing, marks)
        taken = [str(at) for at, arrow in enumerate(shown) if times(arrow, boxes, marks)]
        if taken:
            lines.append(f"  linkStyle {','.join(taken)} stroke:{TAKEN},stroke-width:2px")
    return "\n".join(lines)


def flowchart(line: Definition) -> str:
    """Return the Mermaid text of one line of states, without the lines within its states."""
    return mermaid(draw(line, nested=False))


def _frame_lines(frame: Frame, indent: str) -> Iterator[str]:
    for box in frame.boxes:
        yield f"{indent}{box.key}{_box_text(box)}"
    for inner in frame.frames:
        yield f'{indent}subgraph {inner.key}["{_quote_rows(inner.title) or " "}"]'
        yield from _frame_lines(inner, indent + "  ")
        yield f"{indent}end"


def _box_text(box: Box) -> str:
    if box.kind in _POINTS:
        return _POINTS[box.kind]
    rows = [box.state, box.note] if box.note else [box.state]
    return _SHAPES.get(box.kind, _RECTANGLE).replace("{}", _quote_rows(*rows) or "␣")


def _quote_rows(*rows: str) -> str:
    """Return rows of text in the form that Mermaid takes between quotes."""
    return "<br/>".join(
        _MARKUP.sub(lambda sign: _NAMED_ENTITIES.get(sign[0], f"#{ord(sign[0])};"), one_line_text(row)) for row in rows
    )


def _mark_lines(drawing: Drawing, marks: Marks) -> Iterator[str]:
    visited = [box.key for box in drawing.boxes() if box.kind not in _POINTS and marks.states[box.state]]
    if visited:
        yield f"  classDef visited fill:{TAKEN_FILL},stroke:{TAKEN},stroke-width:2px"
        yield f"  class {','.join(visited)} visited"
    if marks.failed in drawing.boxes_by_state:
        yield f"  style {drawing.boxes_by_state[marks.failed].key} fill:{FAILED_FILL},stroke:{FAILED},stroke-width:2px"
