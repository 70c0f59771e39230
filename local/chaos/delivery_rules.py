"""Decides whether a run's events were delivered: finds missing, late, overtaken, forged and wrongly buried events.

It reads the tables with the readers' code, not with that of the delivery. Invariant: a violation is one sentence with
the sink and the key.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from handlers.deliver import contract
from handlers.deliver.bells import ANSWERED_MS, Place
from handlers.deliver.worker import SLEPT_MS
from handlers.profile.deliver_field import Target
from handlers.store.event_items import StoredEvent, stream_of, to_stored_event
from handlers.store.segment_reader import LOG_SUFFIX, is_segment, stored_events
from local.chaos.delivery_run import POLL_MS, Delivery
from local.simulation.table_stream import Write
from local.simulation.virtual_delivery import SWEEP_MS

COUNTED = ("undelivered", "overtaken", "forged", "buried", "delayed")
# The faults that delay every sink: lost calls, and a dead-letter queue that refuses poison.
_EVERYBODYS = {"no queue", "lost bells"}
# How long, besides the longest request, a call that died may keep its place waiting: until the place is due and a sweep
# comes.
_UNANSWERED_MS = SLEPT_MS + ANSWERED_MS + SWEEP_MS
# How long an event may wait at a sink without a fault.
DELAY_MS = 1_000
Name = tuple[str, str]  # stream and key


class _Stored(NamedTuple):
    """A stored event, with the instant, the shards and the partition of its first write."""

    event: StoredEvent
    name: Name
    at_ms: int
    shards: tuple[int, ...]
    partition: str


def find_violations(delivery: Delivery) -> list[tuple[str, str]]:
    """Returns the violations, each with its kind, one of COUNTED."""
    stored = _stored_events(delivery)
    texts = [("forged", text) for text in delivery.sinks.misused]
    if not delivery.is_over:
        texts.append(("undelivered", "Lambda calls again and again, and comes to no end"))
    for target in delivery.plan.targets:
        arrived: dict[Name, int] = {}
        for at, (label, event, _) in enumerate(delivery.sinks.arrived):
            if label == target.label:
                name = event["stream"], event["key"]
                arrived.setdefault(name, at)
                if not _is_whole(event, stored.get(name)):
                    texts.append(("forged", f"{label} has another {name} than the table"))
        texts += _missing_events(delivery, target, stored, arrived)
        if contract.sink_module(target.kind).PROMISES.order != "none" and target.in_order:
            texts += _overtaking_events(target, stored, arrived)
        texts += _delayed_events(delivery, target, stored, arrived)
    return texts


def _stored_events(delivery: Delivery) -> dict[Name, _Stored]:
    """Returns every event that was ever stored, in the order of the writes."""
    writes = sorted(
        ((write, shard) for shard in delivery.shards for write in shard.writes), key=lambda one: one[0].number
    )
    stored: dict[Name, _Stored] = {}
    for write, shard in writes:
        for event in _events(write):
            name = stream_of(write.item), event.key
            if event.dead_letter is None and name not in stored:
                stored[name] = _Stored(event, name, write.at_ms, shard.lineage, write.key[0])
    return stored


def _events(write: Write) -> Iterator[StoredEvent]:
    if not write.key[0].endswith(LOG_SUFFIX):
        yield to_stored_event(write.item, _no_object)
    elif is_segment(write.item):
        yield from stored_events(write.item, _no_object)


def _no_object(_key: str) -> None:
    return None


def _is_whole(event: dict[str, str], stored: _Stored | None) -> bool:
    """Returns whether an event arrived as it was stored; all events of chaos are text."""
    if stored is None:
        return False
    one = stored.event
    return (event["position"], event.get("data"), event.get("id")) == (one.position, one.data, one.id)


def _missing_events(
    delivery: Delivery, target: Target, stored: dict[Name, _Stored], arrived: dict[Name, int]
) -> Iterator[tuple[str, str]]:
    """Yields the events that neither the sink nor the queue has, and those in the queue without a reason."""
    letters = {(one.stream_id, one.key): one for one, _ in delivery.letters if one.label == target.label}
    for name in stored:
        if name not in arrived and name not in letters:
            yield "undelivered", f"{target.label} never got {name}, nor did the dead-letter queue"
    for name, letter in letters.items():
        if name not in stored:
            yield "forged", f"the dead-letter queue has {name}, which was never stored"
            continue
        if name not in delivery.sinks.poison:
            yield "buried", f"{target.label} would have taken {name}: {letter.reason}"


def _delayed_events(
    delivery: Delivery, target: Target, stored: dict[Name, _Stored], arrived: dict[Name, int]
) -> Iterator[tuple[str, str]]:
    """Yields the events that came late to a sink without a fault and without other work.

    A sink takes the events of a stream one after the other, so an event's time counts from the one before it, or from
    when Lambda could bring it. A dead call of the worker excuses its own place, any other dead call every place.
    """
    plan = delivery.plan
    hits = [
        one.at_ms for one in plan.faults if one.kind in _EVERYBODYS or (one.for_ms and plan.victim(one) == target.label)
    ]
    hit_ms = delivery.origin_ms + min(hits, default=sys.maxsize)
    free_ms: dict[str, int] = {}
    dead_ms = _UNANSWERED_MS + contract.sink_module(target.kind).PROMISES.longest_ms + DELAY_MS
    for name, at in sorted(arrived.items(), key=lambda one: one[1]):
        arrived_ms, one = delivery.sinks.arrived[at][2], stored.get(name)
        if one is None:
            continue
        if arrived_ms >= hit_ms:
            return
        since_ms = max(one.at_ms + POLL_MS, free_ms.get(name[0], 0)) + target.wait_ms
        place = Place(name[0], target.label)
        has_died = any(of in (place, None) and 0 <= arrived_ms - ms <= dead_ms for ms, of in delivery.deaths)
        if arrived_ms - since_ms > DELAY_MS and not has_died:
            yield "delayed", f"{target.label} got {name} {arrived_ms - since_ms} ms late, and another sink is at fault"
        free_ms[name[0]] = max(arrived_ms, free_ms.get(name[0], 0))


def _overtaking_events(
    target: Target, stored: dict[Name, _Stored], arrived: dict[Name, int]
) -> Iterator[tuple[str, str]]:
    """Yields the events that overtook another with a lower position, written to the same line of shards."""
    before: dict[Name, list[tuple[int, _Stored]]] = {}
    for name, one in stored.items():
        at = arrived.get(name)
        if at is None:
            continue  # poison, or given up: other events do not wait for it
        earlier = before.setdefault((one.name[0], one.partition), [])
        for latest, other in reversed(earlier):
            if latest < at:
                break
            is_one_line = other.shards == one.shards[: len(other.shards)]
            if arrived[other.name] > at and other.event.position < one.event.position and is_one_line:
                yield "overtaken", f"{target.label} got {name} before {other.name}"
                break
        # The entry beside each event is the latest arrival so far: if it is before `at`, all arrivals are.
        earlier.append((max(at, earlier[-1][0]) if earlier else at, one))
