"""Outages of hours, at the deployed settings: no execution ends because of one, and the stream is kept afterwards."""

from typing import Any

import pytest

from local.asl import Execution, TaskCall, TaskFailure, load
from local.clock import VirtualClock
from tests.statemachines.connections import INPUT, definition

HOUR_MS = 3_600_000
BEGINS_MS = HOUR_MS
LIFE_MS = 880_000
READ_EVERY_MS = 10_000
REFUSED = "DynamoDB.ConditionalCheckFailedException"


class World:
    """A lease, connections that hand over, and one service that answers nothing for so many hours."""

    def __init__(self, away: str, hours: int) -> None:
        self.clock = VirtualClock()
        self.machine = load(definition("connections", "prod"))
        self.executions: list[Execution] = []
        self.holder: str | None = None
        self.fence = 0
        self.away = away
        self.began_ms = self.clock.now_ms() + BEGINS_MS
        self.over_ms = self.began_ms + hours * HOUR_MS

    def is_away(self, service: str) -> bool:
        """Whether the service answers nothing now."""
        return service == self.away and self.began_ms <= self.clock.now_ms() < self.over_ms

    def start(self, given: Any) -> str:
        """The ARN of a new execution."""
        name = f"execution-{len(self.executions)}"
        self.executions.append(self.machine.start(given, clock=self.clock, perform=self.perform, name=name))
        return self.executions[-1].arn

    async def rest(self, length_ms: int) -> None:
        """Returns when so much time has passed."""
        await self.clock.sleep_until(self.clock.now_ms() + length_ms)

    async def perform(self, call: TaskCall) -> Any:
        """What a service answers."""
        if call.function is not None:
            status = await self.connect(call.execution_arn)
            return {"Payload": {"status": status}, "status": status}
        if call.action == "startExecution":
            return {"ExecutionArn": self.start(call.parameters["Input"])}
        if self.is_away("table"):
            raise TaskFailure("DynamoDB.SdkClientException", "the table is away")
        assert call.action == "updateItem"
        values = call.parameters["ExpressionAttributeValues"]
        me = call.execution_arn
        if ":ending" in values:
            if self.holder != me:
                raise TaskFailure(REFUSED, "another has it")
            self.holder = None
        elif self.holder in (None, me, values.get(":predecessor", {}).get("S")):
            self.holder = me
        else:
            raise TaskFailure(REFUSED, "another has it")
        return {}

    async def connect(self, execution: str) -> str:
        """How a connection manager returns; what it raises is a TaskFailure of that name."""
        if self.is_away("lambda"):
            raise TaskFailure("Lambda.ServiceException", "no function starts")
        if self.is_away("table"):
            await self.rest(READ_EVERY_MS)
            raise TaskFailure("StoreUnavailable", "the table is away")
        if self.holder != execution:
            return "superseded"
        self.fence += 1
        fence, leaves_ms = self.fence, self.clock.now_ms() + LIFE_MS
        while self.clock.now_ms() < leaves_ms:
            if self.is_away("upstream"):
                raise TaskFailure("StreamDropped", "the upstream is away")
            await self.rest(READ_EVERY_MS)
            if self.is_away("table"):
                raise TaskFailure("StoreUnavailable", "the table is away")
            if self.fence > fence:
                if self.holder != execution:
                    return "superseded"
                raise TaskFailure("StreamTakenOver", "a newer connection")
        raise TaskFailure("ConnectionExpired", "the deadline")


@pytest.mark.parametrize(("away", "hours"), [("upstream", 9), ("lambda", 6), ("table", 2), ("table", 6)])
def test_an_outage_ends_no_execution(away: str, hours: int) -> None:
    """Executions are renewed and nothing else; none fails, and an hour later the one that holds the stream runs."""
    world = World(away, hours)

    async def main() -> None:
        world.start(INPUT)
        await world.clock.sleep_until(world.over_ms + HOUR_MS)
        assert [one.error for one in world.executions if one.status == "FAILED"] == []
        assert [one.arn for one in world.executions if one.status == "RUNNING"] == [world.holder]

    world.clock.run(main())
    ends = {(one.status, (one.output or {}).get("status")) for one in world.executions if one.status != "ABORTED"}
    assert ends - {("RUNNING", None)} <= {("SUCCEEDED", "superseded"), ("SUCCEEDED", "NotNeeded")}
