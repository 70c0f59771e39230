"""Decides what the lease of a stream means to one of its connections.

Each stream has one lease, a record. Its three counters hold the whole handover:

    fence            raised by every claim; the connection that raised it to n *is* connection n
    connected_token  the highest token whose upstream connection was answered
    released_token   the highest token whose upstream connection is closed again

A connection claims before it connects and marks itself connected after. So connection n reads one of three:

    fence == n                          no newer claim: it is the holder
    fence  > n, connected_token <= n    a successor claimed and is still connecting
    connected_token > n                 a successor is connected: n was taken over

unless that successor is closed again (released_token >= connected_token). If the claim came after connecting, the
second line could not occur, and two lanes would evict each other for ever.

Times are integer milliseconds that the caller passes. Invariant: fence, connected_token and released_token never
decrease, and connected_token <= fence.
"""

from __future__ import annotations

import enum
import re

from handlers.values import dataclass

# An execution lets go of its stream with an error. After these errors the stream is over. After any other, its
# predecessor, if there is one, continues the stream: a successor that broke has ended nothing.
FINAL_ENDINGS = ("StreamEnded", "StreamRejected", "InvalidRequest", "StreamBroken")
# A holder counts as dead once it has missed this many renewals.
LEASE_TTL_READS = 4
_WORDS = re.compile(r"[0-9A-Za-z-]+")


class LeaseView(enum.Enum):
    """What the lease says to one connection; logs use the value."""

    HOLDER = "holder"
    CLAIMED = "claimed by a successor"
    TAKEN_OVER = "taken over"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Lease:
    """The record as it was read: the counters as above, and the execution that claimed the stream ("" for none).

    `connected_by` is Lambda's request id of the connection that is connected; "" if none was recorded. `stop` is
    whether a stop is requested. The connected holder counts as dead at `expires_at_ms` unless it renews; 0 if no
    connection was ever open. `started_at_ms` is when the POST came whose execution, or a successor of it, claimed the
    stream. `stopped_at_ms` is since when a stop was requested at that POST, or the same instant if none was;
    `stop_at_ms` is since when one is requested now, `last_stop_ms` when it was last requested. `ending` is the error by
    which the last execution let go of the stream, `ending_cause` its message, `ended_at_ms` when; "" while an execution
    holds it. Until `paused_until_ms` no connection should be open, because the stream's budget is used up. `moved_to`
    is the place to which a move has stopped it; "" if it was not moved, or was started since.
    """

    fence: int = 0
    connected_token: int = 0
    released_token: int = 0
    expires_at_ms: int = 0
    execution: str = ""
    generation: int = 0
    stop: bool = False
    holder: str = ""
    started_at_ms: int = 0
    ending: str = ""
    ended_at_ms: int = 0
    ending_cause: str = ""
    stop_at_ms: int = 0
    stopped_at_ms: int = 0
    last_stop_ms: int = 0
    connected_by: str = ""
    paused_until_ms: int = 0
    moved_to: str = ""

    @property
    def stopped_before_ms(self) -> int | None:
        """Returns since when a stop was requested before the last start; None if none was."""
        return self.stopped_at_ms if 0 < self.stopped_at_ms < self.started_at_ms else None


def lease_view(lease: Lease, fence: int) -> LeaseView:
    """Returns what `lease` says to the connection that claimed `fence`.

    A requested stop outranks a takeover: both lanes must end, but one that was taken over would wait and come back.
    """
    if lease.stop:
        return LeaseView.STOPPED
    if lease.connected_token > fence and lease.connected_token > lease.released_token:
        return LeaseView.TAKEN_OVER
    if lease.fence > max(fence, lease.released_token):
        return LeaseView.CLAIMED
    return LeaseView.HOLDER


def is_superseded(lease: Lease, execution: str) -> bool:
    """Returns whether another execution has claimed the stream since; False for a connection without an execution."""
    return bool(execution) and bool(lease.execution) and lease.execution != execution


def is_ended(lease: Lease) -> bool:
    """Returns whether no execution holds the stream because the last one ended it for good."""
    return not lease.execution and lease.ending in FINAL_ENDINGS


def may_open(lease: Lease, fence: int, now_ms: int, died: str = "") -> bool:
    """Returns whether an upstream that forbids a second connection would now see only connection `fence`.

    It would if every answered connection before `fence` is closed, if the last of them stopped renewing (its function
    is dead, and so are its sockets), or if `died` proves that it is over.
    """
    open_before = lease.connected_token > lease.released_token and lease.connected_token < fence
    return not open_before or now_ms >= lease.expires_at_ms or is_holder_dead(lease, died)


def is_connected(lease: Lease, now_ms: int, died: str = "") -> bool:
    """Returns whether a connection is open, as far as is known: it was answered or has its turn, and it renews."""
    has_turn = lease.connected_token > lease.released_token
    return has_turn and now_ms < lease.expires_at_ms and not is_holder_dead(lease, died)


def is_holder_dead(lease: Lease, died: str) -> bool:
    """Returns whether `died`, Lambda's message about a function that is over, names the one that is connected.

    The message names the request, which is unique: "RequestId: 8f5a… Error: Runtime exited …".
    """
    return bool(lease.connected_by) and lease.connected_by in _WORDS.findall(died)


def unconnected_ms(lease: Lease, now_ms: int) -> int:
    """Returns for how long a stream that should be connected has not been; 0 if it is, or need not be.

    A stream should be connected while an execution holds it, no stop is requested and its budget lasts. It counts as
    connected until the holder's lease expires.
    """
    if not lease.execution or lease.stop:
        return 0
    return max(0, now_ms - max(lease.expires_at_ms, lease.started_at_ms, lease.paused_until_ms))
