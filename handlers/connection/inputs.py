"""The inputs of the manager: what happens to a connection, all plain data."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, NamedTuple

from handlers.connection.backoff import NO_BACKOFF, Backoff
from handlers.connection.lease import Lease
from handlers.profile.secret_references import Secrets
from handlers.values import dataclass

# The number of partition keys of a stream whose events lie in a log.
LOG = 0
# The most that a profile may set.
MOST_PARTITIONS = 64
# Whether the items of a stream are in the index of the order in which they came.
Order = Literal["index", "none"]


# An event is stored while its function lives, so at most this long after it came. One minute is for clocks that differ.
LONGEST_WAIT_MS = 900_000 + 60_000


class Layout(NamedTuple):
    """How a stream's events are stored: over how many partition keys (LOG: in a log), and whether all are indexed.

    A stream that went over to a log at `since_ms` has older events as items, over `items` partition keys; 0 for none.
    """

    partitions: int = 1
    order: Order = "index"
    items: int = 0
    since_ms: int = 0


# The layout of a stream that never had items.
IN_A_LOG = Layout(LOG)


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a connection resumes; the cursor is None when none was saved yet, `saved_ms` is when it was saved.

    Everything until `known_ms` is stored or lies in an open gap; what happened since `backlog_from_ms` may come as a
    backlog if the connection resumes. Both are from the ledger, None if it has no record. `last_searched` is the
    last connection that recorded the gaps. `connected_ms` is until when any connection is known to have been open, None
    if none is. `event_ms`, `pause_ms` and `spending` are from the record of the newest connection; `is_counting` is
    whether that record has no end yet. `is_logged` is whether the cursor may be from the stream's log, and so be later
    than this.
    """

    cursor: str | None
    saved_ms: int | None = None
    known_ms: int | None = None
    backlog_from_ms: int | None = None
    connected_ms: int | None = None
    last_searched: int = 0
    event_ms: int | None = None
    pause_ms: int | None = None
    spending: str = ""
    is_counting: bool = False
    is_logged: bool = False


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim was granted; `lease.fence` is this connection's own fencing token.

    `backoff` is the recorded back-off. `partitions` is the number of partition keys over which the stream's events are
    spread, fixed by its first claim; LOG if they are in a log of segments.
    """

    lease: Lease
    resumption: Resumption
    backoff: Backoff = NO_BACKOFF
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """The claim was refused: a stop is requested, or another execution holds the stream.

    Or `is_relieved`: a newer connection was connected while the invocation backed off.
    """

    lease: Lease
    is_relieved: bool = False


@dataclass(frozen=True, slots=True)
class BackoffOwed:
    """The claim was refused: another back-off is recorded than the invocation knew. A manager never gets this input."""

    backoff: Backoff


@dataclass(frozen=True, slots=True)
class Opened:
    """The upstream answered; header names are lower case.

    `places` are the token and the ticket with which it was opened, for messages that hold them.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    places: Secrets = field(default_factory=dict, repr=False)

    @property
    def is_one_json(self) -> bool:
        """Whether the body is one JSON text, as of a long poll, with a length that shows where it ends."""
        has_length = not {"content-length", "transfer-encoding"}.isdisjoint(self.headers)
        return has_length and self.headers.get("content-type", "").lower().startswith("application/json")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes, as they were read."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """The upstream connection is closed, or could not be opened; `reason` is one word, `detail` is for people."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LeaseRead:
    """The lease as it is now; `resumption` is None except in the answer to TakeTurn.

    `backoff` is the recorded back-off, in the answer to a write that would change it; else None. `settled` is the
    spending of the connection before: as it was known at the claim, and as it ended; it comes once. `wide` is the day
    of the most used shared budget, how many percent of it are used, and whose it is; None if none is known. `is_log` is
    whether the stream's events go to a log by now, as far as the answer says.
    """

    lease: Lease
    resumption: Resumption | None = None
    backoff: Backoff | None = None
    settled: tuple[str, str] | None = None
    wide: tuple[int, int, str] | None = None
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The oldest Write was answered: how many events were new, known already, or dead-lettered.

    `conflicts` counts those among the new and the known ones whose key was known with another body. `is_beside` is
    whether the connection before may have been open too: then both may have brought the same events. `lost` counts
    the events that are not stored because ids have started over, also earlier ones of which that is known only now;
    the first of them came at `lost_from_ms`.
    """

    stored: int
    duplicates: int
    dead_lettered: int = 0
    conflicts: int = 0
    is_beside: bool = False
    lost: int = 0
    lost_from_ms: int = 0


@dataclass(frozen=True, slots=True)
class GapsRecorded:
    """The gaps are recorded; `missing` are those that the connection could not request in full.

    `is_open` is whether the gap that it ended itself is open.
    """

    missing: int
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store still refuses after its own retries."""

    detail: str


@dataclass(frozen=True, slots=True)
class Woken:
    """The manager's `wake_at_ms` has come."""


Input = Claimed | ClaimRefused | Opened | Chunk | Closed | LeaseRead | Written | GapsRecorded | StoreFailed | Woken
# Inputs that the upstream causes, and no effect.
Arrival = Opened | Chunk | Closed
