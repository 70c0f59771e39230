"""Sets apart what a sink without an order refuses while it takes later events, so that nothing waits behind it.

The sink's record passes such an event and names it; each minute some are sent again. Pure except for its ports.
Invariants: an event leaves the record once the sink or the dead-letter queue has it, or it is gone from the table; a
refused one goes to the queue only if the sink has taken a newer one since, so a sink that is away keeps everything.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import field, replace

from handlers.deliver.contract import Message
from handlers.deliver.delivery_records import Apart, SinkRecord
from handlers.deliver.feed import Page
from handlers.deliver.sending import LATE, PARALLEL, SHORT_RESTS_MS, Outcomes
from handlers.values import dataclass

# How many events may be set apart, before others wait for them, if the sink refuses most; otherwise their characters in
# the record are bounded, which is enough for a thousand events: DynamoDB refuses an item of 400 KB. How often they are
# sent again, and for how long.
MOST_APART, MOST_CHARACTERS = 50, 100_000
AGAIN_MS, REFUSED_MS = 60_000, 86_400_000
Name = tuple[str, str]


@dataclass
class RefusedEvents:
    """What a worker's sink has refused, and since when."""

    _since_ms: dict[Name, int] = field(default_factory=dict)

    def to_set_apart(self, page: Page, outcomes: Outcomes, finished: Container[Name], now_ms: int) -> list[Message]:
        """Returns the first events that the sink refused in all short back-offs, while it took later ones.

        `finished` are those that it took. In a replay, which a person watches, none is passed. A sink that refuses more
        than it takes may have too much to do, so there more of them wait.
        """
        for one, refusal in outcomes.waiting:
            if refusal is not LATE:
                self._since_ms.setdefault((one.key, one.position), now_ms)
        names = [(one.key, one.position) for one in page.messages]
        last = max((at for at, name in enumerate(names) if name in finished), default=0)
        passed = list[Message]()
        for one, name in zip(page.messages[:last], names, strict=False):
            if name not in finished:
                if page.begin.is_replaying or now_ms - self._since_ms.get(name, now_ms) < sum(SHORT_RESTS_MS):
                    break
                passed.append(one)
        took_most = len(passed) <= sum(name in finished for name in names)
        known = 0 if took_most and len(page.begin.apart) < MOST_CHARACTERS else len(page.begin.set_apart)
        return passed[: max(0, MOST_APART - known)]


def resend_set_apart(
    record: SinkRecord,
    now_ms: int,
    read: Callable[[Sequence[Apart]], Iterable[tuple[Apart, Message | None]]],
    send: Callable[[Sequence[Message]], Outcomes],
    bury: Callable[[Message, str], bool],
) -> SinkRecord:
    """Sends the events whose last try is longest ago, as many as one round of requests may have; returns the record.

    Once none of them waits, the next are due at once. `read` leaves out events that are gone, and has None for one that
    cannot be read; `bury` returns whether the dead-letter queue took an event.
    """
    several = record.set_apart
    found = list(read(several[:PARALLEL]))
    since_ms = {message: one.since_ms for one, message in found}
    outcomes = send([message for _, message in found if message is not None])
    over = [
        (message, f"refused for a day, unlike newer events: {refusal.reason}")
        for message, refusal in outcomes.waiting
        if since_ms[message] < min(now_ms - REFUSED_MS, record.newest_ms)
    ]
    buried = [message for message, reason in (*outcomes.poison, *over) if bury(message, reason)]
    waits = [one for one, message in found if message not in (*outcomes.taken, *buried)]
    left = [*several[PARALLEL:], *waits]
    return replace(
        record.with_set_apart(left, now_ms + AGAIN_MS if waits else now_ms),
        delivered=record.delivered + len(outcomes.taken),
        dead_lettered=record.dead_lettered + len(buried),
        failed=record.failed + len(outcomes.waiting),
        waits=next((refusal.reason for refusal in outcomes.refusals), record.waits) if left else "",
        at_ms=now_ms,
    )
