"""Draws lanes and their coverage as one SVG picture that needs nothing besides: no script, no font, no other file.

Each group has a row a lane, and below them the stream as a whole: connected, overlap, gap. A mark shorter than a
pixel is drawn one and a half wide, so none is too short to be seen. Nothing is told by colour alone: an overlap is
higher, a gap is hatched and lower, and each mark says what it is where a pointer rests on it. The colours are Okabe
and Ito's, which the colour-blind tell apart; a dark page gets others. Invariant: the same lanes give the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape

from timeline.coverage import Connection, Gap
from timeline.spans import Span

WIDTH, LABELS, EDGE = 1000, 190, 16
_LANE, _STREAM, _BETWEEN, _HEAD = 14, 26, 22, 20
_LEAST = 1.5
# A narrower mark has no room for a hatch.
_HATCHED = 9
_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 604800, 2592000)
_MOST_TICKS = 9
_LIGHT = {
    "ground": "#fff",
    "ink": "#1b1b1b",
    "soft": "#5c5c5c",
    "line": "#d8d8d8",
    "wait": "#c3c9d2",
    "open": "#0072b2",
    "both": "#e69f00",
    "gap": "#c8321e",
}
_DARK = {
    "ground": "#15181c",
    "ink": "#eceff1",
    "soft": "#a3adb5",
    "line": "#343a40",
    "wait": "#4a525a",
    "open": "#56b4e9",
    "both": "#f0c94a",
    "gap": "#ff7a5c",
}
# Written without variables: drawing programs know classes, and not those.
_COLOURS = """.tl .ground{{fill:{ground}}}.tl text{{fill:{ink}}}.tl .s{{fill:{soft}}}.tl .l{{stroke:{line}}}
.tl .wait{{fill:{wait}}}.tl .open{{fill:{open}}}.tl .both{{fill:{both}}}.tl .gap-line{{stroke:{gap}}}
.tl .thin{{fill:{gap}}}
"""
_STYLE = (
    ".tl text{font:12px system-ui,sans-serif}.tl .s{font-size:11px}.tl .g{font-weight:600;font-size:13px}\n"
    ".tl .gap{fill:url(#tl-gap)}.tl .gap-line{stroke-width:3}\n"
    + _COLOURS.format(**_LIGHT)
    + "@media (prefers-color-scheme:dark){"
    + _COLOURS.format(**_DARK)
    + "}"
)
_HATCH = (
    '<defs><pattern id="tl-gap" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="ground" width="6" height="6"/><line class="gap-line" x1="1.5" x2="1.5" y2="6"/></pattern></defs>'
)
_LEGEND = (("wait", "waiting"), ("open", "connected"), ("both", "overlap"), ("gap", "gap: no connection"))


@dataclass(frozen=True, slots=True)
class Group:
    """What is drawn together: its lanes, and one stream. `note` stands beside the label: a word on the result."""

    label: str
    note: str
    spans: Sequence[Span]
    connections: Sequence[Connection]
    gaps: Sequence[Gap]


def draw(groups: Sequence[Group], until_ms: int, title: str) -> str:
    """Returns the picture of `until_ms` milliseconds as an SVG document."""
    scale = _Scale(max(1, until_ms))
    marks: list[str] = []
    top = _HEAD + 34
    for group in groups:
        drawn, height = _group(group, scale, top)
        marks += drawn
        top += height + _BETWEEN
    height = top + 20
    described = "; ".join(f"{group.label}: {group.note}" for group in groups)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tl" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">',
            f"<title>{escape(title)}</title><desc>{escape(described)}</desc><style>{_STYLE}</style>{_HATCH}",
            f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
            f'<text class="g" x="{EDGE}" y="{_HEAD}">{escape(title)}</text>',
            *_legend(_HEAD + 18),
            *scale.ticks(_HEAD + 30, height - 20),
            *marks,
            "</svg>",
            "",
        ]
    )


class _Scale:
    """Where a time lies in the picture."""

    def __init__(self, until_ms: int) -> None:
        self.until_ms = until_ms
        self._per_ms = (WIDTH - LABELS - EDGE) / until_ms

    def x(self, at_ms: float) -> float:
        """Returns the column of an instant."""
        return LABELS + min(max(at_ms, 0), self.until_ms) * self._per_ms

    def ticks(self, top: int, bottom: int) -> list[str]:
        """Returns the lines and labels of the axis, at most _MOST_TICKS beside the first."""
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
        """Returns a mark for each (from, to, words); those that cannot be told apart are drawn once."""
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


def duration(seconds: float) -> str:
    """Returns a time as people say it: 45 s, 1 min 30 s, 15 min, 2 h 30 min, 3 d."""
    parts = []
    rest = seconds
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if rest >= length:
            parts.append(f"{int(rest // length)} {unit}")
            rest %= length
    if rest or not parts:
        parts.append(f"{rest:.3f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts[:2])


def _group(group: Group, scale: _Scale, top: int) -> tuple[list[str], int]:
    """The marks of a group from `top` down, and its height."""
    lanes = sorted({span.lane for span in group.spans} | {c.lane for c in group.connections}, key=lambda n: (len(n), n))
    marks = [f'<text class="g" x="{EDGE}" y="{top + 12}">{escape(group.label)}</text>']
    for line, text in enumerate(group.note.split("\n")):
        marks.append(f'<text class="s" x="{EDGE}" y="{top + 27 + 14 * line}">{escape(text)}</text>')
    at = top
    for lane in lanes:
        marks.append(f'<text class="s" x="{LABELS - 8}" y="{at + 11}" text-anchor="end">{escape(lane)}</text>')
        idle = [(s.from_ms, _end(s, scale)) for s in group.spans if s.lane == lane and s.kind == "wait"]
        marks += scale.rects("wait", ((*each, _words("waiting", *each)) for each in idle), at + 5, 4)
        own = [c for c in group.connections if c.lane == lane]
        marks += scale.rects("open", ((c.from_ms, c.to_ms, _said(c)) for c in own), at + 1, _LANE - 4)
        at += _LANE
    marks += _stream(group, scale, at + 2)
    return marks, max(at + _STREAM - top, 20 + 14 * (1 + group.note.count("\n")))


def _stream(group: Group, scale: _Scale, top: int) -> list[str]:
    ordered = sorted(group.connections, key=lambda c: (c.from_ms, c.end_ms))
    both = []
    covered_ms = -1
    for older, newer in pairwise(ordered):
        covered_ms = max(covered_ms, older.end_ms)
        if newer.from_ms < (to_ms := min(covered_ms, newer.end_ms)):
            both.append((newer.from_ms, to_ms, _words("overlap", newer.from_ms, to_ms)))
    missed = ((g.from_ms, g.to_ms, _words("gap", g.from_ms, g.to_ms) + f", after {g.cause}") for g in group.gaps)
    return [
        f'<text class="s" x="{LABELS - 8}" y="{top + 13}" text-anchor="end">stream</text>',
        *scale.rects("open", ((c.from_ms, c.end_ms, _said(c)) for c in ordered), top + 6, 6),
        *scale.rects("both", both, top + 2, 10),
        *scale.rects("gap", missed, top + 4, 16),
    ]


def _legend(top: int) -> list[str]:
    marks = []
    for place, (kind, words) in enumerate(_LEGEND):
        x = LABELS + place * 150
        marks.append(f'<rect class="{kind}" x="{x}" y="{top - 9}" width="22" height="10"/>')
        marks.append(f'<text class="s" x="{x + 28}" y="{top}">{words}</text>')
    return marks


def _end(span: Span, scale: _Scale) -> int:
    return scale.until_ms if span.to_ms is None else span.to_ms


def _said(connection: Connection) -> str:
    return _words(f"lane {connection.lane}", connection.from_ms, connection.to_ms) + f", {connection.ended_by}"


def _words(what: str, from_ms: int, to_ms: int) -> str:
    return f"{what}: {from_ms / 1000:.3f} to {to_ms / 1000:.3f} s, {duration((to_ms - from_ms) / 1000)}"
