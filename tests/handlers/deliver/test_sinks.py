"""What single sinks make of an event's names, and how they read an answer."""

import json

from handlers.deliver.contract import Message
from handlers.deliver.sinks import sqs


def message(stream_id: str, key: str) -> Message:
    """An event with these names."""
    return Message(stream_id, key, "1", None, 0, json.dumps({"stream": stream_id, "key": key}), 0)


def test_a_queue_that_compares_by_group_gets_the_key() -> None:
    """As it is, where SQS takes it; else its hash, of which two keys have two."""
    assert sqs.deduplication_id(message("a", "7"), is_by_group=True) == "7"
    ids = {sqs.deduplication_id(message("a", key), is_by_group=True) for key in ("ü", "ö", " ", "x" * 129)}
    assert {len(one) for one in ids} == {64}
    assert len(ids) == 4


def test_a_queue_that_compares_across_groups_gets_an_id_of_stream_and_key() -> None:
    """Two streams' events of one key are two, and one event has one id."""
    one, other = (sqs.deduplication_id(message(stream_id, "7"), is_by_group=False) for stream_id in "ab")
    assert one != other
    assert one == sqs.deduplication_id(message("a", "7"), is_by_group=False)
