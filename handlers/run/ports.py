"""What performs the steps of streams needs of the world: a clock, threads for requests, and upstreams that can be read.

In the function these are the system's own, in a simulation they belong to its world. They decide nothing. Invariant:
the performer (`performer.py`) reaches the world through its ports alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from handlers.connection.inputs import Arrival
from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.run.threads import Answered
from handlers.upstream.reader import Share

# Is called after each connection, with how long its reader stood still because the store was slower.
LogReport = Callable[[Profile, Invocation, Report, int], None]


class Clock(Protocol):
    """Epoch milliseconds that never go back."""

    def now_ms(self) -> int:
        """The time."""


class Reader(Protocol):
    """One opening of an upstream, as `handlers/upstream/reader.py` has it."""

    @property
    def blocked_ms(self) -> int:
        """How long it has stood still because the store was slower."""

    @property
    def taken_s(self) -> float:
        """How long ago had come what `get` returned last."""

    @property
    def unread_s(self) -> float | None:
        """How long ago the oldest had come that still waits; None where none does."""

    def get(self, wait_s: float) -> Arrival | None:
        """What arrived next, or None."""

    def close(self, join_s: float) -> None:
        """Closes it; what was read before can still be taken."""


class Threads(Protocol):
    """Threads that make requests, as `handlers/run/threads.py` has them."""

    def ask(self, whom: str, *requests: Callable[[], Any]) -> None:
        """Lets a thread make the requests, one by one until one raises."""

    def answered(self) -> Iterator[tuple[str, Answered]]:
        """Takes the answers that have come, each with whose it is."""

    def stop(self, wait_s: float) -> None:
        """Lets each thread end after what it does now."""


# Opens a stream's upstream from a cursor, and reads no more of it at once than its share.
OpenUpstream = Callable[[str, str | None, Profile, Secrets, Share], Reader]
