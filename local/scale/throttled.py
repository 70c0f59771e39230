"""Plays what a POST asks of AWS, in virtual time and with AWS's limits: the control table and Step Functions.

A request takes some milliseconds, changes tables in memory, and is throttled by partition, by table and by the quota of
StartExecution, each a token bucket. Invariant: what is refused changes nothing, and is counted all the same.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from handlers.store.typed_values import key, number
from local import stages
from local.costs.units import READ_BYTES, WRITE_BYTES, item_bytes
from local.simulation.tables import MemoryDynamoDB, method
from states_language import TaskFailure
from states_language.clock import VirtualClock

NAMES = stages.names("scale")
CONTROL = NAMES["control_table"]
ARN = "arn:aws:states:us-east-1:000000000000"
# What a request of a machine takes, in milliseconds.
_LATENCY_MS = (5, 25)
# "3,000 read units per second and 1,000 write units per second" of one partition.
PARTITION_READS = 3_000
# What a function writes of a stream that it opens for the first time: claim and mark, and its first cursor.
OPENING_UNITS = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """Units and requests a second: writes of a partition and of the table, and StartExecution with its bucket."""

    partition_writes: int
    table_writes: int
    start_refill: int
    start_bucket: int


@dataclass(slots=True)
class Bucket:
    """So many tokens a second, and so many at most."""

    refill: float
    most: float
    tokens: float = -1.0
    at_s: float = 0.0

    def takes(self, now_s: float, units: float) -> bool:
        """Whether there are so many, which are then taken."""
        held = self.most if self.tokens < 0 else min(self.most, self.tokens + (now_s - self.at_s) * self.refill)
        self.at_s, self.tokens = now_s, held - units if held >= units else held
        return held >= units


class Aws:
    """The control table and Step Functions, with their limits; `by_second` has what was asked for in each."""

    def __init__(self, clock: VirtualClock, limits: Limits) -> None:
        self.clock = clock
        self.limits = limits
        self.tables = MemoryDynamoDB(NAMES["events_table"], CONTROL)
        self.executions: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.by_second: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, Bucket] = {}

    async def ask(self, action: str, parameters: dict[str, Any]) -> Any:
        """The answer to a Task's request, after a while; TaskFailure where it is refused."""
        least, most = _LATENCY_MS
        await self.clock.sleep_until(self.clock.now_ms() + round(least + (most - least) * self.clock.random()))
        if action == "startExecution":
            return self._started(parameters)
        if action == "describeExecution":
            arn = parameters["ExecutionArn"]
            return {"ExecutionArn": arn, "Status": "RUNNING", "StartDate": "2026-01-01T00:00:00.000Z"}
        named = parameters.get("Key") or parameters["Item"]
        place = {name: named[name] for name in ("PK", "SK")}
        item = self.tables.get_item(TableName=CONTROL, Key=place).get("Item", {})
        kind, unit_bytes = ("read", READ_BYTES) if action == "getItem" else ("write", WRITE_BYTES)
        self._takes(kind, place["PK"]["S"], max(1, math.ceil(item_bytes(item) / unit_bytes)))
        try:
            return method(self.tables, action)(**parameters)
        except ClientError as refusal:
            self.counts["refused"] += 1
            raise TaskFailure(f"DynamoDB.{refusal.response['Error']['Code']}", "refused") from None

    def opens(self, at_ms: int) -> None:
        """Counts what a stream's opening writes, in the second in which its function does."""
        self.by_second["units", at_ms // 1000] += OPENING_UNITS

    def most(self, what: str) -> int:
        """The most of it in one second."""
        return max((amount for (one, _), amount in self.by_second.items() if one == what), default=0)

    def most_of_a_partition(self) -> int:
        """The most units of writing that one partition was asked for in a second."""
        return max(amount for (what, _), amount in self.by_second.items() if what.startswith("write "))

    def counted(self, what: str, amount: int = 1) -> None:
        """Counts it in this second."""
        self.by_second[what, self.clock.now_ms() // 1000] += amount

    def _takes(self, kind: str, partition: str, units: int) -> None:
        limits, now_s = self.limits, self.clock.now_ms() / 1000
        buckets = {f"{kind} {partition}": PARTITION_READS}
        if kind == "write":
            self.counted(f"write {partition}", units)
            self.counted("units", units)
            buckets = {f"write {partition}": limits.partition_writes, "table": limits.table_writes}
        for name, size in buckets.items():
            if not self._buckets.setdefault(name, Bucket(size, size)).takes(now_s, units):
                self.counts["throttled"] += 1
                raise TaskFailure("DynamoDB.ThrottlingException", "Throughput exceeds the current capacity")

    def _started(self, parameters: dict[str, Any]) -> Any:
        limits, now_s, name = self.limits, self.clock.now_ms() / 1000, parameters["Name"]
        bucket = self._buckets.setdefault("start", Bucket(limits.start_refill, limits.start_bucket))
        self.counted("starts")
        if not bucket.takes(now_s, 1):
            self.counts["throttled"] += 1
            raise TaskFailure("StepFunctions.ThrottlingException", "Rate exceeded")
        if name in self.executions:
            raise TaskFailure("StepFunctions.ExecutionAlreadyExistsException", name)
        self.executions[name] = f"{ARN}:execution:{NAMES['connections']}:{name}"
        # It claims what it is to keep, as its first state does.
        self.counted("units")
        self.tables.update_item(
            TableName=CONTROL,
            Key=key(parameters["Input"]["pathParameters"]["streamId"], "lease"),
            UpdateExpression="SET execution = :me, generation = if_not_exists(generation, :zero) + :one",
            ExpressionAttributeValues={":me": {"S": self.executions[name]}, ":zero": number(0), ":one": number(1)},
        )
        return {"ExecutionArn": self.executions[name], "StartDate": self.clock.now_ms()}
