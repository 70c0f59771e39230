"""Delivers a run's writes after the run: calls the delivery function's own steps as Lambda calls them.

Invariant: the same run and plan give the same deliveries.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from handlers.deliver import contract
from handlers.deliver.bells import Place
from handlers.deliver.contract import Tools
from handlers.deliver.worker import Letter
from local.chaos.plans import DeliveryPlan
from local.simulation.table_stream import Shard, TableStream
from local.simulation.tables import MemoryDynamoDB
from local.simulation.virtual_delivery import DELIVERY, VirtualDelivery
from local.simulation.virtual_function import Killed
from local.simulation.virtual_sinks import SECRET, VirtualSinks, VirtualWebhook

POLL_MS = 250
MOST_CALLS = 3_000
EVENTS = "events"
_SINKS_OWN = ("part", "no answers", "away", "hang", "slow sink")


@dataclass
class Delivery:
    """The result of a plan: `sinks` have what arrived, `letters` the dead-letter messages with their instants.

    `deaths` has the instant and, for a call of the worker, the place of each call that died.
    """

    plan: DeliveryPlan
    shards: list[Shard]
    sinks: VirtualSinks
    origin_ms: int
    letters: list[tuple[Letter, int]] = field(default_factory=list)
    deaths: list[tuple[int, Place | None]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    is_over: bool = True

    def say(self, text: str) -> None:
        """Adds a line to the trace."""
        self.log.append(f"{(self.sinks.now_ms - self.origin_ms) / 1000:>8.3f} s  delivery: {text}")


class _Dying:
    """A client of the tables; the function may die before or after each of its requests."""

    def __init__(self, tables: MemoryDynamoDB, sinks: VirtualSinks) -> None:
        self._tables, self._sinks = tables, sinks

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._tables, name)

        def request(**parameters: Any) -> Any:
            self._sinks.step()
            answer = method(**parameters)
            self._sinks.step()
            return answer

        return request


class Lambda:
    """Calls the function until all is delivered."""

    def __init__(self, delivery: Delivery, most_items: int) -> None:
        self._of, self._sinks = delivery, delivery.sinks
        self._tables = MemoryDynamoDB(EVENTS, DELIVERY)
        self._tables.most_items = most_items
        webhook = VirtualWebhook(delivery.sinks)
        tools = Tools(
            self._sinks.client,
            lambda _reference: SECRET,
            lambda: self._sinks.now_ms,
            lambda request: (webhook.post(request), {}),
        )
        self.virtual = VirtualDelivery(
            _Dying(self._tables, self._sinks),
            EVENTS,
            self._sinks,
            lambda _stream_id: delivery.plan.targets,
            lambda target: contract.make_sender(target, tools),
            self._dead_letter,
            Killed,
            tables=self._tables,
            batch=delivery.plan.batch_size,
        )
        self.virtual.loses = lambda: self._sinks.is_affected("lost bells")

    def run(self, redeployed_ms: Iterable[int]) -> None:
        """Runs until everything is delivered, or Lambda has made too many calls."""
        for at_ms in redeployed_ms:
            self.virtual.schedule(at_ms, self.virtual.restart)
        for fault in self._of.plan.faults:
            self.virtual.schedule(self._of.origin_ms + fault.at_ms, partial(self._begin, fault))
        self._sinks.now_ms = self._of.origin_ms
        for shard in self._of.shards:
            if shard.parent is None:
                self._read(shard, 0)
        self._of.deaths = self.virtual.deaths
        self._of.is_over = self.virtual.run(most=MOST_CALLS + sum(len(shard.writes) for shard in self._of.shards))

    def _begin(self, fault: Any) -> None:
        lasting = f" for {fault.for_ms / 1000:g} s" if fault.for_ms else ""
        label = self._of.plan.victim(fault) if fault.kind in _SINKS_OWN else ""
        self._of.say(f"fault: {' at '.join(filter(None, (fault.kind, label)))}{lasting}")
        if fault.kind == "kill":
            self._sinks.dies_in = fault.value % 30
        elif fault.kind == "redeploy":
            self.virtual.restart()
        elif fault.for_ms:
            which = fault.kind, label
            self._sinks.until_ms[which] = max(self._sinks.until_ms.get(which, 0), self._sinks.now_ms + fault.for_ms)

    def _read(self, shard: Shard, place: int) -> None:
        """Makes Lambda deliver a shard's records from `place` on, and then those of its children."""
        if place == len(shard.writes):
            for child in shard.children:
                self._read(child, 0)
            return

        def bring() -> None:
            here = shard.writes[place : place + self._of.plan.batch_size]
            batch = [write for write in here if write.at_ms < self._sinks.now_ms]
            for write in batch:
                self._tables.put_item(TableName=EVENTS, Item=write.item)
            try:
                self.virtual.delivery.note([write.record() for write in batch])
            except Killed:
                self._of.say(f"killed at {len(batch)} records of shard {shard.number}")
                self.virtual.record_death(None)
                self.virtual.schedule(self._sinks.now_ms + POLL_MS, bring)
                return
            self._read(shard, place + len(batch))

        self.virtual.schedule(max(self._sinks.now_ms, shard.writes[place].at_ms + POLL_MS), bring)

    def _dead_letter(self, letter: Letter) -> bool:
        sinks = self._sinks
        sinks.step()
        if sinks.is_affected("no queue", of_ten=6):
            return False
        self._of.letters.append((letter, sinks.now_ms))
        self._of.say(f"dead-letter message of {letter.stream_id} {letter.key}: {letter.reason}")
        sinks.step()
        # If the answer is lost, the message is sent again.
        return not sinks.is_affected("no queue", of_ten=3)


def run(
    plan: DeliveryPlan, stream: TableStream, origin_ms: int, redeployed_ms: Iterable[int] = (), most_items: int = 0
) -> Delivery:
    """Returns the result of the plan for the writes of a finished run; `most_items` is as in the schedule."""
    splits = [(origin_ms + fault.at_ms, fault.value) for fault in plan.faults if fault.kind == "split"]
    sinks = VirtualSinks(plan.seed, has_poison=plan.has_poison)
    delivery = Delivery(plan, stream.shards(splits), sinks, origin_ms)
    Lambda(delivery, most_items).run(redeployed_ms)
    return delivery
