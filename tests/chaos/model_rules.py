"""What the model takes for granted about the store and the machine: the conditions of each write, and each lane's way.

It says in pure functions what `handlers/store/connection_store.py` and `statemachines/connections.asl.yml` say in their
own languages. A deliberate defect (`model_defects.py`) is a subclass.
Invariant: a method returns a new record and changes none.
"""

from __future__ import annotations

from dataclasses import replace

from handlers.connection.effects import Outcome
from handlers.connection.lease import Lease
from handlers.connection.manager import Manager
from tests.chaos.model_world import World


class Rules:
    """The store's conditions and the machine's transitions, as they are meant."""

    manager: type[Manager] = Manager

    def claim(self, lease: Lease, execution: str) -> Lease | None:
        """The lease after a function's claim; None where it is refused."""
        if lease.stop or (lease.execution and lease.execution != execution):
            return None
        return replace(lease, fence=lease.fence + 1)

    def mark_connected(self, lease: Lease, fence: int, expires_at_ms: int) -> Lease:
        """The lease after the mark, or as it was."""
        if lease.fence >= fence and lease.connected_token <= fence:
            return replace(lease, connected_token=fence, expires_at_ms=expires_at_ms)
        return lease

    def take_turn(self, lease: Lease, fence: int, expires_at_ms: int, now_ms: int) -> Lease:
        """The lease after the turn was taken, or as it was while another's lasts."""
        is_free = (
            lease.connected_token <= lease.released_token
            or lease.connected_token == fence
            or lease.expires_at_ms <= now_ms
        )
        if lease.fence >= fence and lease.connected_token <= fence and is_free:
            return replace(lease, connected_token=fence, expires_at_ms=expires_at_ms)
        return lease

    def renew(self, lease: Lease, fence: int, expires_at_ms: int) -> Lease:
        """The lease after a renewal, or as it was."""
        if lease.connected_token == fence and lease.expires_at_ms <= expires_at_ms:
            return replace(lease, expires_at_ms=expires_at_ms)
        return lease

    def mark_released(self, lease: Lease, fence: int) -> Lease:
        """The lease after the mark, or as it was."""
        return replace(lease, released_token=fence) if lease.fence >= fence >= lease.released_token else lease

    def save_cursor(self, world: World, cursor: int, fence: int, at_ms: int) -> World:
        """The world after the cursor was saved, or as it was."""
        older = (world.cursor_fence, world.cursor_at_ms) <= (fence, at_ms)
        return replace(world, cursor=cursor, cursor_fence=fence, cursor_at_ms=at_ms) if older else world

    def begin(self, lease: Lease, execution: str, renews: str, stop_requested: bool = False) -> Lease | None:
        """The lease after an execution's claim of the stream; None where it is refused.

        A POST clears a stop request, but not one that is younger: `stop_requested`. A renewal goes on with what runs,
        and what is to stop does not go on.
        """
        if stop_requested or lease.execution not in ("", execution, renews) or (renews and lease.stop):
            return None
        return replace(lease, execution=execution, generation=lease.generation + 1, stop=bool(renews) and lease.stop)

    def after(self, outcome: Outcome | None) -> str:
        """Where a lane goes after its function: "waiting", "starting" again, or "over"; None is a killed function.

        Where a renewal is due it reads the lease before, and asks for a successor: `RenewalDue` says where it goes.
        """
        if outcome is None:
            return "starting"
        if outcome.error == "RenewalDue":
            return "starting" if "ConnectionExpired:" in outcome.message else "waiting"
        if outcome.error not in ("StreamTakenOver", ""):
            return "starting"
        return "waiting" if outcome.error else "over"
