"""Sends one stream's events to one sink, from its place on, until none is left, the sink fails, or time is up.

A worker knows no other stream and no other sink, so a sink that is slow or away holds up only itself. Pure except for
its ports. Invariants: the record passes only events that the sink took or the dead-letter queue has; if a sink keeps an
order, no event is sent before all earlier ones are taken or known to be poison; a record is saved only if nobody has
saved it since it was read.
"""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Literal, NamedTuple

from handlers.deliver.bells import ANSWERED_MS, Bell, Bells, Place
from handlers.deliver.contract import Message
from handlers.deliver.delivery_records import MOST_APART, SinkRecord, SinkRecords
from handlers.deliver.feed import SETTLED_MS, Feed, Page
from handlers.deliver.immediate_sending import Sending, Within
from handlers.deliver.sending import PARALLEL, SHORT_RESTS_MS, Each, Outcomes, Requests, name_of, rest_ms, send_all
from handlers.deliver.set_apart import PART_REST_MS, RARELY, places_of, resend_set_apart
from handlers.profile.deliver_field import Target
from handlers.values import dataclass

# How many events are read at once if a request takes one of them, and if it takes several.
SINGLE_READ, MOST_READ = 250, 1000
# How often the place is saved, so that a kill repeats little and a pause takes effect soon.
SAVED_EVERY_MS = 5_000
# A shorter wait is slept through, such as that at the end of a replay; a longer one is left to the sweep.
SLEPT_MS = SETTLED_MS
# How many records a call brings, as packaging/resources/delivery.cjs has it.
BATCH = 250

# done: nothing is left. more: time is up. waits: backs off until `until_ms`. lost: another worker has the sink.
End = Literal["done", "more", "waits", "paused", "lost"]


class Letter(NamedTuple):
    """A dead letter: an event that a sink will never take, or that cannot be read."""

    stream_id: str
    label: str
    key: str
    position: str
    reason: str


@dataclass(slots=True)
class Worked:
    """The result of a call: how many events were taken, left for a later try or dead-lettered, and how it ended.

    `record` is the last one saved, `reason` is why the sink took no more, "" if it took all.
    """

    record: SinkRecord
    delivered: int = 0
    failed: int = 0
    dead_lettered: int = 0
    end: End = "done"
    until_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryPorts:
    """What the delivery works with.

    `targets` returns a stream's targets, and raises ValueError if its profile is wrong, StoreUnavailable if it cannot
    be read; after `reread` it returns those of the profile as it is now. `call` starts calls of `Delivery.answer` for
    bells and does not wait; a bell that it loses is due again. `dead_letter` returns False if the queue does not take a
    letter. `left_ms` is the time left for sending, `within` runs what a call sends at once, `each` makes several
    requests if the sink keeps no order; `batch` is how many records a call has at most.
    """

    targets: Callable[[str], Sequence[Target]]
    sending: Sending
    call: Callable[[Sequence[Bell]], None]
    dead_letter: Callable[[Letter], bool]
    report: Callable[[Place, Worked], None]
    now_ms: Callable[[], int]
    left_ms: Callable[[], int]
    sleep: Callable[[int], None]
    within: Within
    each: Each = map
    batch: int = BATCH
    reread: Callable[[str], None] = lambda _stream_id: None


@dataclass
class Worker:
    """One call for one stream and sink, which holds `bell` for as long as it needs it."""

    bells: Bells
    bell: Bell
    target: Target
    records: SinkRecords
    feed: Feed
    ports: DeliveryPorts
    worked: Worked = field(default_factory=lambda: Worked(SinkRecord("")))
    # Events that were sent before an earlier one, and dead letters, until the record has passed them.
    _finished: set[tuple[str, str]] = field(default_factory=set)
    _is_lost: bool = False

    def __post_init__(self) -> None:
        self.place, self.in_order = self.bell.place, self.target.in_order
        self.promises, self.send = self.ports.sending(self.target)
        self.is_ordered = self.in_order and self.promises.order != "none"
        self._requests = Requests(self.promises, self.send, self.ports.now_ms, self.ports.each, self.in_order)

    def run(self, record: SinkRecord) -> Worked:
        """Sends events from the record's place on; the record was just read. Raises StoreUnavailable."""
        is_single = self.promises.most_messages == 1 or (self.promises.order == "message" and self.in_order)
        full = SINGLE_READ if is_single else MOST_READ
        least = 1 if is_single else min(full, self.promises.most_messages)
        # Each try pays for what it reads. So a sink that has long been away is tried with one event, and one that
        # refuses some with few, unless others may pass those that wait. A refused batch comes again as it was.
        most = full if record.failures <= len(SHORT_RESTS_MS) else 1
        if most == 1 and not self.is_ordered:
            # It may refuse large requests only.
            self._requests.size = 1
        while not self._is_lost:
            self.worked.record = record
            if record.is_paused:
                return self._finish("paused")
            until_ms = max(record.rest_until_ms, record.again_ms if record.is_crowded else 0)
            rest_ms = until_ms - self.ports.now_ms()
            if rest_ms <= SLEPT_MS and self.ports.left_ms() < max(0, rest_ms) + self.promises.longest_ms:
                return self._finish("more")
            if rest_ms > 0 and not self._sleep_if_time(rest_ms):
                return self._finish("waits", until_ms)
            if record.has_due(self.ports.now_ms()):
                if (again := self._resend_set_apart(record)) is None:
                    break
                record = again
                if record.is_crowded and record.apart_failures <= len(SHORT_RESTS_MS):
                    continue
            page = self.feed.page(self.place.stream_id, record, most, self.ports.now_ms())
            saved: SinkRecord | None = record
            wait_ms = 0
            if not (page.messages or page.broken):
                wait_ms = page.later_ms - self.ports.now_ms()
                if page.end != record:
                    # A replay may read for long before it finds something to send.
                    is_held = self._extend_bell(self.promises.longest_ms)
                    saved = self.records.save(self.place, page.end) if is_held else None
                elif wait_ms <= 0 and not self._sleep_before_resending(record):
                    return self._finish("done")
            elif (wait_ms := self._wait_for_more_ms(page)) <= 0:
                before = self.worked.delivered
                saved = self._send_page(record, page)
                took = self.worked.delivered - before
                few = 2 * (min(most, took) if self.worked.reason else most)
                most = max(least, min(full, few)) if self.is_ordered else full if took else most
            if saved is None:
                break
            self.worked.record = record = saved
            if wait_ms > 0 and not self._sleep_if_time(wait_ms):
                return self._finish("waits", self.ports.now_ms() + wait_ms)
            is_last = page.is_last and (record.number, record.done) == (page.end.number, page.end.done)
            if is_last and not self._sleep_before_resending(record):
                return self._finish("done")
        return self._finish("lost")

    def _wait_for_more_ms(self, page: Page) -> int:
        """Returns how long a request that is not full still waits for more, 0 or less if it is sent now."""
        is_full = len(page.messages) >= self.promises.most_messages
        return 0 if is_full else page.oldest_ms + self.target.wait_ms - self.ports.now_ms()

    def _send_page(self, record: SinkRecord, page: Page) -> SinkRecord | None:
        """Sends a page; returns the saved record, None if another worker has saved it."""
        ports, worked = self.ports, self.worked
        # In a replay, which a person watches, no event is passed.
        is_strict = self.is_ordered or page.begin.is_replaying
        # Those at the place may be the only ones that it refuses.
        is_probed = record.failures and not is_strict
        samples = list(self.feed.sample_messages(self.place.stream_id, record, PARALLEL - 1)) if is_probed else []
        # Broken entries come first, because the record passes them with the next message.
        letters = [self._letter(entry.key, "", reason) for entry, reason in page.broken]
        buried, is_in_queue = self._dead_letter_all(letters)
        found = dict.fromkeys([*samples, *page.messages]) if is_in_queue else {}
        messages = [one for one in found if name_of(one) not in self._finished]
        outcomes, took_ms = self._send_messages(messages)
        refused = outcomes.refusals
        letters += [self._letter(one.key, one.position, reason) for one, reason in outcomes.poison]
        if outcomes.poison:
            more, is_in_queue = self._dead_letter_all(letters)
            buried += more
        self._finished |= {name_of(one) for one in outcomes.taken}
        reason = next((one.reason for one in refused), "") if is_in_queue else "the dead-letter queue does not take it"
        known = [page.begin.newest_ms, *(of.received_at_ms for of in page.messages if name_of(of) in self._finished)]
        passed = [] if is_strict else self._requests.to_set_apart(page.messages, self._finished)
        self._finished |= {name_of(one) for one in passed}
        has_moved = bool(outcomes.taken or buried or passed)
        failures = 0 if has_moved or not reason else record.failures + 1
        again_ms = 0 if not reason else PART_REST_MS if has_moved else rest_ms(failures)
        failed = len(refused) + (0 if is_in_queue else len(letters) - buried)
        is_again = page.begin.is_replaying and not page.begin.is_backfill
        worked.delivered += len(outcomes.taken)
        worked.dead_lettered += buried
        worked.failed += failed
        worked.reason = reason
        saved = replace(
            self._record_after(page, is_all=is_in_queue and len(passed) == len(outcomes.waiting)),
            delivered=page.begin.delivered + len(outcomes.taken),
            dead_lettered=record.dead_lettered + buried,
            failed=record.failed + failed,
            failures=failures,
            waits=reason or (record.waits if record.all_apart else ""),
            rest_until_ms=ports.now_ms() + max(again_ms, outcomes.rest_ms),
            # An event that is sent again shows nothing about those that wait before it.
            newest_ms=known[0] if is_again else max(known),
            at_ms=ports.now_ms(),
            back_ms=ports.now_ms() if has_moved and record.failures > len(SHORT_RESTS_MS) else record.back_ms,
            left_ms=record.left_ms if record.backfill_until_ms else page.left_ms(self._finished),
            took_ms=took_ms or record.took_ms,
        )
        if passed:
            places = places_of(self.feed.arrivals, self.place.stream_id, passed, saved.at_ms)
            next_ms = saved.at_ms + max(SHORT_RESTS_MS[0], RARELY * took_ms)
            next_ms = min(next_ms, record.again_ms) if record.all_apart else next_ms
            saved = self.records.with_set_apart(self.place, saved, places, next_ms)
        is_crowded = len(passed) >= max(PARALLEL, 2 * len(outcomes.taken)) and saved.all_apart >= MOST_APART
        return self.records.save(self.place, replace(saved, is_crowded=is_crowded))

    def _send_messages(self, messages: Sequence[Message]) -> tuple[Outcomes, int]:
        """Sends messages for a while; returns the outcomes, and how long the slowest request took, 0 for none."""
        ports, until_ms = self.ports, self.ports.now_ms() + SAVED_EVERY_MS

        def is_late() -> bool:
            longest_ms = self.promises.longest_ms
            self._is_lost = not self._extend_bell(longest_ms)
            return self._is_lost or ports.now_ms() >= until_ms or ports.left_ms() < longest_ms

        return self._requests.send_messages(messages, is_late)

    def _resend_set_apart(self, record: SinkRecord) -> SinkRecord | None:
        """Sends what was set apart again; returns the saved record, None if another worker has saved it."""
        if not self._extend_bell(self.promises.longest_ms):
            return None
        ports, worked, promises = self.ports, self.worked, replace(self.promises, most_messages=1)
        again = resend_set_apart(
            record, ports.now_ms, lambda several: self.feed.messages_set_apart(self.place.stream_id, several),
            lambda some: send_all(some, promises, self.send, lambda: False, in_order=False, each=ports.each),
            lambda one, reason: ports.dead_letter(self._letter(one.key, one.position, reason)),
        )  # fmt: skip
        worked.delivered += again.delivered - record.delivered
        worked.failed += again.failed - record.failed
        worked.dead_lettered += again.dead_lettered - record.dead_lettered
        return self.records.save_next_set_apart(self.place, again)

    def _record_after(self, page: Page, *, is_all: bool) -> SinkRecord:
        """Returns the record after the leading messages that are done."""
        if is_all:
            self._finished -= {(one.key, one.position) for one in page.messages}
            return page.end
        return page.record_after(self._finished)

    def _dead_letter_all(self, letters: list[Letter]) -> tuple[int, bool]:
        """Returns how many letters the queue took now, and whether it has all; stops at the first that it refuses."""
        buried = 0
        for letter in letters:
            name = letter.key, letter.position
            if name in self._finished:
                continue
            if not self.ports.dead_letter(letter):
                return buried, False
            self._finished.add(name)
            buried += 1
        return buried, True

    def _letter(self, key: str, position: str, reason: str) -> Letter:
        return Letter(self.place.stream_id, self.place.label, key, position, reason)

    def _extend_bell(self, for_ms: int) -> bool:
        """Extends the bell to at least `for_ms` from now; returns False if another worker has it."""
        now_ms = self.ports.now_ms()
        if self.bell.until_ms - now_ms >= for_ms:
            return True
        held = self.bells.hold(self.bell, now_ms + for_ms + ANSWERED_MS)
        self.bell = held or self.bell
        return held is not None

    def _sleep_before_resending(self, record: SinkRecord) -> bool:
        """Sleeps if some of what is set apart is sent again soon, but not for long, because more may come meanwhile."""
        rest_ms = record.again_ms - self.ports.now_ms()
        if record.failures or record.apart_failures > len(SHORT_RESTS_MS) or rest_ms > SHORT_RESTS_MS[-1]:
            return False
        return record.all_apart > 0 and self._sleep_if_time(max(1, min(rest_ms, PART_REST_MS)))

    def _sleep_if_time(self, rest_ms: int) -> bool:
        """Sleeps if there is time and no other worker has the sink; returns whether it did."""
        ports, longest_ms = self.ports, self.promises.longest_ms
        if rest_ms > SLEPT_MS or ports.left_ms() < rest_ms + longest_ms or not self._extend_bell(rest_ms + longest_ms):
            return False
        ports.sleep(rest_ms)
        return True

    def _finish(self, end: End, until_ms: int = 0) -> Worked:
        self.worked.end, self.worked.until_ms = end, until_ms
        return self.worked
