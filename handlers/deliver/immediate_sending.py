"""Sends an arrival in the call that notes it, if a sink is quick and no earlier event waits for it.

This spares the arrival its bell, the worker and the worker's record: the arrival names the sinks that have taken it. A
worker has measured before how fast the sink answers, and takes over again once the sink is slow or refuses. All tries
of a call run side by side and have BOUND_MS together. Invariants: no event is sent while an earlier one of its stream
waits for the sink; after BOUND_MS the call continues even if a sink hangs, and rings for what was not taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from itertools import takewhile
from typing import NamedTuple

from handlers.deliver.arrivals import Arrival, SentAtOnce, Taken
from handlers.deliver.bells import Place
from handlers.deliver.contract import Message, Promises, Refusal
from handlers.deliver.delivery_records import SinkRecord, SinkRecords, with_taken
from handlers.deliver.feed import messages_of
from handlers.deliver.sending import PARALLEL, Each, Outcomes, Send, send_all
from handlers.deliver.table_records import Brought, decode_image
from handlers.errors import StoreUnavailable
from handlers.profile.deliver_field import Target
from handlers.values import dataclass

# How long a call tries, and how much of that the requests may take by what a worker measured.
BOUND_MS, EXPECTED_MS = 300, 200
# How often a record is written that only arrivals have moved: once these expire, only the record shows how far the
# sink had come.
SETTLED_EVERY_MS = 3_600_000
Sending = Callable[[Target], tuple[Promises, Send]]
# Runs several side by side, and returns when all are done or that many milliseconds have passed.
Within = Callable[[Sequence[Callable[[], None]], int], None]


class _Try(NamedTuple):
    """One sink's try: its record as it was read, what it promises, and how to send to it."""

    record: SinkRecord
    promises: Promises
    send: Send
    target: Target


@dataclass
class ImmediateSending:
    """The tries of one stream's arrival, until `until_ms`; `targets` are all that its profile names."""

    stream_id: str
    brought: Brought
    targets: Sequence[Target]
    records: SinkRecords
    senders: Mapping[Target, tuple[Promises, Send]]
    now_ms: Callable[[], int]
    each: Each
    until_ms: int
    _taken_after: SentAtOnce = field(default_factory=SentAtOnce)
    _records: dict[str, SinkRecord] = field(default_factory=dict)
    _taken: dict[str, Taken] = field(default_factory=dict)
    _rests: dict[str, int] = field(default_factory=dict)

    @property
    def taken_so_far(self) -> SentAtOnce:
        """What sinks have taken by now, and after which arrival."""
        return self._taken_after._replace(taken=dict(self._taken))

    def run(self) -> None:
        """Sends to each sink that may take it at once, the quickest first; nothing if an event cannot be read."""
        try:
            end, known = self.records.read_with_arrival(self.stream_id, len(self.targets))
        except StoreUnavailable:
            return
        messages, places, problem = self._messages()
        if end is None or not end.is_newest(self.now_ms()) or end.mark == self.brought.mark or problem:
            return
        self._taken_after, self._records = SentAtOnce(end), known
        tries = [one for target in self.targets if (one := self._plan_try(target, end, len(messages))) is not None]
        for one in sorted(tries, key=lambda one: one.record.took_ms):
            outcomes = self._send_until_poison(one, messages)
            # Only what it took without a hole counts: its place lies before the first message that it did not take.
            leading = takewhile(lambda pair: pair[0] is pair[1], zip(messages, outcomes.taken, strict=False))
            count = sum(1 for _ in leading)
            if self.now_ms() <= self.until_ms and (count or not messages):
                part = places[count - 1] if count < len(messages) else 0
                self._taken[one.record.sink] = Taken(one.record.delivered, count, part)
            if outcomes.rest_ms:
                self._rests[one.record.sink] = self.now_ms() + outcomes.rest_ms

    def _send_until_poison(self, one: _Try, messages: Sequence[Message]) -> Outcomes:
        """Sends until the time is up, or a message is poison: the worker would send again what follows it."""
        poison = list[Refusal]()

        def send(batch: Sequence[Message]) -> Mapping[int, Refusal]:
            refusals = one.send(batch)
            poison.extend(refusal for refusal in refusals.values() if refusal.is_final)
            return refusals

        most_bytes = one.promises.most_message_bytes - one.promises.around_bytes
        fits = takewhile(lambda message: message.size_bytes <= most_bytes, messages)
        is_over = lambda: bool(poison) or self.now_ms() >= self.until_ms  # noqa: E731
        return send_all(fits, one.promises, send, is_over, in_order=one.target.in_order, each=self.each)

    def _messages(self) -> tuple[list[Message], list[int], str]:
        """Returns the messages, how far in the arrival each lies, and what cannot be read."""
        messages, places, problems, before = list[Message](), list[int](), "", 0
        for entry, image in zip(self.brought.entries, self.brought.images, strict=True):
            made, problem = messages_of(self.stream_id, decode_image(image))
            messages += made
            places += [before + at for at, _ in enumerate(made, 1)]
            problems, before = problems + problem, before + entry.events
        return messages, places, problems

    def _plan_try(self, target: Target, end: Arrival, messages: int) -> _Try | None:
        """Returns how to send to a sink; None if something else comes first, or it may take too long."""
        record = self._records.get(target.label)
        if record is None or target.wait_ms:
            return None
        record = with_taken(record, end)
        # Behind an event that is refused again, others would be sent that the worker sends once more.
        has_apart = messages > 1 and record.all_apart > 0
        is_free = not (record.is_paused or record.is_replaying or record.failures or has_apart)
        if not is_free or not record.took_ms or not record.is_at(end):
            return None
        promises, send = self.senders[target]
        in_order = target.in_order and promises.order != "none"
        most = 1 if promises.order == "message" and target.in_order else promises.most_messages
        rounds = -(-messages // (most if in_order else most * PARALLEL))
        return _Try(record, promises, send, target) if rounds * record.took_ms <= EXPECTED_MS else None

    def settle_records(self, arrival: Arrival) -> dict[str, int]:
        """Returns how many events each sink took of the arrival, which is noted now; raises StoreUnavailable.

        Records that have stood for long are written, and those of sinks that ask to be left alone for some time.
        """
        took = {label: one.messages for label, one in self._taken.items() if label in arrival.taken}
        rests = dict(self._rests)
        for label in took | rests:
            record = self._records[label]
            if label in rests or arrival.at_ms - record.at_ms >= SETTLED_EVERY_MS:
                record = replace(with_taken(record, arrival), rest_until_ms=rests.get(label, 0))
                # If it was saved since, the newer record knows more.
                self.records.save(Place(self.stream_id, label), record)
        return took
