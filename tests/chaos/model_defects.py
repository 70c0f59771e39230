"""Deliberate defects of the manager, the lease, the store's conditions and the machine, which the model must catch.

Each says what is wrong in one sentence and under which policy and faults it is looked for. Defects of the manager are
subclasses of it; the others are rules. It decides nothing else. Invariant: without the defect, the same exploration
finds nothing (`test_model.py` holds both).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from handlers.connection.effects import (
    Claim,
    CloseUpstream,
    Effect,
    Heartbeat,
    MarkConnected,
    Outcome,
    Release,
    Write,
)
from handlers.connection.inputs import Chunk, Claimed, Closed, LeaseRead, Opened, Resumption, Woken
from handlers.connection.lease import Lease, LeaseView
from handlers.connection.manager import Manager
from handlers.connection.phases import Phase
from tests.chaos.chaos_managers import LeavesWithoutLooking
from tests.chaos.model_rules import Rules

FOREVER_MS = 10**12


class _ClaimsAfterConnecting(Manager):
    def start(self, now_ms: int) -> list[Effect]:
        super().start(now_ms)
        return self._open(now_ms, Resumption(None))

    def _open_then_claim(self, now_ms: int, _given: Opened) -> list[Effect]:
        self.phase = Phase.CLAIMING
        self._opened(now_ms, _given)
        self.phase = Phase.CLAIMING
        self.lease_due_ms = None
        return [Claim()]

    def _claim_then_mark(self, now_ms: int, claimed: Claimed) -> list[Effect]:
        self._lease = claimed.lease
        self._record.fence = claimed.lease.fence
        self.phase = Phase.CONNECTED
        self.lease_due_ms = now_ms + self._lease_every_ms
        return [MarkConnected(self.fence, self.expires_at_ms(now_ms), self._record.save(now_ms, is_open=True))]

    _TABLE: ClassVar[Any] = {
        **Manager._TABLE,
        Opened: (frozenset({Phase.OPENING}), _open_then_claim),
        Claimed: (frozenset({Phase.CLAIMING}), _claim_then_mark),
        Closed: (frozenset(Phase), Manager._closed),
    }


class _DoesNotWatch(Manager):
    def _explain_end(self, now_ms: int, view: LeaseView) -> list[Effect]:
        return super()._explain_end(now_ms, LeaseView.HOLDER if view is LeaseView.CLAIMED else view)


class _WaitsForAClaim(Manager):
    def _explain_end(self, now_ms: int, view: LeaseView) -> list[Effect]:
        return super()._explain_end(now_ms, LeaseView.TAKEN_OVER if view is LeaseView.CLAIMED else view)


class _WaitsForOneThatIsGone(Manager):
    def _lease_read(self, now_ms: int, read: LeaseRead) -> list[Effect]:
        return super()._lease_read(now_ms, LeaseRead(replace(read.lease, released_token=0)))

    _TABLE: ClassVar[Any] = {**Manager._TABLE, LeaseRead: (Manager._TABLE[LeaseRead][0], _lease_read)}


class _ReleasesBeforeClosing(Manager):
    def _leave(self, *leaving: Any, **more: Any) -> list[Effect]:
        effects = super()._leave(*leaving, **more)
        return [Release(None, self.progress), *effects] if CloseUpstream() in effects else effects


class _OpensAtOnce(Manager):
    def _claimed(self, now_ms: int, claimed: Claimed) -> list[Effect]:
        self._lease = claimed.lease
        self._record.fence = claimed.lease.fence
        return self._open(now_ms, claimed.resumption)

    _TABLE: ClassVar[Any] = {**Manager._TABLE, Claimed: (frozenset({Phase.CLAIMING}), _claimed)}


class _IgnoresTheClaim(Manager):
    def _lease_read(self, now_ms: int, read: LeaseRead) -> list[Effect]:
        if self.phase is Phase.CONNECTED and not read.lease.stop and not self._lifetime._is_expiring:
            read = LeaseRead(replace(read.lease, fence=self.fence, connected_token=self.fence))
        return super()._lease_read(now_ms, read)

    _TABLE: ClassVar[Any] = {**Manager._TABLE, LeaseRead: (Manager._TABLE[LeaseRead][0], _lease_read)}


class _IgnoresTheStop(Manager):
    def _lease_read(self, now_ms: int, read: LeaseRead) -> list[Effect]:
        return super()._lease_read(now_ms, LeaseRead(replace(read.lease, stop=False)))

    _TABLE: ClassVar[Any] = {**Manager._TABLE, LeaseRead: (Manager._TABLE[LeaseRead][0], _lease_read)}


class _SavesBeforeStoring(Manager):
    def _chunk(self, now_ms: int, chunk: Chunk) -> list[Effect]:
        effects: list[Effect] = []
        for effect in super()._chunk(now_ms, chunk):
            if isinstance(effect, Write):
                effects.append(Heartbeat(effect.events[-1].cursor, self.progress, self.expires_at_ms(now_ms)))
            effects.append(effect)
        return effects

    _TABLE: ClassVar[Any] = {**Manager._TABLE, Chunk: (Manager._TABLE[Chunk][0], _chunk)}


class _ForgetsItsDeadline(Manager):
    def _woken(self, now_ms: int, woken: Woken) -> list[Effect]:
        if self.phase is Phase.CONNECTED:
            self._lifetime._leave_at_ms = FOREVER_MS
            return []
        return super()._woken(now_ms, woken)

    _TABLE: ClassVar[Any] = {**Manager._TABLE, Woken: (Manager._TABLE[Woken][0], _woken)}


class _StaysInPhase(Manager):
    def _lease_read(self, now_ms: int, read: LeaseRead) -> list[Effect]:
        self._lifetime._claimed_ms = -FOREVER_MS
        return super()._lease_read(now_ms, read)

    _TABLE: ClassVar[Any] = {**Manager._TABLE, LeaseRead: (Manager._TABLE[LeaseRead][0], _lease_read)}


class _TakesADeathForAnothers(Manager):
    def _await_release(self, now_ms: int, *read: Any) -> list[Effect]:
        if self._died:
            self._lease = replace(self._lease, connected_by=self._died.split()[1])
        return super()._await_release(now_ms, *read)


def with_manager(defective: type[Manager]) -> Rules:
    """The sound rules with a defective manager."""
    rules = Rules()
    rules.manager = defective
    return rules


class _WaitsAfterADrop(Rules):
    def after(self, outcome: Outcome | None) -> str:
        return "waiting" if outcome is not None and outcome.error == "StreamDropped" else super().after(outcome)


class _EndsAfterAKill(Rules):
    def after(self, outcome: Outcome | None) -> str:
        return "over" if outcome is None else super().after(outcome)


class _WaitsWhereverARenewalIsDue(Rules):
    def after(self, outcome: Outcome | None) -> str:
        return "waiting" if outcome is not None and outcome.error == "RenewalDue" else super().after(outcome)


class _TellsOfNoDeath(Rules):
    def proves(self, _how: str) -> bool:
        return False


class _TakesTheLostForDead(Rules):
    def proves(self, _how: str) -> bool:
        return True


class _ClaimsAnothersTurn(Rules):
    def claim(self, lease: Lease, execution: str, _after_fence: int = 0, expires_at_ms: int = 0) -> Lease | None:
        claimed = super().claim(lease, execution)
        if claimed is None or not expires_at_ms:
            return claimed
        return replace(claimed, connected_token=claimed.fence, expires_at_ms=expires_at_ms)


class _ClaimsDespiteTheStop(Rules):
    def claim(self, lease: Lease, execution: str, *turn: int) -> Lease | None:
        claimed = super().claim(replace(lease, stop=False), execution, *turn)
        return None if claimed is None else replace(claimed, stop=lease.stop)


class _RaisesNoFence(Rules):
    def claim(self, lease: Lease, execution: str, *turn: int) -> Lease | None:
        claimed = super().claim(lease, execution, *turn)
        return None if claimed is None else replace(claimed, fence=max(lease.fence, 1))


class _ClaimsAfterTheEnd(Rules):
    def claim(self, lease: Lease, execution: str, *turn: int) -> Lease | None:
        return super().claim(replace(lease, ended_at_ms=0), execution, *turn)


class _ClaimsForAnyExecution(Rules):
    def claim(self, lease: Lease, execution: str, *turn: int) -> Lease | None:
        return super().claim(lease, lease.execution or execution, *turn)


class _MarksConnectedAlways(Rules):
    def mark_connected(self, lease: Lease, fence: int, expires_at_ms: int) -> Lease:
        return replace(lease, connected_token=fence, expires_at_ms=expires_at_ms)


class _MarksReleasedAlways(Rules):
    def mark_released(self, lease: Lease, fence: int) -> Lease:
        return replace(lease, released_token=fence)


class _SavesAnyCursor(Rules):
    def heartbeat(self, lease: Lease, fence: int, expires_at_ms: int) -> tuple[bool, Lease]:
        return True, super().heartbeat(lease, fence, expires_at_ms)[1]

    def release(self, lease: Lease, fence: int) -> tuple[bool, Lease]:
        return True, super().release(lease, fence)[1]


class _RenewsAfterTheRelease(Rules):
    def heartbeat(self, lease: Lease, fence: int, expires_at_ms: int) -> tuple[bool, Lease]:
        is_done, _ = super().heartbeat(replace(lease, released_token=0), fence, expires_at_ms)
        return is_done, replace(lease, expires_at_ms=expires_at_ms) if is_done else lease


class _TakesARunningStream(Rules):
    def begin(self, lease: Lease, execution: str, renews: str, is_requested: bool = False) -> Lease | None:
        return super().begin(replace(lease, execution=""), execution, renews, is_requested)


class _ClearsAYoungerStopRequest(Rules):
    def begin(self, lease: Lease, execution: str, renews: str, _is_requested: bool = False) -> Lease | None:
        return super().begin(lease, execution, renews)


@dataclass(frozen=True)
class Defect:
    """One defect: what is wrong, the rules that have it, where it is looked for, and the invariant that catches it.

    With a depth, it is looked for so many steps deep.
    """

    what: str
    rules: Rules
    caught_by: str
    policy: str = "evicts"
    budget: dict[str, int] = field(default_factory=dict)
    depth: int = 0


DEFECTS = (
    Defect("claims after connecting", with_manager(_ClaimsAfterConnecting), "connected again"),
    Defect("a lane waits after a drop", _WaitsAfterADrop(), "who waits is relieved", budget={"drop": 1}),
    Defect("an execution ends with a killed function", _EndsAfterAKill(), "connected again", budget={"kill": 1}),
    Defect(
        "a lane waits wherever a renewal is due",
        _WaitsWhereverARenewalIsDue(),
        "who waits is relieved",
        "hot",
        {"renew": 1},
    ),
    Defect("no watch for the connected mark", with_manager(_DoesNotWatch), "connected again"),
    Defect(
        "taken over is judged by the claim", with_manager(_WaitsForAClaim), "who waits is relieved", budget={"drop": 1}
    ),
    Defect(
        "a lane waits for a successor that is gone",
        with_manager(_WaitsForOneThatIsGone),
        "who leaves is relieved",
        budget={"orphan": 1},
        depth=36,
    ),
    Defect("the standby ignores the stop", _ClaimsDespiteTheStop(), "a stop is final", budget={"stop": 1}),
    Defect(
        "a claim clears a younger stop request", _ClearsAYoungerStopRequest(), "a stop is final", budget={"stop": 1}
    ),
    Defect("the holder ignores the stop", with_manager(_IgnoresTheStop), "rests in time", budget={"stop": 1}),
    Defect(
        "released is marked before the close", with_manager(_ReleasesBeforeClosing), "connections allowed", "forbids"
    ),
    Defect("opens without waiting for the release", with_manager(_OpensAtOnce), "connections allowed", "forbids"),
    Defect(
        "the claim is ignored where two are forbidden", with_manager(_IgnoresTheClaim), "connected in time", "forbids"
    ),
    Defect(
        "an older connection leaves without looking again",
        with_manager(LeavesWithoutLooking),
        "who leaves is relieved",
        "tolerates",
        {"drop": 1},
    ),
    Defect("never lets go", with_manager(_IgnoresTheClaim), "comes to rest", "tolerates"),
    Defect("hot connections stay in phase", with_manager(_StaysInPhase), "covered for ever", "hot"),
    Defect("nobody is told of a death", _TellsOfNoDeath(), "connected in time", "forbids", {"kill": 1}),
    Defect(
        "one that the machine has lost is said to be over",
        _TakesTheLostForDead(),
        "who is said to be over is over",
        "forbids",
        {"unheard": 1},
        depth=20,
    ),
    Defect(
        "a death is taken for that of whoever is connected",
        with_manager(_TakesADeathForAnothers),
        "connections allowed",
        "forbids",
        {"kill": 1},
    ),
    Defect(
        "a claim takes another's turn",
        _ClaimsAnothersTurn(),
        "connections allowed",
        "forbids",
        {"drop": 1, "again": 1},
    ),
    Defect("the claim raises no fence", _RaisesNoFence(), "fences are unique"),
    Defect("connected is marked without a condition", _MarksConnectedAlways(), "only forward", budget={"lost": 1}),
    Defect("released is marked without a condition", _MarksReleasedAlways(), "only forward", budget={"lost": 1}),
    Defect("no fence on the cursor", _SavesAnyCursor(), "only forward", "tolerates", {"event": 1}),
    Defect(
        "the cursor is saved before its events",
        with_manager(_SavesBeforeStoring),
        "the cursor passes nothing",
        budget={"event": 1},
    ),
    Defect("the deadline is forgotten", with_manager(_ForgetsItsDeadline), "in time", budget={"late": 4}),
    Defect("a second POST takes the stream", _TakesARunningStream(), "one execution", budget={"post": 1}),
    Defect(
        "a predecessor claims what its successor has ended",
        _ClaimsAfterTheEnd(),
        "an end is final",
        budget={"renew": 1, "end": 1},
    ),
    Defect(
        "a claim asks for no execution's right",
        _ClaimsForAnyExecution(),
        "who waits is relieved",
        "forbids",
        {"renew": 1, "drop": 1},
    ),
)
