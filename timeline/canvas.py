"""Draws the frame of the pictures: a self-contained SVG document, its colours, and its scale of time.

The document needs no script, no font and no other file. Its colours are Okabe and Ito's, which colour-blind people can
tell apart; a dark page gets others. Invariant: the same marks give the same text.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

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


def document(title: str, described: str, legend: Iterable[str], scale: Scale, marks: Iterable[str], bottom: int) -> str:
    """Returns the whole picture; `marks` are between TOP and `bottom`, `described` is the text for screen readers."""
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
    """Returns the height of a label with its note."""
    return 20 + 14 * (1 + note.count("\n"))


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
