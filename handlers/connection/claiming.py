"""Decides what a connection does before it opens its upstream: what it claims, and whether it must await its turn.

Where an upstream forbids two connections, a successor claims the stream, waits until the older one is released or dead,
and takes its turn by one conditional write:

    fence 7, connected 7            it reads the lease again, every `RELEASE_POLL_MS`
    fence 8, connected 7            a newer connection has claimed: this one makes way
    fence 7, connected 6, released 6    TakeTurn; the answer says whether the turn is its own

Invariant: no request goes out before the claim is granted, nor before the turn if the upstream forbids two.
"""

from __future__ import annotations

from handlers.connection import ends
from handlers.connection.backoff import TRY_MS, Backoff
from handlers.connection.effects import Claim, Effect, TakeTurn
from handlers.connection.ends import End
from handlers.connection.inputs import BackoffOwed, ClaimRefused
from handlers.connection.lease import Lease, LeaseView, is_connected, is_ended, is_holder_dead, is_superseded, may_open
from handlers.connection.lifetime import Lifetime
from handlers.connection.steps import Invocation
from handlers.profile.behaviour import Profile

RELEASE_POLL_MS = 200
# A newer connection has claimed; this one was taken over if that one connects.
CLAIMED_BY_SUCCESSOR = End(ends.LET_GO, "claimed_by_successor", should_check_lease=True)


def make_claim(
    profile: Profile, lifetime: Lifetime, now_ms: int, after_fence: int, backoff: Backoff, *, has_backed_off: bool
) -> Claim:
    """Returns the claim of a connection that follows `after_fence`, and was to wait for `backoff`."""
    # No other connection can be open: the turn comes with the claim.
    takes_turn = profile.overlap == "forbids" and after_fence > 0
    expires_at_ms = lifetime.expires_at_ms(now_ms) if takes_turn else 0
    # Connections that backed off together would try at the same instant: one of them takes the try, the others wait.
    owed_ms = backoff.until_ms
    try_until_ms = now_ms + profile.connect_timeout_ms + TRY_MS if owed_ms else 0
    return Claim(after_fence, owed_ms, expires_at_ms, try_until_ms, has_backed_off)


def refusal_of_claim(
    step: Claim, lease: Lease, backoff: Backoff, execution: str, began_ms: int
) -> ClaimRefused | BackoffOwed | None:
    """Returns why the store has refused a claim of `execution`, by the record as it is; None if nothing explains it.

    The invocation began at `began_ms`; if it `has_backed_off`, an execution may have let go of the stream since.
    """
    was_let_go = bool(lease.ending) and not lease.execution and lease.ended_at_ms >= began_ms
    if lease.stop or is_superseded(lease, execution) or is_ended(lease) or (step.has_backed_off and was_let_go):
        return ClaimRefused(lease)
    if step.has_backed_off and 0 < step.after_fence < lease.connected_token:
        return ClaimRefused(lease, is_relieved=True)
    return None if backoff.until_ms == step.backoff_until_ms else BackoffOwed(backoff)


def take_turn(
    profile: Profile, lifetime: Lifetime, invocation: Invocation, now_ms: int, fence: int, lease: Lease, view: LeaseView
) -> tuple[list[Effect], End | None]:
    """Returns how a waiting connection takes its turn, nothing while it must wait, or how it ends instead."""
    if view is not LeaseView.HOLDER or lease.connected_token > fence:
        return [], CLAIMED_BY_SUCCESSOR
    died = invocation.died
    if not profile.again and is_connected(lease, now_ms, died):
        return [], End(ends.repeated_request(is_alive=True), "claimed_by_successor")
    # A function has one connection of a stream at a time. So an older turn of the same function is over: it came with a
    # claim whose answer was lost. In a group the function's heartbeats would keep that turn alive.
    is_over_here = is_holder_dead(lease, died) or lease.connected_by == invocation.request_id != ""
    if not is_over_here and not may_open(lease, fence, now_ms, died):
        return [], None
    over = lease.connected_token if is_over_here else 0
    return [TakeTurn(fence, lifetime.expires_at_ms(now_ms), over)], None
