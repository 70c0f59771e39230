"""The world of one stream of a run: its functions, executions and upstream, and the faults that affect them.

It answers the machine's Tasks. local/chaos/account.py holds the parts that streams share, local/chaos/invariants.py the
rules. Invariant: the same schedule gives the same run, to the millisecond.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.connection.effects import Outcome
from handlers.run.group_ports import Needs
from handlers.run.stream_invocation import read_invocation
from handlers.store.connection_store import Store
from handlers.store.stream_records import StreamRecords
from handlers.store.typed_values import Item
from local.chaos.account import MACHINE_ARN, Account, input_of
from local.chaos.deployments import STREAMS, versions
from local.chaos.plans import Fault
from local.chaos.repair_world import Repairers
from local.chaos.schedule import Schedule
from local.chaos.table_watch import Watch
from local.simulation.chaotic_upstream import ChaoticUpstream
from local.simulation.guarded_upstream import Guard
from local.simulation.links import Link, RecordedSlot
from local.simulation.shared_tasks import answer_of, send_table_request, set_once
from local.simulation.slots import stream_needs
from local.simulation.slow_requests import SlowRequests
from local.simulation.virtual_function import Task, VirtualFunction
from local.simulation.wire import Wire
from local.upstreams.auth_servers import PlayedAuth
from states_language import Execution, TaskCall, TaskFailure
from states_language.timestamps import format_timestamp

# How long a request of the machine takes at most, half of it on the way there.
MACHINE_REQUEST_MS = 50


class World:
    """One stream's world: `own` are the faults in `schedule` that affect it; `number` counts the streams from 0."""

    def __init__(
        self, account: Account, schedule: Schedule, own: Sequence[Fault], number: int = 0, stream: str = ""
    ) -> None:
        self.account = account
        self.stream = stream or STREAMS[number]
        self.schedule = schedule
        self.beside, self.is_alone = list[World](), True
        self.clock, self.origin_ms, self.say, self.log = account.clock, account.origin_ms, account.say, account.log
        self.tables, self.control_table, self.dynamodb = account.tables, account.control_table, account.dynamodb
        self.version, *self._next_versions = versions(schedule)
        self.deployed = [self.version]  # all versions so far
        self.settings = self.version.settings
        self.own, self._number = own, number
        kind = schedule.key, schedule.unstorable
        self.wire = Wire(self.stream, *kind, is_socket=schedule.socket, timed=schedule.is_timed, drops=schedule.drops)
        self.watch = Watch(account, self.wire, self.link_of, self.blame)
        account.dynamodb.refuses = account.dynamodb.refuses or schedule.unstorable == "refused"
        account.watch(self.stream, self.watch.record_change)
        self._draws = random.Random(schedule.seed ^ 0xFA17 ^ number)
        auth = PlayedAuth(self.clock.now_ms, random.Random(schedule.seed ^ 0x6A4D), schedule.token_lives_s)
        self.guard = Guard(self.clock, auth)
        self._store: Store
        self.upstream: ChaoticUpstream
        self.repairers: Repairers | None = None
        self.functions: list[VirtualFunction] = []
        # The slots of functions that may have opened the upstream, in the order in which these began.
        self.slots: list[RecordedSlot] = []
        self._settled: dict[VirtualFunction, asyncio.Future[Outcome | str]] = {}
        self.executions: list[Execution] = []
        self.successors: dict[str, Execution] = {}  # by the names under which executions started them
        self.broken: dict[str, list[str]] = defaultdict(list)  # by kind: violations that show only while they happen
        self.answered: list[int] = []  # when requests were answered, if they wait for the answer
        self.definitions: list[int] = []  # for each execution, the version under which it runs

    async def run(self, until_ms: int, strike: Callable[[World, Fault], None]) -> None:
        """Runs all streams, and returns at `until_ms`; `strike` begins a fault."""
        for world in (self, *self.beside):
            world.is_alone = not self.beside
            world.begin(strike)
        await self.clock.sleep_until(self.origin_ms + until_ms)

    def begin(self, strike: Callable[[World, Fault], None]) -> None:
        """Lets the stream join; the clock triggers the rest."""
        self.upstream = ChaoticUpstream(self.clock, self.schedule.ways, self.wire, self.say, self.guard)
        if self.schedule.repair is not None:
            self.repairers = Repairers(self, self.schedule.repair)
        self._await_faults(strike)
        self._join()

    def _await_faults(self, strike: Callable[[World, Fault], None]) -> None:
        for fault in self.own:
            self.clock.call_at(self.origin_ms + fault.at_ms, functools.partial(strike, self, fault))

    def _join(self) -> None:
        self._store = self.account.store_of(self.stream, self._start_repair)
        self.post()

    def _start_repair(self, stream_id: str) -> None:
        if self.repairers is not None:
            self.repairers.start(stream_id)

    def ask(self, method: str) -> None:
        """Requests the stream (POST) or its stop (DELETE), as people do."""
        if method == "POST":
            self.post()
        else:
            self.say("a stop is requested")
            self._stop()

    def _stop(self) -> None:
        """Requests the stop of the stream, as the control API does."""
        StreamRecords(self.tables, self.control_table).stop(
            self.stream, format_timestamp(self.clock.now_ms()), may_start=True
        )

    def post(self, data: Mapping[str, Any] | None = None) -> Execution:
        """Starts an execution, as a POST or, with input, a renewal does, and returns it."""
        name = f"e{len(self.executions) + 1}" + (f"-{self._number}" if self._number else "")
        self.say(f"execution {name} starts under version {self.version.number}")
        self.definitions.append(self.version.number)
        execution = self.account.machine_of(self.version).start(
            input_of(self.stream) if data is None else dict(data),
            clock=self.clock,
            perform=self.perform,
            name=name,
            machine_arn=MACHINE_ARN,
        )
        self.executions.append(execution)
        self.account.executions[execution.arn] = execution
        return execution

    def blame(self, kind: str, text: str) -> None:
        """Records a violation at this moment."""
        self.broken[kind].append(f"{self.stamp(self.clock.now_ms())}: {text}")

    def stamp(self, at_ms: int) -> str:
        """Returns the instant as a text."""
        return f"{(at_ms - self.origin_ms) / 1000:.3f} s"

    def link_of(self, fence: int) -> Link | None:
        """Returns the link that the connection with that fencing token opened, if any."""
        return next((link for link in reversed(self.upstream.links) if link.fence == fence), None)

    def live_of(self, _record: Item, live: Item | None) -> Item | None:
        """Returns the record of the newest connection: for a lone stream, its own."""
        return live

    @property
    def rejections(self) -> list[tuple[str, int]]:
        """The executions that the upstream rejected, each with the instant of its end."""
        return [
            (execution.name, execution.stopped_ms or 0)
            for execution in self.executions
            if isinstance(execution.output, dict) and execution.output.get("status") == "rejected"
        ]

    # --- the machine's Tasks ------------------------------------------------------------------------------------------

    async def perform(self, call: TaskCall) -> Any:
        """Returns a Task's result; raises TaskFailure with AWS's error name."""
        if call.service == "lambda":
            return await self._invoke(call)
        if call.service == "dynamodb":
            if call.parameters["Key"]["PK"]["S"] != self.stream:
                self.account.record_crossing(f"the machine of {self.stream} requests {call.parameters['Key']}")
            return await self._perform_request(call)
        if call.action == "startExecution":
            return self._start_successor(call)
        await self._await_latency()
        if call.action == "describeExecution":
            return self._describe(call)
        return self._report(call.parameters["MessageBody"])

    async def _perform_request(self, call: TaskCall) -> Any:
        await self._await_latency()
        answer = send_table_request(self.dynamodb, call)
        await self._await_latency()
        return answer

    async def _await_latency(self) -> None:
        await self.clock.sleep_until(self.clock.now_ms() + self._draws.randrange(MACHINE_REQUEST_MS // 2))

    def _report(self, message: dict[str, Any]) -> Any:
        if message["stream"] != self.stream:
            self.account.record_crossing(f"{self.stream} reports an end of {message['stream']}")
        try:
            return self.account.queue.put(message)
        except (ClientError, BotoCoreError) as error:
            raise TaskFailure("Sqs.SdkClientException", str(error)) from None

    def _describe(self, call: TaskCall) -> Any:
        if self.account.is_lasting("no descriptions") and self._draws.random() < 0.7:
            raise TaskFailure("Sfn.SdkClientException", "Rate exceeded")
        arn = call.parameters["ExecutionArn"]
        execution = self.account.executions.get(arn)
        if execution is None:
            raise TaskFailure("Sfn.ExecutionDoesNotExistException", f"Execution Does Not Exist: '{arn}'")
        if execution not in self.executions:
            self.account.record_crossing(f"{self.stream} asks about the execution {execution.name} of another stream")
        return {"ExecutionArn": arn, "Status": execution.status, "StartDate": format_timestamp(execution.started_ms)}

    def _start_successor(self, call: TaskCall) -> Any:
        if self.account.is_lasting("no successors") and self._draws.random() < 0.5:
            raise TaskFailure("StepFunctions.AWSStepFunctionsException", "Rate exceeded")
        answer = {"ExecutionArn": self.successor(call.parameters).arn}
        if self.account.is_lasting("no successors"):
            raise TaskFailure("StepFunctions.SdkClientException", "the answer was lost")
        return answer

    def successor(self, wanted: Mapping[str, Any]) -> Execution:
        """Returns the execution of that name; like AWS, it returns the same one again while that runs."""
        known = self.successors.get(wanted["Name"])
        if known is None:
            if wanted["Input"]["pathParameters"]["streamId"] != self.stream:
                self.account.record_crossing(f"a successor of {self.stream} is started for another stream")
            known = self.successors[wanted["Name"]] = self.post(wanted["Input"])
        elif known.status != "RUNNING":
            raise TaskFailure("StepFunctions.ExecutionAlreadyExistsException", f"{wanted['Name']} has ended")
        return known

    async def _invoke(self, call: TaskCall) -> Any:
        clock = self.clock
        if self.account.is_lasting("no functions"):
            raise TaskFailure("Lambda.TooManyRequestsException", "Rate Exceeded.")
        until_ms, late_ms = self.account.starts_late
        late_ms = late_ms if clock.now_ms() < until_ms else self._draws.randrange(20, 150)
        await clock.sleep_until(clock.now_ms() + late_ms)
        answer: asyncio.Future[Outcome | str] = asyncio.get_running_loop().create_future()
        settle = set_once(answer)
        function = VirtualFunction(clock, self._task(call), settle)
        function.requests = SlowRequests(clock, self.dynamodb, function)
        self.functions.append(function)
        self._settled[function] = answer
        self.say(f"{self.name_of(function)} starts")
        limit_ms = self.version.settings["function_timeout_s"] * 1000
        limit = clock.call_at(clock.now_ms() + limit_ms, lambda: self._time_out(function))
        function.start(self._needs(function))
        outcome = await answer
        if not function.is_lost:
            limit.cancel()
        if isinstance(outcome, str):
            message = f"RequestId: {function.task.invocation.request_id} Error: the function was killed"
            return answer_of(Outcome(outcome, "", message))
        self.say(f"{self.name_of(function)} ends: {outcome.error or outcome.status} ({outcome.message})")
        return answer_of(outcome)

    def _needs(self, function: VirtualFunction) -> Needs:
        """Returns the ports with which a function keeps the stream."""
        slot = RecordedSlot(self.clock, function, function.task.invocation, self.upstream)
        self.slots.append(slot)
        return stream_needs(function, slot, self.version.profile, self._store, function.own_thread)

    def _task(self, call: TaskCall) -> Task:
        skew_ms = self.schedule.skew_ms
        limit_ms = self.version.settings["function_timeout_s"] * 1000
        wrong_ms = self._draws.randrange(-skew_ms, skew_ms + 1)
        number = len(self.functions) + 1 + 1_000 * self._number
        now_ms = self.clock.now_ms() + wrong_ms
        who = read_invocation(call.payload, self.version.function, f"r{number}", now_ms=now_ms, remaining_ms=limit_ms)
        return Task(number, who, self.version.number, who.deadline_ms - now_ms, wrong_ms)

    def name_of(self, function: VirtualFunction) -> str:
        """Returns the function's name in the trace."""
        who, version = function.task.invocation, function.task.version
        of = f"{who.execution.rpartition(':')[2]}{f', version {version}' if version > 1 else ''}"
        return f"{who.request_id} (lane {who.lane} of {of})"

    # --- effects of faults --------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Puts the next version in place."""
        self.version = self._next_versions.pop(0)
        self.deployed.append(self.version)

    def kill(self, function: VirtualFunction, linger_ms: int, error: str) -> None:
        """Ends a function as SIGKILL does; the machine is notified of `error`."""
        if function.is_alive:
            function.kill(linger_ms)
            self.say(f"{self.name_of(function)} is killed")
        set_once(self._settled[function])(error)

    def _time_out(self, function: VirtualFunction) -> None:
        """Ends a function as Lambda does at its limit, if it has not ended by itself."""
        function.timed_out = function.is_alive
        self.kill(function, 0, "Sandbox.Timedout")

    def lose_track_of(self, function: VirtualFunction) -> None:
        """Makes the machine believe that a running function is dead."""
        if not self._settled[function].done():
            function.is_lost = True
            self._settled[function].set_result("Lambda.SdkClientException")
