"""One key with two bodies, in memory: the first stays and a counter rises, or both are stored."""

import hashlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handlers.connection.inputs import Written
from handlers.errors import StoreUnavailable
from handlers.framing.events import MAX_KEY_BYTES, StreamEvent
from handlers.framing.oversize import Oversize
from handlers.store.conflicts import MOST_KEYS, _conflict_key
from handlers.store.event_items import StoragePolicy, partition_keys
from handlers.store.typed_values import MAX_ITEM_BYTES
from tests.examples import examples
from tests.handlers.aws import BUCKET, EVENTS, Client, CountingClient, Memory, fail_with, send_twice
from tests.handlers.store.events import noise

STREAM = "demo"
FIRST, BOTH = (StoragePolicy(on_conflict=policy) for policy in ("first", "both"))


def event(key: str, data: str | bytes | Oversize, name: str | None = None, at_ms: int = 5) -> StreamEvent:
    return StreamEvent(key, data, key, name, None, at_ms)


def bodies(memory: Memory, stream_id: str = STREAM) -> dict[str, Any]:
    """Return the stored bodies by key."""
    return {key: item.get("data") for key, item in memory.items(EVENTS, stream_id).items()}


def test_the_first_body_stays_and_another_one_is_counted(memory: Memory) -> None:
    """Another body of a known key counts as a duplicate each time: alone, in a batch, and within one write."""
    store = memory.store()
    assert store.write(STREAM, 1, 0, [event("1", "a"), event("2", "b"), event("1", "c")], FIRST) == Written(2, 1, 0, 1)
    assert store.write(STREAM, 2, 0, [event("1", "d")], FIRST) == Written(0, 1, 0, 1)
    assert store.write(STREAM, 2, 1, [event("1", "d"), event("2", "b"), event("3", "e")], FIRST) == Written(1, 2, 0, 1)
    assert bodies(memory) == {"1": "a", "2": "b", "3": "e"}
    assert memory.dead_letters() == []


@pytest.mark.parametrize("policy", [FIRST, BOTH])
def test_a_body_that_differs_only_in_spelling_or_delivery_is_no_conflict(memory: Memory, policy: StoragePolicy) -> None:
    """White space, order of names, spelling of numbers, time of arrival and id do not matter."""
    store = memory.store()
    assert store.write(STREAM, 1, 0, [event("1", '{"a": 1.0, "b": "\\u00e4"}')], policy) == Written(1, 0)
    again = event("1", '{"b":"ä","a":1}', at_ms=9)._replace(id="other")
    assert store.write(STREAM, 2, 0, [again, again], policy) == Written(0, 2)
    assert store.write(STREAM, 2, 2, [event("1", '{"b":"ä","a":2}')], policy).conflicts == 1
    assert store.write(STREAM, 2, 3, [event("1", '{"b":"ä","a":1}', name="deleted")], policy).conflicts == 1


def test_both_bodies_are_stored_once_each(memory: Memory) -> None:
    """The second body has a key of its own that names the first; a third delivery is a duplicate of the right body."""
    store = memory.store()
    assert store.write(STREAM, 1, 0, [event("1", "a")], BOTH) == Written(1, 0)
    assert store.write(STREAM, 2, 0, [event("1", "b"), event("1", "a"), event("1", "b")], BOTH) == Written(1, 2, 0, 1)
    assert store.write(STREAM, 3, 0, [event("1", "a"), event("1", "b")], BOTH) == Written(0, 2)
    assert store.write(STREAM, 3, 2, [event("1", "c")], BOTH) == Written(1, 0, 0, 1)
    items = memory.items(EVENTS, STREAM)
    assert sorted((item["data"], item.get("conflict_of")) for item in items.values()) == [
        ("a", None),
        ("b", "1"),
        ("c", "1"),
    ]
    assert [key for key, item in items.items() if item["data"] == "b"] == [_conflict_key("1", event("1", "b"))]
    assert len({item["position"] for item in items.values()}) == 3


def test_a_key_made_of_the_body_has_no_conflict_and_costs_no_read(memory: Memory) -> None:
    """Keys made of the body cost no read, and new events cost none: only refused keys are read, up to 100 a request."""
    counted = CountingClient(memory.dynamodb)
    store = memory.store(counted)
    sent = [event(str(number), "a") for number in range(60)]
    assert store.write(STREAM, 1, 0, sent, FIRST) == Written(60, 0)
    assert store.write(STREAM, 2, 0, sent) == Written(0, 60)
    assert counted.requests == ["batch_execute_statement"] * 6
    assert store.write(STREAM, 2, 0, sent, FIRST) == Written(0, 60)
    assert counted.requests[6:] == ["batch_execute_statement"] * 3 + ["batch_get_item"]


def test_an_item_that_another_connection_has_just_written_is_read_consistently(memory: Memory) -> None:
    """The eventually consistent read may miss a fresh item; the consistent read requests only what is missing."""
    asked: list[tuple[bool, int]] = []

    def behind(call: Callable[..., Any], RequestItems: Any) -> Any:
        wanted = RequestItems[EVENTS]
        asked.append((wanted["ConsistentRead"], len(wanted["Keys"])))
        if wanted["ConsistentRead"]:
            return call(RequestItems=RequestItems)
        return {"Responses": {EVENTS: call(RequestItems=RequestItems)["Responses"][EVENTS][:1]}}

    assert memory.store().write(STREAM, 1, 0, [event("1", "a"), event("2", "b")], FIRST) == Written(2, 0)
    late = memory.store(Client(memory.dynamodb, "batch_get_item", behind))
    assert late.write(STREAM, 2, 0, [event("1", "x"), event("2", "y")], FIRST) == Written(0, 2, 0, 2)
    assert asked == [(False, 2), (True, 1)]


def test_a_read_that_is_refused_ends_the_function(memory: Memory) -> None:
    """If the read is refused, the function ends and the events come again: no unread event counts as a duplicate."""
    assert memory.store().write(STREAM, 1, 0, [event("1", "a")], BOTH) == Written(1, 0)
    refused = memory.store(Client(memory.dynamodb, "batch_get_item", fail_with("ThrottlingException")))
    with pytest.raises(StoreUnavailable, match=r"^AWS refused BatchGetItem after its retries: ThrottlingException$"):
        refused.write(STREAM, 2, 0, [event("1", "b")], BOTH)
    assert memory.store().write(STREAM, 3, 0, [event("1", "b")], BOTH) == Written(1, 0, 0, 1)


def test_a_put_whose_answer_was_lost_counts_as_new(memory: Memory) -> None:
    """The client's second try finds its own item, which is neither a duplicate nor a conflict."""
    assert memory.store().write(STREAM, 1, 0, [event("1", "a")], BOTH) == Written(1, 0)
    twice = memory.store(Client(memory.dynamodb, "put_item", send_twice))
    assert twice.write(STREAM, 2, 0, [event("1", "b")], BOTH) == Written(1, 0, 0, 1)


def test_large_bodies_are_compared_by_their_objects(memory: Memory) -> None:
    """Equal content has one object; another object is read, and a second body gets its own."""
    one, other = noise(MAX_ITEM_BYTES), noise(MAX_ITEM_BYTES + 1)
    store = memory.store(bucket=BUCKET)
    assert store.write(STREAM, 1, 0, [event("1", one)], BOTH) == Written(1, 0)
    assert store.write(STREAM, 2, 0, [event("1", one), event("1", other)], BOTH) == Written(1, 1, 0, 1)
    assert store.write(STREAM, 3, 0, [event("1", other), event("1", one)], BOTH) == Written(0, 2)
    assert sorted(map(len, memory.objects().values())) == [MAX_ITEM_BYTES, MAX_ITEM_BYTES + 1]
    spelled = '{"a": "' + "é" * MAX_ITEM_BYTES + '"}'
    assert store.write(STREAM, 1, 2, [event("2", spelled.replace(" ", ""))], BOTH) == Written(1, 0)
    assert store.write(STREAM, 2, 2, [event("2", spelled)], BOTH) == Written(0, 1)


def test_a_deleted_object_counts_as_another_body(memory: Memory) -> None:
    """A lifecycle rule may have deleted the object. Its name shows the difference, and the write does not wait."""
    store = memory.store(bucket=BUCKET)
    assert store.write(STREAM, 1, 0, [event("1", noise(MAX_ITEM_BYTES))], FIRST) == Written(1, 0)
    for key in memory.objects():
        memory.s3.delete_object(Bucket=BUCKET, Key=key)
    assert store.write(STREAM, 2, 0, [event("1", b"a")], FIRST) == Written(0, 1, 0, 1)


def test_an_event_in_the_dead_letter_queue_is_compared_by_its_checksum(memory: Memory) -> None:
    """An event in the dead-letter queue is compared by its checksum; a frame that was too long is no conflict."""
    large, long = event("1", noise(MAX_ITEM_BYTES)), event("2", Oversize(9_000_000, "0" * 64, b"a"))
    assert memory.store().write(STREAM, 1, 0, [large, long], BOTH) == Written(0, 0, 2)
    assert memory.store().write(STREAM, 2, 0, [large, long, event("2", b"a")], BOTH) == Written(0, 3)
    assert memory.store().write(STREAM, 3, 0, [event("1", b"a")], BOTH) == Written(1, 0, 0, 1)


def test_a_second_body_that_no_item_holds_goes_to_the_queue(memory: Memory) -> None:
    """A second body that is too large goes to the queue whole, and once: its mark has a key of its own."""
    assert memory.store().write(STREAM, 1, 0, [event("1", b"a")], BOTH) == Written(1, 0)
    for fence, expected in ((2, Written(0, 0, 1, 1)), (3, Written(0, 1))):
        assert memory.store().write(STREAM, fence, 0, [event("1", noise(MAX_ITEM_BYTES))], BOTH) == expected
    assert len({message["key"] for message in memory.dead_letters()}) == 1


def test_a_long_key_has_a_second_key_that_dynamodb_accepts(memory: Memory) -> None:
    """The item holds the common key in full."""
    key = "é" * (MAX_KEY_BYTES // 2)
    sent = [event(key, "a"), event(key, "b")]
    assert memory.store().write(STREAM, 1, 0, sent, BOTH) == Written(2, 0, 0, 1)
    (second,) = (item for item in memory.items(EVENTS, STREAM).values() if item["data"] == "b")
    assert (second["conflict_of"], len(second["SK"])) == (key, 129)


def test_ids_that_look_like_second_keys_are_stored_as_ids(memory: Memory) -> None:
    """An upstream may send ids that equal second keys.

    After a few of them another body is a conflict and is not stored.
    """
    made_up = ["1"]
    for _ in range(MOST_KEYS):
        made_up.append(_conflict_key(made_up[-1], event("1", "b")))
    store = memory.store()
    assert store.write(STREAM, 1, 0, [event(key, "b") for key in made_up[1:3]], BOTH) == Written(2, 0)
    assert store.write(STREAM, 1, 2, [event("1", "a"), event("1", "b")], BOTH) == Written(2, 0, 0, 1)
    assert store.write(STREAM, 2, 0, [event("1", "b")], BOTH) == Written(0, 1)
    items = memory.items(EVENTS, STREAM)
    assert [items[key].get("conflict_of") for key in made_up[:4]] == [None, None, None, "1"]
    other = f"{STREAM}:other"
    assert store.write(other, 1, 0, [event(key, "b") for key in made_up[1:]], BOTH) == Written(MOST_KEYS, 0)
    assert store.write(other, 1, 9, [event("1", "a"), event("1", "b")], BOTH) == Written(1, 1, 0, 1)


deliveries = st.tuples(
    st.sampled_from(["1", "2", _conflict_key("1", event("1", "b")), _conflict_key("2", event("2", '{"a":1}'))]),
    st.sampled_from(["a", "b", '{"a":1}', '{ "a": 1.0 }', b"a"]),
    st.sampled_from([None, "n"]),
)


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(deliveries, max_size=30), min_size=1, max_size=4), st.sampled_from([1, 3]))
def test_each_content_of_a_key_is_stored_once(
    memory: Memory, writes: list[list[tuple[str, str | bytes, str | None]]], partitions: int
) -> None:
    """For any keys, bodies, names and order, both stores keep each pair once, and the counts add up."""
    stream_id = f"demo:{uuid4().hex}"
    policy = StoragePolicy(partitions, on_conflict="both")
    written = []
    for fence, deliveries in enumerate(writes, 1):
        events = [event(key, data, name) for key, data, name in deliveries]
        written.append(memory.store().write(stream_id, fence, 0, events, policy))
    every = {(key, name, _plain(data)) for deliveries in writes for key, data, name in deliveries}
    items = [item for key in partition_keys(stream_id, partitions) for item in memory.items(EVENTS, key).values()]
    stored = [(item.get("conflict_of", item["SK"]), item.get("name"), _plain(item["data"])) for item in items]
    assert sorted(stored, key=str) == sorted(every, key=str)
    assert sum(one.stored for one in written) == len(every)
    assert sum(one.stored + one.duplicates for one in written) == sum(map(len, writes))
    # An id that equals a second key is counted too: its key was already taken by another body.
    assert sum(one.conflicts for one in written) >= len(every) - len({key for key, _, _ in every})


def _plain(data: Any) -> str:
    """Return the body in a form that is equal for two spellings, and for text and bytes."""
    text = data if isinstance(data, str) else bytes(getattr(data, "value", data)).decode()
    return '{"a":1}' if text == '{ "a": 1.0 }' else text


def test_a_body_that_was_too_long_is_compared_by_its_hash(memory: Memory) -> None:
    """A body that was too long is the same event if its SHA-256 is equal; otherwise its head goes to the queue once."""
    store = memory.store()
    assert store.write(STREAM, 1, 0, [event("1", "a")], BOTH) == Written(1, 0)
    same, other = (
        event("1", "")._replace(data=Oversize(1, hashlib.sha256(body).hexdigest(), body)) for body in (b"a", b"b")
    )
    assert store.write(STREAM, 2, 0, [same], BOTH) == Written(0, 1)
    assert store.write(STREAM, 2, 1, [other], FIRST) == Written(0, 1, 0, 1)
    assert memory.dead_letters() == []
    assert store.write(STREAM, 2, 2, [other], BOTH) == Written(0, 0, 1, 1)
    assert store.write(STREAM, 3, 0, [other], BOTH) == Written(0, 1)
    assert [message["event"]["sha256"] for message in memory.dead_letters()] == [hashlib.sha256(b"b").hexdigest()]
