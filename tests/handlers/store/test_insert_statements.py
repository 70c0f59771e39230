"""The JSON of INSERTs equals that of the event's item, whichever way it is made."""

import os
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.inputs import Written
from handlers.dynamodb.client import DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from handlers.framing.events import StreamEvent
from handlers.store.event_items import StoragePolicy
from handlers.store.event_writer import SHORT_CHARACTERS, Inserts, to_boto3_statement
from tests.handlers.aws import EVENTS, Aws

TEXTS = st.text(st.sampled_from('a"\\%{}\n\0\x7fé\u2028\ue000😀'), max_size=8) | st.sampled_from(
    ["%s", "%012d", "\ue000"]
)
EVENTS_OF_ALL_KINDS = st.builds(
    StreamEvent,
    TEXTS.filter(bool),
    TEXTS | st.binary(max_size=4) | st.sampled_from(["x" * (SHORT_CHARACTERS - 1), "x" * SHORT_CHARACTERS]),
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.none(),
    st.sampled_from([0, 1_700_000_000_000]),
)


@given(
    st.lists(st.tuples(st.integers(0, 10**12 - 1), EVENTS_OF_ALL_KINDS), max_size=4),
    st.sampled_from(["demo", "a:b%c", "a:#0", "a:\ue000%s'\"\\😀"]),
    st.sampled_from([1, 999_999_999_999]),
    st.builds(
        StoragePolicy, st.sampled_from([1, 7]), st.sampled_from([0, 3]), order=st.sampled_from(["index", "none"])
    ),
)
def test_an_insert_statement_equals_the_events_item(
    numbered: list[tuple[int, StreamEvent]], stream_id: str, fence: int, policy: StoragePolicy
) -> None:
    """A statement has the names and values of the event's item in its order, for any content and any earlier event."""
    inserts = Inserts("table", stream_id, fence, policy)
    for number, event in numbered:
        item = inserts.item(number, event)
        names = ", ".join(f"'{name}': ?" for name in item)
        expected = {"Statement": f'INSERT INTO "table" VALUE {{{names}}}', "Parameters": list(item.values())}
        short = inserts.insert_of_short(number, event)
        text = inserts.insert_of_item(item) if short is None else short
        assert to_boto3_statement(text) == expected
        assert text.isascii()


@pytest.mark.parametrize(
    "event", [StreamEvent("k", b"a", None, None, None, 1), StreamEvent("k", "a", "i" * SHORT_CHARACTERS, None, None, 1)]
)
def test_an_event_that_is_not_short_is_written_from_its_item(event: StreamEvent) -> None:
    """Bytes, or a text that is long together with its id, are written from the item, as they may need packing."""
    assert Inserts("table", "demo", 1, StoragePolicy()).insert_of_short(0, event) is None


def test_the_small_client_stores_the_same_items_as_boto3(aws: Aws, tables: str) -> None:
    """The small client sends the JSON itself: texts, bytes, a packed body, quotes and per cents arrive as by boto3."""
    bodies: list[Any] = ['{"a": "é\\u2028%s"}', b"\xff\0", "x" * 9000, "", "a\nb'\"\\"]
    sent = [StreamEvent(f"k{n}%", body, f"i{n}", "add", None, 5) for n, body in enumerate(bodies)]
    signer = Signer(Credentials("id", "key"), os.environ["AWS_DEFAULT_REGION"])
    client = DynamoDb(tables, signer, tries=1, connect_timeout_s=1, read_timeout_s=5)
    with closing(client):
        assert aws.store(client).write("demo", 1, 0, sent) == Written(5, 0)
        assert aws.store(client).write("demo", 2, 0, sent) == Written(0, 5)
    assert aws.store().write("other", 1, 0, sent) == Written(5, 0)
    stored, expected = (aws.items(EVENTS, stream_id) for stream_id in ("demo", "other"))
    assert stored == {key: {**item, "PK": "demo"} for key, item in expected.items()}
