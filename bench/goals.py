"""Judges whether a run of the deployed machine on real sockets, or of the local Step Functions, met its goals.

Only the rows of the deployed machine have goals, for the plain machine is the peer.
Invariant: a goal without a measurement is missed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from bench.gaps import DROP, HANDOVER
from bench.streams import CONNECTIONS

DROP_MS = 2000
# The time for a reconnection in place besides the connect: drain, save, release, claim.
IN_PLACE_MS = 50
IN_PLACE = "reconnects"
# A tenth of what the local Step Functions took when it was first measured.
START_MS = 5.4
HISTORY_MS = 1300
# No other answer of the local Step Functions takes so long while somebody's expressions are evaluated.
STALL_MS = 100
# From the end of a function to the lane's next request, where two are forbidden and the error proves the end.
DEATH_MS = 1500
# So often a fleet's streams are handed over while they are watched.
HANDOVERS = 2
# From a stream's upstream to the table, whatever another stream of its function does.
FATE_MS = 1000
# So many deaths of a kind at least: of fewer a p99 is the greatest alone.
DEATHS = 100


class Measured(Protocol):
    """The fields of a row that the goals read."""

    @property
    def machine(self) -> str:
        """Which machine kept the stream."""

    @property
    def policy(self) -> str:
        """The upstream's overlap policy, or the name of what the profile asks for besides."""

    @property
    def gaps(self) -> dict[str, dict[str, Any]]:
        """The gaps by cause, each a summary."""

    @property
    def connect(self) -> dict[str, Any]:
        """How long a request waited for its answer, a summary."""

    @property
    def lost(self) -> int:
        """Events that are missing between the first and the last."""


class Death(Protocol):
    """The fields of a row of one kind of death that the goals read."""

    @property
    def policy(self) -> str:
        """The error by which the machine heard of it."""

    @property
    def gaps(self) -> dict[str, Any]:
        """How long nobody was connected after a death that the machine was told of, a summary."""

    @property
    def lost(self) -> int:
        """Events that are missing between the first and the last."""


class Fleet(Protocol):
    """The fields of a fleet's row that the goals read."""

    @property
    def streams(self) -> int:
        """How many streams there were."""

    @property
    def handovers(self) -> float:
        """How often each was opened while it was watched, in the mean."""

    @property
    def gaps(self) -> int:
        """How often a stream that was connected had no connection."""

    @property
    def lost(self) -> int:
        """Events that were sent and are not stored."""

    @property
    def strange(self) -> int:
        """Events that are stored and were not sent so."""

    @property
    def twice(self) -> int:
        """Events that are stored again."""


@dataclass(frozen=True)
class Goal:
    """One goal of one row; `limit_ms` and `measured_ms` are None where the goal is not a time."""

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
    """Return every goal with its verdict."""
    return [goal for row in rows if row.machine == CONNECTIONS for goal in _of(row)]


def death_goals(row: Death) -> list[Goal]:
    """Return every goal of one kind of death with its verdict."""
    count, p99_ms = row.gaps["count"], row.gaps["p99_ms"]
    met = p99_ms is not None and p99_ms <= DEATH_MS
    return [
        Goal(row.policy, "p99 to the next request", DEATH_MS, p99_ms, met),
        Goal(row.policy, f"{DEATHS} deaths that the machine was told of", None, None, count >= DEATHS),
        Goal(row.policy, "no event lost", None, None, row.lost == 0),
    ]


def fleet_goals(row: Fleet) -> list[Goal]:
    """Return the goals of a fleet of streams that share functions."""
    name = f"{row.streams} streams"
    return [
        Goal(name, "each was handed over, several times", None, None, row.handovers >= HANDOVERS),
        Goal(name, "no stream without a connection", None, None, row.gaps == 0),
        Goal(name, "no event lost", None, None, row.lost == 0),
        Goal(name, "each event stored once and as it was sent", None, None, row.strange == row.twice == 0),
    ]


def endpoint_goals(start_ms: float, history_ms: float) -> list[Goal]:
    """Return the goals of the local Step Functions: a start's median, and all pages of a history of 16,000 events."""
    return [
        Goal("endpoint", "the median StartExecution", START_MS, start_ms, start_ms <= START_MS),
        Goal("endpoint", "all pages of a history", HISTORY_MS, history_ms, history_ms <= HISTORY_MS),
    ]


def fates_goals(fault: str, p99_ms: float | None, silent: int) -> list[Goal]:
    """Return the goals of the calm streams of a function of which another has that fault; `silent` stored nothing."""
    is_fresh = p99_ms is not None and p99_ms < FATE_MS
    return [
        Goal(fault, "p99 of the others, from upstream to table", FATE_MS, p99_ms, is_fresh),
        Goal(fault, "each of the others stores events", None, None, silent == 0),
    ]


def stall_goal(attack: str, clients: int, slowest_ms: float) -> Goal:
    """Return the goal of the other answers of the local Step Functions during an attack by so many clients."""
    words = f"the slowest other answer, attacked by {clients}"
    return Goal(attack, words, STALL_MS, slowest_ms, slowest_ms < STALL_MS)


def _of(row: Measured) -> Iterator[Goal]:
    # Where an overlap is forbidden a handover takes a release and a connect, for which there is no goal.
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
