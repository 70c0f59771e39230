"""Draws lanes and their coverage as lines of text, in which each column is an equal share of the time.

It only decides which mark a column gets. A column shows the most important thing in it, so a gap or an overlap shorter
than a column can still be seen. The caller adds colours.
"""

from collections.abc import Sequence

from timeline.coverage import Connection, Gap, overlaps
from timeline.spans import Span

WAITING, STARTING, CONNECTED, OVERLAP, GAP, REPAIRED, NOTHING = "·", "╌", "━", "═", "╳", "┼", " "
ASCII = str.maketrans({WAITING: ".", STARTING: "-", CONNECTED: "=", OVERLAP: "#", GAP: "x", REPAIRED: "+"})
"""Replaces the marks for a terminal that knows ASCII only: `text.translate(ASCII)`."""
LABEL = 7
"""The width of the label before each line, in columns."""
LEGEND = f"{WAITING} waiting  {STARTING} connecting  {CONNECTED} connected  {OVERLAP} overlap  {GAP} gap"
REPAIRED_LEGEND = f"  {REPAIRED} gap, repaired"
"""Follows LEGEND if a gap is drawn as repaired."""


def draw(
    spans: Sequence[Span], connections: Sequence[Connection], gaps: Sequence[Gap], until_ms: int, width: int = 96
) -> list[str]:
    """Returns a line for each lane, one for the whole stream, and a scale in seconds, at most `width` + LABEL wide."""
    width = max(20, width)
    lanes = sorted({span.lane for span in spans} | {c.lane for c in connections})
    lines = [f"{lane:>6} {_lane_line(lane, spans, connections, until_ms, width)}" for lane in lanes]
    lines.append(f"stream {_stream_line(connections, gaps, until_ms, width)}")
    lines.append(f"{'s':>6} {_scale_line(until_ms, width)}")
    return lines


def draw_gaps(streams: Sequence[Sequence[Gap]], until_ms: int, width: int = 96) -> list[str]:
    """Returns a line for each stream with its gaps, numbered from 1, in the width and scale of `draw`."""
    width = max(20, width)
    lines = []
    for number, gaps in enumerate(streams, 1):
        cells = [NOTHING] * width
        _fill_gaps(cells, gaps, until_ms)
        lines.append(f"{number:>6} {''.join(cells).rstrip()}")
    return lines


def _lane_line(lane: str, spans: Sequence[Span], connections: Sequence[Connection], until_ms: int, width: int) -> str:
    cells = [NOTHING] * width
    for span in spans:
        if span.lane == lane:
            _fill(cells, span.from_ms, span.to_ms, until_ms, WAITING if span.kind == "wait" else STARTING)
    for connection in connections:
        if connection.lane == lane:
            _fill(cells, connection.from_ms, connection.to_ms, until_ms, CONNECTED)
    return "".join(cells).rstrip()


def _stream_line(connections: Sequence[Connection], gaps: Sequence[Gap], until_ms: int, width: int) -> str:
    cells = [NOTHING] * width
    for connection in connections:
        _fill(cells, connection.from_ms, connection.end_ms, until_ms, CONNECTED)
    for from_ms, to_ms in overlaps(connections):
        _fill(cells, from_ms, to_ms, until_ms, OVERLAP)
    _fill_gaps(cells, gaps, until_ms)
    return "".join(cells).rstrip()


def _fill_gaps(cells: list[str], gaps: Sequence[Gap], until_ms: int) -> None:
    """Marks gaps; a column with a repaired gap and an open one shows the open one."""
    for gap in sorted(gaps, key=lambda gap: not gap.is_repaired):
        _fill(cells, gap.from_ms, gap.to_ms, until_ms, REPAIRED if gap.is_repaired else GAP)


def _fill(cells: list[str], from_ms: int, to_ms: int | None, until_ms: int, mark: str) -> None:
    width = len(cells)
    end_ms = until_ms if to_ms is None else min(to_ms, until_ms)
    if until_ms <= 0 or from_ms >= until_ms or end_ms <= from_ms:
        return
    first = from_ms * width // until_ms
    last = max(first, -(-end_ms * width // until_ms) - 1)
    cells[first : last + 1] = mark * (last + 1 - first)


def _scale_line(until_ms: int, width: int) -> str:
    text = ""
    for step in range(6):
        column = step * width // 5
        label = f"{until_ms * step / 5_000:.{0 if until_ms >= 50_000 else 1}f}"
        at = column if step == 0 else min(column, width) - len(label)
        text = text.ljust(max(at, len(text) + bool(text))) + label
    return text
