"""Performs a machine's Tasks in virtual time: calls of the connection manager, with its limit, and integrations.

Invariant: an invocation is answered once, by its own end or by its limit, whichever comes first.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from handlers.connection.effects import Outcome
from handlers.profile.behaviour import Profile
from handlers.run.group_ports import Needs
from handlers.run.stream_invocation import read_invocation
from local.simulation.dynamodb_expressions import Item
from local.simulation.shared_tasks import answer_of, send_table_request, set_once, store_on
from local.simulation.skipping import NEVER_MS, SkippingSlot, VirtualConnection
from local.simulation.slots import Upstream, stream_needs
from local.simulation.tables import Key, MemoryDynamoDB
from local.simulation.virtual_function import Task, VirtualFunction
from local.simulation.virtual_stage import VirtualStage, profile_of
from states_language import TaskCall, TaskFailure
from timeline.coverage import Connection

STILL_OPEN = "still open"


class VirtualSandbox:
    """The functions and tables of a stage; the interpreter calls `perform` for each Task.

    The upstream and its profile are the scenario's unless others are given.
    """

    def __init__(self, stage: VirtualStage, profile: Profile | None = None, upstream: Upstream | None = None) -> None:
        self._clock = stage.clock
        self._executions = stage.executions
        self._profile = profile or profile_of(stage.source)
        self._upstream = upstream or stage.upstream()
        self._settings = settings = stage.source.settings
        # The settings that an invocation needs, as the function reads them.
        read = ("margin_ms", "lease_every_ms", "progress_every_ms", "wait_ms")
        self._read: Any = SimpleNamespace(**{name: settings[name.replace("_ms", "_s")] * 1000 for name in read})
        self._limit_ms: int = settings["function_timeout_s"] * 1000
        names = stage.names
        self._function = names["connection_manager"]
        self.tables = MemoryDynamoDB(names["events_table"], names["control_table"], on_change=self._notify_slots)
        self._store = store_on(self.tables, names)
        self._invocations: list[tuple[str, VirtualFunction]] = []
        self._running: dict[VirtualFunction, asyncio.Future[Outcome]] = {}
        # At these instants all running functions die, as by SIGKILL, or freeze until their limit, as by SIGSTOP.
        for at_ms in stage.source.kills_ms:
            self._clock.call_at(stage.origin_ms + at_ms, self._kill_all)
        for at_ms in stage.source.freezes_ms:
            self._clock.call_at(stage.origin_ms + at_ms, self._freeze_all)

    async def perform(self, call: TaskCall) -> Any:
        """Returns a Task's result; raises TaskFailure with AWS's error name."""
        if call.service == "lambda":
            return await self._invoke(call)
        if call.service == "dynamodb":
            return send_table_request(self.tables, call)
        if (call.service, call.action) == ("sfn", "describeExecution"):
            return self._executions.describe(call)
        if (call.service, call.action) == ("states", "startExecution"):
            return self._executions.start(call)
        if (call.service, call.action) == ("sqs", "sendMessage"):
            return {"MessageId": f"00000000-0000-4000-8000-{0:012d}"}
        raise TaskFailure("States.Runtime", f"a replay has no {call.service}:{call.action}")

    def connections(self, lanes: Mapping[str, Sequence[str]], origin_ms: int, until_ms: int) -> list[Connection]:
        """Returns the connections and how they ended, in milliseconds from `origin_ms`; open ones end at `until_ms`.

        `lanes` has, by the ARN of an execution, the lane of each of its invocations in order.
        """
        connections: list[Connection] = []
        lane_of = {arn: iter(names) for arn, names in lanes.items()}
        for arn, function in self._invocations:
            lane = next(lane_of[arn])
            connections += [
                _timeline_connection(lane, connection, origin_ms, until_ms)
                for connection in self._connections_of(function)
                if connection.link is not None and connection.link.opened_ms is not None
            ]
        return sorted(connections, key=lambda c: (c.from_ms, c.to_ms))

    async def _invoke(self, call: TaskCall) -> Any:
        if call.function != self._function:
            raise TaskFailure("Lambda.ResourceNotFoundException", f"Function not found: {call.function}")
        request_id = f"00000000-0000-4000-8000-{len(self._invocations) + 1:012d}"
        function, ended = self._start(call, request_id)
        message = f"RequestId: {request_id} Error: Task timed out after {self._limit_ms / 1000:.2f} seconds"
        timed_out = Outcome("Sandbox.Timedout", "", message)
        limit_ms = self._clock.now_ms() + self._limit_ms
        killer = self._clock.call_at(limit_ms, lambda: self._kill(function, timed_out))
        outcome = await ended
        killer.cancel()
        del self._running[function]
        # Lambda's own error has no trace.
        return answer_of(outcome, **({} if outcome is timed_out else {"requestId": request_id, "stackTrace": []}))

    def _start(self, call: TaskCall, request_id: str) -> tuple[VirtualFunction, asyncio.Future[Outcome]]:
        invocation = read_invocation(
            call.payload, self._read, request_id, now_ms=self._clock.now_ms(), remaining_ms=self._limit_ms
        )
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        task = Task(len(self._invocations) + 1, invocation)
        function = VirtualFunction(self._clock, task, set_once(ended), is_prompt=True)
        function.draw = self._draw
        self._invocations.append((call.execution_arn, function))
        self._running[function] = ended
        function.start(self._needs(function))
        return function, ended

    def _needs(self, function: VirtualFunction) -> Needs:
        """Returns the needs of a function of the stream, without the steps that the timeline does not need."""
        is_watched = self._profile.overlap == "forbids" or self._profile.standby == "hot"
        slot = SkippingSlot(function, self._upstream, is_watched=is_watched)
        return stream_needs(function, slot, self._profile, self._store)

    def _connections_of(self, function: VirtualFunction) -> Sequence[VirtualConnection]:
        """Returns the connections that a function made."""
        return [connection for slot in function.slots.values() for connection in slot.connections]

    def _draw(self, least: float, most: float) -> float:
        return least + (most - least) * self._clock.random()

    def _kill(self, function: VirtualFunction, outcome: Outcome) -> None:
        function.kill()
        set_once(self._running[function])(outcome)

    def _kill_all(self) -> None:
        for function in list(self._running):
            self._kill(function, Outcome("Runtime.ExitError", "", "Runtime exited with error: signal: killed"))

    def _freeze_all(self) -> None:
        for function in self._running:
            function.freeze(NEVER_MS)  # it stays frozen until it is killed at its limit

    def _notify_slots(self, _table: str, key: Key, _item: Item) -> None:
        if key[1] == "lease":
            for function in self._running:
                for slot in function.slots.values():
                    slot.mark_lease_changed()


def _timeline_connection(lane: str, connection: VirtualConnection, origin_ms: int, until_ms: int) -> Connection:
    """Returns an answered connection as the timeline shows it."""
    link = connection.link
    to_ms = until_ms if link.closed_ms is None else min(link.closed_ms - origin_ms, until_ms)
    silent_ms = None if link.silent_from_ms is None else min(link.silent_from_ms - origin_ms, to_ms)
    ended_by = STILL_OPEN if link.closed_ms is None else connection.ended_by
    return Connection(lane, link.opened_ms - origin_ms, to_ms, ended_by, silent_ms)
