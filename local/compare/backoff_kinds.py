"""Simulates streams that reconnect after an outage with several kinds of back-off, and draws their calls per second.

All lose their connections at the same instant. The upstream answers nobody until the outage is over, and then a fixed
number of openings per second; the others are refused and back off further. With `exp = min(cap, base × 2^n)`, after n
failures a stream waits for

    none            base
    exponential     exp
    full            between 0 and exp
    equal           exp / 2, and between 0 and exp / 2
    decorrelated    between base and three times the last wait, at most cap

(AWS Architecture Blog, "Exponential Backoff And Jitter"). The machine's retriers have full jitter
(`JitterStrategy: FULL`). Invariant: the same numbers and seed give the same calls; no real clock is read.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from timeline import svg

STREAMS, OUTAGE_S, PER_S = 1000, 60, 100
BASE_MS, CAP_MS = 1_000, 20_000
# The time from a try to its answer.
CONNECT_MS = 50
# A simulation ends here if nobody recovers.
MOST_MS = 3_600_000
DEFAULT = "full"

Backoff = Callable[[random.Random, int, int], float]


def _exponential_ms(failures: int) -> int:
    return min(CAP_MS, BASE_MS * 2 ** min(failures - 1, 30))  # type: ignore[no-any-return]


KINDS: dict[str, Backoff] = {
    "none": lambda _draw, _failures, _last: BASE_MS,
    "exponential": lambda _draw, failures, _last: _exponential_ms(failures),
    "full": lambda draw, failures, _last: draw.uniform(0, _exponential_ms(failures)),
    "equal": lambda draw, failures, _last: (
        _exponential_ms(failures) / 2 + draw.uniform(0, _exponential_ms(failures) / 2)
    ),
    "decorrelated": lambda draw, _failures, last: min(CAP_MS, draw.uniform(BASE_MS, 3 * max(last, BASE_MS))),
}


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of a kind. `calls_s` has the tries in each second of the outage and after, `peak_calls_s` is the most.

    `last_ms` is the time from the outage's end to the last stream's recovery; None if some never recovered.
    """

    kind: str
    calls: int
    peak_calls_s: int
    refused: int
    half_ms: int | None
    last_ms: int | None
    calls_s: list[int]


def simulate(kind: str, seed: int = 0) -> Recovery:
    """Returns how the streams recovered."""
    draw, rest = random.Random(f"{kind} {seed}"), KINDS[kind]
    over_ms = OUTAGE_S * 1000
    tries = [(0, stream, 0, 0) for stream in range(STREAMS)]
    heapq.heapify(tries)
    calls: Counter[int] = Counter()
    answered: Counter[int] = Counter()
    recovered: list[int] = []
    refused = 0
    while tries and tries[0][0] < MOST_MS:
        at_ms, stream, failures, last_ms = heapq.heappop(tries)
        calls[at_ms // 1000] += 1
        if at_ms >= over_ms and answered[at_ms // 1000] < PER_S:
            answered[at_ms // 1000] += 1
            recovered.append(at_ms + CONNECT_MS - over_ms)
            continue
        refused += at_ms >= over_ms
        rest_ms = round(rest(draw, failures + 1, last_ms))
        heapq.heappush(tries, (at_ms + CONNECT_MS + rest_ms, stream, failures + 1, rest_ms))
    whole = [calls[second] for second in range(max(calls) + 1)]
    half_ms = recovered[STREAMS // 2 - 1] if len(recovered) >= STREAMS // 2 else None
    all_ms = recovered[-1] if len(recovered) == STREAMS else None
    return Recovery(kind, sum(whole), max(whole), refused, half_ms, all_ms, whole)


def simulate_all(seed: int = 0) -> list[Recovery]:
    """Returns how the streams recovered with each kind."""
    return [simulate(kind, seed) for kind in KINDS]


def heading() -> str:
    """Returns a line that says what is simulated."""
    return (
        f"{STREAMS:,} streams reconnect after an outage of {OUTAGE_S} s; the upstream then answers {PER_S} openings a "
        f"second; first delay {BASE_MS // 1000} s, longest {CAP_MS // 1000} s"
    )


def table_rows(recoveries: list[Recovery]) -> list[list[str]]:
    """Returns the table: its header, and a row for each kind."""
    lines = [["back-off", "calls", "most a second", "refused", "half back s", "all back s"]]
    for one in recoveries:
        name = f"{one.kind} (default)" if one.kind == DEFAULT else one.kind
        counts = (f"{count:,}" for count in (one.calls, one.peak_calls_s, one.refused))
        lines.append([name, *counts, _seconds(one.half_ms), _seconds(one.last_ms)])
    return lines


def draw_picture(recoveries: list[Recovery]) -> str:
    """Returns the calls per second of each kind as an SVG document, all with one scale."""
    shown = []
    for one in recoveries:
        note = f"{one.calls:,} calls\n{one.peak_calls_s:,} a second at most\nall back after {_seconds(one.last_ms)} s"
        shown.append(svg.BarRow(one.kind, note, one.calls_s))
    return svg.draw_bars(shown, OUTAGE_S, "the outage ends", heading())


def as_json(recoveries: list[Recovery]) -> dict[str, Any]:
    """Returns the object that `--json` prints."""
    asked = {"streams": STREAMS, "outage_s": OUTAGE_S, "openings_per_s": PER_S, "base_ms": BASE_MS, "cap_ms": CAP_MS}
    return {**asked, "default": DEFAULT, "backoff": [asdict(one) for one in recoveries]}


def _seconds(at_ms: int | None) -> str:
    return "never" if at_ms is None else f"{at_ms / 1000:.1f}"
