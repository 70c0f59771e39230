"""A world in which services are away for days: the deployed machine, its table, and functions that hand over."""

from collections import Counter
from collections.abc import Set
from contextlib import suppress
from typing import Any

from local import stages
from local.simulation.shared_tasks import send_table_request
from local.simulation.tables import MemoryDynamoDB
from states_language import Execution, Machine, TaskCall, TaskFailure, load
from states_language.clock import VirtualClock
from states_language.timestamps import format_timestamp
from tests.statemachines.connections import INPUT, LEASE, definition

HOUR_MS = 3_600_000
LIFE_MS = 880_000
READ_EVERY_MS = 10_000
STAGE = "prod"
TABLE = stages.names(STAGE)["control_table"]
MACHINE = load(definition("connections", STAGE))


class World:
    """Executions on one table, with services that do not answer between certain hours. In the first minute of an outage
    of the table, writes are made and their answers are lost.
    """

    def __init__(self, away: Set[str], from_h: float, to_h: float, machine: Machine = MACHINE) -> None:
        self.machine = machine
        self.clock = VirtualClock()
        self.table = MemoryDynamoDB(TABLE)
        self.executions: list[Execution] = []
        self.most_alive = 0
        self.names: dict[str, Execution] = {}
        self.dead_letters = 0
        self.fence = 0
        self.away = away
        self.origin_ms = self.clock.now_ms()
        self.began_ms = self.origin_ms + round(from_h * HOUR_MS)
        self.over_ms = self.origin_ms + round(to_h * HOUR_MS)

    def is_away(self, service: str) -> bool:
        """Returns whether the service does not answer now."""
        return service in self.away and self.began_ms <= self.clock.now_ms() < self.over_ms

    @property
    def lease(self) -> dict[str, Any]:
        item: dict[str, Any] = self.table.get_item(TableName=TABLE, Key=LEASE).get("Item", {})
        return item

    @property
    def holder(self) -> str | None:
        """Returns the execution in the lease; None if there is none."""
        holder: str | None = self.lease.get("execution", {}).get("S")
        return holder

    @property
    def alive(self) -> list[str]:
        """Returns the ARNs of the running executions."""
        return [one.arn for one in self.executions if one.status == "RUNNING"]

    def ends(self) -> Counter[Any]:
        """Returns the ends of executions with their counts: an error's name, or the status in the output."""
        over = [one for one in self.executions if one.status not in ("RUNNING", "ABORTED")]
        return Counter(one.error or one.output["status"] for one in over)

    def post(self, input_: Any = INPUT, name: str = "") -> Execution:
        name = name or f"execution-{len(self.executions)}"
        self.executions.append(self.machine.start(input_, clock=self.clock, perform=self.perform, name=name))
        self.most_alive = max(self.most_alive, len(self.alive))
        return self.executions[-1]

    def stop(self) -> None:
        """Requests the stop, as DELETE does."""
        self.set({"stop": {"BOOL": True}, "stop_at": {"S": format_timestamp(self.clock.now_ms())}})

    def renew(self) -> None:
        """Writes into the lease until when the connection certainly lives; writes nothing while the table is away."""
        if not self.is_away("table"):
            self.set({"expires_at_ms": {"N": str(self.clock.now_ms() + 2 * READ_EVERY_MS)}})

    def set(self, attributes: dict[str, Any]) -> None:
        """Writes attributes into the lease."""
        self.table.update_item(
            TableName=TABLE,
            Key=LEASE,
            UpdateExpression=f"SET {', '.join(f'{name} = :{name}' for name in attributes)}",
            ExpressionAttributeValues={f":{name}": value for name, value in attributes.items()},
        )

    async def hour(self, hour: float) -> None:
        """Returns the instant so many hours after the beginning."""
        await self.clock.sleep_until(self.origin_ms + round(hour * HOUR_MS))

    async def perform(self, call: TaskCall) -> Any:
        """Returns the answer of a service."""
        if call.function is not None:
            return {"status": await self.invoke(call)}
        if call.action == "startExecution":
            return {"ExecutionArn": self.start(call.parameters).arn}
        if call.action == "describeExecution":
            (described,) = [one for one in self.executions if one.arn == call.parameters["ExecutionArn"]]
            return {"Status": described.status}
        if call.action == "sendMessage":
            self.dead_letters += 1
            return {}
        return self.request(call)

    def start(self, wanted: dict[str, Any]) -> Execution:
        """Starts the execution of that name, which is never used again."""
        known = self.names.get(wanted["Name"])
        if known is None:
            known = self.names[wanted["Name"]] = self.post(wanted["Input"], wanted["Name"])
        elif known.status != "RUNNING":
            raise TaskFailure("StepFunctions.ExecutionAlreadyExistsException", "over")
        return known

    def request(self, call: TaskCall) -> Any:
        """Returns the answer of the table."""
        is_lost = self.is_away("table")
        if is_lost and (call.action == "getItem" or self.clock.now_ms() >= self.began_ms + 60_000):
            raise TaskFailure("DynamoDB.SdkClientException", "the table is away")
        if not is_lost:
            return send_table_request(self.table, call)
        with suppress(TaskFailure):
            send_table_request(self.table, call)
        raise TaskFailure("DynamoDB.SdkClientException", "the answer is lost")

    async def invoke(self, call: TaskCall) -> str:
        """Returns the result of a connection manager that knows in which cycle a renewal is due."""
        try:
            return await self.connect(call.execution_arn)
        except TaskFailure as failure:
            usual = failure.error in ("StreamTakenOver", "ConnectionExpired")
            if usual and call.payload["cycles"] + 1 >= call.payload["renew_after"]:
                raise TaskFailure("RenewalDue", f"{failure.error}: {failure.cause}") from None
            raise

    async def connect(self, execution: str) -> str:
        """Returns the result of a connection manager; its errors become a TaskFailure of their name."""
        if self.is_away("lambda"):
            raise TaskFailure("Lambda.ServiceException", "no function starts")
        self.fence += 1
        fence, leaves_ms = self.fence, self.clock.now_ms() + LIFE_MS
        while self.clock.now_ms() < leaves_ms:
            self.renew()
            if self.is_away("table"):
                await self.clock.sleep_until(self.clock.now_ms() + READ_EVERY_MS)
                raise TaskFailure("StoreUnavailable", "the table is away")
            if "stop" in self.lease:
                return "stopped"
            if self.holder not in (execution, None):
                return "superseded"
            if self.fence > fence:
                raise TaskFailure("StreamTakenOver", "a newer connection")
            if self.is_away("upstream"):
                raise TaskFailure("StreamDropped", "the upstream is away")
            await self.clock.sleep_until(self.clock.now_ms() + READ_EVERY_MS)
        raise TaskFailure("ConnectionExpired", "the deadline")
