"""Draws what came in each second as bars, one row above the other and all by one measure (`canvas.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeline.canvas import BETWEEN, EDGE, HEAD, LABELS, TOP, WIDTH, Scale, document, labelled, room_of

_HEIGHT = 64


@dataclass(frozen=True, slots=True)
class Series:
    """A row: what came in each second from the first on."""

    label: str
    note: str
    per_s: Sequence[int]


def draw(rows: Sequence[Series], mark_s: int, mark_says: str, title: str) -> str:
    """Returns the rows as an SVG document, with a line at the second `mark_s`, about which `mark_says` tells."""
    seconds = max((len(row.per_s) for row in rows), default=1)
    most = max((count for row in rows for count in row.per_s), default=0) or 1
    scale = Scale(max(1, seconds) * 1000)
    marks: list[str] = []
    top = TOP
    for row in rows:
        height = max(_HEIGHT, room_of(row.note))
        marks += [*labelled(row.label, row.note, top), *_bars(row, scale, top + height, most)]
        top += height + BETWEEN
    x = f"{scale.x(mark_s * 1000):.1f}"
    marks.append(f'<line class="gap-line" x1="{x}" x2="{x}" y1="{HEAD + 26}" y2="{top - BETWEEN}"/>')
    marks.append(f'<text class="s" x="{x}" y="{HEAD + 20}" text-anchor="middle">{mark_says}</text>')
    described = "; ".join(f"{row.label}: {row.note}" for row in rows)
    return document(title, described, [], scale, marks, top)


def _bars(row: Series, scale: Scale, bottom: int, most: int) -> list[str]:
    width = f"{max(0.5, (WIDTH - LABELS - EDGE) / scale.until_ms * 1000 - 0.2):.2f}"
    marks = []
    for second, count in enumerate(row.per_s):
        x, height = scale.x(second * 1000), count * _HEIGHT / most
        at = f'x="{x:.1f}" y="{bottom - height:.1f}" width="{width}" height="{height:.1f}"'
        if count:
            marks.append(f'<rect class="open" {at}><title>second {second}: {count:,}</title></rect>')
    return marks
