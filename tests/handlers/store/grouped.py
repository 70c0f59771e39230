"""A stream in a group, whose function sends heartbeats, on tables in memory: for the tests of the group's store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from handlers.errors import StoreUnavailable
from handlers.group.group_lease import GroupHeartbeat, GroupLease
from handlers.store import typed_values
from handlers.store.group_store import GroupStore
from handlers.store.grouped_store import GroupedStore
from handlers.store.known_streams import GroupFunction
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.aws import Client, carry_out

CONTROL, GROUP, STREAM, EXECUTION, REQUEST = "control", "#1", "prices", "E1", "r1"
NOW_MS = 1_000_000


@contextmanager
def unanswered(client: Client, way: Callable[..., Any]) -> Iterator[None]:
    """Refuse the requests inside, or carry them out and lose the answers: the store is unavailable."""
    client.way = way
    with pytest.raises(StoreUnavailable):
        yield
    client.way = carry_out


@pytest.fixture
def client() -> Client:
    """Return a stream that has joined a group whose lease an execution has."""
    tables = MemoryDynamoDB("events", CONTROL)
    for key, attributes in ((GROUP, {"execution": EXECUTION}), (STREAM, {"group": GROUP, "joined": "1"})):
        texts = {name: {"S": value} for name, value in attributes.items()}
        tables.put_item(TableName=CONTROL, Item=typed_values.item_key(key, "lease") | texts)
    return Client(tables, "update_item")


def store_of(client: Client, now_ms: int = NOW_MS, clock_ms: Callable[[], int] | None = None) -> GroupedStore:
    """Return the store of a function that heartbeats, at one instant or by a clock."""
    who = GroupFunction(GROUP, 1, REQUEST, EXECUTION, NOW_MS + 60_000, 8_000)
    names = {"events_table": "events", "control_table": CONTROL, "dead_letter_queue_url": ""}
    store = GroupedStore(client, lambda: None, who, clock_ms or (lambda: now_ms), sleep=lambda _s: None, **names)
    store.stalls[STREAM] = 30_000
    store.lease = GroupLease(1, EXECUTION, heartbeats={REQUEST: GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000)})
    return store


def claim(store: GroupedStore) -> int:
    """Return the fencing token of a claim in the function's name."""
    return store.claim(STREAM, execution=EXECUTION, holder=f"B/{REQUEST}").record.lease.fence


def heartbeat_attributes() -> typed_values.Item:
    """Return the attributes that a heartbeat writes."""
    live = {"fence": {"N": "1"}, "request_id": {"S": REQUEST}, "seen_ms": {"N": str(NOW_MS)}}
    return {"live": {"M": live}}


def record(client: Client) -> typed_values.Item:
    item: typed_values.Item = client.get_item(TableName=CONTROL, Key=typed_values.item_key(STREAM, "lease"))["Item"]
    return item


def connected_store(client: Client) -> GroupedStore:
    """Return a store whose function is connected to the stream, and answers for it by its heartbeats."""
    store = store_of(client)
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=heartbeat_attributes())
    assert record(client)["live"]["M"]["lag_ms"] == {"N": "8000"}
    return store


def overdue_store(client: Client) -> GroupedStore:
    """Return the store of the same function just after its heartbeat has run out, before anything has ended it."""
    GroupStore(client, CONTROL, GROUP).first_heartbeat(REQUEST, EXECUTION, store_of(client).lease.heartbeats[REQUEST])
    store = store_of(client, NOW_MS + 8_000)
    store.refresh([record(client)])
    return store
