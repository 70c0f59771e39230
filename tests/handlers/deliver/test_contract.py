"""Every sink keeps the same contract, with a real consumer behind a proxy that fails."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from handlers.deliver import contract
from handlers.deliver.contract import Tools
from handlers.deliver.table_records import decode_image
from handlers.profile.deliver_field import KINDS, Target
from tests.handlers.deliver import rigs
from tests.handlers.deliver.records import NOW_MS, event, item_record, segment_record
from tests.handlers.deliver.rigs import Rig
from tests.handlers.deliver.stage import Stage

# The poison for a bucket and a function has megabytes.
SMALL_POISON = [pytest.param(kind, marks=pytest.mark.long) if kind in rigs.POISON else kind for kind in KINDS]
SMALL_POISON += ["sqs by 2"]
# One kind for each order that a sink may keep; the other kinds behave alike.
ORDERS = ("sqs", "eventbridge", "s3", "webhook", "sqs by 2")
BATCHED = ("sqs by 2", "kinesis by 2", "webhook by 2")
OF_EACH_ORDER = [kind if kind in ORDERS else pytest.param(kind, marks=pytest.mark.long) for kind in (*KINDS, *BATCHED)]


@pytest.fixture(params=OF_EACH_ORDER)
def rig(request: pytest.FixtureRequest, endpoint: str) -> Iterator[Rig]:
    """Yield each kind of sink in turn, some with batches; the embedded AWS plays the services."""
    kind, _, batch = request.param.partition(" by ")
    with rigs.rig(kind, endpoint, f"rig-{uuid.uuid4().hex[:12]}", int(batch or 1)) as made:
        yield made


class Deliverer(Stage):
    """A stage whose sink is a real consumer."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        super().__init__(rig.target)

    def _sending(self, target: Target) -> Any:
        return contract.make_sender(target, Tools(self.rig.client, lambda _: rigs.SECRET, lambda: self.clock.now_ms))

    def brought(self, records: list[dict[str, Any]]) -> None:
        """Let Lambda bring records, whose items are stored."""
        for one in records:
            self.client.put_item(TableName="events", Item=decode_image(one["dynamodb"]["NewImage"]))
        self.virtual.schedule(self.clock.now_ms, lambda: self.virtual.delivery.note(records))

    def delivers(self, for_s: float = 600) -> bool:
        """Let this time pass; return whether nothing is left to do."""
        self.run(for_s)
        return self.is_over


def made(count: int = 6, streams: str = "ab") -> list[dict[str, Any]]:
    """Return records of two streams: items of the first, segments of two events of the second."""
    records = []
    for n in range(count):
        stream_id = f"rig:{streams[n % len(streams)]}"
        if n % 2:
            records.append(segment_record(stream_id, [event(f"{n}-0"), event(f"{n}-1")], n))
        else:
            records.append(item_record(stream_id, event(str(n), at_ms=NOW_MS + n), n))
    return records


KEYS = {"rig:a": ["0", "2", "4"], "rig:b": ["1-0", "1-1", "3-0", "3-1", "5-0", "5-1"]}


def by_stream(rig: Rig, *, once: bool) -> dict[str, list[str]]:
    """Return the arrived keys by stream, in order of first arrival, or sorted if the sink keeps no order."""
    keys: dict[str, list[str]] = {}
    for one in rig.received():
        keys.setdefault(one["stream"], []).append(one["key"])
    if not once:
        keys = {stream_id: list(dict.fromkeys(several)) for stream_id, several in keys.items()}
    if contract.sink_module(rig.target.kind).PROMISES.order == "none":
        keys = {stream_id: sorted(several) for stream_id, several in keys.items()}
    return dict(sorted(keys.items()))


@pytest.mark.parametrize("rig", [kind for kind in (*KINDS, *BATCHED) if kind not in ORDERS], indirect=True)
def test_events_arrive_once_and_in_order(rig: Rig) -> None:
    """Items and segments arrive alike, each event once with its key and stream; other kinds show it below."""
    deliverer = Deliverer(rig)
    deliverer.brought(made())
    assert deliverer.delivers()
    assert (by_stream(rig, once=True), deliverer.letters) == (KEYS, [])


def test_a_batch_that_fails_in_part_keeps_the_order(rig: Rig) -> None:
    """Refused events are sent again before the events that follow them; accepted events are not."""
    deliverer = Deliverer(rig)
    rig.proxy.faults = ["part", "part"]
    deliverer.brought(made())
    assert deliverer.delivers()
    assert (by_stream(rig, once=True), deliverer.letters) == (KEYS, [])


@pytest.mark.parametrize("rig", SMALL_POISON, indirect=True)
def test_a_poison_event_goes_to_the_dead_letter_queue(rig: Rig) -> None:
    """An event that the sink never accepts goes to the dead-letter queue; the events after it arrive."""
    deliverer = Deliverer(rig)
    records = made()
    records.insert(3, item_record("rig:a", event("poison", rig.poison, at_ms=NOW_MS + 3), 2))
    deliverer.brought(records)
    assert deliverer.delivers()
    assert by_stream(rig, once=True) == KEYS
    assert [(letter.stream_id, letter.key, letter.label) for letter in deliverer.letters] == [
        ("rig:a", "poison", rig.target.label)
    ]


@pytest.mark.parametrize("away_s", [120, pytest.param(3600, marks=pytest.mark.long)])
def test_a_sink_that_was_away_gets_everything(rig: Rig, away_s: int) -> None:
    """A sink that was away gets every event within six minutes; meanwhile none is a dead letter, and the lag shows."""
    deliverer = Deliverer(rig)
    rig.proxy.is_away = True
    deliverer.brought(made())
    assert not deliverer.delivers(away_s)
    assert {behind.events for behind in deliverer.virtual.delivery.sweep()} == {3, 6}
    rig.proxy.is_away = False
    assert deliverer.delivers(361)
    assert (by_stream(rig, once=True), deliverer.letters) == (KEYS, [])


def test_a_redeployment_loses_nothing(rig: Rig) -> None:
    """A new sandbox continues from the saved place; a repeated event has the same key."""
    deliverer = Deliverer(rig)
    rig.proxy.faults = ["part"]
    deliverer.brought(made())
    deliverer.run(0.03)
    deliverer.virtual.restart()
    deliverer.brought(made())
    assert deliverer.delivers()
    assert by_stream(rig, once=rig.target.kind == "sqs") == KEYS


def test_a_kill_between_sending_and_remembering_repeats_the_key(rig: Rig) -> None:
    """An event that arrived without being recorded is sent again under its key, so the consumer can drop it."""
    deliverer = Deliverer(rig)
    rig.proxy.faults = ["unanswered"]
    deliverer.brought(made())
    assert deliverer.delivers()
    # A FIFO queue drops the second by its deduplication id, and a bucket has the same object again.
    assert by_stream(rig, once=rig.target.kind in ("sqs", "s3")) == KEYS
