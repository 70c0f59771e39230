"""The world of one run: functions, tables, executions and the upstream on one virtual clock, and the faults in it.

It answers the machine's Tasks and carries the faults of a schedule out; what must hold is local/chaos/invariants.py's.
Invariant: the same schedule gives the same run, to the millisecond.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.effects import Invocation
from handlers.store import Store
from handlers.stream.signals import Outcome
from local.asl import Execution, TaskCall, TaskFailure
from local.asl.machine import Machine
from local.asl.timestamps import written
from local.chaos.deployments import Version
from local.chaos.dynamodb import UnreliableDynamoDB
from local.chaos.function import VirtualFunction
from local.chaos.requests import Task
from local.chaos.schedule import Fault, Schedule
from local.chaos.upstream import ChaoticUpstream, Link
from local.chaos.watch import Watch
from local.clock import Timer, VirtualClock
from local.virtual.table import MemoryDynamoDB

STREAM = "chaos"
POST = {"pathParameters": {"streamId": STREAM}, "queryStringParameters": {}}
MACHINE_ARN = "arn:aws:states:us-east-1:111111111111:stateMachine:connections"


class World:
    """`versions` are deployed one after the other, `machine_of` loads their definitions; `names` are a stage's."""

    def __init__(
        self,
        schedule: Schedule,
        versions: list[Version],
        machine_of: Callable[[Version], Machine],
        names: Mapping[str, str],
    ) -> None:
        self.schedule = schedule
        self.version, *self._next_versions = versions
        self.settings = self.version.settings
        self._machine_of = machine_of
        self.clock = VirtualClock(seed=schedule.seed)
        self.origin_ms = self.clock.now_ms()
        self.watch = Watch(self.clock, names["events_table"], self.link_of)
        self.tables = MemoryDynamoDB(names["events_table"], names["control_table"], on_change=self.watch.changed)
        self.watch.tables, self.watch.control_table = self.tables, names["control_table"]
        self.control_table = names["control_table"]
        self._dynamodb = UnreliableDynamoDB(self.clock, self.tables)
        self._store = Store(
            self._dynamodb,
            _no_queue,
            events_table=names["events_table"],
            control_table=names["control_table"],
            dead_letter_queue_url="",
            rest=_not_at_all,
        )
        self._draws = random.Random(schedule.seed ^ 0xFA17)
        self._starts_late: tuple[int, int] = (0, 0)
        self._no_functions_until_ms = 0
        self._no_successors_until_ms = 0
        self._links: dict[int, Link] = {}
        self.upstream: ChaoticUpstream
        self.functions: list[VirtualFunction] = []
        self._settled: dict[VirtualFunction, asyncio.Future[Outcome | str]] = {}
        self.executions: list[Execution] = []
        self._successors: dict[str, Execution] = {}
        self.definitions: list[int] = []  # of the executions: the version under which each runs
        self.log: list[str] = []

    async def run(self, until_ms: int) -> None:
        """Returns when the run is over."""
        self.upstream = ChaoticUpstream(self.clock, self.schedule, self.say)
        for fault in self.schedule.faults:
            self.clock.call_at(self.origin_ms + fault.at_ms, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        self.post()
        await self.clock.sleep_until(self.origin_ms + until_ms)

    def post(self, data: Mapping[str, Any] = POST) -> Execution:
        """The execution that a POST, or a renewal, starts."""
        name = f"e{len(self.executions) + 1}"
        self.say(f"execution {name} starts under version {self.version.number}")
        self.definitions.append(self.version.number)
        execution = self._machine_of(self.version).start(
            dict(data), clock=self.clock, perform=self.perform, name=name, machine_arn=MACHINE_ARN
        )
        self.executions.append(execution)
        return execution

    def link_of(self, fence: int) -> Link | None:
        """The opening of the connection with that fence, if it had one."""
        for function in reversed(self.functions):
            if fence in function.links_by_fence:
                return function.links_by_fence[fence]
        return None

    def say(self, text: str) -> None:
        """Takes a line into the trace."""
        self.log.append(f"{(self.clock.now_ms() - self.origin_ms) / 1000:>8.3f} s  {text}")

    # --- the machine's Tasks ------------------------------------------------------------------------------------------

    async def perform(self, call: TaskCall) -> Any:
        """A Task's result; TaskFailure with AWS's error name otherwise."""
        if call.service == "lambda":
            return await self._invoke(call)
        if call.service == "dynamodb":
            return self._request(call)
        if call.action == "describeExecution":
            arn = call.parameters["ExecutionArn"]
            for execution in self.executions:
                if execution.arn == arn:
                    return {"ExecutionArn": arn, "Status": execution.status}
            raise TaskFailure("Sfn.ExecutionDoesNotExistException", f"Execution Does Not Exist: '{arn}'")
        if call.action == "startExecution":
            return self._start_successor(call)
        raise TaskFailure("States.Runtime", f"there is no {call.service}:{call.action} here")

    def _start_successor(self, call: TaskCall) -> Any:
        if self.clock.now_ms() < self._no_successors_until_ms and self._draws.random() < 0.5:
            raise TaskFailure("StepFunctions.AWSStepFunctionsException", "Rate exceeded")
        answer = {"ExecutionArn": self._successor(call.parameters).arn}
        if self.clock.now_ms() < self._no_successors_until_ms:
            raise TaskFailure("StepFunctions.SdkClientException", "the answer was lost")
        return answer

    def _successor(self, wanted: Mapping[str, Any]) -> Execution:
        """The execution of that name: a name is one execution's, which is answered again while it runs."""
        known = self._successors.get(wanted["Name"])
        if known is None:
            known = self._successors[wanted["Name"]] = self.post(wanted["Input"])
        elif known.status != "RUNNING":
            raise TaskFailure("StepFunctions.ExecutionAlreadyExistsException", f"{wanted['Name']} has ended")
        return known

    def _request(self, call: TaskCall) -> Any:
        methods: dict[str, Callable[..., Any]] = {
            "getItem": self._dynamodb.get_item,
            "putItem": self._dynamodb.put_item,
            "updateItem": self._dynamodb.update_item,
        }
        try:
            return methods[call.action](**call.parameters)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            raise TaskFailure(f"DynamoDB.{code}", error.response["Error"]["Message"]) from None
        except BotoCoreError as error:
            raise TaskFailure("DynamoDB.SdkClientException", str(error)) from None

    async def _invoke(self, call: TaskCall) -> Any:
        clock = self.clock
        if clock.now_ms() < self._no_functions_until_ms:
            raise TaskFailure("Lambda.TooManyRequestsException", "Rate Exceeded.")
        until_ms, late_ms = self._starts_late
        late_ms = late_ms if clock.now_ms() < until_ms else self._draws.randrange(20, 150)
        await clock.sleep_until(clock.now_ms() + late_ms)
        answer: asyncio.Future[Outcome | str] = asyncio.get_running_loop().create_future()
        function = VirtualFunction(
            clock,
            self.version.profile,
            self._store,
            self._dynamodb,
            self.upstream,
            self._task(call),
            _setter(answer),
        )
        self.functions.append(function)
        self._settled[function] = answer
        self.say(f"{self.name(function)} starts")
        limit = clock.call_at(
            clock.now_ms() + function.task.limit_ms, lambda: self._kill(function, 0, "Sandbox.Timedout")
        )
        function.start()
        return self._told(function, await answer, limit)

    def _task(self, call: TaskCall) -> Task:
        settings, skew_ms = self.version.settings, self.schedule.skew_ms
        limit_ms = settings["function_timeout_s"] * 1000
        wrong_ms = self._draws.randrange(-skew_ms, skew_ms + 1)
        invocation = Invocation(
            stream_id=call.payload["pathParameters"]["streamId"],
            lane=call.payload.get("lane", ""),
            execution=call.payload.get("execution", ""),
            request_id=f"r{len(self.functions) + 1}",
            deadline_ms=self.clock.now_ms() + wrong_ms + limit_ms,
            margin_ms=settings["margin_s"] * 1000,
            lease_every_ms=settings["lease_every_s"] * 1000,
            progress_every_ms=settings["progress_every_s"] * 1000,
            overlap_max_ms=settings["overlap_max_s"] * 1000,
        )
        return Task(invocation, self.version.number, limit_ms, wrong_ms)

    def _told(self, function: VirtualFunction, outcome: Outcome | str, limit: Timer) -> Any:
        if not function.is_lost:
            limit.cancel()
        if isinstance(outcome, str):
            raise TaskFailure(outcome, json.dumps({"errorType": outcome, "errorMessage": "the function was killed"}))
        self.say(f"{self.name(function)} ends: {outcome.error or outcome.status} ({outcome.message})")
        if outcome.error:
            raise TaskFailure(outcome.error, json.dumps({"errorType": outcome.error, "errorMessage": outcome.message}))
        return {"status": outcome.status}

    def name(self, function: VirtualFunction) -> str:
        """How the trace calls a function."""
        who, version = function.task.invocation, function.task.version
        told = f", version {version}" if version > 1 else ""
        return f"{who.request_id} (lane {who.lane} of {who.execution.rpartition(':')[2]}{told})"

    # --- faults -------------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        self.say(f"fault: {fault.kind}" + (f" for {fault.for_ms / 1000:.3f} s" if fault.for_ms else ""))
        until_ms = self.clock.now_ms() + fault.for_ms
        upstream, draws = self.upstream, random.Random(fault.value)
        match fault.kind:
            case "kill" | "vanish" | "orphan" | "freeze" | "kill in the store":
                self._strike_function(fault, until_ms)
            case "slow starts":
                self._starts_late = (until_ms, fault.value)
            case "redeploy":
                self.version = self._next_versions.pop(0)
                self.say(f"  version {self.version.number}, other than the first in {', '.join(self.version.changes)}")
            case "no successors":
                self._no_successors_until_ms = until_ms
            case "no functions":
                self._no_functions_until_ms = until_ms
            case "throttles":
                self._dynamodb.throttle(until_ms)
            case "unknown outcomes":
                self._dynamodb.unsettle(until_ms, draws)
            case "slow store":
                self._dynamodb.slow_down(fault.value, until_ms)
            case "reset":
                upstream.reset()
            case "hang-up":
                upstream.hang_up()
            case "truncation":
                upstream.truncate(draws)
            case "stall":
                upstream.stall()
            case "pause":
                upstream.pause(until_ms)
            case "burst":
                upstream.burst(fault.value)
            case "silence" | "refusals" | "no listener" | "no answers" | "duplicates" | "reorders":
                upstream.hold(fault.kind, until_ms, fault.value if fault.kind == "refusals" else 0)
            case _:
                self._strike_execution(fault)

    def _strike_function(self, fault: Fault, until_ms: int) -> None:
        alive = [function for function in self.functions if function.is_alive]
        if not alive:
            return
        function = alive[(fault.value + fault.at_ms) % len(alive)]
        self.say(f"  it meets {self.name(function)}")
        if fault.kind == "freeze":
            function.freeze(until_ms)
        elif fault.kind == "vanish":
            function.kill(fault.value)
        elif fault.kind == "orphan" and not self._settled[function].done():
            function.is_lost = True
            self._settled[function].set_result("Lambda.SdkClientException")
        elif fault.kind == "kill":
            self._kill(function, fault.value, "Runtime.ExitError")
        else:
            function.slow.dies_in = fault.value % 12
            function.on_kill = lambda: self._kill(function, 0, "Runtime.ExitError")

    def _strike_execution(self, fault: Fault) -> None:
        if "stop" in fault.kind:
            self.tables.update_item(
                TableName=self.control_table,
                Key={"PK": {"S": STREAM}, "SK": {"S": "lease"}},
                UpdateExpression="SET stop = :yes, stop_at = :now",
                ExpressionAttributeValues={":yes": {"BOOL": True}, ":now": {"S": written(self.clock.now_ms())}},
            )
        if "abort" in fault.kind:
            for execution in self.executions:
                execution.stop("Aborted", "somebody stopped the execution")
        if "post" in fault.kind:
            self.clock.call_at(self.clock.now_ms() + fault.value, self.post)

    def _kill(self, function: VirtualFunction, linger_ms: int, error: str) -> None:
        if function.is_alive:
            function.kill(linger_ms)
            self.say(f"{self.name(function)} is killed")
        answer = self._settled[function]
        if not answer.done():
            answer.set_result(error)


def _setter(answer: asyncio.Future[Outcome | str]) -> Callable[[Outcome], None]:
    def settle(outcome: Outcome) -> None:
        if not answer.done():
            answer.set_result(outcome)

    return settle


def _not_at_all(_seconds: float) -> None:
    return


def _no_queue() -> Any:
    raise RuntimeError("no event of a run is too large for an item")
