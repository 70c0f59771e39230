"""Defines what an invocation and its performer exchange: steps, answers, and a report at the end. All are plain data.

`reconnection.py` yields the steps of an invocation one at a time. A performer carries out each step, on threads or in
virtual time, and sends its `Answer` back (`handlers/run/performer.py`); it decides neither what comes next nor when.

    Claim() -> Claimed    Open("7") -> nothing    Await(…) -> Opened    MarkConnected(…) …
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from handlers.connection.backoff import Backoff, Refusal
from handlers.connection.effects import Effect, Outcome, Progress
from handlers.connection.lease import LEASE_TTL_READS, Lease
from handlers.framing.oversize import BufferBudget
from handlers.values import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Invocation:
    """The invocation that runs: stream, lane and execution ("" if unknown), Lambda's request id, the deadline.

    `cycles` is how many cycles its lane has completed before this one; a renewal is due in the cycle numbered
    `renew_after`, 0 if the machine names none. `died` is Lambda's message about the lane's last function, if that
    proves that it is over: it names that function's request. `waits_too_long` is whether its execution is of another
    deployment and its lanes wait for so long that a function's deadline may come before its successor. `budget` is the
    memory that the streams of its function share, None if it keeps no other.
    """

    stream_id: str
    lane: str
    execution: str
    request_id: str
    deadline_ms: int
    margin_ms: int
    lease_every_ms: int
    progress_every_ms: int
    overlap_max_ms: int
    cycles: int = 0
    renew_after: int = 0
    died: str = ""
    waits_too_long: bool = False
    budget: BufferBudget | None = None

    @property
    def holder(self) -> str:
        """A name that no other invocation has."""
        return f"{self.lane}/{self.request_id}"

    @property
    def lease_ttl_ms(self) -> int:
        """How long after its renewal a lease expires."""
        return LEASE_TTL_READS * max(self.lease_every_ms, self.progress_every_ms)

    @property
    def is_renewal_due(self) -> bool:
        """Whether the execution should start its successor after this cycle.

        Either its history would become full, or its lanes wait for too long; its successor waits as the deployed
        definition says.
        """
        return 0 < self.renew_after <= self.cycles + 1 or self.waits_too_long


@dataclass(frozen=True, slots=True)
class Report:
    """How a connection ended and what it did; `connect_ms` is None if the upstream never answered.

    `reconnection_ms` is the reconnection time that the upstream requested, as the profile bounds it; None if it did
    not. `stuck_cursor` is the cursor from which the connection resumed in vain: it stored nothing and reached no other
    cursor; None if it did either, or sent no cursor. `same_ends` counts the connections in a row that ended the same
    way (`failures.py`). `refusal` is the upstream's refusal, final or not (`backoff.py`); None if it did not refuse.
    """

    outcome: Outcome
    progress: Progress
    connect_ms: int | None = None
    reconnection_ms: int | None = None
    stuck_cursor: str | None = None
    same_ends: int = 0
    refusal: Refusal | None = None


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadSecrets:
    """Answered by the values of the profile's secrets, which the next Open sends; `anew` bypasses the cache.

    If one cannot be read, the answer has no secrets at all, and the next Open is answered by Closed.
    """

    anew: bool = False


@dataclass(frozen=True, slots=True)
class ReadBackoff:
    """Answered by BackoffRead, or by StoreFailed."""


@dataclass(frozen=True, slots=True)
class BackoffRead:
    """The back-off as it is recorded, and the lease beside it."""

    backoff: Backoff
    lease: Lease


@dataclass(frozen=True, slots=True)
class ChangeBackoff:
    """Replace `before` by `after`; answered by whether `before` was still recorded, or by StoreFailed."""

    before: Backoff
    after: Backoff


@dataclass(frozen=True, slots=True)
class Pause:
    """Answered by nothing, after this many milliseconds."""

    for_ms: int


@dataclass(frozen=True, slots=True)
class Await:
    """Answered by the next arrival, or by nothing once `wake_ms` or `lease_ms` has come.

    At `lease_ms` the lease is renewed or read. A performer that is notified of every change of the lease may skip that
    instant while nothing has changed, because an answer that shows nothing new has no effect but the renewal. It then
    answers with the next arrival, or after a change, at the first instant that is a whole multiple of `lease_every_ms`
    after `lease_ms`.
    """

    wake_ms: int | None
    lease_ms: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A connection has ended, or the invocation ends without one: close what is left open, and log the report.

    Answered by whether the next opening has another token, because the upstream refused this one on its socket.
    """

    report: Report


Step = Effect | ReadSecrets | ReadBackoff | ChangeBackoff | Pause | Await | Ended


class Answer(NamedTuple):
    """The answer to a step, and when it came: `value` is the input that answers it, None for nothing.

    `arrived_ms` is when `value` arrived, if it had to wait; `unread_ms` is when the oldest arrival that still waits
    came, None if none waits.
    """

    now_ms: int
    value: Any = None
    arrived_ms: int | None = None
    unread_ms: int | None = None


Steps = Generator[Step, Answer, T]
