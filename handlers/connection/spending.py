"""Counts what a stream has stored in a day of UTC, over all of its connections, against the budget of its profile.

The count is in the record of the newest connection, so it moves with the same conditional writes as the lease and the
cursor. The next connection continues it. In the overlap the previous connection still stores events: the next one adds
them once the previous one is released (`settled`). So each event is counted by the connection that stored it.

    connection 1   100 stored          … 104 at its end
    connection 2   claims at 100, stores 20: 120; connection 1 is released: 124

A budget of the profile or of the stage has one count for all its streams. Each connection adds to it what it has stored
itself (`counted`), once a minute and at each hundredth, and reads how much is used. So a killed connection leaves a
hundredth of it uncounted at most.

A killed connection leaves no count of what it stored after its last heartbeat. So the count is also saved once it has
grown by a hundredth of the budget (1 / STEPS), and by the write that saves the cursor. The next connection begins
behind that cursor: until the end of its predecessor is known, it counts the events that come again. While it is not
answered, and if none come again, it assumes a hundredth.

    connection 1   saves the count 100 and the cursor 100, stores 101 to 104, is killed
    connection 2   begins at 100, gets 101 to 104 again: 104; stores 105: 105

If some events of a write were known already, its bytes are counted in proportion. Pure: instants are integer
milliseconds. Invariant: a killed connection leaves at most a hundredth and its unanswered writes uncounted, and the
next one counts all of that.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from handlers.framing.events import StreamEvent
from handlers.framing.oversize import Oversize
from handlers.profile.budget_field import Budget

DAY_MS = 86_400_000
# The part of a budget at which a message is sent.
WARNING_SHARE = 0.8
# A count is saved whenever it has grown by one of so many parts of the budget.
STEPS = 100
# The ledger's word for the end of a connection whose stream pauses.
OVER_BUDGET = "over_budget"


def pause_kind(budget: Budget) -> str:
    """Returns the back-off's kind for a pause of this budget. It has the limits, so a raised one ends the pause."""
    limits = ((budget.most_events, budget.most_bytes), *((one.most_events, one.most_bytes) for one in budget.shared))
    return f"{OVER_BUDGET}:{'/'.join(str(most) for pair in limits for most in pair)}"


def is_pause(kind: str) -> bool:
    """Returns whether a back-off of that kind is a pause."""
    return kind.startswith(OVER_BUDGET)


class Spending(NamedTuple):
    """What a stream has stored on `day` (counted from 1970), and its budget, 0 for no bound; `left_out` was not stored.

    `shared_percent` of its most used shared budget are used, and `shared_owner` says whose budget that is.
    """

    day: int
    events: int = 0
    bytes: int = 0
    left_out: int = 0
    most_events: int = 0
    most_bytes: int = 0
    then: str = ""
    shared_percent: int = 0
    shared_owner: str = ""

    @property
    def own_share(self) -> float:
        """The used part of the stream's own budget: of events or of bytes, whichever is more."""
        pairs = ((self.events, self.most_events), (self.bytes, self.most_bytes))
        return max((used / most for used, most in pairs if most), default=0.0)

    @property
    def share(self) -> float:
        """The used part of the most used budget: its own, or one that it shares."""
        return max(self.own_share, self.shared_percent / 100)

    @property
    def owner(self) -> str:
        """The owner of that budget: the stream, the profile or the stage."""
        return self.shared_owner if self.shared_percent / 100 > self.own_share else "stream"

    def for_day(self, day: int) -> Spending:
        """Returns what is known of that day: nothing yet if it is a later one."""
        return self if day <= self.day else self._replace(day=day, events=0, bytes=0, left_out=0, shared_percent=0)

    def with_added(self, events: int, size: int, left_out: int) -> Spending:
        """Returns the same with these counts added."""
        return self._replace(events=self.events + events, bytes=self.bytes + size, left_out=self.left_out + left_out)

    def is_worth_saving(self, saved: Spending) -> bool:
        """Returns whether it is a hundredth of the own budget more than what is saved, and not beyond the budget."""
        known = saved.for_day(self.day)
        grown = self._replace(events=STEPS * (self.events - known.events), bytes=STEPS * (self.bytes - known.bytes))
        return self.own_share < 1 <= grown.own_share

    def to_text(self) -> str:
        """Returns it as a text, which `spending_of` reads."""
        return "/".join(map(str, self))

    def describe(self, now_ms: int) -> str:
        """Returns what to report of today; "" below four fifths of the budget."""
        now = self.for_day(now_ms // DAY_MS)
        if now.share < WARNING_SHARE:
            return ""
        limits = [f"{most:,} {unit}" for most, unit in ((now.most_events, "events"), (now.most_bytes, "bytes")) if most]
        whose = " and ".join(limits) if now.owner == "stream" else f"the {now.owner}"
        what = f"{int(100 * now.share)} % of the day's budget of {whose} is used"
        follows = {
            "sample": f"events left out: {now.left_out:,}",
            "log": "what comes is stored in a log",
            "pause": "paused until 00:00 UTC",
        }
        return what if now.share < 1 or now.then not in follows else f"{what}: {follows[now.then]}"


def spending_of(text: str) -> Spending | None:
    """Returns what `Spending.to_text` wrote; None if `text` is nothing of that kind."""
    parts = text.split("/")
    if len(parts) != len(Spending._fields) or not all(part.isdecimal() for part in (*parts[:6], parts[7])):
        return None
    day, events, size, left_out, most_events, most_bytes = map(int, parts[:6])
    return Spending(day, events, size, left_out, most_events, most_bytes, parts[6], int(parts[7]), parts[8])


class Account:
    """The counting of one connection; it is notified of each write to the store and of its answer, in order."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known = Spending(0, 0, 0, 0, budget.most_events, budget.most_bytes, budget.then)
        self.counted = (0, 0)  # the events and bytes that this connection has stored, on whichever day
        self._sizes: deque[int] = deque()  # of each unanswered write
        # The events and bytes that have come again, and that are assumed, of a predecessor without a last count.
        self._again, self._assumed = (0, 0), (0, 0)
        self._is_open = self._comes_again = False
        self._saved, self._shared = self._known, self.counted

    @property
    def spent(self) -> Spending:
        """What the stream has stored today, as far as is known."""
        if not self._is_open:
            return self._known
        events, size = map(max, self._again, self._assumed)
        return self._known.with_added(events, size, 0)

    def begin(self, before: str, *, is_open: bool, comes_again: bool) -> None:
        """Continues the count that the connection before has recorded, which `is_open` if it may have stored more.

        `comes_again` is whether the upstream sends again what it stored since.
        """
        if (found := spending_of(before)) is not None:
            self._known = self._known._replace(
                day=found.day, events=found.events, bytes=found.bytes, left_out=found.left_out
            )
            self._is_open, self._comes_again = is_open, comes_again
            self._assumed = (-(-self._budget.most_events // STEPS), -(-self._budget.most_bytes // STEPS))
        self.record_saved()

    def record_opened(self) -> None:
        """Records that the upstream has answered: from now on events come again, if any do."""
        if self._comes_again:
            self._assumed = (0, 0)

    def record_saved(self) -> None:
        """Records that the present count is saved."""
        self._saved, self._shared = self.spent, self.counted

    @property
    def is_due(self) -> bool:
        """Whether the count, or what it adds to a shared one, has grown so much that it is saved now."""
        events, size = (now - before for now, before in zip(self.counted, self._shared, strict=True))
        is_shared = self._known.shared_percent < 100 and any(one.percent(events, size) for one in self._budget.shared)
        return is_shared or self.spent.is_worth_saving(self._saved)

    def read_answer(self, now_ms: int, settled: tuple[str, str] | None, wide: tuple[int, int, str] | None) -> None:
        """Reads what an answer of the store says about the budget: `settled` and `wide` as in LeaseRead."""
        if settled is not None:
            self._add_settled(*settled)
        if wide is not None:
            day, percent, whose = wide
            self._begin_day(now_ms)
            # An answer that comes after midnight says nothing of the new day.
            if day >= self._known.day:
                self._known = self._known._replace(shared_percent=percent, shared_owner=whose)

    def _add_settled(self, known: str, final: str) -> None:
        """Adds what the connection before stored after its count was `known`, now that it is over."""
        self._is_open = False
        before, after = spending_of(known), spending_of(final)
        if after is None or after.day < self._known.day:
            return
        base = before.for_day(after.day) if before is not None else Spending(after.day)
        more = (after.events - base.events, after.bytes - base.bytes, after.left_out - base.left_out)
        self._known = self._known.for_day(after.day).with_added(*(max(0, one) for one in more))

    def _begin_day(self, now_ms: int) -> None:
        """Begins a new count on a new day."""
        if (today := self._known.for_day(now_ms // DAY_MS)) is not self._known:
            self._known, self._again, self._assumed = today, (0, 0), (0, 0)

    def record_sent(self, events: Sequence[StreamEvent], *, joins: bool) -> None:
        """Records that events are on their way, in a write of their own or in the newest (`joins`)."""
        size = sum(_size(event) for event in events)
        if joins:
            self._sizes[-1] += size
        else:
            self._sizes.append(size)

    def record_stored(self, came_ms: int, stored: int, count: int) -> None:
        """Records the answer to the oldest write: `stored` of its `count` events were new."""
        all_bytes = self._sizes.popleft()
        size = all_bytes * stored // count if count else 0
        self._begin_day(came_ms)
        self._known = self._known.with_added(stored, size, 0)
        self.counted = (self.counted[0] + stored, self.counted[1] + size)
        self._again = (self._again[0] + count - stored, self._again[1] + all_bytes - size)

    def select_events(self, now_ms: int, events: Sequence[StreamEvent]) -> tuple[StreamEvent, ...]:
        """Returns the events to store: beyond the budget only a sample, if the profile wants one.

        Their keys decide which, so two overlapping connections choose the same events.
        """
        if self._budget.then != "sample" or not self.is_used_up(now_ms):
            return tuple(events)
        kept = tuple(event for event in events if zlib.crc32(event.key.encode()) % self._budget.one_in == 0)
        self._begin_day(now_ms)
        self._known = self._known.with_added(0, 0, len(events) - len(kept))
        return kept

    def is_used_up(self, now_ms: int) -> bool:
        """Returns whether today's budget is used up."""
        return self.spent.for_day(now_ms // DAY_MS).share >= 1

    def should_switch_to_log(self, now_ms: int) -> bool:
        """Returns whether events go to a log from now on, for good."""
        return self._budget.then == "log" and self.is_used_up(now_ms)

    def pause_s(self, now_ms: int) -> float | None:
        """Returns for how long the stream pauses: until the day is over; None if it goes on."""
        if self._budget.then != "pause" or not self.is_used_up(now_ms):
            return None
        return (DAY_MS - now_ms % DAY_MS) / 1000


def _size(event: StreamEvent) -> int:
    data = event.data
    if isinstance(data, Oversize):
        return data.size_bytes
    return len(data.encode() if isinstance(data, str) else data)
