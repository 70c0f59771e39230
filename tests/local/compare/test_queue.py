"""The function that SQS calls: no step is taken twice, whatever the queue delivers."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from local.compare import queue_strategy
from local.compare import strategies_page as page
from local.simulation.virtual_queue import VirtualQueue
from states_language.clock import VirtualClock
from tests.examples import examples
from tests.local.compare.test_durable import SHORT


@settings(max_examples=examples(10))
@given(st.floats(0, 1), st.sampled_from(["none", "rough"]), st.integers(0, 2**53))
def test_a_lane_has_one_function_at_a_time(copies: float, faults: str, seed: int) -> None:
    """A lane has one function at a time, however many messages come twice; without faults the copies cause no gap."""
    options = [*SHORT, "--hours", "0.15", "--faults", faults, "--seed", str(seed)]
    world, _ = queue_strategy.simulate(page.scenario_of(options), copies)
    for lane in "AB":
        own = [task for task in world.tasks if task.lane == lane]
        assert all(older.to_ms is not None and older.to_ms <= newer.from_ms for older, newer in pairwise(own))
    if faults == "none":
        assert world.make_result("queue").gaps == []


def test_a_message_is_replaced_before_its_retention_ends() -> None:
    """A message that is kept for 20 minutes is replaced three times in an hour; none expires, and there is no gap."""
    world, played = queue_strategy.simulate(page.scenario_of([*SHORT, "--hours", "1"]), retention_s=1200)
    assert (played.sqs.expired, played.sqs.sent) == (0, 2 * 4)
    assert world.make_result("queue").gaps == []


def test_a_message_of_a_function_that_died_comes_again() -> None:
    """A killed function's message is hidden for 60 s from its last extension; the other lane connects before."""
    source = page.scenario_of([*SHORT, "--hours", "0.1"])
    world, _ = queue_strategy.simulate(replace(source, kills_ms=(30_000,)), copies=0)
    first = world.make_result("queue").gaps[0]
    # Starts take 56, 63 and 165 ms, the second connect 1,582.
    assert (first.from_ms, first.to_ms, first.cause) == (30_000, 35_000 + 63 + 1_582, "killed")
    # The function had extended the hiding at 20,056.
    assert [task.from_ms for task in world.tasks if task.lane == "B"][:2] == [56, 80_056 + 59]


def test_a_message_that_is_not_deleted_comes_again_as_from_sqs() -> None:
    """A message that is not deleted comes again with a higher count, until it is too old."""
    clock = VirtualClock()
    got: list[dict[str, Any]] = []
    queue = VirtualQueue(clock, 30, 100, got.append, lambda: False)

    async def run() -> None:
        queue.send_message(QueueUrl="", MessageBody=json.dumps({}), DelaySeconds=5)
        await clock.sleep_until(clock.start_ms + 40_000)
        queue.change_message_visibility(QueueUrl="", ReceiptHandle=got[-1]["receiptHandle"], VisibilityTimeout=50)
        await clock.sleep_until(clock.start_ms + 1_000_000)

    clock.run(run())
    assert [record["attributes"]["ApproximateReceiveCount"] for record in got] == ["1", "2", "3"]
    assert (queue.expired, queue.requests) == (1, 5)
    with pytest.raises(ClientError, match="Must be >= 0"):
        queue.send_message(QueueUrl="", MessageBody="", DelaySeconds=901)


def test_the_queue_is_charged_by_requests_polls_and_writes() -> None:
    """Charged are the queue's requests, Lambda's long polls, and each conditional write."""
    source = page.scenario_of([*SHORT, "--hours", "0.05"])
    _, played = queue_strategy.simulate(source)
    charges = queue_strategy.run("queue", source).charges
    assert charges["sqs", "million_requests"] == played.sqs.requests + 5 * 180 / 20
    assert charges["dynamodb", "million_write_units"] == played.writes
