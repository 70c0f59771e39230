"""What a strategy came to, and what that costs a month.

Invariant: dollars follow from what was counted in a run and from the price list; nothing else enters them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

from local.costs.prices import Prices
from local.simulation.scenario import Scenario
from timeline.coverage import Connection, Deliveries, Gap, connected_percent, gap_ms, overlap_ms
from timeline.spans import Span

MONTH_MS = 2_628_000_000


@dataclass(frozen=True, slots=True)
class Result:
    """What a strategy came to in `until_ms`; `billed_ms` is the time of its functions.

    Of what several streams share it has the stream's part, which need not be whole: its `share` of a function.

    `charges` has what else is charged: how many units of the price of that table and name in the price list.
    """

    strategy: str
    spans: list[Span]
    connections: list[Connection]
    gaps: list[Gap]
    deliveries: Deliveries
    transitions: float
    billed_ms: float
    invocations: float
    until_ms: int
    charges: Mapping[tuple[str, str], float] = field(default_factory=dict)
    share: float = 1.0

    @property
    def gap_ms(self) -> int:
        """Returns the time without a connection since the first opening."""
        return gap_ms(self.gaps)

    @property
    def connected_percent(self) -> float:
        """Returns the share of the time since the first opening in which the stream was connected; 0 without any."""
        return connected_percent(self.connections, self.gaps)

    def usd_month(self, memory_mb: int, prices: Prices) -> float:
        """Returns what calling the functions and their time cost a month; events' writes cost the same for all."""
        units = {
            ("lambda", "gb_second_arm64"): self.billed_ms / 1000 * memory_mb / 1024,
            ("lambda", "million_requests"): self.invocations,
            ("step_functions", "million_transitions"): self.transitions,
            **self.charges,
        }
        return sum(count * prices.usd(*price) for price, count in units.items()) * MONTH_MS / self.until_ms

    def as_json(self, memory_mb: int, prices: Prices) -> dict[str, Any]:
        """Returns the strategy's object in what `--json` prints."""
        return {
            "strategy": self.strategy,
            "connected_percent": self.connected_percent,
            "gap_ms": self.gap_ms,
            "gaps": len(self.gaps),
            "overlap_ms": overlap_ms(self.connections),
            "lost": self.deliveries.lost,
            "duplicates": self.deliveries.duplicates,
            "connections": len(self.connections),
            "transitions": self.transitions,
            "usd_month": self.usd_month(memory_mb, prices),
        }

    def lanes(self) -> dict[str, Any]:
        """Returns what each lane did, as `--lanes` prints it; of what goes on the end is null."""
        return {
            "strategy": self.strategy,
            "spans": [asdict(span) for span in sorted(self.spans, key=lambda s: (s.from_ms, s.lane))],
            "connections": [asdict(connection) for connection in self.connections],
            "gaps": [asdict(gap) for gap in self.gaps],
        }


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to keep a stream connected; `says` describes it in a sentence.

    `needs` names a package that it runs with, where that may be missing.
    """

    name: str
    says: str
    run: Callable[[Scenario], Result]
    needs: str = ""

    @property
    def missing(self) -> str:
        """Returns the name of the package that is not installed, "" where none is missing."""
        return self.needs if self.needs and find_spec(self.needs) is None else ""
