"""Applies a document to many streams in virtual time, as the service does: its requests to AWS, and its duration.

`handlers/fleet/request_pacing.py` decides which stream to start and when; each start is an execution of the deployed
machine that answers a POST, behind AWS's limits. Invariant: in the end every stream was started once, and no group has
more than it may.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from handlers.fleet.request_pacing import Outcome, Rate, RequestQueue, StreamRequest, most_per_s
from handlers.store.typed_values import item_key
from local import stages
from local.scale.throttled_aws import ARN, CONTROL, FUNCTIONS, NAMES, Limits, ThrottledAws
from states_language import Machine, load
from states_language.clock import VirtualClock

APPLIED = Path(__file__).with_name("applied.json")


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result: refusals that were tried again, streams that were left, and the worst seconds."""

    streams: int
    per_function: int
    groups: int
    refused: int
    left: int
    functions_refused: int
    most_starts: int
    most_units: int
    most_partition_units: int
    over_after_s: int


def simulate_apply(streams: int, per_function: int, limits: Limits) -> ApplyResult:
    """Applies a document with so many new streams, so many in a function."""
    clock = VirtualClock(seed=1)
    aws, machine = ThrottledAws(clock, limits), _start_machine(per_function)
    names = [f"fleet:{one:06d}" for one in range(streams)]
    rate = Rate(most_per_s(per_function), clock.now_ms())
    asking = RequestQueue((StreamRequest(name, is_connected=True) for name in names), rate, clock.random)

    async def run() -> ApplyResult:
        begun_ms = clock.now_ms()
        under_way: set[asyncio.Future[None]] = set()

        async def ask(one: StreamRequest) -> None:
            is_done = await _start_stream(aws, machine, one.stream_id, f"{one.stream_id}-{one.tries}")
            outcome = Outcome.DONE if is_done else Outcome.REFUSED
            asking.record_outcome(one, outcome, "it was refused", clock.now_ms())

        while (due := asking.next_request(clock.now_ms())) is not None:
            if isinstance(due, StreamRequest):
                task = asyncio.ensure_future(ask(due))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            else:
                await clock.sleep_until(clock.now_ms() + due)
        await aws.wait_for_calls()
        over_s = round((clock.now_ms() - begun_ms) / 1000)
        leases = (aws.tables.get_item(TableName=CONTROL, Key=item_key(name, "lease")).get("Item") for name in names)
        groups = Counter(lease["group"]["S"] if "group" in lease else "" for lease in leases if lease is not None)
        assert groups.total() == streams - len(asking.failed)
        assert per_function == 1 or max(groups.values()) <= per_function
        return ApplyResult(
            streams,
            per_function,
            len(groups) if per_function > 1 else 0,
            asking.counts["refused"],
            len(asking.failed),
            aws.refused[FUNCTIONS],
            aws.most_in_a_second("starts"),
            aws.most_in_a_second("units"),
            aws.most_of_a_partition(),
            over_s,
        )

    return clock.run(run())


@cache
def _start_machine(per_function: int) -> Machine:
    settings = stages.load("prod") | {"streams_per_function": per_function}
    return load(
        stages.resolve(stages.read_machine_file(stages.ROOT / "statemachines" / "start.asl.yml"), settings, NAMES)
    )


async def _start_stream(aws: ThrottledAws, machine: Machine, stream: str, request: str) -> bool:
    """Whether the machine that answers a POST, in the execution named `request`, has started the stream."""
    execution = machine.start(
        {"pathParameters": {"streamId": stream}},
        clock=aws.clock,
        perform=aws.perform,
        name=request,
        machine_arn=f"{ARN}:stateMachine:{NAMES['start']}",
        arn=f"{ARN}:express:{NAMES['start']}:{request}",
    )
    await execution.wait()
    return execution.status == "SUCCEEDED"


def read_apply_result() -> ApplyResult:
    """The counts in applied.json."""
    return ApplyResult(**json.loads(APPLIED.read_text(encoding="utf-8")))
