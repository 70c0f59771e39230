"""Draws lanes and their coverage as one SVG picture.

Each group has a row for each lane, and below them one for the whole stream. Colour is never the only sign: an overlap
is higher, a gap is hatched and lower, a repaired gap has a line through it as on the console's page, and each mark has
a tooltip. Invariant: the same lanes give the same text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from timeline.coverage import Connection, Gap, overlaps
from timeline.spans import Span

WIDTH, LABELS, EDGE = 1000, 190, 16
BETWEEN, HEAD = 22, 20
TOP = HEAD + 34
"""The top of the first row."""
_LEAST = 1.5
# A narrower mark has no room for hatching.
_HATCHED = 9
_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 604800, 2592000)
_MOST_TICKS = 9
# The colours on a light page and on a dark one.
_SHADES = {
    "ground": ("#fff", "#15181c"),
    "ink": ("#1b1b1b", "#eceff1"),
    "soft": ("#5c5c5c", "#a3adb5"),
    "line": ("#d8d8d8", "#343a40"),
    "wait": ("#c3c9d2", "#4a525a"),
    "open": ("#0072b2", "#56b4e9"),
    "both": ("#e69f00", "#f0c94a"),
    "gap": ("#c8321e", "#ff7a5c"),
    "good": ("#0b6b45", "#6fd6a8"),
}
# The styles use no CSS variables, because drawing programs know classes but no variables.
_COLOURS = """.tl .ground{{fill:{ground}}}.tl text{{fill:{ink}}}.tl .s{{fill:{soft}}}.tl .l{{stroke:{line}}}
.tl .wait{{fill:{wait}}}.tl .open{{fill:{open}}}.tl .both{{fill:{both}}}.tl .gap-line{{stroke:{gap}}}
.tl .thin{{fill:{gap}}}.tl .repaired{{fill:{good}}}
"""
_LIGHT, _DARK = (_COLOURS.format(**{name: shades[at] for name, shades in _SHADES.items()}) for at in (0, 1))
_STYLE = (
    ".tl text{font:12px system-ui,sans-serif}.tl .s{font-size:11px}.tl .g{font-weight:600;font-size:13px}\n"
    ".tl .gap{fill:url(#tl-gap)}.tl .gap-line{stroke-width:3}\n"
    f"{_LIGHT}@media (prefers-color-scheme:dark){{{_DARK}}}"
)
_HATCH = (
    '<defs><pattern id="tl-gap" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="ground" width="6" height="6"/><line class="gap-line" x1="1.5" x2="1.5" y2="6"/></pattern></defs>'
)


class Scale:
    """The position of a time in the picture."""

    def __init__(self, until_ms: int) -> None:
        self.until_ms = until_ms
        self._per_ms = (WIDTH - LABELS - EDGE) / until_ms

    def x(self, at_ms: float) -> float:
        """Returns the column of an instant."""
        return LABELS + min(max(at_ms, 0), self.until_ms) * self._per_ms

    def ticks(self, top: int, bottom: int) -> list[str]:
        """Returns the lines and labels of the axis: the first, and at most _MOST_TICKS more."""
        whole_s = self.until_ms / 1000
        step_s = next((step for step in _TICKS_S if whole_s / step <= _MOST_TICKS), whole_s / _MOST_TICKS)
        lines = []
        at_s = 0.0
        while at_s <= whole_s:
            x = f"{self.x(at_s * 1000):.1f}"
            anchor = "end" if at_s * 1000 > self.until_ms * 0.97 else "middle"
            lines.append(f'<line class="l" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>')
            lines.append(f'<text class="s" x="{x}" y="{bottom + 14}" text-anchor="{anchor}">{duration(at_s)}</text>')
            at_s += step_s
        return lines

    def rects(self, kind: str, spans: Iterable[tuple[int, int, str]], top: float, height: float) -> list[str]:
        """Returns a mark for each (from, to, words); marks too close to tell apart are drawn once."""
        drawn = []
        last = ""
        for from_ms, to_ms, words in spans:
            left = self.x(from_ms)
            width = max(_LEAST, self.x(to_ms) - left)
            shown = "thin" if kind == "gap" and width < _HATCHED else kind
            at = f'<rect class="{shown}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}">'
            if at != last:
                drawn.append(f"{at}<title>{escape(words)}</title></rect>")
            last = at
        return drawn


def document(title: str, described: str, legend: Iterable[str], scale: Scale, marks: Iterable[str], bottom: int) -> str:
    """Returns the whole picture; `marks` are between TOP and `bottom`, `described` is the text for screen readers.

    It needs no script, no font and no other file. Its colours are Okabe and Ito's, which colour-blind people can tell
    apart; a dark page gets others.
    """
    height = bottom + 20
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tl" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">',
            f"<title>{escape(title)}</title><desc>{escape(described)}</desc><style>{_STYLE}</style>{_HATCH}",
            f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
            f'<text class="g" x="{EDGE}" y="{HEAD}">{escape(title)}</text>',
            *legend,
            *scale.ticks(HEAD + 30, height - 20),
            *marks,
            "</svg>",
            "",
        ]
    )


def row_label(label: str, note: str, top: int) -> list[str]:
    """Returns a row's label, and below it the lines of its note."""
    marks = [f'<text class="g" x="{EDGE}" y="{top + 12}">{escape(label)}</text>']
    for line, text in enumerate(note.split("\n")):
        marks.append(f'<text class="s" x="{EDGE}" y="{top + 27 + 14 * line}">{escape(text)}</text>')
    return marks


def label_height(note: str) -> int:
    return 20 + 14 * (1 + note.count("\n"))


def duration(seconds: float) -> str:
    """Returns a duration as people write it: 45 s, 1 min 30 s, 15 min, 2 h 30 min, 3 d."""
    parts = []
    rest = seconds
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if rest >= length:
            parts.append(f"{int(rest // length)} {unit}")
            rest %= length
    if rest or not parts:
        parts.append(f"{rest:.3f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts[:2])


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
