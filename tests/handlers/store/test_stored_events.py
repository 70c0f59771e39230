"""Single events in the table: what is written, when it is refused, and the effect of a lost answer."""

import pytest

from handlers.connection.inputs import Written
from handlers.errors import StoreUnavailable
from handlers.store.overflow import DUPLICATE, STORED
from handlers.store.typed_values import MAX_ITEM_BYTES
from tests.handlers.aws import (
    EVENTS,
    Client,
    Memory,
    fails_with,
    never_arrives,
)
from tests.handlers.store.events import STREAM, an_event, noise, put


def test_an_event_is_stored_with_what_the_wire_said(memory: Memory) -> None:
    """Data, id, name, instant, fence and a sortable position are stored; what the wire lacked is absent."""
    event = an_event("1", "a\nb", id="1", name="add", received_at_ms=1_700_000_000_000)
    assert put(memory.store(), STREAM, 7, 12, event) == STORED
    assert put(memory.store(), STREAM, 7, 13, an_event("2", b"\xff")) == STORED
    assert memory.items(EVENTS, STREAM) == {
        "1": {
            "PK": STREAM,
            "SK": "1",
            "data": "a\nb",
            "id": "1",
            "name": "add",
            "received_at_ms": 1_700_000_000_000,
            "fence": 7,
            "position": "001700000000000/000000000007/000000000012",
        },
        "2": {
            "PK": STREAM,
            "SK": "2",
            "data": b"\xff",
            "received_at_ms": 5,
            "fence": 7,
            "position": "000000000000005/000000000007/000000000013",
        },
    }


def test_the_first_writer_of_an_event_wins(memory: Memory) -> None:
    """A second delivery is a duplicate and changes nothing; another stream's event with this key is another event."""
    store = memory.store()
    assert put(store, STREAM, 1, 0, an_event(data="first")) == STORED
    before = memory.items(EVENTS, STREAM)
    assert put(store, STREAM, 2, 0, an_event(data="second")) == DUPLICATE
    assert memory.items(EVENTS, STREAM) == before
    assert put(store, "other", 2, 0, an_event()) == STORED


def test_a_write_answers_for_all_its_events(memory: Memory) -> None:
    """It counts stored, known and dead-lettered ones; a duplicate within the write counts as one."""
    events = [an_event("1"), an_event("2"), an_event("1"), an_event("3", noise(MAX_ITEM_BYTES))]
    assert memory.store().write(STREAM, 1, 10, events) == Written(stored=2, duplicates=1, dead_lettered=1)
    assert memory.store().write(STREAM, 2, 0, events) == Written(stored=0, duplicates=4, dead_lettered=0)
    positions = [item["position"][-2:] for item in memory.items(EVENTS, STREAM).values()]
    assert positions == ["10", "11", "13"]


def test_whatever_else_aws_refuses_or_does_not_answer_is_store_unavailable(memory: Memory) -> None:
    """The sentence names the request and AWS's code, and quotes no data, for reads and writes."""
    codes = ("ProvisionedThroughputExceededException", "InternalServerError", "AccessDeniedException")
    ways = [(fails_with(code), f"refused PutItem after its retries: {code}") for code in codes]
    for way, words in (*ways, (never_arrives, "did not answer PutItem: ReadTimeoutError")):
        with pytest.raises(StoreUnavailable, match=f"^AWS {words}$"):
            put(memory.store(Client(memory.dynamodb, "put_item", way)), STREAM, 1, 0, an_event())
    with pytest.raises(StoreUnavailable, match=r"^AWS did not answer GetItem: ReadTimeoutError$"):
        memory.store(Client(memory.dynamodb, "get_item", never_arrives)).read_lease(STREAM)
