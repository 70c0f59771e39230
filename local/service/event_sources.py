"""Calls functions with the records of a table's stream, as Lambda's event source mappings do.

The function is also called by its schedule, more often than on AWS. Sources: AWS Lambda Developer Guide, "Using AWS
Lambda with Amazon DynamoDB"; Amazon DynamoDB Developer Guide, "Reading and processing a stream". Invariants: a position
is on disk before a later record is read; the records of a shard are handled in order, and after all those of its
parent; every failure is reported, and the call is repeated.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from local.aws_endpoints import STREAMS, Endpoints
from local.functions.created_functions import replace_json_file
from local.functions.sandbox import Answer
from local.simulation.table_stream import Record, as_event
from local.stack import EventSource
from states_language.server import TooManyRequests, UnknownFunction

# Lambda polls a shard four times a second.
POLL_S = 0.25
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.25, 30.0
# Records that cannot be noted for this long are reported.
ALERT_AFTER_S = 60.0
# On AWS it is a minute. Here it is sooner, because a person waits for what a killed service left undelivered.
SWEEP_S = 20.0
# botocore requires sequence numbers of this length, which AWS's have.
_DIGITS = 21
_TRIMMED = ("TrimmedDataAccessException", "ResourceNotFoundException")

Invoke = Callable[[str, bytes], Awaitable[Answer]]


@dataclass(frozen=True)
class Shard:
    """A shard of a stream. In dynoxide, a shard and its records survive when a table's stream is created again."""

    id: str
    stream_arn: str = field(compare=False)
    parent: str | None = field(default=None, compare=False)

    @property
    def stream_and_id(self) -> tuple[str, str]:
        """The shard within this stream; a table's next stream may continue it."""
        return self.stream_arn, self.id


class ShardPositions:
    """How far each shard was delivered, in a file.

    If the server of the streams forgets them when it ends (ministack), the file is removed, as numbers begin again.
    """

    def __init__(self, file: Path, *, is_kept: bool = True) -> None:
        self._file = file
        self._places: dict[str, str] = {}
        self._writing = threading.Lock()  # shards are delivered in parallel, but all are in one file
        if not is_kept:
            file.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError, ValueError):
            self._places = json.loads(file.read_text(encoding="utf-8"))

    def get(self, shard: Shard) -> str | None:
        """Returns the sequence number of the last finished record, or None."""
        return self._places.get(shard.id)

    def set(self, shard: Shard, number: str) -> None:
        """Saves the number; it is on disk when this returns."""
        with self._writing:
            places = {**self._places, shard.id: number}
            replace_json_file(self._file, places)
            self._places = places


class TableStream:
    def __init__(self, endpoints: Endpoints, table: str) -> None:
        self._endpoints = endpoints
        self._table = table

    def shards(self) -> list[Shard]:
        """Returns the shards of the table's present stream; none if the table has no stream."""
        table = self._endpoints.client("dynamodb").describe_table(TableName=self._table)["Table"]
        arn = table.get("LatestStreamArn")
        if not arn or not table.get("StreamSpecification", {}).get("StreamEnabled"):
            return []
        client, shards, begin = self._endpoints.client(STREAMS), list[Shard](), dict[str, str]()
        while True:
            page = client.describe_stream(StreamArn=arn, **begin)["StreamDescription"]
            shards += [Shard(one["ShardId"], arn, one.get("ParentShardId")) for one in page["Shards"]]
            if "LastEvaluatedShardId" not in page:
                return shards
            begin = {"ExclusiveStartShardId": page["LastEvaluatedShardId"]}

    def records(self, shard: Shard, after: str | None, limit: int) -> tuple[list[Record], bool]:
        """Returns the records after `after`, or from the oldest on, and whether these are the last ones.

        "If set to null, the shard has been closed and the requested iterator will not return any more data."
        """
        begin = {"ShardIteratorType": "TRIM_HORIZON"}
        if after is not None:
            begin = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": after.zfill(_DIGITS)}
        client = self._endpoints.client(STREAMS)
        iterator = client.get_shard_iterator(StreamArn=shard.stream_arn, ShardId=shard.id, **begin)["ShardIterator"]
        answer = client.get_records(ShardIterator=iterator, Limit=limit)
        return answer["Records"], not answer.get("NextShardIterator")


def readable_shards(shards: Sequence[Shard], ended_shards: Collection[tuple[str, str]]) -> list[Shard]:
    """Returns the shards that may be read: a child once its parent has ended, or was forgotten by DynamoDB."""
    unread = {shard.id: shard for shard in shards if shard.stream_and_id not in ended_shards}
    return [shard for shard in unread.values() if shard.parent not in unread]


class EventSourceMapping:
    """One event source mapping; `say` prints a line."""

    def __init__(
        self,
        source: EventSource,
        streams: TableStream,
        places: ShardPositions,
        invoke: Invoke,
        say: Callable[[str], None],
    ) -> None:
        self._source = source
        self._streams = streams
        self._places = places
        self._invoke = invoke
        self._say = say
        self._ended_shards: set[tuple[str, str]] = set()
        self._forgotten: set[tuple[tuple[str, str], str | None]] = set()  # positions that the stream no longer has
        self._has_ended = asyncio.Event()
        self._reported_problem = ""

    async def run(self) -> None:
        """Reads and calls until it is cancelled."""
        pumps: dict[Shard, asyncio.Task[None]] = {}
        try:
            while True:
                try:
                    self._has_ended.clear()
                    for shard in readable_shards(await asyncio.to_thread(self._streams.shards), self._ended_shards):
                        if shard not in pumps or pumps[shard].done():
                            pumps[shard] = asyncio.create_task(self._pump(shard))
                except Exception as problem:
                    self._report_failure(problem)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._has_ended.wait(), LONGEST_BACKOFF_S if pumps else POLL_S)
        finally:
            for pump in pumps.values():
                pump.cancel()

    async def _pump(self, shard: Shard) -> None:
        """Delivers the records of a shard until it has ended and all are delivered."""
        backoff_s = waited_s = 0.0
        while shard.stream_and_id not in self._ended_shards:
            before = self._places.get(shard)
            done = await self._step(shard)
            if done is None:
                if self._places.get(shard) != before:
                    # Another record failed now, and has not waited yet.
                    backoff_s, waited_s = 0.0, waited_s if waited_s >= ALERT_AFTER_S else 0.0
                backoff_s = min(max(backoff_s * 2, FIRST_BACKOFF_S), LONGEST_BACKOFF_S)
                if waited_s < ALERT_AFTER_S <= waited_s + backoff_s:
                    self._say(f"ALERT: {self._source.function} cannot record what is stored; its log says why")
                waited_s += backoff_s
                await asyncio.sleep(backoff_s)
                continue
            if waited_s >= ALERT_AFTER_S or self._reported_problem:
                self._reported_problem = ""
                self._say(f"{self._source.function} works again: the waiting work is done")
            backoff_s = waited_s = 0.0
            if not done and shard.stream_and_id not in self._ended_shards:
                await asyncio.sleep(POLL_S)

    async def _step(self, shard: Shard) -> int | None:
        """Returns the number of records delivered now; None if a call failed completely or in part."""
        try:
            records, is_last = await self._read(shard)
            # A killed function is called again from the saved position.
            if not await self._invoke_function(
                [record for record in records if matches_filters(record, self._source.filters)]
            ):
                return None
            if records:
                await asyncio.to_thread(self._places.set, shard, records[-1]["dynamodb"]["SequenceNumber"])
        except Exception as problem:
            self._report_failure(problem)
            return None
        if is_last:
            # All of it is done, and it is closed.
            self._ended_shards.add(shard.stream_and_id)
            self._has_ended.set()
        return len(records)

    async def _read(self, shard: Shard) -> tuple[list[Record], bool]:
        """Returns as `TableStream.records` does, from the saved position, or the oldest record if that is forgotten."""
        after = self._places.get(shard)
        if (place := (shard.stream_and_id, after)) not in self._forgotten:
            try:
                return await asyncio.to_thread(self._streams.records, shard, after, self._source.batch_size)
            except ClientError as problem:
                if problem.response["Error"]["Code"] not in _TRIMMED or after is None:
                    raise
            self._forgotten.add(place)
            self._say(f"ALERT: the stream of {self._source.table} has dropped events before they were delivered")
        return await asyncio.to_thread(self._streams.records, shard, None, self._source.batch_size)

    def _report_failure(self, problem: Exception) -> None:
        """Reports a problem once; a service that is unavailable for a moment is not reported."""
        if isinstance(problem, BotoCoreError | ClientError):
            return
        words = f"{type(problem).__name__}: {problem}"
        if words != self._reported_problem:
            self._say(f"ALERT: nothing reaches {self._source.function} for now; it is tried again: {words}")
        self._reported_problem = words

    async def _invoke_function(self, records: Sequence[Record]) -> bool:
        """Returns whether the function accepted the records, of which there may be none."""
        if not records:
            return True
        try:
            payload = json.dumps({"Records": [as_event(record) for record in records]}).encode()
            answer = await self._invoke(self._source.function, payload)
        except (UnknownFunction, TooManyRequests):
            return False
        return answer.function_error is None

    async def sweep(self) -> None:
        """Calls the function by its schedule until it is cancelled; it then also delivers what an earlier run left."""
        while True:
            await asyncio.sleep(SWEEP_S)
            with contextlib.suppress(UnknownFunction, TooManyRequests):
                await self._invoke(self._source.function, b'{"sweep": true}')


def matches_filters(record: Mapping[str, Any], filters: Iterable[Mapping[str, Any]]) -> bool:
    """Returns whether one of the filters, if there are any, matches the record.

    Only the rules that the template uses are implemented: texts, and `prefix`.
    """
    several = list(filters)
    return not several or any(_matches_pattern(record, one) for one in several)


def _matches_pattern(value: Any, pattern: Any) -> bool:
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(
            _matches_pattern(value.get(name), inner) for name, inner in pattern.items()
        )
    return any(
        isinstance(value, str) and value.startswith(rule["prefix"]) if isinstance(rule, dict) else value == rule
        for rule in pattern
    )


class Mappings:
    """The mappings of one run, each a task that calls a function; their positions are in the folder `data`.

    `is_kept` says whether the server of the tables' streams keeps them when it ends; `say` prints a line.
    """

    def __init__(self, endpoints: Endpoints, data: Path, say: Callable[[str], None], *, is_kept: bool) -> None:
        self._endpoints = endpoints
        self._data = data
        self._say = say
        self._is_kept = is_kept
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, sources: Iterable[EventSource], invoke: Invoke) -> None:
        """Lets the streams of tables call functions, unless they already do."""
        for source in sources if not self._tasks else ():
            places = ShardPositions(self._data / f"event-source-{source.function}.json", is_kept=self._is_kept)
            streams = TableStream(self._endpoints, source.table)
            mapping = EventSourceMapping(source, streams, places, invoke, self._say)
            self._tasks += [asyncio.create_task(mapping.run()), asyncio.create_task(mapping.sweep())]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
