"""Delivers the records of one invocation, and says from which record on Lambda is to call again.

Lambda goes on behind the last record before the first that failed, and sends all later ones again, those that were
delivered among them. So a sandbox remembers these: it is what spares a sink most repetitions, and no promise.
Pure but for its ports. Invariants: a record is done when each sink of its stream took each of its
events, or the dead-letter queue has it; a record that is not done is reported, and none after it is forgotten.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from handlers.deliver import table_records as rules
from handlers.deliver.contract import Message, Promises, Refusal
from handlers.deliver.delivery_records import Count, Place
from handlers.deliver.sending import LATE, Outcomes, send_all
from handlers.deliver.table_records import Record
from handlers.profile.deliver_field import Target

# DynamoDB keeps a record for 24 hours. What no sink took until then is put where a person finds it, in time.
GIVE_UP_MS = 23 * 3_600_000
# Of one invocation there are 10,000 records at most, and Lambda repeats them as they were.
MOST_REMEMBERED = 20_000

Sending = Callable[[Target], tuple[Promises, Callable[[Sequence[Message]], Mapping[int, Refusal]]]]


class Letter(NamedTuple):
    """What goes to the dead-letter queue: an event that a sink will not take, or a record that cannot be read."""

    stream_id: str
    label: str
    key: str
    position: str
    reason: str


@dataclass(slots=True)
class Result:
    """What came of an invocation; `failed_at` is the sequence number to go on from, "" where all is done."""

    failed_at: str = ""
    counts: dict[Place, Count] = field(default_factory=dict)


class Delivered:
    """What this sandbox has delivered of records that Lambda will send again: each a record and a sink."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], None] = {}

    def add(self, number: str, message: Message, label: str) -> None:
        """Remembers one; where there is no room the oldest is forgotten."""
        self._seen[number, message.key, label] = None
        while len(self._seen) > MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def has(self, number: str, message: Message, label: str) -> bool:
        """Whether it was delivered by this sandbox."""
        return (number, message.key, label) in self._seen

    def clear(self) -> None:
        """Forgets all: Lambda goes on behind them."""
        self._seen.clear()


@dataclass(frozen=True, slots=True)
class Ports:
    """What an invocation works with: where a stream's events go, what sends there, and the dead-letter queue.

    `targets` raises ValueError where the profile is wrong; `dead_letter` returns False where the queue does not take a
    letter, and is not called again then; `left_ms` is the time for what is sent.
    """

    targets: Callable[[str], Sequence[Target]]
    sending: Sending
    dead_letter: Callable[[Letter], bool]
    now_ms: Callable[[], int]
    left_ms: Callable[[], int]


class _Work:
    """The records of one invocation, and which of them are not done."""

    def __init__(self, records: Sequence[Record], ports: Ports, delivered: Delivered) -> None:
        self.records = records
        self.ports = ports
        self.delivered = delivered
        self.numbers = [rules.sequence_number(record) for record in records]
        self.undone: set[int] = set()
        self.result = Result()
        self.waiting: dict[Target, list[Message]] = {}
        self.is_queue_away = False

    def read(self) -> None:
        """Sorts the events of all records by where they go."""
        for place, record in enumerate(self.records):
            stream_id = rules.stream_id(record)
            try:
                targets = self.ports.targets(stream_id)
            except ValueError as problem:
                self._wait(place, Letter(stream_id, "", _sort_key(record), "", str(problem)))
                continue
            if not targets:
                continue
            try:
                messages = rules.messages(record, place)
            except (ValueError, KeyError, TypeError) as problem:
                reason = f"the record cannot be read: {type(problem).__name__}"
                self._dead_letter(place, Letter(stream_id, "", _sort_key(record), "", reason))
                continue
            for target in targets:
                left = [one for one in messages if not self.delivered.has(self.numbers[place], one, target.label)]
                self.waiting.setdefault(target, []).extend(left)

    def send(self, target: Target, messages: Iterable[Message]) -> None:
        """Sends what goes to one sink."""
        promises, send = self.ports.sending(target)

        def is_late() -> bool:
            return self.ports.left_ms() < promises.longest_ms

        outcomes = send_all(messages, promises, send, is_late, in_order=target.in_order)
        for message in outcomes.taken:
            self.delivered.add(self.numbers[message.place], message, target.label)
        self._count(target.label, outcomes)
        for message, reason in outcomes.poison:
            self._dead_letter(message.place, _letter(message, target.label, reason), message)
        for message, reason in outcomes.waiting:
            self._wait(message.place, _letter(message, target.label, reason), message)

    def _count(self, label: str, outcomes: Outcomes) -> None:
        now_ms = self.ports.now_ms()
        for message in outcomes.taken:
            count = self._of(message.stream_id, label)
            count.delivered += 1
            count.newest_ms = max(count.newest_ms, message.received_at_ms)
            count.lag_ms = max(0, now_ms - count.newest_ms)
        oldest: dict[str, int] = {}
        for message, _ in outcomes.waiting:
            oldest[message.stream_id] = min(oldest.get(message.stream_id, now_ms), message.received_at_ms)
        for stream_id, since_ms in oldest.items():
            self._of(stream_id, label).lag_ms = max(0, now_ms - since_ms)

    def _wait(self, place: int, letter: Letter, message: Message | None = None) -> None:
        """The record is not done; one that DynamoDB is about to forget goes to the dead-letter queue instead."""
        is_old = self.ports.now_ms() - rules.created_at_ms(self.records[place]) >= GIVE_UP_MS
        if is_old and letter.reason != LATE.reason:
            reason = f"not delivered in 23 hours: {letter.reason}"
            self._dead_letter(place, letter._replace(reason=reason), message)
        else:
            self._leave(place, letter, letter.reason)

    def _dead_letter(self, place: int, letter: Letter, message: Message | None = None) -> None:
        # To find out takes seconds: once for all of a call.
        self.is_queue_away = self.is_queue_away or not self.ports.dead_letter(letter)
        if self.is_queue_away:
            self._leave(place, letter, "the dead-letter queue does not take it")
            return
        self._of(letter.stream_id, letter.label).dead_lettered += 1
        if message is not None:
            self.delivered.add(self.numbers[place], message, letter.label)

    def _leave(self, place: int, letter: Letter, reason: str) -> None:
        """Lambda is to send the record again."""
        count = self._of(letter.stream_id, letter.label)
        count.failed += 1
        count.reason = count.reason or reason
        self.undone.add(place)

    def _of(self, stream_id: str, label: str) -> Count:
        return self.result.counts.setdefault(Place(stream_id, label), Count())


def deliver(records: Sequence[Record], ports: Ports, delivered: Delivered) -> Result:
    """Delivers the records; the result says from which on Lambda is to send them again."""
    work = _Work(records, ports, delivered)
    work.read()
    for target, messages in work.waiting.items():
        work.send(target, messages)
    if work.undone:
        work.result.failed_at = work.numbers[min(work.undone)]
    else:
        delivered.clear()
    return work.result


def _sort_key(record: Record) -> str:
    key: str = record["dynamodb"]["Keys"]["SK"]["S"]
    return key


def _letter(message: Message, label: str, reason: str) -> Letter:
    return Letter(message.stream_id, label, message.key, message.position, reason)
