"""Events from the dead-letter queue are put back into the embedded tables."""

from collections.abc import Callable
from typing import Any

import pytest

from handlers.connection.inputs import IN_A_LOG, Layout
from handlers.framing.events import StreamEvent
from handlers.redrive.restore import KNOWN, STORED, UNNUMBERED, Events, NotStored
from handlers.store.event_items import StoragePolicy
from handlers.store.event_reader import EventReader
from handlers.store.overflow import Objects
from tests.handlers.aws import BUCKET, EVENTS, Aws, Client, fail_with
from tests.handlers.store.events import STREAM, an_event, noise

LARGE = noise(600_000)


@pytest.fixture
def events(aws: Aws) -> Events:
    """The table and the bucket, as deployed."""
    return Events(aws.dynamodb, EVENTS, Objects(lambda: aws.s3, BUCKET))


def events_of(aws: Aws, stream_id: str) -> list[tuple[str, Any, str | None]]:
    """Returns key, body and dead-letter reason of a stream's events, in the API's order."""
    reader = EventReader(aws.dynamodb, EVENTS, Objects(lambda: aws.s3, BUCKET).find)
    entries = reader.entries(stream_id, Layout(), 10**9, "", 100, most_bytes=10**7)
    return [(one.key, one.data, one.dead_letter) for entry in entries if (one := entry.event) is not None]


def write_marks(aws: Aws, *events: StreamEvent, **policy: Any) -> None:
    """Writes events as a connection without a bucket does: a mark takes the place of a large one."""
    aws.store().write(STREAM, 3, 7, events, StoragePolicy(**policy))


def test_an_event_takes_the_place_of_its_mark(aws: Aws, events: Events) -> None:
    """The event has its body, id and name, between the events before and after it; then it is known."""
    event = an_event("b", LARGE, id="2", name="big")
    write_marks(aws, an_event("a"), event, an_event("c"), keep_days=3650)
    before = aws.items(EVENTS, STREAM)["b"]
    assert events.outcome(STREAM, 3, event, Layout(1), dry_run=True) == STORED
    assert aws.items(EVENTS, STREAM)["b"] == before
    assert events.outcome(STREAM, 3, event, Layout(1), dry_run=False) == STORED
    assert events.outcome(STREAM, 3, event, Layout(1), dry_run=False) == KNOWN
    after = aws.items(EVENTS, STREAM)["b"]
    assert before.pop("dead_letter").startswith("too large")
    assert before.pop("body_sum") > 0
    added = {"id": "2", "name": "big", "encoding": "binary", "object": next(iter(aws.objects()))}
    assert after == before | added
    assert events_of(aws, STREAM) == [("a", "a", None), ("b", LARGE, None), ("c", "a", None)]


def test_a_small_event_needs_no_bucket(aws: Aws, events: Events) -> None:
    """An event that DynamoDB refused once is written like any other."""
    event = an_event("b", "x" * 5000)
    aws.store(Client(aws.dynamodb, "put_item", fail_with("ValidationException"))).write(STREAM, 3, 7, [event])
    assert events.outcome(STREAM, 3, event, Layout(1), dry_run=False) == STORED
    assert events_of(aws, STREAM) == [("b", "x" * 5000, None)]


def test_an_event_without_a_mark_is_stored_after_events_of_its_instant(aws: Aws, events: Events) -> None:
    """A mark is missing if a function sent the event and was killed before it wrote the mark."""
    write_marks(aws, an_event("a"))
    assert events.outcome(STREAM, 3, an_event("b"), Layout(1), dry_run=False) == STORED
    *_, number = aws.items(EVENTS, STREAM)["b"]["position"].split("/")
    assert int(number) >= UNNUMBERED
    assert [key for key, *_ in events_of(aws, STREAM)] == ["a", "b"]


def test_a_stored_event_is_never_overwritten(aws: Aws, events: Events) -> None:
    """The same event is known; another body under its key is left to a person."""
    write_marks(aws, an_event("a", "first"))
    assert events.outcome(STREAM, 3, an_event("a", "first"), Layout(1), dry_run=False) == KNOWN
    with pytest.raises(NotStored, match=r"^another body is stored under its key$"):
        events.outcome(STREAM, 3, an_event("a", "second"), Layout(1), dry_run=False)
    assert events_of(aws, STREAM) == [("a", "first", None)]


def test_an_event_that_a_connection_stores_meanwhile_is_kept(aws: Aws) -> None:
    """If a connection stores the event between the read and the write, its item stays, and the event is there once."""
    event = an_event("a", "x")

    def stored_meanwhile(call: Callable[..., Any], **parameters: Any) -> Any:
        aws.store().write(STREAM, 4, 0, [event])
        return call(**parameters)

    racing = Client(aws.dynamodb, "put_item", stored_meanwhile)
    events = Events(racing, EVENTS, Objects(lambda: aws.s3, BUCKET))
    assert events.outcome(STREAM, 3, event, Layout(1), dry_run=False) == KNOWN
    assert aws.items(EVENTS, STREAM)["a"]["fence"] == 4


def test_a_restored_event_lies_in_the_partition_of_its_key(aws: Aws, events: Events) -> None:
    """In a stream with several partitions, the mark is found, and duplicates are found later."""
    event = an_event("b", LARGE)
    write_marks(aws, event, partitions=4)
    assert events.outcome(STREAM, 3, event, Layout(4), dry_run=False) == STORED
    assert aws.store(bucket=BUCKET).write(STREAM, 5, 0, [event], StoragePolicy(4)).duplicates == 1


def test_a_restored_event_without_an_order_stays_out_of_the_index(aws: Aws, events: Events) -> None:
    """The event takes over its mark's attributes, with a place in the index if the stream once had an order."""
    marked, indexed, fresh = (an_event(key, LARGE) for key in ("b", "c", "d"))
    write_marks(aws, marked, order="none")
    write_marks(aws, indexed)
    for event in (marked, indexed, fresh):
        assert events.outcome(STREAM, 3, event, Layout(1, "none"), dry_run=False) == STORED
        assert events.outcome(STREAM, 3, event, Layout(1, "none"), dry_run=False) == KNOWN
    items = aws.items(EVENTS, STREAM)
    assert {key: ("position" in item, "arrival" in item) for key, item in items.items()} == {
        "b": (False, True),
        "c": (True, False),
        "d": (False, True),
    }


def test_an_event_takes_the_place_of_its_mark_in_a_log(aws: Aws, events: Events) -> None:
    """In a log, too, an event gets its body and id, in its mark's place, and only once."""
    event = an_event("b", LARGE, id="2", name="big")
    log = aws.store().log_writer(STREAM, 3, lambda: 5, window_ms=900_000, keep_days=3650)
    log.write(0, [an_event("a"), event, an_event("c")])

    def read() -> list[tuple[str, Any, str | None]]:
        entries = EventReader(aws.dynamodb, EVENTS, Objects(lambda: aws.s3, BUCKET).find).entries(
            STREAM, IN_A_LOG, 10**9, "", 100
        )
        return [(one.key, one.data, one.id) for entry in entries if (one := entry.event) is not None]

    assert read() == [("a", "a", None), ("b", None, None), ("c", "a", None)]
    before = aws.items(EVENTS, f"{STREAM}#log")["segment#000000000002"]
    assert not events.has_event(STREAM, "b", IN_A_LOG)
    assert events.outcome(STREAM, 3, event, IN_A_LOG, dry_run=True) == STORED
    assert not events.has_event(STREAM, "b", IN_A_LOG)
    assert events.outcome(STREAM, 3, event, IN_A_LOG, dry_run=False) == STORED
    assert events.outcome(STREAM, 3, event, IN_A_LOG, dry_run=False) == KNOWN
    assert events.has_event(STREAM, "b", IN_A_LOG)
    after = aws.items(EVENTS, f"{STREAM}#log")["segment#000000000002"]
    assert {name for name in before if before[name] != after.get(name)} == {"data", "dead_letter"}
    assert read() == [("a", "a", None), ("b", LARGE, "2"), ("c", "a", None)]
    with pytest.raises(NotStored, match="another body is stored under its key"):
        events.outcome(STREAM, 3, an_event("a", "other"), IN_A_LOG, dry_run=False)
    with pytest.raises(NotStored, match="has no mark of it"):
        events.outcome(STREAM, 3, an_event("d"), IN_A_LOG, dry_run=False)


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_event_whose_id_is_too_large_for_a_segment_stays_queued(aws: Aws, events: Events, dry_run: bool) -> None:
    """An id that is too large is refused by name before the table refuses it."""
    event = an_event("b", "body", id=noise(500_000).hex())
    aws.store().log_writer(STREAM, 3, lambda: 5, window_ms=900_000, keep_days=0).write(0, [event])
    with pytest.raises(NotStored, match="its id and its name are too large for a segment"):
        events.outcome(STREAM, 3, event, IN_A_LOG, dry_run=dry_run)
    assert not events.has_event(STREAM, "b", IN_A_LOG)
