"""The result of a strategy, and its cost per month.

Invariant: the cost follows only from what was counted in a run and from the price list.
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
    """A strategy's result in `until_ms`; `billed_ms` is the time of its functions.

    If streams share functions, the counts are the stream's part, its `share` of a function. `charges` has other costs:
    the number of units by the price's table and name in the price list.
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
        """Returns the connected share of the time since the first opening; 0 without an opening."""
        return connected_percent(self.connections, self.gaps)

    def usd_month(self, memory_mb: int, prices: Prices) -> float:
        """Returns the monthly cost of the functions' calls and time; writing events costs the same for all."""
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
        """Returns what each lane did, as `--lanes` prints it; the end of what goes on is null."""
        return {
            "strategy": self.strategy,
            "spans": [asdict(span) for span in sorted(self.spans, key=lambda s: (s.from_ms, s.lane))],
            "connections": [asdict(connection) for connection in self.connections],
            "gaps": [{"from_ms": gap.from_ms, "to_ms": gap.to_ms, "cause": gap.cause} for gap in self.gaps],
        }


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to keep a stream connected; `says` describes it in a sentence.

    `needs` names a package that it needs and that may be missing.
    """

    name: str
    says: str
    run: Callable[[Scenario], Result]
    needs: str = ""

    @property
    def missing(self) -> str:
        """Returns the name of the missing package, "" if there is none."""
        return self.needs if self.needs and find_spec(self.needs) is None else ""
