"""Deliberate defects of the manager, the store, the functions and the machine, which a schedule of chaos must catch.

Each says in what way it must show, and among which schedules it can show at all. It decides nothing else. Invariant:
the schedule that shows it is clean without it (`test_chaos_teeth.py` holds both).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from handlers import items
from handlers.errors import StoreUnavailable
from handlers.event_items import FOR_EVER
from handlers.event_writer import STORED, OneWrite
from handlers.handover.lease import Lease, Standing
from handlers.store import Store
from handlers.stream.manager import Manager
from handlers.stream.phases import LIVE, Phase
from handlers.stream.signals import (
    Chunk,
    Claim,
    Claimed,
    Closed,
    Effect,
    Finish,
    Input,
    LeaseRead,
    Opened,
    Outcome,
    ReadCursor,
    SaveProgress,
    Write,
    Written,
)
from local.chaos.schedule import Schedule


class EmitsTheTail(Manager):
    """What was cut off at the close is dispatched as if a blank line had come."""

    def handle(self, now_ms: int, given: Input, **when: int | None) -> list[Effect]:
        tail = super().handle(now_ms, Chunk(b"\n\n")) if isinstance(given, Closed) and self.phase in LIVE else []
        return tail + super().handle(now_ms, given, **when)


class SavesTheCursorFirst(Manager):
    """The cursor is saved before the events that it vouches for are stored."""

    def handle(self, now_ms: int, given: Input, **when: int | None) -> list[Effect]:
        found: list[Effect] = []
        for effect in super().handle(now_ms, given, **when):
            if isinstance(effect, Write):
                found.append(SaveProgress(effect.events[-1].cursor, self.progress, self.expires_at_ms(now_ms)))
            found.append(effect)
        return found


class ClaimsAfterConnecting(Manager):
    """The fence is raised only when the upstream has answered."""

    held: Opened | None = None

    def start(self, now_ms: int) -> list[Effect]:
        super().start(now_ms)
        self.phase = Phase.OPENING
        return [ReadCursor()]

    def handle(self, now_ms: int, given: Input, **when: int | None) -> list[Effect]:
        if isinstance(given, Opened) and given.status == 200 and self.held is None:
            self.held, self.phase = given, Phase.CLAIMING
            return [Claim()]
        if isinstance(given, Claimed):
            self._record.fence, self.phase = given.lease.fence, Phase.OPENING
            assert self.held is not None
            return super().handle(now_ms, self.held, **when)
        return super().handle(now_ms, given, **when)


class DoesNotWatchTheSuccessor(Manager):
    """A closed connection whose successor has claimed thinks itself dropped at once."""

    def _settle(self, now_ms: int, found: Any) -> list[Effect]:
        if found is Standing.CLAIMED:
            assert self._ending is not None
            return [Finish(self._ending)]
        return super()._settle(now_ms, found)


class VouchesForWhatWaits(Manager):
    """What was read and waits for the store counts as covered."""

    def handle(self, now_ms: int, given: Input, **_when: int | None) -> list[Effect]:
        return super().handle(now_ms, given)


class IgnoresTheWishToStop(Manager):
    """A connection that reads the wish to stop goes on."""

    def handle(self, now_ms: int, given: Input, **when: int | None) -> list[Effect]:
        if isinstance(given, LeaseRead):
            given = LeaseRead(replace(given.lease, stop=False))
        return super().handle(now_ms, given, **when)


class LeavesTheLastBatchAtAStop(Manager):
    """The events of the last chunk go to the store with the next one, and a stop forgets them."""

    kept: tuple[Write, ...] = ()

    def handle(self, now_ms: int, given: Input, **when: int | None) -> list[Effect]:
        if isinstance(given, LeaseRead) and given.lease.stop:
            for _ in self.kept:
                self._record.pending._writes.pop()
                self._record.vouching._unstored.pop()
            self.kept = ()
        found = super().handle(now_ms, given, **when)
        kept, self.kept = self.kept, ()
        if isinstance(given, Chunk) and self.phase in LIVE:
            self.kept = tuple(effect for effect in found if isinstance(effect, Write))
        return [*kept, *(effect for effect in found if effect not in self.kept)]


class VouchesPastTheClose(Manager):
    """The ledger has each connection covered for longer than it was, by more than a clock may be wrong."""

    def handle(self, now_ms: int, given: Input, **when: int | None) -> list[Effect]:
        return [self._later(effect) for effect in super().handle(now_ms, given, **when)]

    def _later(self, effect: Effect) -> Effect:
        if not isinstance(effect, SaveProgress) or effect.progress.closed_ms is None:
            return effect
        return replace(effect, progress=replace(effect.progress, closed_ms=effect.progress.closed_ms + 1_500))


class ForgetsWhatCameLate(Manager):
    """What comes after a silence is taken for heard and is not stored."""

    def handle(self, now_ms: int, given: Input, **when: int | None) -> list[Effect]:
        if isinstance(given, Chunk) and self.phase in LIVE and now_ms - self._record.vouching.heard_ms > 2_000:
            self._record.vouching._heard_ms = now_ms
            return []
        return super().handle(now_ms, given, **when)


class LetsGoWhenSuperseded(Manager):
    """A connection of an execution that is renewed goes when another claims, not when that is connected."""

    def start(self, now_ms: int) -> list[Effect]:
        self._lease_every_ms = 50  # the window is short
        return super().start(now_ms)

    def handle(self, now_ms: int, given: Input, **when: int | None) -> list[Effect]:
        if isinstance(given, LeaseRead) and self.phase is Phase.CONNECTED and self._stay.is_superseded(given.lease):
            return self._leave(now_ms, Outcome("", "superseded", "another execution has claimed the stream"), "let_go")
        return super().handle(now_ms, given, **when)


def cursor_without_fence(store: Store, stream_id: str, cursor: str, fence: int, now_ms: int) -> bool:
    """The cursor is written whoever wrote it last."""
    store._dynamodb.put_item(
        TableName=store._control_table,
        Item=items.key(stream_id, "cursor")
        | {"cursor": {"S": cursor}, "fence": items.number(fence), "saved_at_ms": items.number(now_ms)},
    )
    return True


def stores_duplicates(write: OneWrite, batch: Any) -> list[str]:
    """An event is written whether it is there or not."""
    try:
        for number, event, _ in batch:
            write._dynamodb.put_item(TableName=write._writer.table, Item=write._inserts.item(number, event))
    except Exception as error:
        raise StoreUnavailable("no answer") from error
    return [STORED] * len(batch)


def overlooks_single_refusals(write: OneWrite, batch: Any) -> list[str]:
    """A batch that was answered counts as stored, whatever is said of its statements."""
    if batch:
        write._insert([text for *_, text in batch])
    return [STORED] * len(batch)


def ignores_errors(store: Store, stream_id: str, fence: int, first: int, events: Any, kept: Any = FOR_EVER) -> Written:
    """An event that the store refuses counts as stored."""
    for number, event in enumerate(events, first):
        try:
            store._writer.write(stream_id, fence, number, [event], kept)
        except StoreUnavailable:
            continue
    return Written(len(events), 0)


def takes_any_turn(store: Store, stream_id: str, fence: int, expires_at_ms: int, _now_ms: int) -> Lease:
    """A connection takes its turn whether another's lasts or not."""
    values = {":fence": items.number(fence), ":expires_at_ms": items.number(expires_at_ms)}
    update = "SET #connected = :fence, #expires_at_ms = :expires_at_ms"
    names = ("fence", "connected", "expires_at_ms")
    store._applied(stream_id, "lease", update, "#fence >= :fence", names, values)
    return store.read_lease(stream_id)


def waits_after_a_drop(definition: dict[str, Any]) -> None:
    """A lane that was dropped goes to its Wait, though nobody else is connected."""
    for lane, branch in zip("AB", definition["States"]["Lanes"]["Branches"], strict=True):
        task = branch["States"][f"{lane} connects"]
        for retrier in task["Retry"]:
            retrier["ErrorEquals"] = [name for name in retrier["ErrorEquals"] if name != "StreamDropped"] or ["Nothing"]
        task["Catch"].insert(0, {"ErrorEquals": ["StreamDropped"], "ResultPath": None, "Next": f"{lane} waits"})


def _stays_stopped(schedule: Schedule) -> bool:
    kinds = [fault.kind for fault in schedule.faults]
    return "stop" in kinds and not any("post" in kind for kind in kinds)


def _kill_after_a_pause(schedule: Schedule) -> bool:
    kinds = [fault.kind for fault in schedule.faults]
    return "pause" in kinds and "kill" in kinds[kinds.index("pause") :]


@dataclass(frozen=True)
class Defect:
    """A defect: what is replaced (a name and its replacement, or an edit of the machine) and how it must show.

    The run goes on for `more_ms` longer than others, where it shows in the calm alone.
    """

    name: str
    shows_as: set[str]
    manager: type[Manager] | None = None
    store: tuple[str, Callable[..., Any]] | None = None
    machine: Callable[[dict[str, Any]], None] | None = None
    function: tuple[str, Callable[..., Any]] | None = None
    among: Callable[[Schedule], bool] = lambda _schedule: True
    more_ms: int = 0


DEFECTS = [
    Defect("the tail is emitted as an event", {"torn"}, manager=EmitsTheTail),
    Defect("the cursor is saved before its events", {"cursor-ahead"}, manager=SavesTheCursorFirst),
    Defect("claims after connecting", {"restless", "stuck"}, manager=ClaimsAfterConnecting),
    Defect(
        "the ledger vouches for what waits for the store",
        {"lost"},
        manager=VouchesForWhatWaits,
        among=lambda schedule: not schedule.resumes and any(fault.kind == "slow store" for fault in schedule.faults),
    ),
    Defect(
        "a stop forgets the last batch",
        {"lost"},
        manager=LeavesTheLastBatchAtAStop,
        among=lambda schedule: not schedule.resumes and _stays_stopped(schedule),
    ),
    Defect(
        "the ledger vouches past the close",
        {"lost"},
        manager=VouchesPastTheClose,
        among=lambda schedule: not schedule.resumes and schedule.skew_ms == 1_000,
    ),
    Defect(
        "what came late is forgotten",
        {"lost"},
        manager=ForgetsWhatCameLate,
        among=lambda schedule: not schedule.resumes and _kill_after_a_pause(schedule),
    ),
    Defect(
        "no watch for the connected mark",
        {"restless"},
        manager=DoesNotWatchTheSuccessor,
        among=lambda schedule: schedule.policy != "tolerates",
    ),
    Defect(
        "the holder ignores the stop",
        {"stuck"},
        manager=IgnoresTheWishToStop,
        among=lambda schedule: any(fault.kind == "stop" for fault in schedule.faults),
    ),
    Defect(
        "renewal without overlap",
        {"stuck"},
        manager=LetsGoWhenSuperseded,
        among=lambda schedule: schedule.renews and schedule.policy == "evicts",
        more_ms=120_000,
    ),
    Defect("no fence on the cursor", {"backwards"}, store=("save_cursor", cursor_without_fence)),
    Defect(
        "an event is written without its condition",
        {"duplicated"},
        function=("handlers.event_writer.OneWrite._put_batch", stores_duplicates),
    ),
    Defect(
        "errors of single statements of a batch are ignored",
        {"lost", "cursor-ahead"},
        function=("handlers.event_writer.OneWrite._put_batch", overlooks_single_refusals),
        among=lambda schedule: any(fault.kind == "unknown outcomes" for fault in schedule.faults),
    ),
    Defect(
        "the store's errors are ignored",
        {"lost", "cursor-ahead"},
        store=("write", ignores_errors),
        among=lambda schedule: any(fault.kind == "throttles" for fault in schedule.faults),
    ),
    Defect(
        "nobody is marked as connected",
        {"restless", "stuck"},
        store=("mark_connected", lambda *_given: True),
        among=lambda schedule: schedule.policy == "evicts",
    ),
    Defect(
        "the lease is not renewed",
        {"excess-connections"},
        store=("renew", lambda *_given: True),
        among=lambda schedule: schedule.policy == "forbids",
    ),
    Defect("a lane waits after a drop", {"stuck"}, machine=waits_after_a_drop),
    Defect(
        "opens without waiting for the release",
        {"excess-connections"},
        function=("handlers.stream.manager.may_open", lambda *_given: True),
        store=("take_turn", takes_any_turn),
        among=lambda schedule: schedule.policy == "forbids",
    ),
]
