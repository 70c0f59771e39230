"""The model's assumptions about the store and the machine: the conditions of each write, and the steps of each lane.

Its pure functions say the same as `handlers/store/connection_store.py` and `statemachines/connections.asl.yml` in their
own languages. Defects are planted in it (`tests/planted/machine.toml`). Invariant: a method returns a new record and
changes none.
"""

from __future__ import annotations

from dataclasses import replace

from handlers.connection.effects import Outcome
from handlers.connection.lease import Lease
from handlers.connection.manager import Manager


class Rules:
    """The store's conditions and the machine's transitions, as intended."""

    manager: type[Manager] = Manager

    def claim(self, lease: Lease, execution: str, after_fence: int = 0, expires_at_ms: int = 0) -> Lease | None:
        """Returns the lease after a function's claim; None if it is refused.

        With `expires_at_ms` other than 0 it takes the turn, if no connection has claimed since `after_fence` and none
        is connected.
        """
        if lease.stop or lease.execution != (execution if lease.execution or lease.ended_at_ms else ""):
            return None
        claimed = replace(lease, fence=lease.fence + 1)
        if expires_at_ms and lease.fence == after_fence and lease.connected_token <= lease.released_token:
            return replace(claimed, connected_token=claimed.fence, expires_at_ms=expires_at_ms)
        return claimed

    def mark_connected(self, lease: Lease, fence: int, expires_at_ms: int) -> Lease:
        """Returns the lease after the mark, or unchanged."""
        if lease.fence >= fence and lease.connected_token <= fence and lease.released_token < fence:
            return replace(lease, connected_token=fence, expires_at_ms=expires_at_ms)
        return lease

    def take_turn(self, lease: Lease, fence: int, expires_at_ms: int, now_ms: int, over: int = 0) -> Lease:
        """Returns the lease after the turn was taken, or unchanged while another's lasts; connection `over` is over."""
        is_free = (
            lease.connected_token <= lease.released_token
            or lease.connected_token in (fence, over)
            or lease.expires_at_ms <= now_ms
        )
        may_connect = lease.fence >= fence and lease.connected_token <= fence and lease.released_token < fence
        if may_connect and is_free:
            return replace(lease, connected_token=fence, expires_at_ms=expires_at_ms)
        return lease

    def heartbeat(self, lease: Lease, fence: int, expires_at_ms: int) -> tuple[bool, Lease]:
        """Returns whether it was accepted, so that the cursor is saved, and the lease after it."""
        if lease.connected_token == fence > lease.released_token and lease.expires_at_ms <= expires_at_ms:
            return True, replace(lease, expires_at_ms=expires_at_ms)
        return False, lease

    def release(self, lease: Lease, fence: int) -> tuple[bool, Lease]:
        """Returns whether no newer connection is connected, so that the cursor is saved, and the lease after it."""
        is_holder = lease.connected_token == fence >= lease.released_token
        return is_holder, self.mark_released(lease, fence)

    def mark_released(self, lease: Lease, fence: int) -> Lease:
        """Returns the lease after the mark, or unchanged."""
        return replace(lease, released_token=fence) if lease.fence >= fence >= lease.released_token else lease

    def proves(self, how: str) -> bool:
        """Returns whether the machine's error about a function proves that the function is over.

        It does if the function "died": `Sandbox.Timedout` and `Runtime.ExitError`. A function that has "vanished" or
        was "lost" may still run.
        """
        return how == "died"

    def begin(self, lease: Lease, execution: str, renews: str, stop_requested: bool = False) -> Lease | None:
        """Returns the lease after an execution's claim of the stream; None if it is refused.

        A POST clears a stop request unless that is later: `stop_requested`. A renewal continues a running stream, and a
        stream that should stop is not continued.
        """
        if stop_requested or lease.execution not in ("", execution, renews) or (renews and lease.stop):
            return None
        stop, generation = bool(renews) and lease.stop, lease.generation + 1
        return replace(lease, execution=execution, generation=generation, stop=stop, ending="", ended_at_ms=0)

    def after(self, outcome: Outcome | None) -> str:
        """Returns the lane's next step: "waiting", "starting" again, or "over"; a killed function has the outcome None.

        If a renewal is due, the lane first reads the lease and requests a successor: `RenewalDue` names the next step.
        """
        if outcome is None:
            return "starting"
        if outcome.error == "RenewalDue":
            return "starting" if "ConnectionExpired:" in outcome.message else "waiting"
        if outcome.error == "StreamRejected":
            return "over"
        if outcome.error not in ("StreamTakenOver", ""):
            return "starting"
        return "waiting" if outcome.error else "over"
