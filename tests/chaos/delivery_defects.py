"""Deliberate defects of the delivery, which a schedule of chaos must catch.

Each replaces one function of `handlers/deliver` by one that does what its docstring says; tests/chaos/chaos_defects.py
lists them with the others. They decide nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from handlers.deliver import sending, table_records
from handlers.deliver.batch import Delivered, Letter, _Work
from handlers.deliver.contract import Message, Order, Promises, Refusal
from handlers.deliver.sending import TAKEN, Outcomes, Send
from handlers.store.event_items import StoredEvent
from local.chaos.schedule import Schedule
from tests.chaos.defect import Defect

EVENTS, ADD, BURY = table_records._events, Outcomes.add, _Work._bury


def meets(*kinds: str, sinks: Sequence[str] = (), several: bool = False) -> Callable[[Schedule], bool]:
    """Whether the schedule's delivery meets one of these faults, at one of these sinks where some are named."""

    def among(schedule: Schedule) -> bool:
        plan = schedule.delivery
        return (
            plan is not None
            and (not kinds or any(fault.kind in kinds for fault in plan.faults))
            and (not sinks or any(target.label in sinks and target.in_order for target in plan.targets))
            and (not several or len(plan.targets) > 1)
        )

    return among


def has_poison(schedule: Schedule) -> bool:
    """Whether sinks refuse some of its events for good."""
    return schedule.delivery is not None and schedule.delivery.has_poison


def loses_letters(schedule: Schedule) -> bool:
    """Whether the queue refuses messages for an hour."""
    return has_poison(schedule) and meets("no queue")(schedule)


def is_sent_as_segments(schedule: Schedule) -> bool:
    """Whether the first stream's events lie in a log."""
    return schedule.store == "log" and schedule.delivery is not None


def is_shared(schedule: Schedule) -> bool:
    """Whether several streams' events go to a queue that compares across groups."""
    plan = schedule.delivery
    return bool(schedule.beside) and plan is not None and any(one.name == "whole.fifo" for one in plan.targets)


def counts_as_delivered(_work: _Work, *_of: Any) -> None:
    """What waits is not reported."""
    return


def drops_nothing(_queues: dict[str, deque[Message]], *_of: Any) -> None:
    """The queue of a stream whose event waits is sent on."""
    return


def fills_the_request(queues: Mapping[str, deque[Message]], promises: Promises, _order: Order) -> Iterator[Message]:
    """As many as fit, of any stream."""
    several = islice(queues.values(), 1) if promises.is_per_stream else queues.values()
    for _ in range(promises.most_messages):
        queue = next((one for one in several if one), None)
        if queue is None:
            return
        yield queue.popleft()


def takes_poison_for_weather(outcomes: Outcomes, message: Message, refusal: Refusal) -> None:
    """What is refused for good is tried again."""
    ADD(outcomes, message, refusal if refusal is TAKEN else Refusal(refusal.reason))


def buries_unseen(work: _Work, place: int, letter: Letter, label: str, message: Message | None = None) -> None:
    """The record is done, whether the queue took the message or not."""
    BURY(work, place, letter, label, message)
    work.undone.discard(place)


def sends_the_first_alone(item: Any) -> Iterator[StoredEvent]:
    """Of a segment the first event is sent."""
    return islice(EVENTS(item), 1)


def is_the_key_alone(message: Message, **_of: bool) -> str:
    """The stream is not in the id, whatever the queue compares."""
    return message.key


def asks_once(batch: Sequence[Message], send: Send, _order: Order) -> Iterator[tuple[Message, Refusal]]:
    """A batch that is refused for good is poison as a whole."""
    refusals = send(batch)
    return ((message, refusals.get(at, TAKEN)) for at, message in enumerate(batch))


def forgets_the_sink(delivered: Delivered, number: str, message: Message, _label: str) -> bool:
    """What was delivered anywhere counts."""
    return any(seen[:2] == (number, message.key) for seen in delivered._seen)


def takes_any_answer(_status: int) -> bool:
    """Whatever a webhook answers, the event is delivered."""
    return True


def is_called_by_its_key(message: Message) -> str:
    """The stream is not in a webhook's id."""
    return f"msg_{message.key}"


def tells_streams_apart(schedule: Schedule) -> bool:
    """Whether several streams' events go to a webhook."""
    plan = schedule.delivery
    return bool(schedule.beside) and plan is not None and any(one.kind == "webhook" for one in plan.targets)


_WORK, _SENDING = "handlers.deliver.batch._Work", sending.__name__
OF_THE_DELIVERY = [
    Defect(
        "an event that waits counts as delivered",
        {"undelivered"},
        function=(f"{_WORK}._wait", counts_as_delivered),
        among=meets("away", "part"),
    ),
    Defect(
        "a stream goes on behind what waits",
        {"overtaken"},
        function=(f"{_SENDING}._drop", drops_nothing),
        among=meets("part", sinks=("sqs:groups.fifo", "sqs:whole.fifo", "kinesis:stream")),
    ),
    Defect(
        "a request holds several of a stream",
        {"overtaken"},
        function=(f"{_SENDING}._batch", fills_the_request),
        among=meets("part", sinks=("sqs:groups.fifo", "sqs:whole.fifo", "kinesis:stream")),
    ),
    Defect(
        "poison waits",
        {"undelivered", "buried"},
        function=("handlers.deliver.sending.Outcomes.add", takes_poison_for_weather),
        among=has_poison,
    ),
    Defect(
        "nobody looks whether the queue took it",
        {"undelivered"},
        function=(f"{_WORK}._bury", buries_unseen),
        among=loses_letters,
    ),
    Defect(
        "of a segment the first event is sent",
        {"undelivered"},
        function=("handlers.deliver.table_records._events", sends_the_first_alone),
        among=is_sent_as_segments,
    ),
    Defect(
        "two streams share a deduplication id",
        {"undelivered"},
        function=("handlers.deliver.sinks.sqs.deduplication_id", is_the_key_alone),
        among=is_shared,
    ),
    Defect(
        "a batch with poison is buried",
        {"buried"},
        function=(f"{_SENDING}._tried", asks_once),
        among=has_poison,
    ),
    Defect(
        "what one sink took counts for the other",
        {"undelivered"},
        function=("handlers.deliver.batch.Delivered.has", forgets_the_sink),
        among=meets("away", "part", several=True),
    ),
    Defect(
        "any answer of a webhook takes the event",
        {"undelivered"},
        function=("handlers.deliver.sinks.webhook.is_taken", takes_any_answer),
        among=meets("part", sinks=("webhook:hook.invalid",)),
    ),
    Defect(
        "two streams share an id at a webhook",
        {"forged"},
        function=("handlers.deliver.sinks.webhook.message_id", is_called_by_its_key),
        among=tells_streams_apart,
    ),
]
