"""Sets apart what a sink without an order refuses while it takes other events, so that nothing waits behind it.

The sink's record passes such an event and names it; some are sent again now and then. Pure except for its ports.
Invariants: an event leaves the record once the sink or the dead-letter queue has it, or it is gone from the table; a
refused one goes to the queue only if the sink has taken a newer one since, so a sink that is away keeps everything,
and gets all of it for another day once it is back.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from handlers.deliver.arrivals import Arrival, Arrivals
from handlers.deliver.contract import Message
from handlers.deliver.delivery_records import MOST_APART, Apart, SinkRecord
from handlers.deliver.sending import PARALLEL, Outcomes, rest_ms

# If a sink took some messages, the others are sent again this soon. What is set apart is sent again within a minute,
# or as many times later as its requests took, because all others wait for these. A day later it is poison.
PART_REST_MS, AGAIN_MS, RARELY, REFUSED_MS = 250, 50_000, 9, 86_400_000


def places_of(arrivals: Arrivals, stream_id: str, messages: Sequence[Message], now_ms: int) -> list[Apart]:
    """Returns where the events of arrivals lie, which are set apart now; raises StoreUnavailable."""
    places, arrival = list[Apart](), Arrival(0, 0, 0, 0, "")
    for message in messages:
        assert not isinstance(message.step, str)
        number, at = message.step
        if arrival.number != number:
            (arrival,) = arrivals.arrivals_from(stream_id, number, 1)
        entry, before, _ = arrival.entries_from(at - 1)[0]
        places.append(Apart(entry, at - before, now_ms))
    return places


def resend_set_apart(
    record: SinkRecord,
    now_ms: Callable[[], int],
    read: Callable[[Sequence[Apart]], Iterable[tuple[Apart, Message | None]]],
    send: Callable[[Sequence[Message]], Outcomes],
    bury: Callable[[Message, str], bool],
) -> SinkRecord:
    """Sends the next events that are set apart, as many as one round of requests may have; returns the record.

    Once none of them waits, the next are due at once. `read` leaves out events that are gone, and has None for one that
    cannot be read; `bury` returns whether the dead-letter queue took an event.
    """
    several, began_ms = record.set_apart, now_ms()
    found = list(read(several[:PARALLEL]))
    since_ms = {message: one.since_ms for one, message in found}
    outcomes = send([message for _, message in found if message is not None])
    at_ms = now_ms()
    over = [
        (message, f"refused for a day, unlike newer events: {refusal.reason}")
        for message, refusal in outcomes.waiting
        if since_ms[message] < record.newest_ms and max(since_ms[message], record.back_ms) < at_ms - REFUSED_MS
    ]
    buried = [message for message, reason in (*outcomes.poison, *over) if bury(message, reason)]
    waits = [one for one, message in found if message not in (*outcomes.taken, *buried)]
    left = [*several[PARALLEL:], *waits]
    failures = 0 if outcomes.taken or not waits else record.apart_failures + 1
    back_off_ms = max(min(rest_ms(failures), AGAIN_MS), RARELY * (at_ms - began_ms)) if failures else PART_REST_MS
    changed = record.with_set_apart(left, at_ms + back_off_ms if waits else at_ms)
    return replace(
        changed,
        delivered=record.delivered + len(outcomes.taken),
        dead_lettered=record.dead_lettered + len(buried),
        failed=record.failed + len(outcomes.waiting),
        waits=next((refusal.reason for refusal in outcomes.refusals), record.waits) if left else "",
        at_ms=at_ms,
        rest_until_ms=max(record.rest_until_ms, at_ms + outcomes.rest_ms),
        apart_failures=failures,
        is_crowded=record.is_crowded and changed.all_apart >= MOST_APART,
    )
