"""A table's stream calls a function as Lambda's event source mapping does, with the real embedded DynamoDB."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws_endpoints import Endpoints
from local.functions.sandbox import Answer
from local.service.backend import provision
from local.service.event_sources import EventSourceMapping, Shard, ShardPositions, TableStream, matches_filters
from local.stack import EventSource
from tests.local.service.test_embedded_dynamodb import database_in
from tests.local.support import in_thread, until

FILTER = {"eventName": ["INSERT", "MODIFY"], "dynamodb": {"Keys": {"PK": {"S": ["a", {"prefix": "a:"}]}}}}


def properties(table: str, *, streams: bool) -> dict[str, Any]:
    names = {"PK": "HASH", "SK": "RANGE"}
    more = {"StreamSpecification": {"StreamViewType": "NEW_IMAGE"}} if streams else {}
    return {
        "TableName": table,
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in names.items()],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in names],
        "BillingMode": "PAY_PER_REQUEST",
        **more,
    }


class World:
    """A database, and a function whose answers a test sets."""

    def __init__(self, url: str, folder: Path) -> None:
        self.endpoints = Endpoints({}, None, url)
        self.folder = folder
        self.dynamodb = self.endpoints.client("dynamodb")
        self.table = f"streamkeeper-{uuid.uuid4().hex}"
        self.calls: list[list[str]] = []
        self.answer: Callable[[list[dict[str, Any]]], Any] = lambda _: {}
        self.said: list[str] = []
        provision(self.endpoints, [properties(self.table, streams=True)], [])

    def put(self, *keys: str) -> None:
        """Writes an item for each key, given as `PK/SK`."""
        for key in keys:
            partition, _, sort = key.partition("/")
            item = {"PK": {"S": partition}, "SK": {"S": sort}, "data": {"B": b"\0"}}
            self.dynamodb.put_item(TableName=self.table, Item=item)

    async def invoke(self, name: str, payload: bytes) -> Answer:
        records = json.loads(payload)["Records"]
        assert (name, {record["dynamodb"]["NewImage"]["data"]["B"] for record in records}) == ("deliver", {"AA=="})
        keys = [record["dynamodb"]["Keys"] for record in records]
        self.calls.append([f"{key['PK']['S']}/{key['SK']['S']}" for key in keys])
        answer = self.answer(records)
        if isinstance(answer, str):
            return Answer(json.dumps({"errorType": answer}).encode(), "Unhandled", "1")
        return Answer(json.dumps(answer).encode(), None, "1")

    @contextlib.asynccontextmanager
    async def mapping(self) -> AsyncIterator[None]:
        """Runs a mapping within the block; it continues after the position on disk."""
        places = ShardPositions(self.folder / "places.json")
        source = EventSource(self.table, "deliver", 10, (FILTER,))
        mapping = EventSourceMapping(
            source, TableStream(self.endpoints, self.table), places, self.invoke, self.said.append
        )
        tasks = [asyncio.create_task(mapping.run()), asyncio.create_task(mapping.sweep())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    def run(self, done: Callable[[], bool]) -> None:
        """Runs the mapping until `done`."""
        with in_thread(self.mapping):
            assert until(done), self.calls


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with in_thread(lambda: database_in(tmp_path_factory.mktemp("database"), [])) as database:
        yield database.url


@pytest.fixture
def world(url: str, tmp_path: Path) -> Any:
    """A world with a new table."""
    made = World(url, tmp_path)
    yield made
    made.dynamodb.delete_table(TableName=made.table)


def test_the_function_gets_the_records_of_the_filter_once_and_in_order(world: World) -> None:
    """Each record that passes the filter reaches the function once, in order; other streams' records and removals do
    not. The next run continues after the last record.
    """
    world.put("a/1", "b/1", "a:x/2", "ab/3")
    world.dynamodb.delete_item(TableName=world.table, Key={"PK": {"S": "a"}, "SK": {"S": "1"}})
    world.run(lambda: list(chain(*world.calls)) == ["a/1", "a:x/2"])
    world.put("a/4")
    world.run(lambda: list(chain(*world.calls)) == ["a/1", "a:x/2", "a/4"])


def test_the_schedule_calls_the_function_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule calls the function again and again, even if nothing was stored."""
    monkeypatch.setattr("local.service.event_sources.SWEEP_S", 0.01)
    sweeps: list[bytes] = []

    async def invoke(_name: str, payload: bytes) -> Answer:
        sweeps.append(payload)
        return Answer(b"{}", None, "1")

    world.invoke = invoke  # type: ignore[method-assign, assignment]
    world.run(lambda: len(sweeps) > 2)
    assert set(sweeps) == {b'{"sweep": true}'}


def test_shards_that_save_their_positions_at_once_lose_none(tmp_path: Path) -> None:
    """Eight shards save their positions into one file at the same time: no save fails, and no position is lost."""
    places = ShardPositions(tmp_path / "places.json")
    shards = [Shard(f"shardId-{at}", "arn") for at in range(8)]
    with ThreadPoolExecutor(len(shards)) as threads:
        for number in ("1", "2", "3"):
            list(threads.map(places.set, shards, [number] * len(shards)))
            kept = ShardPositions(tmp_path / "places.json")
            assert [kept.get(shard) for shard in shards] == [number] * len(shards)


def test_a_function_that_is_killed_is_called_again_from_the_same_place(world: World) -> None:
    """A function that fails gets the same records again until it answers."""
    world.put("a/1", "a/2")
    world.answer = lambda _: "Runtime.ExitError" if len(world.calls) < 3 else {}
    world.run(lambda: len(world.calls) == 3)
    assert world.calls == [["a/1", "a/2"]] * 3


def test_a_mapping_that_cannot_save_its_position_tries_again(world: World) -> None:
    """If the disk refuses the position, the same records come until it accepts. Failure and end are a line each."""
    in_the_way = world.folder / "places.new"
    in_the_way.mkdir()
    world.put("a/1")

    def answer(_: list[dict[str, Any]]) -> Any:
        if len(world.calls) == 3:
            in_the_way.rmdir()
        return {}

    world.answer = answer
    world.run(lambda: len(world.said) == 2)
    assert world.calls == [["a/1"]] * 3
    assert [line.partition(": IsADirectoryError")[0] for line in world.said] == [
        "ALERT: nothing reaches deliver for now; it is tried again",
        "deliver works again: the waiting work is done",
    ]


def test_a_position_that_the_table_has_dropped_is_reported_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the table's stream no longer has the saved position, one alert reports it, however often the shard is read.
    The position stays until new records come.
    """
    reads: list[str | None] = []

    def forgotten(_streams: TableStream, _shard: Shard, after: str | None, _limit: int) -> tuple[list[Any], bool]:
        reads.append(after)
        if after is not None:
            raise ClientError({"Error": {"Code": "TrimmedDataAccessException"}}, "GetShardIterator")
        return [], False

    monkeypatch.setattr(ShardPositions, "get", lambda *_: "7")
    monkeypatch.setattr(TableStream, "records", forgotten)
    world.run(lambda: len(reads) > 3)
    assert world.said == [f"ALERT: the stream of {world.table} has dropped events before they were delivered"]


def test_an_existing_table_gets_and_loses_its_stream(world: World) -> None:
    """An existing table gets or loses its stream, as with CloudFormation. Without a stream the function is not called,
    and delivered records do not come again.
    """
    world.put("a/0")
    world.run(lambda: world.calls == [["a/0"]])
    provision(world.endpoints, [properties(world.table, streams=False)], [])
    assert TableStream(world.endpoints, world.table).shards() == []
    world.put("a/1")
    provision(world.endpoints, [properties(world.table, streams=True)], [])
    world.put("a/2")
    world.run(lambda: world.calls == [["a/0"], ["a/2"]])


def test_without_a_filter_everything_matches() -> None:
    """Without a filter each record matches; of several filters, one must match."""
    record = {"eventName": "INSERT", "dynamodb": {"Keys": {"PK": {"S": "a:1"}}}}
    several: list[list[dict[str, Any]]] = [[], [FILTER], [{"eventName": ["REMOVE"]}, FILTER]]
    assert all(matches_filters(record, filters) for filters in several)
    assert not matches_filters({**record, "eventName": "REMOVE"}, [FILTER])
