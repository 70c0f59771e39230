"""Measures how long one stream had no connection, and why, from what its upstream saw.

A gap that begins with a fault is the fault's. Every other opening is a handover, with a gap of 0 where the older
connection was still open. Times are milliseconds of one clock, which the caller reads.
Invariant: each opening but the first is counted once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

HANDOVER, DROP, KILL = "handover", "drop", "kill"


@dataclass
class Gauge:
    """The gaps of one stream by cause; call `changed` for each change of its connections, `fault` before each fault."""

    gaps_ms: dict[str, list[float]] = field(default_factory=lambda: {HANDOVER: [], DROP: [], KILL: []})
    openings: int = 0
    connected: int = 0
    _fault: str = HANDOVER
    _closed_ms: float = 0.0

    def fault(self, kind: str) -> None:
        """Record that a fault of this kind is about to end the newest connection of the stream."""
        self._fault = kind

    def changed(self, at_ms: float, connected: int) -> None:
        """Record how many connections the stream has from now on."""
        before, self.connected = self.connected, connected
        if connected < before:
            self._closed_ms = at_ms
            return
        if self.openings:
            self.gaps_ms[self._fault].append(0.0 if before else at_ms - self._closed_ms)
        self.openings += 1
        self._fault = HANDOVER

    @property
    def unconnected_ms(self) -> float:
        """How long there was no connection, between the first opening and the last."""
        return sum(sum(gaps) for gaps in self.gaps_ms.values())


@dataclass(frozen=True)
class Summary:
    """The percentiles of several gaps, in milliseconds; None where `count` is 0."""

    count: int
    p50_ms: float | None
    p99_ms: float | None
    most_ms: float | None


def summary(gaps_ms: Sequence[float]) -> Summary:
    """Return the summary; a percentile is the value of its nearest rank, so one that was measured."""
    if not gaps_ms:
        return Summary(0, None, None, None)
    ordered = sorted(gaps_ms)

    def rank(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1], 1)

    return Summary(len(ordered), rank(0.5), rank(0.99), rank(1))
