"""Deliberately defective managers, which a schedule of chaos must catch: tests/chaos/chaos_defects.py says how.

They decide nothing else. Invariant: each differs from the sound one in what its docstring says.
"""

from dataclasses import replace
from typing import Any

from handlers.connection.effects import (
    Claim,
    Effect,
    Finish,
    Heartbeat,
    Outcome,
    RecordLoss,
    Release,
    SaveRecord,
    Write,
)
from handlers.connection.inputs import Chunk, Claimed, Closed, Input, LeaseRead, Opened, Resumption
from handlers.connection.lease import LeaseView
from handlers.connection.manager import Manager
from handlers.connection.phases import LIVE, Phase


class EmitsTheTail(Manager):
    """What was cut off at the close is dispatched as if a blank line had come."""

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        tail = super().handle(now_ms, Chunk(b"\n\n")) if isinstance(input_, Closed) and self.phase in LIVE else []
        return tail + super().handle(now_ms, input_, **when)


class SavesTheCursorFirst(Manager):
    """The cursor is saved before the events before it are stored."""

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        effects: list[Effect] = []
        for effect in super().handle(now_ms, input_, **when):
            if isinstance(effect, Write):
                effects.append(Heartbeat(effect.events[-1].cursor, self.progress, self.expires_at_ms(now_ms)))
            effects.append(effect)
        return effects


class RecordsLossesLast(Manager):
    """A loss that the upstream announces is recorded after the events beside it, whose cursor passes it."""

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        effects = super().handle(now_ms, input_, **when)
        losses = [effect for effect in effects if isinstance(effect, RecordLoss)]
        return [*(effect for effect in effects if effect not in losses), *losses]


class RestartsThePositions(Manager):
    """The number in an event's position begins anew with each chunk."""

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        first = self._record.events
        effects = super().handle(now_ms, input_, **when)
        return [replace(one, first=one.first - first) if isinstance(one, Write) else one for one in effects]


class LeavesWithoutLooking(Manager):
    """Whoever was taken over leaves when its overlap is over, though the newer connection is closed again."""

    def _is_relieved(self, now_ms: int, view: LeaseView) -> bool:
        ends_ms = self._lifetime.overlap_ends_ms
        return super()._is_relieved(now_ms, view) if ends_ms is None else now_ms >= ends_ms


class ClaimsAfterConnecting(Manager):
    """The fence is raised only when the upstream has answered."""

    held: Opened | None = None

    def start(self, now_ms: int) -> list[Effect]:
        super().start(now_ms)
        return self._open(now_ms, Resumption(None))

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        if isinstance(input_, Opened) and input_.status == 200 and self.held is None:
            self.held, self.phase = input_, Phase.CLAIMING
            return [Claim()]
        if isinstance(input_, Claimed):
            self._record.fence, self.phase = input_.lease.fence, Phase.OPENING
            assert self.held is not None
            return super().handle(now_ms, self.held, **when)
        return super().handle(now_ms, input_, **when)


class DoesNotWatchTheSuccessor(Manager):
    """A closed connection whose successor has claimed thinks itself dropped at once."""

    def _explain_end(self, now_ms: int, view: Any) -> list[Effect]:
        if view is LeaseView.CLAIMED:
            return [Finish(self._draining.outcome)]
        return super()._explain_end(now_ms, view)


class CoversWhatWaits(Manager):
    """What was read and waits for the store counts as covered."""

    def handle(self, now_ms: int, input_: Input, **_when: int | None) -> list[Effect]:
        return super().handle(now_ms, input_)


class IgnoresTheStopRequest(Manager):
    """A connection that reads that a stop is requested goes on."""

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        if isinstance(input_, LeaseRead):
            input_ = LeaseRead(replace(input_.lease, stop=False))
        return super().handle(now_ms, input_, **when)


class LeavesTheLastBatchAtAStop(Manager):
    """The events of the last chunk go to the store with the next one, and a stop forgets them."""

    kept: tuple[Write, ...] = ()

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        if isinstance(input_, LeaseRead) and input_.lease.stop:
            for _ in self.kept:
                self._record.pending._writes.pop()
                self._record.liveness._unstored.pop()
            self.kept = ()
        effects = super().handle(now_ms, input_, **when)
        kept, self.kept = self.kept, ()
        if isinstance(input_, Chunk) and self.phase in LIVE:
            self.kept = tuple(effect for effect in effects if isinstance(effect, Write))
        return [*kept, *(effect for effect in effects if effect not in self.kept)]


class CoversPastTheClose(Manager):
    """The ledger has each connection covered for longer than it was, by more than a clock may be wrong."""

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        return [self._later(effect) for effect in super().handle(now_ms, input_, **when)]

    def _later(self, effect: Effect) -> Effect:
        if not isinstance(effect, SaveRecord | Release) or effect.progress.closed_ms is None:
            return effect
        return replace(effect, progress=replace(effect.progress, closed_ms=effect.progress.closed_ms + 1_500))


class ForgetsWhatCameLate(Manager):
    """What comes after a silence is taken for heard and is not stored."""

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        if isinstance(input_, Chunk) and self.phase in LIVE and now_ms - self._record.liveness.heard_ms > 2_000:
            self._record.liveness._heard_ms = now_ms
            return []
        return super().handle(now_ms, input_, **when)


class LetsGoWhenSuperseded(Manager):
    """A connection of an execution that is renewed goes when another claims, not when that is connected."""

    def start(self, now_ms: int) -> list[Effect]:
        self._lease_every_ms = self._progress_every_ms = 50  # the window is short
        return super().start(now_ms)

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        if (
            isinstance(input_, LeaseRead)
            and self.phase is Phase.CONNECTED
            and self._lifetime.is_superseded(input_.lease)
        ):
            return self._leave(now_ms, Outcome("", "superseded", "another execution has claimed the stream"), "let_go")
        return super().handle(now_ms, input_, **when)
