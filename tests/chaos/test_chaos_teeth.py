"""Chaos has teeth: each deliberate defect, switched on in this process only, is caught within a few schedules."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from handlers import items
from handlers.errors import StoreUnavailable
from handlers.event_writer import STORED, EventWriter
from handlers.handover.lease import Lease, Standing
from handlers.store import Store
from handlers.stream.manager import Manager, Phase
from handlers.stream.signals import (
    Chunk,
    Claim,
    Claimed,
    Closed,
    Effect,
    Input,
    LeaseRead,
    Opened,
    ReadCursor,
    SaveProgress,
    Write,
    Written,
)
from local.chaos import run
from local.chaos.schedule import Schedule, generate

MOST_SEEDS = 60
LIVE = (Phase.CONNECTED, Phase.OVERLAPPING)


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
                found.append(SaveProgress(effect.events[-1].cursor, self.progress, now_ms + self.lease_ttl_ms))
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
            self.progress, self.phase = replace(self.progress, fence=given.lease.fence), Phase.OPENING
            assert self.held is not None
            return super().handle(now_ms, self.held, **when)
        return super().handle(now_ms, given, **when)


class DoesNotWatchTheSuccessor(Manager):
    """A closed connection whose successor has claimed thinks itself dropped at once."""

    def _settle(self, now_ms: int, found: Any) -> list[Effect]:
        if found is Standing.CLAIMED:
            assert self._ending is not None
            return self._finish(self._ending)
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


def cursor_without_fence(store: Store, stream_id: str, cursor: str, fence: int, now_ms: int) -> bool:
    """The cursor is written whoever wrote it last."""
    store._dynamodb.put_item(
        TableName=store._control_table,
        Item=items.key(stream_id, "cursor")
        | {"cursor": {"S": cursor}, "fence": items.number(fence), "saved_at_ms": items.number(now_ms)},
    )
    return True


def stores_duplicates(writer: EventWriter, batch: Any, _tries: Any) -> list[str]:
    """An event is written whether it is there or not."""
    try:
        for _, item in batch:
            writer._dynamodb.put_item(TableName=writer._table, Item=item)
    except Exception as error:
        raise StoreUnavailable("no answer") from error
    return [STORED] * len(batch)


def overlooks_single_refusals(writer: EventWriter, batch: Any, _tries: Any) -> list[str]:
    """A batch that was answered counts as stored, whatever is said of its statements."""
    if batch:
        writer._insert(batch)
    return [STORED] * len(batch)


def ignores_errors(store: Store, stream_id: str, fence: int, first: int, events: Any) -> Written:
    """An event that the store refuses counts as stored."""
    for number, event in enumerate(events, first):
        try:
            store._writer.write(stream_id, fence, number, [event])
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


@dataclass(frozen=True)
class Defect:
    """A defect: what is replaced (a name and its replacement, or an edit of the machine) and how it must show."""

    name: str
    shows_as: set[str]
    manager: type[Manager] | None = None
    store: tuple[str, Callable[..., Any]] | None = None
    machine: Callable[[dict[str, Any]], None] | None = None
    function: tuple[str, Callable[..., Any]] | None = None
    among: Callable[[Schedule], bool] = lambda _schedule: True


DEFECTS = [
    Defect("the tail is emitted as an event", {"torn"}, manager=EmitsTheTail),
    Defect("the cursor is saved before its events", {"cursor-ahead"}, manager=SavesTheCursorFirst),
    Defect("the claim comes after connecting", {"restless", "stuck"}, manager=ClaimsAfterConnecting),
    Defect(
        "the ledger vouches for what waits for the store",
        {"lost"},
        manager=VouchesForWhatWaits,
        among=lambda schedule: not schedule.resumes and any(fault.kind == "slow store" for fault in schedule.faults),
    ),
    Defect(
        "nobody watches for the connected mark",
        {"restless"},
        manager=DoesNotWatchTheSuccessor,
        among=lambda schedule: schedule.policy != "tolerates",
    ),
    Defect(
        "the wish to stop is ignored",
        {"stuck"},
        manager=IgnoresTheWishToStop,
        among=lambda schedule: any(fault.kind == "stop" for fault in schedule.faults),
    ),
    Defect("the cursor is written without its fence", {"backwards"}, store=("save_cursor", cursor_without_fence)),
    Defect(
        "an event is written without its condition",
        {"duplicated"},
        function=("handlers.event_writer.EventWriter._put_batch", stores_duplicates),
    ),
    Defect(
        "what is said of single statements is overlooked",
        {"lost", "cursor-ahead"},
        function=("handlers.event_writer.EventWriter._put_batch", overlooks_single_refusals),
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
        "a second connection does not wait for the first",
        {"excess-connections"},
        function=("handlers.stream.manager.may_open", lambda *_given: True),
        store=("take_turn", takes_any_turn),
        among=lambda schedule: schedule.policy == "forbids",
    ),
]


def seeds(defect: Defect) -> Iterator[Schedule]:
    """The first schedules that the defect can show in at all."""
    found = (schedule for schedule in map(generate, range(100 * MOST_SEEDS)) if defect.among(schedule))
    for _, schedule in zip(range(MOST_SEEDS), found, strict=False):
        yield schedule


def kinds(found: run.Found) -> set[str]:
    """Which rules a run broke."""
    return {violation.kind for violation in found.violations}


def switched_on(defect: Defect, patched: pytest.MonkeyPatch) -> None:
    """Puts the defect in place."""
    if defect.manager is not None:
        patched.setattr("local.chaos.function.Manager", defect.manager)
    if defect.store is not None:
        patched.setattr(Store, *defect.store)
    if defect.function is not None:
        patched.setattr(*defect.function)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_deliberate_defect_is_caught(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within MOST_SEEDS schedules one shows it in the way that it must, and is clean without it."""
    machine_of = run.machines(defect.machine)
    for count, schedule in enumerate(seeds(defect), 1):
        with monkeypatch.context() as patched:
            switched_on(defect, patched)
            shown = kinds(run.run_schedule(schedule, machine_of))
        if shown & defect.shows_as and not kinds(run.run_schedule(schedule)):
            print(f"caught by schedule {count}: {', '.join(sorted(shown))}")
            return
    pytest.fail(f"{MOST_SEEDS} schedules have not shown it")
