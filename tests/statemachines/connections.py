"""The deployed machine on the interpreter, with the tables of virtual time behind its claims."""

import json
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from local import stages
from local.simulation.shared_tasks import send_table_request
from local.simulation.tables import MemoryDynamoDB
from states_language import Execution, Machine, Perform, TaskCall, TaskFailure, load
from states_language.clock import VirtualClock

ROOT = stages.ROOT
STAGE = "test"
NAMES = stages.names(STAGE)
INPUT = {"pathParameters": {"streamId": "demo"}}  # what the machine needs, and all it needs
LEASE = {"PK": {"S": "demo"}, "SK": {"S": "lease"}}
MINE = "arn:aws:states:us-east-1:111111111111:execution:machine:mine"
OTHER = "arn:aws:states:us-east-1:111111111111:execution:machine:other"
# When an execution of Aws.run starts, and what it writes into a lease that nobody holds where it is stopped before.
START = "2026-01-01T00:00:00.000Z"
STOPPED_UNBEGUN = {"ending": {"S": "StreamEnded"}, "ending_cause": {"S": "stopped"}, "ended_at": {"S": START}}
Function = Callable[[Any, Any], Any]


def definition(machine: str, stage: str = STAGE, **changes: int) -> Any:
    """The definition of a machine as a stage resolves it; `changes` are settings, which may be out of bounds."""
    return stages.resolve(_source(f"statemachines/{machine}.asl.yml"), _settings(stage) | changes, stages.names(stage))


@cache
def _source(path: str) -> Any:
    return stages.read_machine_file(ROOT / path)


@cache
def _settings(stage: str) -> dict[str, Any]:
    return stages.load(stage)


def loaded(machine: Any) -> Machine:
    """The machine of a definition, compiled once."""
    return _loaded(json.dumps(machine))


@lru_cache(32)
def _loaded(machine: str) -> Machine:
    return load(json.loads(machine))


def after(cycles: int, give_up_after: int = 10**6) -> Any:
    """The machine with another `renew_after`, and another `give_up_after`."""
    return definition("connections", renew_after=cycles, give_up_after=give_up_after)


def executed(machine: Machine, perform: Perform) -> Execution:
    """Returns an execution that has ended; `perform` also answers the calls of functions."""
    clock = VirtualClock(seed=0)

    async def run() -> Execution:
        return await machine.start(INPUT, clock=clock, perform=perform).wait()

    return clock.run(run())


class Account:
    """AWS as the machine behind a POST calls it: the control table, and the executions, each with its status by name.

    `failures` are errors by action, each used once; `started` has the parameters of what was started.
    """

    def __init__(self, prefix: str, executions: Mapping[str, str] | None = None, **lease: Any) -> None:
        self.prefix = prefix
        self.arn = f"{prefix}:execution:{NAMES['connections']}:"
        self.tables = MemoryDynamoDB(NAMES["events_table"], NAMES["control_table"])
        self.executions = dict(executions or {})
        self.started: list[Any] = []
        self.failures: dict[str, list[str]] = {}
        self.posts = 0
        self._clock = VirtualClock(seed=0)
        if lease:
            self.put("demo", **lease)

    async def perform(self, call: TaskCall) -> Any:
        """Returns the answer of AWS."""
        if self.failures.get(call.action):
            raise TaskFailure(self.failures[call.action].pop(0), "scripted")
        match call.action:
            case "describeExecution":
                name = call.parameters["ExecutionArn"].removeprefix(self.arn)
                if name not in self.executions:
                    raise TaskFailure("Sfn.ExecutionDoesNotExistException", name)
                described = {"ExecutionArn": self.arn + name, "Status": self.executions[name]}
                return described | {"StartDate": "2026-01-01T00:00:00.500Z"}
            case "startExecution":
                return self.start(call.parameters)
            case "startSyncExecution":
                assert call.parameters["StateMachineArn"] == f"{self.prefix}:stateMachine:{NAMES['start']}"
                found = await self._run(json.loads(call.parameters["Input"]), self._clock)
                return {"Status": found.status, "Output": found.output_text, "Error": found.error}
        return send_table_request(self.tables, call)

    def start(self, parameters: dict[str, Any]) -> Any:
        name = parameters["Name"]
        if name in self.executions:
            raise TaskFailure("StepFunctions.ExecutionAlreadyExistsException", name)
        self.executions[name] = "RUNNING"
        self.started.append(parameters)
        return {"ExecutionArn": self.arn + name, "StartDate": 1_767_225_600_000}

    def put(self, stream: str, **attributes: Any) -> None:
        """Writes attributes into a lease, and removes those that are None."""
        item = self.lease(stream) | attributes | {"PK": {"S": stream}, "SK": {"S": "lease"}}
        left = {name: value for name, value in item.items() if value is not None}
        self.tables.put_item(TableName=NAMES["control_table"], Item=left)

    def lease(self, stream: str) -> dict[str, Any]:
        """Returns the lease's item; an empty one if there is none."""
        found = self.tables.get_item(TableName=NAMES["control_table"], Key=LEASE | {"PK": {"S": stream}})
        item: dict[str, Any] = found.get("Item", {})
        return item

    def post(self, stream: str = "demo", most: int = 1) -> Any:
        """Returns the answer of the machine behind a POST: its output, or the name of its error."""
        return self.answer({"pathParameters": {"streamId": stream}}, most)

    def answer(self, data: dict[str, Any], most: int = 1) -> Any:
        """Returns the same for any input."""
        self._clock = VirtualClock(seed=self.posts + 1)
        execution = self._clock.run(self._run(data, self._clock, most))
        return execution.output if execution.status == "SUCCEEDED" else execution.error

    async def _run(self, data: dict[str, Any], clock: VirtualClock, most: int = 1) -> Execution:
        self.posts += 1
        return await loaded(definition("start", streams_per_function=most)).start(
            data, clock=clock, perform=self.perform, name=f"request-{self.posts}",
            machine_arn=f"{self.prefix}:stateMachine:{NAMES['start']}",
            arn=f"{self.prefix}:express:{NAMES['start']}:{self.posts}",
        ).wait()  # fmt: skip


class Aws:
    """The services that the machine calls, with what is known of other executions.

    `failures` names errors by action, each used once; `before` has what happens before each call of an action.
    """

    def __init__(self, executions: dict[str, str] | None = None) -> None:
        self.dynamodb = MemoryDynamoDB(NAMES["control_table"])
        self.executions = {OTHER: "RUNNING"} if executions is None else executions
        self.failures: dict[str, list[str]] = {}
        self.before: dict[str, Callable[[TaskCall], object]] = {}
        self.started: list[Any] = []
        self.dead_letters: list[Any] = []

    async def perform(self, call: TaskCall) -> Any:
        if call.action in self.before:
            self.before[call.action](call)
        if self.failures.get(call.action):
            raise TaskFailure(self.failures[call.action].pop(0), "scripted")
        if call.action == "describeExecution":
            arn = call.parameters["ExecutionArn"]
            if arn not in self.executions:
                raise TaskFailure("Sfn.ExecutionDoesNotExistException", f"Execution Does Not Exist: '{arn}'")
            return {"ExecutionArn": arn, "Status": self.executions[arn]}
        if call.action == "startExecution":
            self.started.append(call.parameters)
            return {"ExecutionArn": f"{call.execution_arn}-successor-{len(self.started)}", "StartDate": 0}
        if call.action == "sendMessage":
            self.dead_letters.append(call.parameters)
            return {"MessageId": "1"}
        return send_table_request(self.dynamodb, call)

    def holder(self) -> str | None:
        """Returns the execution that holds the stream; None if none does."""
        lease = self.lease()
        return lease["execution"]["S"] if "execution" in lease else None

    def lease(self) -> dict[str, Any]:
        item = self.dynamodb.get_item(TableName=NAMES["control_table"], Key=LEASE).get("Item", {})
        return {name: value for name, value in item.items() if name not in LEASE}

    def looking(self, seen: list[dict[str, Any]], status: str = "ended") -> Function:
        """A connection that records the current lease, and returns."""

        def function(_payload: Any, _lambda_context: Any) -> dict[str, str]:
            seen.append(self.lease())
            return {"status": status}

        return function

    def lets_go(self, **attributes: Any) -> None:
        """Releases the stream in the lease, and writes further attributes into it."""
        self.put(**{name: value for name, value in self.lease().items() if name != "execution"} | attributes)

    def put(self, **attributes: Any) -> None:
        """Writes the lease."""
        self.dynamodb.put_item(TableName=NAMES["control_table"], Item={**LEASE, **attributes})

    def run(
        self, function: Function, renews: str | None = None, machine: Any = None, input_: Any = INPUT, **rest: str
    ) -> Execution:
        """An execution for the stream "demo" that has ended; `function` is the connection manager.

        `renews` names the predecessor that started it, and `rest` what one adds that delegates its claim; `machine`
        stands in place of the definition of the stage, `input_` in place of the input.
        """
        more = rest | ({"renews": renews or ""} if renews or rest else {})
        return loaded(machine or definition("connections")).execute(
            input_ | more if more else input_,
            functions={NAMES["connection_manager"]: function},
            perform=self.perform,
            name="mine",
        )
