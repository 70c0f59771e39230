"""Starts thousands of streams at once, in virtual time: what their POSTs ask of AWS, and what it refuses.

Each client waits at random before its first POST, and backs off with full jitter where that is answered by 429 or 503.
Where each stream has an execution to itself a POST asks StartExecution, whose quota is a token bucket, and where that
refuses it once more within a second (`once_more` of the machine). Where they share functions a POST makes the requests
of `statemachines/start.asl.yml`, in its order; a test lets the machine itself make them and compares. A function opens
a stream that has joined with its next heartbeat. Invariant: every stream has joined or started in the end, once, and no
group has more than it may.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from handlers.run.group_function import HEARTBEAT_EVERY_MS
from handlers.store.typed_values import key, number
from local.scale.throttled import ARN, CONTROL, Aws, Limits
from states_language import TaskFailure
from states_language.clock import VirtualClock

# What a client should do that is answered by 503: back off from this, doubled each time, up to this, drawn from 0 on.
BACKOFF_S, BACKOFF_MOST_S = 2.0, 60.0
RETRY_S = 1.0
# How often a POST searches for a group with a free place; the machine's `rounds`.
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Joined:
    """How it went; the most of anything is of one second."""

    streams: int
    spread_s: float
    groups: int
    busy: int
    throttled: int
    refused: int
    most_posts: int
    most_starts: int
    most_units: int
    most_partition_units: int
    over_after_s: float


# Starts a stream, as the answer of the API says it: True, or False where it is answered by 429 or 503.
Post = Callable[[Aws, str, str], Awaitable[bool]]


def join(streams: int, per_function: int, spread_s: float, limits: Limits, post: Post | None = None) -> Joined:
    """Starts so many streams, so many in a function, whose POSTs are spread over so many seconds."""
    clock = VirtualClock(seed=1)
    aws = Aws(clock, limits)
    posts = post or Posts(per_function).post

    async def run() -> Joined:
        begun_ms = clock.now_ms()
        names = [f"fleet:{one}" for one in range(streams)]
        await asyncio.gather(*(_client(aws, name, spread_s, posts) for name in names))
        members = [
            aws.tables.get_item(TableName=CONTROL, Key=key(name, "lease"))["Item"]["group"]["S"] for name in names
        ]
        assert max(Counter(members).values()) <= per_function
        return Joined(
            streams,
            spread_s,
            len(set(members)),
            aws.counts["busy"],
            aws.counts["throttled"],
            aws.counts["refused"],
            aws.most("posts"),
            aws.most("starts"),
            aws.most("units"),
            aws.most_of_a_partition(),
            (clock.now_ms() - begun_ms) / 1000,
        )

    return clock.run(run())


async def _client(aws: Aws, stream: str, spread_s: float, post: Post) -> None:
    """POSTs until the stream is started."""
    clock, times = aws.clock, 0
    await clock.sleep_until(clock.now_ms() + round(1000 * spread_s * clock.random()))
    while True:
        aws.counted("posts")
        if await post(aws, stream, f"{stream}-{times}"):
            aws.opens(clock.now_ms() + round(HEARTBEAT_EVERY_MS * clock.random()))
            return
        aws.counts["busy"] += 1
        rest_s = clock.random() * min(BACKOFF_MOST_S, BACKOFF_S * 2.0**times)
        times += 1
        await clock.sleep_until(clock.now_ms() + round(1000 * rest_s))


class Posts:
    """What the machine behind a POST asks for, where so many streams share a function and none has a lease yet."""

    def __init__(self, per_function: int) -> None:
        self._most = per_function

    async def post(self, aws: Aws, stream: str, request: str) -> bool:
        """Whether the stream is started."""
        try:
            return await self._joins(aws, stream, request)
        except TaskFailure:
            return False

    async def _joins(self, aws: Aws, stream: str, request: str) -> bool:
        lease = await self._read(aws, stream, "lease")
        group = lease["group"]["S"] if "group" in lease else await self._takes_place(aws)
        if not group:
            return False
        # An earlier POST of this client may have come so far: what is there is written again.
        await aws.ask("updateItem", _write(stream, "lease", "SET #group = :group, joined = :me", group, request))
        item = key(group, f"stream#{stream}") | {"joined": {"S": request}}
        await aws.ask("putItem", {"TableName": CONTROL, "Item": item})
        raised = await self._adds(aws, group, "version", ReturnValues="ALL_NEW")
        return await self._starts(aws, group, raised["Attributes"])

    async def _takes_place(self, aws: Aws) -> str:
        """The group in which there was one; "" where others were first again and again."""
        for _ in range(ROUNDS):
            groups = await self._read(aws, "#", "groups")
            listed = sorted(int(name.removeprefix("open:#")) for name in groups if name.startswith("open:#"))
            last = int(groups["last"]["N"]) if "last" in groups else 0
            if not listed and not await self._opens_group(aws, last):
                continue
            group = f"#{listed[0] if listed else last + 1}"
            if await self._was_done(self._adds(aws, group, "size", most=self._most)):
                return group
            await aws.ask("updateItem", _write("#", "groups", "REMOVE #open", open_=group))
        return ""

    async def _opens_group(self, aws: Aws, last: int) -> bool:
        change = _write("#", "groups", "SET #last = :next, #open = :yes", open_=f"#{last + 1}")
        change["ExpressionAttributeNames"] |= {"#last": "last"}
        change["ExpressionAttributeValues"] = {":next": number(last + 1), ":yes": {"BOOL": True}}
        condition = "attribute_not_exists(#last) OR #last < :next"
        return await self._was_done(aws.ask("updateItem", change | {"ConditionExpression": condition}))

    async def _starts(self, aws: Aws, group: str, lease: Any) -> bool:
        if "execution" in lease:
            await aws.ask("describeExecution", {"ExecutionArn": lease["execution"]["S"]})
            return True
        event = {"pathParameters": {"streamId": group}}
        for again in (True, False):
            try:
                await aws.ask("startExecution", {"Name": f"{group[1:]}-start", "Input": event})
                return True
            except TaskFailure as failure:
                if str(failure.error).endswith("AlreadyExistsException"):
                    await aws.ask("describeExecution", {"ExecutionArn": f"{ARN}:execution:{group[1:]}-start"})
                    return True
                if not again:
                    raise
                await aws.clock.sleep_until(aws.clock.now_ms() + round(1000 * RETRY_S * aws.clock.random()))
        return False

    async def _read(self, aws: Aws, partition: str, sort: str) -> Any:
        return (await aws.ask("getItem", {"TableName": CONTROL, "Key": key(partition, sort)})).get("Item", {})

    async def _adds(self, aws: Aws, group: str, name: str, *, most: int = 0, **more: Any) -> Any:
        values = {":zero": number(0), ":one": number(1)}
        if most:
            more["ConditionExpression"] = "attribute_not_exists(#name) OR #name < :most"
            values[":most"] = number(most)
        return await aws.ask(
            "updateItem",
            {
                "TableName": CONTROL,
                "Key": key(group, "lease"),
                "UpdateExpression": "SET #name = if_not_exists(#name, :zero) + :one",
                "ExpressionAttributeNames": {"#name": name},
                "ExpressionAttributeValues": values,
                **more,
            },
        )

    async def _was_done(self, request: Awaitable[Any]) -> bool:
        """Whether its condition held."""
        try:
            await request
        except TaskFailure as failure:
            if failure.error != "DynamoDB.ConditionalCheckFailedException":
                raise
            return False
        return True


def _write(
    partition: str, sort: str, update: str, group: str = "", request: str = "", open_: str = ""
) -> dict[str, Any]:
    change: dict[str, Any] = {"TableName": CONTROL, "Key": key(partition, sort), "UpdateExpression": update}
    if open_:
        return change | {"ExpressionAttributeNames": {"#open": f"open:{open_}"}}
    values = {":group": {"S": group}, ":me": {"S": request}}
    return change | {"ExpressionAttributeNames": {"#group": "group"}, "ExpressionAttributeValues": values}


# --- streams alone ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """How it went: requests that the quota refused, answers of 503, and after how many seconds all had been started."""

    streams: int
    spread_s: float
    refused: int
    unavailable: int
    over_after_s: float


def start(streams: int, spread_s: float, bucket: int, refill_per_s: float, seed: int = 1) -> Started:
    """Starts so many streams, each with an execution of its own, once, whose POSTs are spread over so many seconds."""
    draws = random.Random(seed)
    # When, whose, how many POSTs were refused, and whether it is the machine's own retry.
    due = [(draws.uniform(0, spread_s), stream, 0, False) for stream in range(streams)]
    heapq.heapify(due)
    tokens, before_s = float(bucket), 0.0
    refused = unavailable = 0
    at_s = 0.0
    while due:
        at_s, stream, times, is_retry = heapq.heappop(due)
        tokens, before_s = min(bucket, tokens + (at_s - before_s) * refill_per_s), at_s
        if tokens >= 1:
            tokens -= 1
            continue
        refused += 1
        if not is_retry:
            heapq.heappush(due, (at_s + draws.uniform(0, RETRY_S), stream, times, True))
            continue
        unavailable += 1
        rest_s = draws.uniform(0, min(BACKOFF_MOST_S, BACKOFF_S * 2.0**times))
        heapq.heappush(due, (at_s + rest_s, stream, times + 1, False))
    return Started(streams, spread_s, refused, unavailable, at_s)
