"""Writes a drawing as Graphviz DOT, from which an SVG is made.

Invariant: the text is valid DOT whatever the states are called, and the same drawing gives the same text.
"""

import textwrap
from collections.abc import Iterator

from states_language.drawing.boxes import END, JOIN, START, Arrow, Box, Drawing, Frame
from states_language.drawing.histories import Marks

INK, FAINT, PAPER, GROUND = "#24292f", "#8c959f", "#ffffff", "#f6f8fa"
TAKEN, TAKEN_FILL = "#1a7f37", "#dafbe1"
FAILED, FAILED_FILL = "#cf222e", "#ffebe9"
_SHAPES = {
    "Choice": 'shape=hexagon, fillcolor="#fff8c5", margin="0.08,0.03"',
    "Wait": 'style="rounded,filled", fillcolor="#ddf4ff"',
    "Task": 'style="rounded,filled", fillcolor="#ffffff", penwidth=1.4',
    "Pass": 'style="rounded,filled", fillcolor="#f6f8fa"',
    "Parallel": 'style="filled", fillcolor="#fbefff"',
    "Map": 'style="filled", fillcolor="#fbefff"',
    "Succeed": 'style="rounded,filled", fillcolor="#dafbe1", peripheries=2',
    "Fail": 'style="rounded,filled", fillcolor="#ffebe9", peripheries=2',
}
_POINTS = {
    START: f'shape=circle, label="", fixedsize=true, width=0.16, height=0.16, fillcolor="{INK}"',
    JOIN: f'shape=circle, label="", fixedsize=true, width=0.1, height=0.1, fillcolor="{FAINT}", color="{FAINT}"',
    END: f'shape=doublecircle, label="", fixedsize=true, width=0.1, height=0.1, fillcolor="{INK}"',
}
_HEAD = f"""digraph machine {{
  graph [fontname="Helvetica,Arial,sans-serif", fontsize=11, fontcolor="{FAINT}", bgcolor="{PAPER}", pad=0.3,
    nodesep=0.35, ranksep=0.4, labeljust=l];
  node [fontname="Helvetica,Arial,sans-serif", fontsize=12, fontcolor="{INK}", color="{FAINT}", shape=box,
    style=filled, margin="0.16,0.07", height=0.36];
  edge [fontname="Helvetica,Arial,sans-serif", fontsize=10, fontcolor="#57606a", color="{FAINT}", arrowsize=0.7];"""


def dot(drawing: Drawing, marks: Marks | None = None) -> str:
    """Return the DOT text; with marks, the states and transitions of an execution stand out, all others are faint."""
    boxes = {box.key: box for box in drawing.boxes()}
    lines = [_HEAD, *_frame_lines(drawing.frame, marks, "  ")]
    lines += [_arrow_line(arrow, boxes, marks) for arrow in drawing.arrows]
    return "\n".join([*lines, "}"])


def _frame_lines(frame: Frame, marks: Marks | None, indent: str) -> Iterator[str]:
    for box in frame.boxes:
        yield f"{indent}{box.key} [{_box_attributes(box, marks)}];"
    for inner in frame.frames:
        yield f"{indent}subgraph cluster_{inner.key} {{"
        shade = GROUND if inner.key.endswith("_frame") else PAPER
        yield f'{indent}  label={_quote(inner.title)}; style="rounded,filled"; color="#d0d7de"; fillcolor="{shade}";'
        yield from _frame_lines(inner, marks, indent + "  ")
        yield f"{indent}}}"


def _box_attributes(box: Box, marks: Marks | None) -> str:
    if box.kind in _POINTS:
        return _POINTS[box.kind]
    label = "\n".join(textwrap.wrap(box.state, 24) or [""]) + (f"\n{box.note}" if box.note else "")
    look = f"label={_quote(label)}, tooltip={_quote(box.kind)}, {_SHAPES.get(box.kind, '')}"
    if marks is None:
        return look
    if box.state == marks.failed:
        return f'{look}, fillcolor="{FAILED_FILL}", color="{FAILED}", penwidth=2.2'
    if marks.states[box.state]:
        visits = marks.states[box.state]
        seen = f", xlabel={_quote(f'×{visits}')}" if visits > 1 else ""
        return f'{look}, fillcolor="{TAKEN_FILL}", color="{TAKEN}", penwidth=2.2{seen}'
    return f'{look}, fillcolor="{PAPER}", color="#d0d7de", fontcolor="{FAINT}"'


def _arrow_line(arrow: Arrow, boxes: dict[str, Box], marks: Marks | None) -> str:
    look = [f"label={_quote(_wrap_label(arrow.label))}"] if arrow.label else []
    if arrow.hidden:
        look = ["style=invis"]
    elif marks is not None:
        taken = times(arrow, boxes, marks)
        look += [f'color="{TAKEN}", fontcolor="{TAKEN}", penwidth=2'] if taken else ['color="#d0d7de"']
        look += [f'fontcolor="{FAINT}"'] if not taken else []
    return f"  {arrow.source} -> {arrow.target}" + (f" [{', '.join(look)}];" if look else ";")


def times(arrow: Arrow, boxes: dict[str, Box], marks: Marks) -> int:
    """Return how often an execution took the arrow; several arrows between the same two states count as one."""
    source, target = boxes[arrow.source], boxes[arrow.target]
    if source.kind == START:
        return 1 if marks.states[target.state] else 0
    if target.kind in (JOIN, END):
        return marks.ended[source.state]
    return marks.ways[source.state, target.state]


def _wrap_label(label: str) -> str:
    return "\n".join(f" {line} " for line in textwrap.wrap(label, 30, break_long_words=False))


def _quote(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{quoted}"'
