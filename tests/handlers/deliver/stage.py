"""A stage's delivery in virtual time, to a sink that answers as the test defines."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from handlers.connection import inputs
from handlers.deliver.arrivals import KEEP_DAYS
from handlers.deliver.bells import Place
from handlers.deliver.contract import Message, Order, Promises, Refusal
from handlers.deliver.delivery_records import SinkRecord
from handlers.deliver.sink_commands import Command
from handlers.deliver.worker import Letter
from handlers.framing.events import StreamEvent
from handlers.profile.deliver_field import Target
from handlers.store import typed_values
from handlers.store.event_items import StoragePolicy, event_item
from handlers.store.typed_values import Item
from local.simulation.tables import MemoryDynamoDB
from local.simulation.virtual_delivery import DELIVERY, VirtualDelivery
from tests.handlers.context import Killed
from tests.handlers.deliver.records import NOW_MS, record

TARGET = Target("sqs", "orders.fifo")
OTHER = Target("kinesis", "other")
PLACE = Place("a", TARGET.label)
TAKE: Mapping[int, Refusal] = {}
AWAY = Refusal("away")


class Clock:
    """The virtual time of the stage."""

    now_ms = NOW_MS


class Stage:
    """One or more streams, stored as items, and the events that each sink accepted."""

    def __init__(
        self, *targets: Target, order: Order = "message", most: int = 10, request_ms: int = 10,
        layout: inputs.Layout = inputs.Layout(),  # noqa: B008
        client: Any = None,
    ) -> None:  # fmt: skip
        self.clock = Clock()
        self.client = client or MemoryDynamoDB("events", DELIVERY)
        self.targets: Sequence[Target] = targets or (TARGET,)
        self.promises = Promises(order, most, 1000 * 1000, 500)
        self.request_ms = request_ms
        self.taken: list[tuple[str, Message]] = []
        self.batches: list[list[str]] = []
        self.letters: list[Letter] = []
        self.is_queue_open = True
        self.answer: Callable[[Target, Sequence[Message]], Mapping[int, Refusal]] = lambda _target, _batch: TAKE
        self.layout = layout
        self._number = 0
        self.is_over = True
        self.virtual = VirtualDelivery(
            self.client, "events", self.clock, self._targets, self._sending, self._dead_letter, Killed, layout
        )
        self.delivery = self.virtual.delivery
        self.problem: Exception | None = None

    def _targets(self, _stream_id: str) -> Sequence[Target]:
        if self.problem:
            raise self.problem
        return self.targets

    def _sending(self, target: Target) -> Any:
        def send(batch: Sequence[Message]) -> Mapping[int, Refusal]:
            self.batches.append([message.key for message in batch])
            self.clock.now_ms += self.request_ms
            refusals = self.answer(target, batch)
            self.taken += [(target.label, one) for at, one in enumerate(batch) if at not in refusals]
            return refusals

        return self.promises, send

    def _dead_letter(self, letter: Letter) -> bool:
        if self.is_queue_open:
            self.letters.append(letter)
        return self.is_queue_open

    def stored(self, stream_id: str, *events: StreamEvent, fence: int = 1) -> list[dict[str, Any]]:
        """Store events as items; return the records of the table's stream."""
        records = []
        for one in events:
            self._number += 1
            policy = StoragePolicy(self.layout.partitions, order=self.layout.order)
            item = event_item(stream_id, fence, self._number, one, policy)
            self.client.put_item(TableName="events", Item=item)
            records.append(record(item, self._number))
        return records

    def come(self, stream_id: str, *events: StreamEvent, at_ms: int | None = None) -> None:
        """Store events, and let Lambda bring their records now, or at an instant."""
        records = self.stored(stream_id, *events)
        self.virtual.schedule(at_ms or self.clock.now_ms, lambda: self.virtual.delivery.note(records))

    def bring(self, writes: Sequence[tuple[int, Item]]) -> None:
        """Let Lambda bring writes of the events table, each with its delay from now."""
        begin_ms, known = self.clock.now_ms, set[tuple[str, str]]()
        for number, (after_ms, item) in enumerate(writes, 1):
            key = (item["PK"]["S"], item["SK"]["S"])
            one = record(item, number, begin_ms + after_ms, "MODIFY" if key in known else "INSERT")
            known.add(key)
            self.virtual.schedule(begin_ms + after_ms, partial(self.virtual.delivery.note, [one]))

    def run(self, for_s: float = 10) -> None:
        """Let this time pass."""
        until_ms = self.clock.now_ms + round(for_s * 1000)
        self.is_over = self.virtual.run(until_ms)
        self.clock.now_ms = until_ms

    def expire(self, *, kept: Collection[int] = ()) -> None:
        """Let two weeks pass, and delete the arrivals of stream "a" as DynamoDB would, except at the places `kept`."""
        for at, one in enumerate(self.delivery.arrivals.arrivals_from("a", 0, 20)):
            if at not in kept:
                self.client.delete_item(
                    TableName=DELIVERY, Key=typed_values.item_key("a", f"arrival#{one.number:015d}")
                )
        self.virtual.restart()
        self.clock.now_ms += KEEP_DAYS * 86_400_000

    def keys(self, label: str = TARGET.label) -> list[str]:
        """Return the keys that a sink accepted, in order."""
        return [one.key for to, one in self.taken if to == label]


def of(stage: Stage, place: Place = PLACE) -> SinkRecord:
    """Return the record of a place, which must exist."""
    found = stage.virtual.delivery.records.read(place)
    assert found is not None
    return found


def asked(stage: Stage, name: str, place: Place = PLACE, **more: Any) -> SinkRecord:
    """Carry out a command, and ring for the sink."""
    assert stage.virtual.delivery.carry_out(Command(name, **more), place) == ""
    return of(stage, place)
