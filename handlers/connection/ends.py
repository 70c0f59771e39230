"""The ends of a connection: what it raises or returns, which is the contract with the machine.

Invariant: an end is a takeover only if a newer connection is known to be connected; after every other end the
machine connects again at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from handlers.connection.backoff import Refusal
from handlers.connection.effects import Outcome, Progress
from handlers.connection.inputs import ClaimRefused, Closed
from handlers.connection.lease import Lease, LeaseView, is_connected
from handlers.connection.spending import OVER_BUDGET

EXPIRED_CURSOR = Outcome("StreamDropped", "", "the upstream no longer knows the cursor: what came since is lost")
PARTLY_FORGOTTEN = Outcome(
    "StreamDropped", "", "the upstream has forgotten what came next: the next request starts at its oldest place"
)
FORGOTTEN = Outcome("StreamDropped", "", "the upstream has forgotten nothing after the cursor: requested again")
DISCONNECTED = Outcome("StreamDropped", "", "the upstream asked for a new connection")
EXPIRED = Outcome("ConnectionExpired", "", "the function's deadline was reached and no successor had taken over")
LET_GO = Outcome("StreamDropped", "", "closed for a successor that did not connect")
ENDED = Outcome("", "ended", "the upstream ended the stream")
STOPPED = Outcome("", "stopped", "a stop was requested")
SUPERSEDED = Outcome("", "superseded", "another execution keeps the stream connected")
NOT_DRAINED = Outcome("StoreUnavailable", "", "not everything that was read was stored by the deadline")


class End(NamedTuple):
    """What ends a connection: its outcome, the ledger's word for it, and whether the lease may explain it otherwise.

    `refused_ms` is how long the upstream may refuse before that is final, None if it did not refuse. `is_expired` is
    whether the upstream has forgotten what came after the cursor.
    """

    outcome: Outcome
    ended_by: str
    should_check_lease: bool = False
    refused_ms: int | None = None
    is_expired: bool = False


NOT_RENEWED = End(
    Outcome("StreamDropped", "", "its lease was not renewed: closed before another connection opens"),
    "let_go",
    should_check_lease=True,
)
AT_DEADLINE = End(EXPIRED, "expired", should_check_lease=True)


def refused_claim(claim: ClaimRefused) -> Outcome:
    """Returns the end of a connection whose claim the store refused, as its lease explains it."""
    if claim.is_relieved:
        return outcome_of_takeover(claim.lease, is_superseded=False)
    status = "stopped" if claim.lease.stop else "superseded"
    return Outcome("", status, f"the claim was refused: {status}")


def end_of_drop(closed: Closed, was_connected: bool, reject_after_ms: int) -> End:
    """Returns the end of a connection that the network ended, unless the lease explains it otherwise.

    It is StreamRejected if the request cannot be made; `outcome_of_refusal` decides whether that is final.
    """
    detail = f": {closed.detail}" if closed.detail else ""
    verb = "closed" if was_connected else "not opened"
    is_rejected = closed.reason == "rejected"
    error, limit_ms = ("StreamRejected", reject_after_ms) if is_rejected else ("StreamDropped", None)
    outcome = Outcome(error, "", f"the stream was {verb} ({closed.reason}){detail}", detail=closed.detail)
    return End(outcome, closed.reason, should_check_lease=not is_rejected, refused_ms=limit_ms)


def outcome_of_refusal(outcome: Outcome, refusal: Refusal, now_ms: int, *, is_alone: bool) -> Outcome:
    """Returns the end of a connection that was refused: StreamDropped while the refusal may pass.

    `is_alone` is whether no other connection of the stream is open: nothing is final before.
    """
    lasted_ms = now_ms - refusal.since_ms
    left_s = (refusal.limit_ms - lasted_ms) / 1000
    if is_alone and left_s <= 0:
        lasted = f" for {lasted_ms / 1000:.0f} s" if refusal.limit_ms else ""
        return replace(outcome, message=f"{outcome.message}{lasted}: a retry cannot help", retry_after_s=None)
    until = f"if it goes on for {left_s:.0f} s" if left_s > 0 else "once no other connection is open"
    return replace(outcome, error="StreamDropped", message=f"{outcome.message}: final {until}")


def outcome_of_takeover(lease: Lease, is_superseded: bool) -> Outcome:
    """Returns the end of a relieved connection: its lane waits, or ends if another execution has the stream."""
    if is_superseded:
        return SUPERSEDED
    return Outcome("StreamTakenOver", "", f"connection {lease.connected_token} has taken over")


def end_for_pause(pause_s: float) -> End:
    """Returns the end of a connection whose stream has used up its budget, `pause_s` before the day is over."""
    words = "the budget of the day is used up: paused until 00:00 UTC"
    outcome = Outcome("StreamDropped", "", words, retry_after_s=pause_s, detail="the budget of the day is used up")
    return End(outcome, OVER_BUDGET)


def outcome_of_late_takeover(outcome: Outcome, late_s: int) -> Outcome:
    """Returns the end of a connection that was taken over late: its lane waits that much less."""
    return Outcome(outcome.error, "", f"{outcome.message}; late by {late_s} s")


# After these ends the upstream has certainly not begun the request, or has refused it.
NOT_BEGUN = frozenset({"refused", "unreachable", "tls", "rejected", "no_token", "no_ticket", "claimed_by_successor"})


def without_retry(outcome: Outcome, progress: Progress) -> Outcome:
    """Returns the end of a request that must not be made twice: it is not retried if the upstream may have begun it.

    After a refusal, or if the upstream was not reached, nothing has begun.
    """
    if outcome.error not in ("StreamDropped", "StreamThrottled", "ConnectionExpired"):
        return outcome
    # RFC 9110, section 15.6: after a 503 the request has not begun; after a 500, 502 or 504 that is unknown.
    is_failure = outcome.error == "StreamDropped" and outcome.http_status >= 500 and outcome.http_status != 503
    has_begun = progress.opened_ms is not None or is_failure
    if not has_begun and (not progress.fence or progress.ended_by in NOT_BEGUN):
        return outcome
    words = f"it ended without its end mark and is not requested again: {outcome.message}"
    return Outcome("StreamBroken", "", words, detail=outcome.detail)


ALREADY_ANSWERED = Outcome(
    "InvalidRequest",
    "",
    "the stream has its one answer already: request another under another id (name:2)",
)


def repeated_request(is_alive: bool) -> Outcome:
    """Returns the end of a connection that would repeat another's request, which must be made only once."""
    if is_alive:
        return Outcome("StreamTakenOver", "", "another connection reads what must not be requested twice")
    return Outcome("StreamBroken", "", "it must not be requested twice, and the earlier request's outcome is unknown")


def outcome_if_requested_before(
    lease: Lease, connected_ms: int | None, now_ms: int, ttl_ms: int, died: str
) -> Outcome | None:
    """Returns the end if another connection has made the request that must not be made twice; else None.

    `connected_ms` is until when any connection is known to have been open, `ttl_ms` how long a lease lasts.
    """
    is_alive = is_connected(lease, now_ms, died)
    has_turn = lease.connected_token > lease.released_token
    renewed_ms = lease.expires_at_ms - ttl_ms if has_turn else 0
    if is_alive or max(renewed_ms, connected_ms or 0) >= max(1, lease.started_at_ms):
        return repeated_request(is_alive)
    return None if connected_ms is None else ALREADY_ANSWERED


def with_renewal_due(outcome: Outcome) -> Outcome:
    """Returns the end of a cycle in which a renewal is due; the machine itself counts failures, not usual ends."""
    if outcome.error not in ("StreamTakenOver", "ConnectionExpired"):
        return outcome
    return Outcome("RenewalDue", "", f"{outcome.error}: {outcome.message}")


def outcome_by_lease(view: LeaseView, ending: Outcome, takeover: Outcome | None) -> Outcome | None:
    """Returns the end of a closed connection that sees `view` in the lease; None while a successor may still connect.

    `takeover` is its end if it was taken over; None if no successor takes over from it.
    """
    if view is LeaseView.STOPPED:
        return STOPPED
    if takeover is not None and view is LeaseView.TAKEN_OVER:
        return takeover
    return None if takeover is not None and view is LeaseView.CLAIMED else ending


MOST_CHARACTERS = 300


def safe_phrase(text: str) -> str:
    """Returns a phrase in a form that is safe to show: bounded, on one line, with visible characters only.

    It is written into the ledger and shown by the API and in a terminal, so it must neither move a cursor there by a
    control character nor fill an item. A line end becomes `\\n`; the end of a longer one becomes an ellipsis.
    """
    visible = "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text[: MOST_CHARACTERS + 1]
    )
    return visible if len(visible) <= MOST_CHARACTERS else visible[: MOST_CHARACTERS - 1] + "…"
