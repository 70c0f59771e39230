"""Events that are too large for an item, in memory: each goes whole to the dead-letter queue."""

import base64
import json
from typing import Any

import pytest

from handlers.connection.inputs import Written
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.framing.oversize import HEAD_BYTES, Oversize
from handlers.segments.known_keys import body_sum
from handlers.store.event_items import event_item
from handlers.store.overflow import DEAD_LETTERED, DUPLICATE, STORED
from handlers.store.typed_values import MAX_ITEM_BYTES, size_bytes
from tests.handlers.aws import EVENTS, Aws, Client, Memory, fail_with
from tests.handlers.store.events import STREAM, an_event, noise, put


def joined(messages: list[dict[str, Any]]) -> Any:
    """Return the event that the parts of one message make up."""
    parts = sorted(messages, key=lambda message: message["part"])
    assert [message["part"] for message in parts] == list(range(1, parts[0]["parts"] + 1))
    return json.loads(b"".join(base64.b64decode(message["event_base64"]) for message in parts))


def letter(fence: int, key: str, reason: str, event: dict[str, Any]) -> dict[str, Any]:
    """Return the message of an event that needs no parts."""
    return {"stream": STREAM, "fence": fence, "reason": reason, "key": key, "part": 1, "parts": 1, "event": event}


def test_an_event_that_no_item_holds_goes_whole_to_the_queue(memory: Memory) -> None:
    """A large event goes to the queue in parts, and a mark takes its place; an event that fits is stored."""
    fits, too_large = "é" * 200_000, "\x00é😀" + noise(600_000).hex()
    assert put(memory.store(), STREAM, 1, 0, an_event("fits", fits)) == STORED
    over = an_event("over", too_large, id="7", name="big")
    assert put(memory.store(), STREAM, 1, 1, over) == DEAD_LETTERED
    messages = memory.dead_letters()
    assert joined(messages) == {"id": "7", "name": "big", "received_at_ms": 5, "encoding": "text", "data": too_large}
    reason = f"too large for an item: {size_bytes(event_item(STREAM, 1, 1, over))} bytes"
    assert {(message["stream"], message["key"], message["fence"], message["reason"]) for message in messages} == {
        (STREAM, "over", 1, reason)
    }
    position = "000000000000005/000000000001/000000000001"
    stored = {"PK": STREAM, "SK": "over", "received_at_ms": 5, "fence": 1, "position": position}
    assert memory.items(EVENTS, STREAM)["over"] == stored | {"dead_letter": reason, "body_sum": body_sum(over)}


def test_an_items_size_is_its_names_and_values_in_utf_8() -> None:
    """A size counts names and values in UTF-8, as DynamoDB does, and each number at its largest."""
    fields = {"PK": "demo", "SK": "ü", "data": "é😀", "position": "0" * 41, "id": "1", "name": "add"}
    texts = sum(len(name) + len(value.encode()) for name, value in fields.items())
    numbers = len("received_at_ms") + 21 + len("fence") + 21
    assert size_bytes(event_item("demo", 1, 0, an_event("ü", "é😀", id="1", name="add"))) == texts + numbers
    assert size_bytes({"data": {"B": b"\xff\xfe"}}) == 6
    assert MAX_ITEM_BYTES == 409_600


def test_a_dead_letter_message_is_sent_once(memory: Memory) -> None:
    """The next connection that gets the same event finds the mark and sends nothing."""
    event = an_event(data=noise(MAX_ITEM_BYTES))
    assert put(memory.store(), STREAM, 1, 0, event) == DEAD_LETTERED
    sent = joined(memory.dead_letters())
    assert (sent["encoding"], base64.b64decode(sent["data"])) == ("base64", event.data)
    assert put(memory.store(), STREAM, 2, 0, event) == DUPLICATE
    assert memory.dead_letters() == []


def test_an_event_that_dynamodb_refuses_goes_to_the_queue(memory: Memory) -> None:
    """A small event that DynamoDB refuses as invalid becomes one readable message."""
    store = memory.store(Client(memory.dynamodb, "put_item", fail_with("ValidationException")))
    assert put(store, STREAM, 3, 0, an_event(data="é")) == DEAD_LETTERED
    (message,) = memory.dead_letters()
    event = {"id": None, "name": None, "received_at_ms": 5, "encoding": "text", "data": "é"}
    assert message == letter(3, "1", "refused by DynamoDB: ValidationException", event)


def test_the_head_of_a_frame_that_was_too_long_goes_to_the_queue(memory: Memory) -> None:
    """One message has the frame's size, SHA-256 and beginning, with any id and name; a mark takes the event's place."""
    body = Oversize(5_000_000, "ab" * 32, noise(HEAD_BYTES))
    event = StreamEvent("7", body, "7", "big", "7", 5)
    assert memory.store().write(STREAM, 1, 0, [event, an_event("8")]) == Written(1, 0, 1)
    (message,) = memory.dead_letters()
    assert base64.b64decode(message["event"].pop("head")) == body.head
    left = {"size_bytes": 5_000_000, "sha256": "ab" * 32, "encoding": "base64", "is_whole": True}
    named = {"id": "7", "name": "big", "received_at_ms": 5}
    assert message == letter(1, "7", "longer than max_frame_bytes: 5000000 bytes", named | left)
    assert memory.items(EVENTS, STREAM)["7"]["dead_letter"] == "longer than max_frame_bytes: 5000000 bytes"
    assert memory.store().write(STREAM, 2, 0, [event]) == Written(0, 1, 0)
    assert memory.dead_letters() == []


def test_the_letter_of_a_frame_that_had_not_ended_says_so(memory: Memory) -> None:
    """The reason and the message say that the frame had not ended, even if an id fills the message."""
    event = StreamEvent("k", Oversize(9, "c" * 64, b"\0" * 9, is_whole=False), "é" * 70_000, None, None, 5)
    assert memory.store().write(STREAM, 1, 0, [event]) == Written(0, 0, 1)
    messages = memory.dead_letters()
    assert joined(messages)["is_whole"] is False
    reason = "longer than max_frame_bytes: 9 bytes until the connection ended"
    assert {message["reason"] for message in messages} == {reason}


def test_without_a_queue_the_event_is_not_dropped(aws: Aws) -> None:
    """If the queue refuses the message, the store is unavailable and no mark claims that the event was handled."""
    aws.sqs.delete_queue(QueueUrl=aws.queue_url)
    with pytest.raises(StoreUnavailable, match=r"^AWS refused SendMessage after its retries: "):
        put(aws.store(), STREAM, 1, 0, an_event(data=noise(MAX_ITEM_BYTES)))
    assert aws.items(EVENTS, STREAM) == {}
