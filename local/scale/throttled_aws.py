"""Simulates a POST's requests to AWS in virtual time, with AWS's limits: the control table and Step Functions.

A request takes some milliseconds, changes tables in memory, and is throttled by partition, by table and by the quotas
on its way, each a token bucket: StartExecution, state transitions, and how fast Lambda adds environments of a function.
Invariant: a refused request changes nothing, but is counted.
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from handlers.fleet.request_pacing import Outcome, Rate, RequestQueue, StreamRequest, most_per_s
from handlers.store.typed_values import item_key, number_value
from local import stages
from local.costs.units import READ_BYTES, WRITE_BYTES, item_bytes
from local.simulation.shared_tasks import send_table_request
from local.simulation.tables import MemoryDynamoDB
from states_language import Machine, TaskCall, TaskFailure, load
from states_language.clock import VirtualClock

NAMES = stages.names("scale")
CONTROL = NAMES["control_table"]
ARN = "arn:aws:states:us-east-1:000000000000"
# The duration of a machine's request in milliseconds.
_LATENCY_MS = (5, 25)
# "3,000 read units per second and 1,000 write units per second" of one partition.
PARTITION_READS = 3_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Units per second of a partition and of the table, and the account's quotas in a region (per second, at most)."""

    partition_writes: int
    table_writes: int
    rates: Mapping[str, tuple[float, float]]


START, TRANSITIONS, FUNCTIONS = "start_execution", "transitions", "new_functions"
# States that an execution enters before it calls its function; the last are the Task of one lane and the other's Wait.
TRANSITIONS_TO_CONNECT = 7
# How long a lane waits at most before it repeats a call that Lambda refused.
RETRY_MOST_S = 20.0


@dataclass(slots=True)
class TokenBucket:
    refill: float
    most: float
    tokens: float | None = None
    at_s: float = 0.0

    def try_take(self, now_s: float, units: float) -> bool:
        """Takes so many tokens if there are enough; returns whether it did."""
        held = self._tokens_at(now_s)
        self.at_s, self.tokens = now_s, held - units if held >= units else held
        return held >= units

    def take_and_wait_s(self, now_s: float, units: float) -> float:
        """Takes so many tokens in any case, and returns how long to wait until they are there."""
        held = self._tokens_at(now_s)
        self.at_s, self.tokens = now_s, held - units
        return max(0.0, (units - held) / self.refill)

    def _tokens_at(self, now_s: float) -> float:
        if self.tokens is None:
            return self.most
        return min(self.most, self.tokens + (now_s - self.at_s) * self.refill)


class ThrottledAws:
    """The control table and Step Functions, with their limits.

    `by_second` has the requests of each second, `refused` how many each quota refused.
    """

    def __init__(self, clock: VirtualClock, limits: Limits) -> None:
        self.clock = clock
        self.limits = limits
        self.tables = MemoryDynamoDB(NAMES["events_table"], CONTROL)
        self.executions: dict[str, str] = {}
        self.by_second: Counter[tuple[str, int]] = Counter()
        self.refused: Counter[str] = Counter()
        self._buckets = {name: TokenBucket(*rate) for name, rate in limits.rates.items()}
        self._calling: list[asyncio.Future[None]] = []

    async def perform(self, call: TaskCall) -> Any:
        """Returns the answer to a Task's request, after a while; raises TaskFailure if the request is refused."""
        action, parameters = call.action, call.parameters
        least, most = _LATENCY_MS
        await self.clock.sleep_until(self.clock.now_ms() + round(least + (most - least) * self.clock.random()))
        if action == "startExecution":
            return self._start_execution(parameters)
        if action == "describeExecution":
            arn = parameters["ExecutionArn"]
            return {"ExecutionArn": arn, "Status": "RUNNING", "StartDate": "2026-01-01T00:00:00.000Z"}
        named = parameters.get("Key") or parameters["Item"]
        place = {name: named[name] for name in ("PK", "SK")}
        item = self.tables.get_item(TableName=CONTROL, Key=place).get("Item", {})
        kind, unit_bytes = ("read", READ_BYTES) if action == "getItem" else ("write", WRITE_BYTES)
        self._take_units(kind, place["PK"]["S"], max(1, math.ceil(item_bytes(item) / unit_bytes)))
        return send_table_request(self.tables, call)

    async def wait_for_calls(self) -> None:
        """Returns once each started execution has called its function."""
        await asyncio.gather(*self._calling)

    async def _call_function(self) -> None:
        """Calls the function of a new execution once its transitions are made; a refused call is repeated."""
        after_s = self._buckets[TRANSITIONS].take_and_wait_s(self.clock.now_ms() / 1000, TRANSITIONS_TO_CONNECT)
        await self.clock.sleep_until(self.clock.now_ms() + round(1000 * after_s))
        while not self._is_within_quota(FUNCTIONS):
            await self.clock.sleep_until(self.clock.now_ms() + round(1000 * RETRY_MOST_S * self.clock.random()) + 1)

    def most_in_a_second(self, what: str) -> int:
        return max((amount for (one, _), amount in self.by_second.items() if one == what), default=0)

    def most_of_a_partition(self) -> int:
        """Returns the most write units that were requested of one partition in a second."""
        return max((amount for (what, _), amount in self.by_second.items() if what.startswith("write ")), default=0)

    def count(self, what: str, amount: int = 1) -> None:
        """Counts something in this second."""
        self.by_second[what, self.clock.now_ms() // 1000] += amount

    def _is_within_quota(self, quota: str) -> bool:
        """Returns whether a request is within the quota now."""
        is_within = self._buckets[quota].try_take(self.clock.now_ms() / 1000, 1)
        self.refused[quota] += not is_within
        return is_within

    def _take_units(self, kind: str, partition: str, units: int) -> None:
        limits, now_s = self.limits, self.clock.now_ms() / 1000
        buckets = {f"{kind} {partition}": PARTITION_READS}
        if kind == "write":
            self.count(f"write {partition}", units)
            self.count("units", units)
            buckets = {f"write {partition}": limits.partition_writes, "table": limits.table_writes}
        for name, size in buckets.items():
            if not self._buckets.setdefault(name, TokenBucket(size, size)).try_take(now_s, units):
                raise TaskFailure("DynamoDB.ThrottlingException", "Throughput exceeds the current capacity")

    def _start_execution(self, parameters: dict[str, Any]) -> Any:
        name = parameters["Name"]
        self.count("starts")
        if not self._is_within_quota(START):
            raise TaskFailure("StepFunctions.ThrottlingException", "Rate exceeded")
        if name in self.executions:
            raise TaskFailure("StepFunctions.ExecutionAlreadyExistsException", name)
        self.executions[name] = f"{ARN}:execution:{NAMES['connections']}:{name}"
        self._calling.append(asyncio.ensure_future(self._call_function()))
        # It claims its streams, as its first state does.
        self.count("units")
        self.tables.update_item(
            TableName=CONTROL,
            Key=item_key(parameters["Input"]["pathParameters"]["streamId"], "lease"),
            UpdateExpression="SET execution = :me, generation = if_not_exists(generation, :zero) + :one",
            ExpressionAttributeValues={
                ":me": {"S": self.executions[name]},
                ":zero": number_value(0),
                ":one": number_value(1),
            },
        )
        return {"ExecutionArn": self.executions[name], "StartDate": self.clock.now_ms()}


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
    """Applies a document with so many new streams, so many in a function, as the service does.

    `handlers/fleet/request_pacing.py` decides which stream to start and when; each start is an execution of the
    deployed machine that answers a POST, behind AWS's limits. Invariant: in the end every stream was started once, and
    no group has more than it may.
    """
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
