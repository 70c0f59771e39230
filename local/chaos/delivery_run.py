"""Delivers what a run wrote, after the run: the function's own steps (handlers/deliver), called as Lambda calls them.

Invariant: the same run and plan give the same deliveries.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from handlers.deliver import contract
from handlers.deliver.batch import Delivered, Letter, Ports, deliver
from handlers.deliver.contract import Tools
from local.chaos.delivery_plan import DeliveryPlan
from local.simulation.table_stream import Shard, TableStream, Write
from local.simulation.virtual_sinks import SECRET, Killed, VirtualSinks, VirtualWebhook

POLL_MS = 250
# How long the function may take, and how much of it is for more than sending (packaging/delivery.cjs, MARGIN_MS).
LIMIT_MS, MARGIN_MS = 120_000, 10_000
FIRST_REST_MS, LONGEST_REST_MS = 250, 60_000
# A sink that is away for a day is asked some twenty times, and not a thousand.
RESTS = 20
MOST_CALLS = 600
SANDBOXES = 2


@dataclass(eq=False)
class _Reader:
    """How far Lambda has come in a shard: what is before `place` is done, up to `end` it is tried."""

    shard: Shard
    next_ms: int = 0
    place: int = 0
    end: int = 0
    most: int = 0
    rest_ms: int = 0

    @property
    def is_done(self) -> bool:
        """Whether all of the shard is done."""
        return self.place == len(self.shard.writes)


@dataclass
class Delivery:
    """What came of a plan: `sinks` have what arrived; the dead-letter messages, each with its time."""

    plan: DeliveryPlan
    shards: list[Shard]
    sinks: VirtualSinks
    origin_ms: int
    letters: list[tuple[Letter, int]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    is_over: bool = True

    def say(self, text: str) -> None:
        """Takes a line into the trace."""
        self.log.append(f"{(self.sinks.now_ms - self.origin_ms) / 1000:>8.3f} s  delivery: {text}")


class Lambda:
    """Calls the function until all is delivered."""

    def __init__(self, delivery: Delivery, redeployed_ms: Iterable[int]) -> None:
        self._of = delivery
        self._sinks = delivery.sinks
        self._webhook = VirtualWebhook(delivery.sinks)
        self._draws = random.Random(delivery.plan.seed ^ 0xDE11)
        faults = delivery.plan.faults
        self._faults = [fault._replace(at_ms=delivery.origin_ms + fault.at_ms) for fault in faults]
        self._redeployed = sorted([*redeployed_ms, *(one.at_ms for one in self._faults if one.kind == "redeploy")])
        self._longest_rest_ms = max(LONGEST_REST_MS, *(one.for_ms // RESTS for one in self._faults), 0)
        self._sandboxes: list[Delivered] = []
        self._limit_ms = 0

    def run(self) -> None:
        """Returns when all is done, or Lambda has called too often."""
        readers = {shard: _Reader(shard) for shard in self._of.shards}
        for _ in range(MOST_CALLS + sum(len(shard.writes) for shard in self._of.shards)):
            # A child is read behind its parent.
            open_ = [
                one
                for one in readers.values()
                if not one.is_done and all(readers[self._of.shards[number]].is_done for number in one.shard.of[:-1])
            ]
            if not open_:
                return
            self._turn(min(open_, key=lambda one: one.next_ms))
        self._of.is_over = False

    def _turn(self, reader: _Reader) -> None:
        sinks, writes = self._sinks, reader.shard.writes
        reader.next_ms = max(reader.next_ms, writes[reader.place].at_ms + POLL_MS)
        sinks.now_ms = reader.next_ms
        self._begin_faults()
        if reader.place == reader.end:
            seen = (one.at_ms < sinks.now_ms for one in writes[reader.place : reader.place + self._of.plan.batch_size])
            reader.end = reader.most = reader.place + sum(seen)
        batch = writes[reader.place : min(reader.end, reader.most)]
        try:
            failed_at = self._call(batch)
        except Killed:
            self._of.say(f"killed at {len(batch)} records of shard {reader.shard.number}")
            self._sandboxes.pop()
            sinks.now_ms = max(sinks.now_ms, reader.next_ms + 1)
            # BisectBatchOnFunctionError: one half of the batch comes next.
            reader.most = reader.place + max(1, len(batch) // 2)
            self._rest(reader)
            return
        if failed_at is None:
            reader.place += len(batch)
            reader.most, reader.rest_ms = reader.end, 0
            reader.next_ms = sinks.now_ms
        else:
            reader.place += failed_at
            self._rest(reader)

    def _rest(self, reader: _Reader) -> None:
        reader.rest_ms = min(max(reader.rest_ms * 2, FIRST_REST_MS), self._longest_rest_ms)
        reader.next_ms = self._sinks.now_ms + reader.rest_ms

    def _begin_faults(self) -> None:
        sinks = self._sinks
        while self._redeployed and self._redeployed[0] <= sinks.now_ms:
            self._redeployed.pop(0)
            self._sandboxes.clear()
        while self._faults and self._faults[0].at_ms <= sinks.now_ms:
            fault = self._faults.pop(0)
            self._of.say(f"fault: {fault.kind}" + (f" for {fault.for_ms / 1000:g} s" if fault.for_ms else ""))
            if fault.kind == "kill":
                sinks.dies_in = fault.value % 10
            elif fault.for_ms:
                sinks.until_ms[fault.kind] = max(sinks.until_ms.get(fault.kind, 0), fault.at_ms + fault.for_ms)

    def _call(self, batch: list[Write]) -> int | None:
        """The place of the record that is not done; None where all are."""
        sinks = self._sinks
        self._limit_ms = sinks.now_ms + LIMIT_MS - MARGIN_MS
        if len(self._sandboxes) < SANDBOXES:
            self._sandboxes.append(Delivered())
        # The one that is called last stands last.
        self._sandboxes.append(self._sandboxes.pop(self._draws.randrange(len(self._sandboxes))))
        tools = Tools(sinks.client, lambda _reference: SECRET, lambda: sinks.now_ms, self._webhook.post)
        ports = Ports(
            targets=lambda _stream_id: self._of.plan.targets,
            sending=lambda target: contract.sending(target, tools),
            dead_letter=self._dead_letter,
            now_ms=lambda: sinks.now_ms,
            left_ms=lambda: self._limit_ms - sinks.now_ms,
        )
        result = deliver([write.record() for write in batch], ports, self._sandboxes[-1])
        return _place(batch, result.failed_at)

    def _dead_letter(self, letter: Letter) -> bool:
        sinks = self._sinks
        sinks.step()
        if sinks.holds("no queue", 6):
            return False
        self._of.letters.append((letter, sinks.now_ms))
        self._of.say(f"dead-letter message of {letter.stream_id} {letter.key}: {letter.reason}")
        sinks.step()
        # The answer may be lost: then it is sent again.
        return not sinks.holds("no queue", 3)


def _place(batch: list[Write], failed_at: str) -> int | None:
    return next((at for at, write in enumerate(batch) if write.number == int(failed_at)), None) if failed_at else None


def run(plan: DeliveryPlan, stream: TableStream, origin_ms: int, redeployed_ms: Iterable[int] = ()) -> Delivery:
    """What comes of the plan, with the writes of a run that is over."""
    splits = [(origin_ms + fault.at_ms, fault.value) for fault in plan.faults if fault.kind == "split"]
    sinks = VirtualSinks(plan.seed, has_poison=plan.has_poison)
    delivery = Delivery(plan, stream.shards(splits), sinks, origin_ms)
    Lambda(delivery, redeployed_ms).run()
    return delivery
