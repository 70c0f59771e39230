"""What the deployed machine is to reach on real sockets, and whether one run reached it.

Decides the goals and which rows they are of: ours alone, for the plain machine is the peer. It does not measure.
Invariant: a goal of which nothing was measured is missed, not met.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from bench.gaps import DROP, HANDOVER
from bench.streams import CONNECTIONS

DROP_MS = 2000
# What a function that reconnects by itself may need besides the connect: drain, save, release, claim.
IN_PLACE_MS = 50
IN_PLACE = "reconnects"


class Measured(Protocol):
    """What a goal reads of a row."""

    @property
    def machine(self) -> str:
        """Which machine kept the stream."""

    @property
    def policy(self) -> str:
        """How the upstream takes a second connection, or what the profile asks for besides."""

    @property
    def gaps(self) -> dict[str, dict[str, Any]]:
        """The gaps by cause, each a summary."""

    @property
    def connect(self) -> dict[str, Any]:
        """How long a request waited for its answer, a summary."""

    @property
    def lost(self) -> int:
        """Events that are missing between the first and the last."""


@dataclass(frozen=True)
class Goal:
    """One goal of one row; `limit_ms` and `measured_ms` are None where the goal is no time."""

    policy: str
    goal: str
    limit_ms: float | None
    measured_ms: float | None
    met: bool

    @property
    def line(self) -> str:
        """The goal as a person reads it."""
        times = "" if self.limit_ms is None else f": {_ms(self.measured_ms)}, at most {_ms(self.limit_ms)}"
        return f"{'ok    ' if self.met else 'missed'}  {self.policy}: {self.goal}{times}"


def goals(rows: Iterable[Measured]) -> list[Goal]:
    """Returns every goal, judged."""
    return [goal for row in rows if row.machine == CONNECTIONS for goal in _of(row)]


def _of(row: Measured) -> Iterator[Goal]:
    # Where two are forbidden a handover leaves one release and one connect, and no goal says how much.
    if row.policy != "forbids":
        yield _timed(row, "no gap at a handover", HANDOVER, "most_ms", 0)
    if row.policy == IN_PLACE:
        for rank in ("p50", "p99"):
            connect_ms = row.connect[f"{rank}_ms"]
            limit_ms = None if connect_ms is None else connect_ms + IN_PLACE_MS
            words = f"{rank} after a drop is the connect's {rank} and {IN_PLACE_MS} ms"
            yield _timed(row, words, DROP, f"{rank}_ms", limit_ms)
    else:
        yield _timed(row, "p99 after a drop", DROP, "p99_ms", DROP_MS)
    yield Goal(row.policy, "no event lost", None, None, row.lost == 0)


def _timed(row: Measured, words: str, kind: str, which: str, limit_ms: float | None) -> Goal:
    measured_ms = row.gaps[kind][which]
    met = measured_ms is not None and limit_ms is not None and measured_ms <= limit_ms
    return Goal(row.policy, words, limit_ms, measured_ms, met)


def _ms(value: float | None) -> str:
    return "nothing measured" if value is None else f"{value:g} ms"
