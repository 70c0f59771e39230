"""Starts thousands of streams at once, in virtual time: what their POSTs request of AWS, and what is refused.

Each client waits at random before its first POST, and backs off with full jitter after a 429 or 503. API Gateway
accepts as many as the stage's throttle and the account's quota allow, and the deployed machine answers each POST. A
function opens a stream that has joined with its next heartbeat. Invariant: in the end every stream has joined once, and
no group has more than it may.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from handlers.run.group_function import HEARTBEAT_EVERY_MS
from handlers.store.typed_values import key
from local import stages
from local.scale.throttled import ACCOUNT, API, ARN, CONTROL, NAMES, Aws, Limits
from states_language import Machine, TaskCall, load
from states_language.clock import VirtualClock

# The back-off of a client after a 503: drawn from 0 to this, which doubles each time up to a maximum.
BACKOFF_S, BACKOFF_MOST_S = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class Joined:
    """The result; every maximum is of one second."""

    streams: int
    spread_s: float
    groups: int
    busy: int
    at_the_api: int
    throttled: int
    refused: int
    most_posts: int
    most_starts: int
    most_units: int
    most_partition_units: int
    over_after_s: float


def join(streams: int, per_function: int, spread_s: float, limits: Limits) -> Joined:
    """Starts so many streams, so many in a function, with POSTs spread over so many seconds."""
    clock = VirtualClock(seed=1)
    aws, machine = Aws(clock, limits), machine_of(per_function)

    async def run() -> Joined:
        begun_ms = clock.now_ms()
        names = [f"fleet:{one}" for one in range(streams)]
        await asyncio.gather(*(_client(aws, machine, name, spread_s) for name in names))
        members = [
            aws.tables.get_item(TableName=CONTROL, Key=key(name, "lease"))["Item"]["group"]["S"] for name in names
        ]
        assert max(Counter(members).values()) <= per_function
        return Joined(
            streams,
            spread_s,
            len(set(members)),
            aws.counts["busy"],
            aws.buckets.refused[API] + aws.buckets.refused[ACCOUNT],
            aws.counts["throttled"],
            aws.counts["refused"],
            aws.most("posts"),
            aws.most("starts"),
            aws.most("units"),
            aws.most_of_a_partition(),
            (clock.now_ms() - begun_ms) / 1000,
        )

    return clock.run(run())


@cache
def machine_of(per_function: int) -> Machine:
    settings = stages.load("prod") | {"streams_per_function": per_function}
    return load(stages.resolve(stages.definition(stages.ROOT / "statemachines" / "start.asl.yml"), settings, NAMES))


async def _client(aws: Aws, machine: Machine, stream: str, spread_s: float) -> None:
    """POSTs until the stream is started."""
    clock, times = aws.clock, 0
    await clock.sleep_until(clock.now_ms() + round(1000 * spread_s * clock.random()))
    while not await _post(aws, machine, stream, f"{stream}-{times}"):
        aws.counts["busy"] += 1
        rest_s = clock.random() * min(BACKOFF_MOST_S, BACKOFF_S * 2.0**times)
        times += 1
        await clock.sleep_until(clock.now_ms() + round(1000 * rest_s))
    aws.opens(clock.now_ms() + round(HEARTBEAT_EVERY_MS * clock.random()))


async def _post(aws: Aws, machine: Machine, stream: str, request: str) -> bool:
    aws.counted("posts")
    return aws.buckets.admits(aws.clock.now_ms() / 1000) and await started(aws, machine, stream, request)


async def started(aws: Aws, machine: Machine, stream: str, request: str) -> bool:
    """Whether the machine that answers a POST, in the execution named `request`, has started the stream."""

    async def perform(call: TaskCall) -> Any:
        return await aws.ask(call.action, call.parameters)

    execution = machine.start(
        {"pathParameters": {"streamId": stream}, "queryStringParameters": {}},
        clock=aws.clock,
        perform=perform,
        name=request,
        machine_arn=f"{ARN}:stateMachine:{NAMES['start']}",
        arn=f"{ARN}:express:{NAMES['start']}:{request}",
    )
    await execution.wait()
    return execution.status == "SUCCEEDED"
