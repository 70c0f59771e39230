"""Draws lanes and their coverage as one SVG picture (`canvas.py`).

Each group has a row for each lane, and below them one for the whole stream. Colour is never the only sign: an overlap
is higher, a gap is hatched and lower, a repaired gap has a line through it as on the console's page, and each mark has
a tooltip. Invariant: the same lanes give the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from timeline.canvas import BETWEEN, EDGE, HEAD, LABELS, TOP, WIDTH, Scale, document, duration, label_height, row_label
from timeline.coverage import Connection, Gap, overlaps
from timeline.spans import Span

_LANE, _STREAM, _HEIGHT = 14, 26, 64
_LEGEND = (("wait", "waiting"), ("open", "connected"), ("both", "overlap"), ("gap", "gap: no connection"))


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are drawn together: lanes, and one stream. `note` is below the label and sums up the result."""

    label: str
    note: str
    spans: Sequence[Span]
    connections: Sequence[Connection]
    gaps: Sequence[Gap]


def draw(groups: Sequence[Group], until_ms: int, title: str) -> str:
    """Returns the picture of `until_ms` milliseconds as an SVG document."""
    scale = Scale(max(1, until_ms))
    marks: list[str] = []
    top = TOP
    for group in groups:
        drawn, height = _group_marks(group, scale, top)
        marks += drawn
        top += height + BETWEEN
    described = "; ".join(f"{group.label}: {group.note}" for group in groups)
    with_repairs = any(gap.is_repaired for group in groups for gap in group.gaps)
    return document(title, described, _legend(HEAD + 18, with_repairs=with_repairs), scale, marks, top)


def _group_marks(group: Group, scale: Scale, top: int) -> tuple[list[str], int]:
    lanes = sorted({span.lane for span in group.spans} | {c.lane for c in group.connections}, key=lambda n: (len(n), n))
    marks = row_label(group.label, group.note, top)
    at = top
    for lane in lanes:
        marks.append(f'<text class="s" x="{LABELS - 8}" y="{at + 11}" text-anchor="end">{escape(lane)}</text>')
        idle = [(s.from_ms, _end_ms(s, scale)) for s in group.spans if s.lane == lane and s.kind == "wait"]
        marks += scale.rects("wait", ((*each, _interval("waiting", *each)) for each in idle), at + 5, 4)
        own = [c for c in group.connections if c.lane == lane]
        marks += scale.rects("open", ((c.from_ms, c.to_ms, _tooltip(c)) for c in own), at + 1, _LANE - 4)
        at += _LANE
    marks += _stream_marks(group, scale, at + 2)
    return marks, max(at + _STREAM - top, label_height(group.note))


def _stream_marks(group: Group, scale: Scale, top: int) -> list[str]:
    ordered = sorted(group.connections, key=lambda c: (c.from_ms, c.end_ms))
    both = [(*each, _interval("overlap", *each)) for each in overlaps(ordered)]
    missed = [(gap.from_ms, gap.to_ms, _gap_tooltip(gap)) for gap in group.gaps]
    repaired = [mark for mark, gap in zip(missed, group.gaps, strict=True) if gap.is_repaired]
    return [
        f'<text class="s" x="{LABELS - 8}" y="{top + 13}" text-anchor="end">stream</text>',
        *scale.rects("open", ((c.from_ms, c.end_ms, _tooltip(c)) for c in ordered), top + 6, 6),
        *scale.rects("both", both, top + 2, 10),
        *scale.rects("gap", missed, top + 4, 16),
        *scale.rects("repaired", repaired, top + 10.5, 3),
    ]


def _legend(top: int, *, with_repairs: bool) -> list[str]:
    marks = []
    for place, (kind, words) in enumerate((*_LEGEND, ("gap", "gap, repaired")) if with_repairs else _LEGEND):
        x = LABELS + place * 150
        marks.append(f'<rect class="{kind}" x="{x}" y="{top - 9}" width="22" height="10"/>')
        marks.append(f'<text class="s" x="{x + 28}" y="{top}">{words}</text>')
    if with_repairs:
        marks.append(f'<rect class="repaired" x="{x}" y="{top - 5.5}" width="22" height="3"/>')
    return marks


def _end_ms(span: Span, scale: Scale) -> int:
    return scale.until_ms if span.to_ms is None else span.to_ms


def _tooltip(connection: Connection) -> str:
    return _interval(f"lane {connection.lane}", connection.from_ms, connection.to_ms) + f", {connection.ended_by}"


def _gap_tooltip(gap: Gap) -> str:
    return f"{_interval('gap', gap.from_ms, gap.to_ms)}, after {gap.cause}{f'; {gap.state}' if gap.state else ''}"


def _interval(what: str, from_ms: int, to_ms: int) -> str:
    return f"{what}: {from_ms / 1000:.3f} to {to_ms / 1000:.3f} s, {duration((to_ms - from_ms) / 1000)}"


# --- bars: how much came in each second, all on the same scale --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BarRow:
    """A row: how much came in each second, from the first second on."""

    label: str
    note: str
    per_s: Sequence[int]


def draw_bars(rows: Sequence[BarRow], mark_s: int, mark_says: str, title: str) -> str:
    """Returns the rows as an SVG document, with a line at the second `mark_s` that has the label `mark_says`."""
    seconds = max((len(row.per_s) for row in rows), default=1)
    most = max((count for row in rows for count in row.per_s), default=0) or 1
    scale = Scale(max(1, seconds) * 1000)
    marks: list[str] = []
    top = TOP
    for row in rows:
        height = max(_HEIGHT, label_height(row.note))
        marks += [*row_label(row.label, row.note, top), *_bar_marks(row, scale, top + height, most)]
        top += height + BETWEEN
    x = f"{scale.x(mark_s * 1000):.1f}"
    marks.append(f'<line class="gap-line" x1="{x}" x2="{x}" y1="{HEAD + 26}" y2="{top - BETWEEN}"/>')
    marks.append(f'<text class="s" x="{x}" y="{HEAD + 20}" text-anchor="middle">{mark_says}</text>')
    described = "; ".join(f"{row.label}: {row.note}" for row in rows)
    return document(title, described, [], scale, marks, top)


def _bar_marks(row: BarRow, scale: Scale, bottom: int, most: int) -> list[str]:
    width = f"{max(0.5, (WIDTH - LABELS - EDGE) / scale.until_ms * 1000 - 0.2):.2f}"
    marks = []
    for second, count in enumerate(row.per_s):
        x, height = scale.x(second * 1000), count * _HEIGHT / most
        at = f'x="{x:.1f}" y="{bottom - height:.1f}" width="{width}" height="{height:.1f}"'
        if count:
            marks.append(f'<rect class="open" {at}><title>second {second}: {count:,}</title></rect>')
    return marks
