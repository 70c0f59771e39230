"""Split shards are read as Lambda reads them: a parent to its end, and then its children."""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.aws_endpoints import Endpoints
from local.functions.sandbox import Answer
from local.service.event_sources import EventSourceMapping, ShardPositions, TableStream
from local.stack import EventSource
from tests.examples import examples
from tests.http_server import Answer as Response
from tests.http_server import Request, answering
from tests.local.support import in_thread, until

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/streamkeeper-split/stream/2026-01-01T00:00:00.000"
SHARDS_A_PAGE = 2


class Split:
    """A table's stream with split shards: each has its parent and its records; the last ones are open.

    `forgotten` is a parent that DynamoDB no longer lists.
    """

    def __init__(self, parents: Sequence[int | None], counts: Sequence[int]) -> None:
        self.parents = parents
        self.records = [[f"{at + 1:03d}{n:018d}" for n in range(count)] for at, count in enumerate(counts)]

    def ancestors(self, at: int) -> list[int]:
        """Returns the shards that must be read before this one."""
        parent = self.parents[at]
        return [] if parent is None or parent < 0 else [*self.ancestors(parent), parent]

    def answer(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Returns DynamoDB's answer to a request."""
        match operation:
            case "DescribeTable":
                return {"Table": {"LatestStreamArn": ARN, "StreamSpecification": {"StreamEnabled": True}}}
            case "DescribeStream":
                begin = _number(asked["ExclusiveStartShardId"]) + 1 if "ExclusiveStartShardId" in asked else 0
                shown = range(begin, min(begin + SHARDS_A_PAGE, len(self.parents)))
                more = {"LastEvaluatedShardId": _id(shown[-1])} if shown and shown[-1] + 1 < len(self.parents) else {}
                return {"StreamDescription": {"StreamArn": ARN, "Shards": [self._shard(at) for at in shown], **more}}
            case "GetShardIterator":
                at, after = _number(asked["ShardId"]), asked.get("SequenceNumber", "")
                return {"ShardIterator": f"{at} {sum(one <= after for one in self.records[at])}"}
            case _:
                at, begin = map(int, asked["ShardIterator"].split())
                given_ = self.records[at][begin : begin + asked["Limit"]]
                end = begin + len(given_)
                is_over = at in self.parents and end == len(self.records[at])
                next_ = {} if is_over else {"NextShardIterator": f"{at} {end}"}
                written = ({"SequenceNumber": one, "ApproximateCreationDateTime": 1767225600} for one in given_)
                return {"Records": [{"dynamodb": one} for one in written], **next_}

    def _shard(self, at: int) -> dict[str, Any]:
        parent = self.parents[at]
        return {"ShardId": _id(at), **({} if parent is None else {"ParentShardId": _id(parent)})}


def _id(at: int) -> str:
    return f"shardId-{at + 1:020d}-{0:08d}"


def _number(shard_id: str) -> int:
    return int(shard_id.split("-")[1]) - 1


class Served(NamedTuple):
    """Clients of a server that answers like DynamoDB, with one split at a time."""

    endpoints: Endpoints
    now: list[Split]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server on a socket."""
    now: list[Split] = []

    def answer(request: Request) -> Response:
        operation = request.headers["x-amz-target"].partition(".")[2]
        body = json.dumps(now[0].answer(operation, json.loads(request.body))).encode()
        return Response(headers={"content-type": "application/x-amz-json-1.0"}, body=body)

    with answering(answer) as url:
        yield Served(Endpoints({}, None, url), now)


@st.composite
def splits(draw: st.DrawFn) -> Split:
    """Draws up to six shards in any order, so that children may be listed before their parents."""
    count = draw(st.integers(1, 6))
    order = draw(st.permutations(range(count)))
    parents: list[int | None] = [None] * count
    for n, at in enumerate(order[1:], 1):
        # None began with the stream; the parent -1 is no longer listed.
        parents[at] = draw(st.sampled_from([None, -1, *order[:n]]))
    return Split(parents, [draw(st.integers(0, 3)) for _ in range(count)])


def run_mapping(served: Served, split: Split, failing: str = "") -> list[str]:
    """Returns the records in the order in which the function finished them; it fails the first time at `failing`."""
    done: list[str] = []
    failed: list[str] = []

    async def invoke(_name: str, payload: bytes) -> Answer:
        numbers = [one["dynamodb"]["SequenceNumber"] for one in json.loads(payload)["Records"]]
        if failing in numbers and not failed:
            failed.append(failing)
            return Answer(b"{}", "Unhandled", "1")
        done.extend(numbers)
        return Answer(b"{}", None, "1")

    @contextlib.asynccontextmanager
    async def mapping() -> Any:
        source = EventSource("streamkeeper-split", "deliver", 2, ())
        streams = TableStream(served.endpoints, "streamkeeper-split")
        task = asyncio.create_task(EventSourceMapping(source, streams, places, invoke, print).run())
        try:
            yield
        finally:
            task.cancel()

    served.now[:] = [split]
    with TemporaryDirectory() as folder:
        places = ShardPositions(Path(folder, "places.json"))
        with in_thread(mapping):
            assert until(lambda: len(done) >= sum(map(len, split.records))), done
    return done


@settings(max_examples=examples(40), deadline=None)
@given(splits())
def test_a_child_shard_is_read_after_all_of_its_parents(served: Served, split: Split) -> None:
    """Each record comes once, and those of a shard in order; a parent that is no longer listed delays no shard."""
    done = run_mapping(served, split)
    assert sorted(done) == sorted(number for numbers in split.records for number in numbers)
    place = {number: at for at, number in enumerate(done)}
    for at, numbers in enumerate(split.records):
        before = [number for parent in split.ancestors(at) for number in split.records[parent]]
        assert [place[number] for number in numbers] == sorted(place[number] for number in numbers)
        assert not [one for one in before if numbers and place[one] > place[numbers[0]]]


def test_children_of_a_shard_wait_until_the_parent_is_delivered(served: Served) -> None:
    """If the function fails at a parent's record, the two children deliver nothing until the whole parent is done."""
    split = Split([None, 0, 0], [3, 1, 1])
    done = run_mapping(served, split, failing=split.records[0][2])
    assert (done[:3], sorted(done[3:])) == (split.records[0], split.records[1] + split.records[2])
