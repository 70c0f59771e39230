"""Plays SQS, and Lambda's event source mapping, for a function by hand (`by_queue.py`), in virtual time.

Invariant: nothing of a function whose process died goes on; its message comes again when nobody hides it any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from local.compare import by_queue
from local.compare.played_lambda import ended_within, killed
from local.compare.played_world import World
from local.compare.result import Result
from local.simulation.scenario import Scenario
from local.simulation.virtual_queue import VirtualQueue
from local.simulation.virtual_stage import INPUT
from timeline.spans import Span

COPIES = 0.01
"""How many deliveries SQS makes twice; it calls them rare and gives no number."""
# Lambda reads an idle queue by so many long polls at once, of so many seconds.
POLLERS, POLL_S = 5, 20


class _Counted:
    """DynamoDB of the world; `writes` are what was asked of it, for a condition that fails costs the same."""

    def __init__(self, world: World) -> None:
        self._tables = world.sandbox.tables
        self.writes = 0

    def update_item(self, **request: Any) -> dict[str, Any]:
        self.writes += 1
        return self._tables.update_item(**request)


class PlayedQueue:
    """The queue of one stream, and the functions that its messages start; it is the `by_queue.Platform` of each."""

    queue_url = "https://sqs.invalid/lanes"

    def __init__(self, world: World, copies: float = COPIES, retention_s: int = by_queue.RETENTION_S) -> None:
        self._world = world
        self.retention_s = retention_s
        draw = random.Random(f"copies {world.source.seed}")
        limit_s = world.source.settings["function_timeout_s"]
        # An event source mapping asks that a queue hides a message for no less than the function's limit.
        self.sqs = VirtualQueue(world.clock, limit_s, retention_s, self._deliver, lambda: draw.random() < copies)
        self.dynamodb = _Counted(world)
        self.table = world.names["control_table"]
        self.handled = 0
        self._running: set[asyncio.Future[Any]] = set()

    def begin(self) -> None:
        """Sends the first messages."""
        for message in by_queue.first_messages(INPUT, self._world.source.settings["wait_s"]):
            self.sqs.send_message(QueueUrl=self.queue_url, **message)

    def now_ms(self) -> int:
        """Returns the time."""
        return self._world.clock.now_ms()

    def connect(self, event: Mapping[str, Any], lane: str) -> asyncio.Future[Any]:
        """Runs the connection manager; where its process dies the function is over."""
        connected = self._world.connect(event, lane)
        life = asyncio.current_task()

        def ended(done: asyncio.Future[Any]) -> None:
            if killed(done) and life is not None:
                life.cancel()

        connected.add_done_callback(ended)
        return connected

    async def ended_within(self, connected: Awaitable[Any], seconds: float) -> bool:
        """Returns whether the connection is over before that time is."""
        return await ended_within(self._world, connected, seconds)

    def _deliver(self, record: dict[str, Any]) -> None:
        at_ms = self._world.after(self._world.latencies.wait_to_task_ms())
        self._world.clock.call_at(at_ms, partial(self._start, record))

    def _start(self, record: dict[str, Any]) -> None:
        self.handled += 1
        life = asyncio.ensure_future(by_queue.handler({"Records": [record]}, self))
        self._running.add(life)

        def answered(done: asyncio.Future[Any]) -> None:
            self._running.discard(done)
            if done.cancelled() or isinstance(done.exception(), ClientError):
                return  # Lambda deletes no message of a function that failed
            if not done.result()["batchItemFailures"]:
                self.sqs.delete_message(QueueUrl=self.queue_url, ReceiptHandle=record["receiptHandle"])

        life.add_done_callback(answered)


def play(
    source: Scenario, copies: float = COPIES, retention_s: int = by_queue.RETENTION_S
) -> tuple[World, PlayedQueue]:
    """Returns what happened until the scenario's end."""
    world = World(source)
    played = PlayedQueue(world, copies, retention_s)

    async def begin() -> None:
        played.begin()

    world.run(begin())
    return world, played


def run(name: str, source: Scenario) -> Result:
    """Returns what a function came to that SQS calls."""
    world, played = play(source)
    world.waits = _between(world)
    polls = POLLERS * source.run_for_ms / (POLL_S * 1000)
    charges = {
        ("sqs", "million_requests"): played.sqs.requests + polls,
        ("dynamodb", "million_write_units"): played.dynamodb.writes,
    }
    return world.result(name, besides=played.handled - len(world.tasks), charges=charges)


def _between(world: World) -> list[Span]:
    """Returns the waits: what lies between a lane's functions, and before its first."""
    waits = []
    for lane in "AB":
        at_ms = 0
        for task in (task for task in world.tasks if task.lane == lane):
            waits.append(Span(lane, "wait", at_ms, task.from_ms))
            at_ms = world.source.run_for_ms if task.to_ms is None else task.to_ms
    return waits
