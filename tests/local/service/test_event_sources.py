"""A table's stream calls a function as Lambda's event source mapping does, on the real embedded DynamoDB."""

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
from hypothesis import given
from hypothesis import strategies as st

from local.aws_endpoints import Endpoints
from local.functions.sandbox import Answer
from local.service.backend import provision
from local.service.event_sources import EventSourceMapping, Places, Shard, Streams, failed, matches
from local.stack import EventSource
from tests.local.service.test_embedded_dynamodb import database_in
from tests.local.support import in_thread, until

FILTER = {"eventName": ["INSERT", "MODIFY"], "dynamodb": {"Keys": {"PK": {"S": ["a", {"prefix": "a:"}]}}}}


def properties(table: str, *, streams: bool) -> dict[str, Any]:
    """A table as the template has it."""
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
    """A database and a function that answers as it is told."""

    def __init__(self, url: str, folder: Path) -> None:
        self.endpoints = Endpoints({}, None, url)
        self.folder = folder
        self.dynamodb = self.endpoints.client("dynamodb")
        self.table = f"streamkeeper-{uuid.uuid4().hex}"
        self.calls: list[list[str]] = []
        self.answer: Callable[[list[dict[str, Any]]], Any] = lambda _: {"batchItemFailures": []}
        self.said: list[str] = []
        provision(self.endpoints, [properties(self.table, streams=True)], [])

    def put(self, *keys: str) -> None:
        """Writes items, each with bytes."""
        for key in keys:
            partition, _, sort = key.partition("/")
            item = {"PK": {"S": partition}, "SK": {"S": sort}, "data": {"B": b"\0"}}
            self.dynamodb.put_item(TableName=self.table, Item=item)

    async def invoke(self, name: str, payload: bytes) -> Answer:
        """The function."""
        records = json.loads(payload)["Records"]
        assert (name, {record["dynamodb"]["NewImage"]["data"]["B"] for record in records}) == ("deliver", {"AA=="})
        self.calls.append(["/".join(part["S"] for part in _keys(record)) for record in records])
        answer = self.answer(records)
        if isinstance(answer, str):
            return Answer(json.dumps({"errorType": answer}).encode(), "Unhandled", "1")
        return Answer(json.dumps(answer).encode(), None, "1")

    @contextlib.asynccontextmanager
    async def mapping(self) -> AsyncIterator[None]:
        """The mapping runs; another one goes on from the place on disk."""
        places = Places(self.folder / "places.json")
        source = EventSource(self.table, "deliver", 10, (FILTER,))
        mapping = EventSourceMapping(source, Streams(self.endpoints, self.table), places, self.invoke, self.said.append)
        task = asyncio.create_task(mapping.run())
        try:
            yield
        finally:
            task.cancel()

    def run(self, done: Callable[[], bool]) -> None:
        """Runs until `done`."""
        with in_thread(self.mapping):
            assert until(done), self.calls


def _keys(record: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    return record["dynamodb"]["Keys"]["PK"], record["dynamodb"]["Keys"]["SK"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The address of a database."""
    with in_thread(lambda: database_in(tmp_path_factory.mktemp("database"), [])) as database:
        yield database.url


@pytest.fixture
def world(url: str, tmp_path: Path) -> Any:
    """A world with a new table."""
    made = World(url, tmp_path)
    yield made
    made.dynamodb.delete_table(TableName=made.table)


def test_what_the_filter_takes_is_called_once_and_in_order(world: World) -> None:
    """Another stream's records, and what was removed, call nobody; the next run goes on behind."""
    world.put("a/1", "b/1", "a:x/2", "ab/3")
    world.dynamodb.delete_item(TableName=world.table, Key={"PK": {"S": "a"}, "SK": {"S": "1"}})
    world.run(lambda: list(chain(*world.calls)) == ["a/1", "a:x/2"])
    world.put("a/4")
    world.run(lambda: list(chain(*world.calls)) == ["a/1", "a:x/2", "a/4"])


def test_a_batch_goes_on_from_the_record_that_failed(world: World) -> None:
    """Those before it are done; it and all behind it come again."""
    world.put("a/1", "a/2", "a/3")

    def answer(records: list[dict[str, Any]]) -> Any:
        failures = [one["dynamodb"]["SequenceNumber"] for one in records if _keys(one)[1]["S"] == "2"]
        return {"batchItemFailures": [{"itemIdentifier": number} for number in failures[: len(world.calls) < 3]]}

    world.answer = answer
    world.run(lambda: len(world.calls) == 3)
    assert world.calls == [["a/1", "a/2", "a/3"], ["a/2", "a/3"], ["a/2", "a/3"]]


def test_a_batch_that_fails_further_on_each_time_is_soon_resent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The back-off doubles where one record fails again and again, not where each fails once: that was 190 s."""
    monkeypatch.setattr("local.service.event_sources.FIRST_BACKOFF_S", 0.01)
    keys = [f"a/{number:02}" for number in range(18)]
    world.put(*keys)
    failed: set[str] = set()

    def answer(records: list[dict[str, Any]]) -> Any:
        new = next((one for one in records if _keys(one)[1]["S"] not in failed), None)
        if new is None:
            return {"batchItemFailures": []}
        failed.add(_keys(new)[1]["S"])
        return {"batchItemFailures": [{"itemIdentifier": new["dynamodb"]["SequenceNumber"]}]}

    world.answer = answer
    world.run(lambda: len(world.calls) > 18 and world.calls[-1][-1] == keys[-1])
    assert list(dict.fromkeys(chain(*world.calls))) == keys


def test_shards_that_are_done_at_once_keep_their_places(tmp_path: Path) -> None:
    """Each is delivered by itself, and all places are in one file: none is lost, and none of them fails."""
    places = Places(tmp_path / "places.json")
    shards = [Shard(f"shardId-{at}", "arn") for at in range(8)]
    with ThreadPoolExecutor(len(shards)) as threads:
        for number in ("1", "2", "3"):
            list(threads.map(places.set, shards, [number] * len(shards)))
            kept = Places(tmp_path / "places.json")
            assert [kept.get(shard) for shard in shards] == [number] * len(shards)


def test_a_function_that_is_killed_is_called_again_from_the_same_place(world: World) -> None:
    """With the same records, until it answers."""
    world.put("a/1", "a/2")
    world.answer = lambda _: "Runtime.ExitError" if len(world.calls) < 3 else {"batchItemFailures": []}
    world.run(lambda: len(world.calls) == 3)
    assert world.calls == [["a/1", "a/2"]] * 3


def test_what_stops_the_mapping_is_said_and_tried_again(world: World) -> None:
    """A disk that takes no place, say: the records come again until it does, and each line is said once."""
    in_the_way = world.folder / "places.new"
    in_the_way.mkdir()
    world.put("a/1")

    def answer(_: list[dict[str, Any]]) -> Any:
        if len(world.calls) == 3:
            in_the_way.rmdir()
        return {"batchItemFailures": []}

    world.answer = answer
    world.run(lambda: len(world.said) == 2)
    assert world.calls == [["a/1"]] * 3
    assert [line.partition(": IsADirectoryError")[0] for line in world.said] == [
        "ALERT: nothing reaches deliver for now, it is tried again",
        "deliver goes on: what waited is done",
    ]


def test_a_table_that_was_there_gets_its_stream_and_loses_it(world: World) -> None:
    """As CloudFormation changes it; without a stream nobody is called, and what was delivered does not come again."""
    world.put("a/0")
    world.run(lambda: world.calls == [["a/0"]])
    provision(world.endpoints, [properties(world.table, streams=False)], [])
    assert Streams(world.endpoints, world.table).shards() == []
    world.put("a/1")
    provision(world.endpoints, [properties(world.table, streams=True)], [])
    world.put("a/2")
    world.run(lambda: world.calls == [["a/0"], ["a/2"]])


numbers = st.lists(st.integers(0, 9).map(str), min_size=1, unique=True)


@given(numbers, st.lists(st.integers(0, 9).map(str)))
def test_the_first_failure_counts(sent: list[str], named: list[str]) -> None:
    """An answer that names what was not sent fails as a whole."""
    payload = json.dumps({"batchItemFailures": [{"itemIdentifier": number} for number in named]}).encode()
    expected = None if set(named) - set(sent) else next((one for one in sent if one in named), "")
    assert failed(payload, sent) == expected


@pytest.mark.parametrize("payload", [b"null", b"{}", b'{"batchItemFailures": null}', b'{"batchItemFailures": []}'])
def test_an_answer_without_failures_is_a_success(payload: bytes) -> None:
    """As Lambda takes it: null, an object without the list, an empty list."""
    assert failed(payload, ["1"]) == ""


STRANGE = (b"", b"[1]", b'{"batchItemFailures": [{}]}', b'{"batchItemFailures": [{"itemIdentifier": ""}]}')


@pytest.mark.parametrize("payload", STRANGE)
def test_an_answer_that_says_nothing_known_is_a_failure(payload: bytes) -> None:
    """As Lambda takes it: all of the batch comes again."""
    assert failed(payload, ["1"]) is None


def test_without_a_filter_everything_matches() -> None:
    """With several one is enough."""
    record = {"eventName": "INSERT", "dynamodb": {"Keys": {"PK": {"S": "a:1"}}}}
    several: list[list[dict[str, Any]]] = [[], [FILTER], [{"eventName": ["REMOVE"]}, FILTER]]
    assert all(matches(record, filters) for filters in several)
    assert not matches({**record, "eventName": "REMOVE"}, [FILTER])
