"""Carries out the steps of the delivery: notes arrivals, rings, answers bells, and rings again what is due.

Invariants: a sink delays noting by BOUND_MS at most (handlers/deliver/immediate_sending.py); the answer to a bell works
at one stream and one sink; each bell that was rung is due again later, unless a worker that finds nothing left ends it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest

from handlers.deliver.arrivals import Arrivals
from handlers.deliver.bells import ANSWERED_MS, LATER, Bell, Bells, Place
from handlers.deliver.delivery_records import SinkRecord, SinkRecords, with_taken
from handlers.deliver.feed import Feed
from handlers.deliver.immediate_sending import BOUND_MS, ImmediateSending
from handlers.deliver.sending import REST_MS
from handlers.deliver.sink_commands import Command, Lag, current_record, lag, new_record, unnoted_lag
from handlers.deliver.table_records import Brought, Record, group_by_stream
from handlers.deliver.worker import DeliveryPorts, Worked, Worker
from handlers.errors import StoreUnavailable
from handlers.profile.deliver_field import Target
from handlers.store.control_table import WaitBeforeRetry
from handlers.values import dataclass

# For how many sinks a sweep measures how far they are behind, and how many due bells it gathers before it rings them.
MEASURED, GATHERED = 200, 100
# How often to try a command: a worker saves every few seconds, so it cannot interfere each time. A skip waits as many
# times, so long each, until stored events are noted: half as long as the API waits for the answer.
TRIES, NOTED_AFTER_MS = 10, 500
# How long statements that a busy table refused wait before each further try.
BUSY_MS = (50, 100, 200, 400, 800, 1_600)
# How old a full batch of records must be to count as late.
BEHIND_MS = 500


@dataclass(frozen=True, slots=True)
class Delivery:
    """A stage's delivery."""

    arrivals: Arrivals
    bells: Bells
    records: SinkRecords
    feed: Feed
    ports: DeliveryPorts

    def note(self, brought: Sequence[Record]) -> None:
        """Notes what the records brought, and rings for what was not sent at once; raises StoreUnavailable.

        After that error Lambda brings the same records again.
        """
        found = group_by_stream(brought)
        targets = {stream_id: self._targets(stream_id) for stream_id in found}
        now_ms = self.ports.now_ms()
        newest_ms = max((entry.received_at_ms for one in found.values() for entry in one.entries), default=0)
        # A full batch that is late means that more waits in the shard.
        is_behind = len(brought) >= self.ports.batch and now_ms - newest_ms > BEHIND_MS
        tries = {} if is_behind else self._send_at_once(found, targets)
        sent = {stream_id: one.taken_so_far for stream_id, one in tries.items()}
        # Without a profile the sinks are unknown, so one bell stands for all: they begin here once there is one.
        labels = {one: [""] if of is None else [target.label for target in of] for one, of in targets.items()}
        wanted = {one: found[one][:2] for one in found if labels[one]}
        noted = self.arrivals.note(wanted, self.ports.now_ms(), sent, self._make_waits())
        for stream_id, one in tries.items():
            for label, count in one.settle_records(noted[stream_id]).items():
                self.ports.report(Place(stream_id, label), Worked(SinkRecord(label), delivered=count))
        self.ring(
            [
                (Place(one, label), arrival.number)
                for one, arrival in noted.items()
                for label in labels[one]
                if not arrival.is_taken_by(label)
            ]
        )

    def _targets(self, stream_id: str) -> Sequence[Target] | None:
        """Returns a stream's targets; None if its profile is wrong, or cannot be read now."""
        try:
            return self.ports.targets(stream_id)
        except (ValueError, StoreUnavailable):
            return None

    def _target(self, place: Place) -> Target | None:
        """Returns the sink's target; None if its profile does not name it, even if that is read anew.

        The call that rang may know a newer profile. Raises ValueError if the profile is wrong.
        """
        for _ in range(2):
            for target in self.ports.targets(place.stream_id):
                if target.label == place.label:
                    return target
            self.ports.reread(place.stream_id)
        return None

    def _send_at_once(
        self, found: Mapping[str, Brought], targets: Mapping[str, Sequence[Target] | None]
    ) -> dict[str, ImmediateSending]:
        """Tries to send each stream's arrival at once; returns the tries when they are over."""
        prompt = {one: of for one, of in targets.items() if of and not all(target.wait_ms for target in of)}
        # Clients are made before the time runs: how long that takes does not depend on the sink.
        sending = {one: self.ports.sending(one) for of in prompt.values() for one in of if not one.wait_ms}
        until_ms = self.ports.now_ms() + BOUND_MS
        tries = {
            one: ImmediateSending(
                one, found[one], of, self.records, sending, self.ports.now_ms, self.ports.each, until_ms
            )
            for one, of in prompt.items()
        }
        self.ports.within([one.run for one in tries.values()], BOUND_MS)
        return tries

    def ring(self, places: Sequence[tuple[Place, int]]) -> None:
        """Rings for each place without a bell, with the arrival where a new sink begins; raises StoreUnavailable."""
        until_ms = self.ports.now_ms() + ANSWERED_MS
        bells = [Bell(place, until_ms, number) for place, number in places]
        self.ports.call(self.bells.ring(bells, self._make_waits()))

    def _make_waits(self) -> WaitBeforeRetry:
        """Returns the waits that give a busy table time: the records of a failed call would come again, in halves."""
        left = iter(BUSY_MS)

        def waits(_took_some: bool) -> None:
            if (wait_ms := next(left, 0)) == 0:
                raise StoreUnavailable("AWS refused statements of BatchExecuteStatement in every try")
            self.ports.sleep(wait_ms)

        return waits

    def carry_out(self, command: Command, place: Place) -> str:
        """Carries out a person's command; returns why it did not, "" if it did.

        It rings even during a back-off, because a person may have mended what was wrong. Raises StoreUnavailable.
        """
        if not self._is_noted(command, place):
            return f"the newest events of {place.stream_id} are stored and not noted yet; try again"
        try:
            target = self._target(place)
        except ValueError as problem:
            return f"the profile of {place.stream_id} is wrong: {problem}"
        # The bell's worker may not have come yet, and a new sink begins with its arrival.
        rung = self.bells.find(place)
        for _ in range(TRIES):
            now_ms = self.ports.now_ms()
            record = self.records.read(place) or new_record(
                self.arrivals, place, *self._first_arrival(rung or Bell(place, 0, 0)), command.first_ms(target), now_ms
            )
            came = current_record(self.arrivals, place.stream_id, record)
            changed = command.apply(place, came, self.arrivals, self.feed, now_ms)
            saved = record if changed == record and record.turn else self.records.save(place, changed)
            if saved is not None:
                if came.spilled and not saved.spilled:
                    self.records.delete_spilled(place)
                if command.name != "pause":
                    self.ports.call([self.bells.force(Bell(place, now_ms + ANSWERED_MS, saved.number))])
                return ""
        return f"the sink's record of {place.stream_id} changed during every try; try again"

    def _is_noted(self, command: Command, place: Place) -> bool:
        """Returns whether what a skip passes over is noted; waits for that while it is only stored."""
        end, record = self.arrivals.last_arrival(place.stream_id), self.records.read(place)
        if command.name != "skip" or end is None or record is None:
            return True
        left = unnoted_lag(self.arrivals, place.stream_id, self.feed.events, end).events
        if not command.is_all:
            left = 0 if lag(self.arrivals, place.stream_id, record).events else min(1, left)
        total = end.total + left
        for _ in range(TRIES):
            if end.total >= total:
                return True
            self.ports.sleep(NOTED_AFTER_MS)
            end = self.arrivals.last_arrival(place.stream_id) or end
        return end.total >= total

    def sweep(self) -> list[Lag]:
        """Rings each bell that is due, then returns how far the sinks are behind that have had one for longest.

        A sink that waits for a full batch has a bell as well, but a new one for each. Raises StoreUnavailable.
        """
        out, due = list[Bell](), list[Bell]()
        for bell in self.bells.read_all():
            out.append(bell)
            if bell.until_ms <= self.ports.now_ms() and (held := self._extend(bell)) is not None:
                due.append(held)
            if len(due) == GATHERED:
                self.ports.call(due)
                due = []
        self.ports.call(due)
        longest = nsmallest(MEASURED, out, key=lambda bell: bell.rung_ms)
        # There is no record before a worker has come, or while the profile is wrong.
        return [
            Lag(0, bell.rung_ms - ANSWERED_MS) if record is None else lag(self.arrivals, bell.place.stream_id, record)
            for bell, record in (
                (bell, self.records.read(bell.place._replace(label=bell.place.label.removeprefix(LATER))))
                for bell in longest
            )
        ]

    def answer(self, bell: Bell) -> None:
        """Answers a bell until nothing is left, the sink fails or the time is up; raises StoreUnavailable."""
        again: Bell | None = bell
        while again is not None:
            again = self._answer_once(again)

    def _answer_once(self, bell: Bell) -> Bell | None:
        """Answers a bell; returns the next one if more came meanwhile."""
        place, ports = bell.place, self.ports
        if place.label.startswith(LATER):
            self.ring([(Place(place.stream_id, place.label.removeprefix(LATER)), 0)])
            self.bells.end(bell)
            return None
        try:
            target = self._target(place)
        except ValueError:
            self.bells.hold(bell, ports.now_ms() + REST_MS)
            return None
        if not place.label:
            for one in (known := ports.targets(place.stream_id)):
                # A later arrival may have rung for it first; its new record begins here all the same.
                self._read_record(bell._replace(place=Place(place.stream_id, one.label)), one)
            self.ring([(Place(place.stream_id, one.label), bell.arrival) for one in known])
        if target is None:
            # The profile no longer names it.
            self.bells.end(bell)
            return None
        worker = Worker(self.bells, bell, target, self.records, self.feed, ports)
        worked = worker.run(self._read_record(bell, target))
        ports.report(place, worked)
        if worked.end == "waits":
            self.bells.hold(worker.bell, worked.until_ms)
        elif worked.end == "more" and (more := self._extend(worker.bell)) is not None:
            ports.call([more])
        elif worked.end in ("done", "paused") or (worked.end == "lost" and self.bells.find(place) is None):
            # Without a bell, this is Lambda's second try of a call that was killed after it had ended the bell.
            return self._end_and_recheck(worker.bell, worked)
        return None

    def _extend(self, bell: Bell) -> Bell | None:
        return self.bells.hold(bell, self.ports.now_ms() + ANSWERED_MS)

    def _end_and_recheck(self, bell: Bell, worked: Worked) -> Bell | None:
        """Ends the bell, then reads once more, because anything noted before found the bell out and rang none."""
        if worked.end == "paused" and not worked.record.is_replaying and not worked.record.unsent_ms:
            # For its lag once the arrivals have expired.
            oldest_ms = lag(self.arrivals, bell.place.stream_id, worked.record).oldest_ms
            self.records.save(bell.place, replace(worked.record, left_ms=oldest_ms))
        elif worked.record.all_apart and worked.end != "paused":
            self.bells.ring([Bell(bell.place.resend_place, worked.record.again_ms, 0)])
        self.bells.end(bell)
        try:
            is_due = worked.record.has_due(self.ports.now_ms())
            has_more = worked.end != "paused" and (is_due or self.feed.has_more(bell.place.stream_id, worked.record))
        except StoreUnavailable:
            has_more = True  # It may have: nobody else would ring.
        if not has_more:
            return None
        again = bell._replace(until_ms=self.ports.now_ms() + ANSWERED_MS)
        return next(iter(self.bells.ring([again], self._make_waits())), None)

    def _read_record(self, bell: Bell, target: Target) -> SinkRecord:
        """Returns the record; a new sink begins with the arrival that rang first, after what its `from` replays."""
        known = self.records.read(bell.place)
        while known is None:
            made = new_record(
                self.arrivals, bell.place, *self._first_arrival(bell), target.from_ms, self.ports.now_ms()
            )
            known = self.records.save(bell.place, made) or self.records.read(bell.place)
        return with_taken(known, self.arrivals.arrival_before(bell.place.stream_id, bell.arrival))

    def _first_arrival(self, bell: Bell) -> tuple[int, int]:
        """Returns the arrival with which a bell's new sink begins, and when that was noted, 0 if it is not known.

        It is an earlier one if the profile was wrong when that came. Without a bell (`arrival` is 0) it is one of the
        last seconds, because the call that noted it may have been killed before it rang.
        """
        earlier = self.bells.find(Place(bell.place.stream_id, ""))
        if earlier is not None and not 0 < bell.arrival < earlier.arrival:
            bell = earlier
        end = None if bell.arrival else self.arrivals.last_arrival(bell.place.stream_id)
        is_unrung = end is not None and self.ports.now_ms() < end.at_ms + ANSWERED_MS
        return (end.number if end is not None and is_unrung else bell.arrival), max(0, bell.rung_ms - ANSWERED_MS)
