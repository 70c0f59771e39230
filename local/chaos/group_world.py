"""The world of groups: their machine's Tasks and functions, and each stream with its upstream, faults and requests.

As `world.py` has one stream. What follows from a function's end is the deployed machine's, a `POST` is answered by the
deployed start machine, a `DELETE` by the code of the control API. Invariant: a group's machine asks for the group's own
items; the faults of one stream's upstream reach no other.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any

from handlers.group import GROUP, is_group
from handlers.group.next_step import Delays
from handlers.run.group_ports import GroupTables, Needs, reports_to
from handlers.store import typed_values
from handlers.store.group_store import group_lease, live_of_member
from handlers.store.stream_records import StreamRecords
from handlers.store.typed_values import Item
from local.chaos.account import Account
from local.chaos.chaotic_upstream import ChaoticUpstream
from local.chaos.deployments import QUEUE_URL, Version
from local.chaos.functions import ChaosFunction, Place, Surroundings, needs_of_group
from local.chaos.group_watch import GroupWatch
from local.chaos.schedule import Fault, Schedule
from local.chaos.world import World
from local.simulation.shared_tasks import request
from states_language import Machine, TaskCall, TaskFailure
from states_language.timestamps import written

START_ARN = "arn:aws:states:us-east-1:111111111111:stateMachine:start"
FIRST = "#1"
# How long somebody waits before a request that failed is made again.
AGAIN_MS = 1_000


class Group(World):
    """The first group; those beside it are copies that share everything but their id and their records."""

    def __init__(
        self,
        account: Account,
        schedule: Schedule,
        versions: list[Version],
        machine_of: Callable[[Version], Machine],
        start_machine: Callable[[int], Machine],
    ) -> None:
        super().__init__(account, schedule, schedule.faults, versions, machine_of, stream=FIRST)
        account.watch(GROUP, lambda *_change: None)
        account.watch_group = lambda name: self.named(name).group_watch.changed if is_group(name) else None
        self._start_machine = start_machine
        self.posts = 0
        self.group_watch = GroupWatch(account)
        account.watch(FIRST, self.group_watch.changed)
        self.all = {FIRST: self}
        settings = self.settings
        names = ("retry_max_delay_s", "throttle_delay_s", "throttle_max_delay_s", "cool_down_s", "jitter_s")
        self._around = Surroundings(
            GroupTables(
                account.dynamodb,
                lambda: account.queue,
                events_table=account.events_table,
                control_table=account.control_table,
                dead_letter_queue_url=QUEUE_URL,
                sleep=_not_at_all,
            ),
            Delays(*(float(settings[name]) for name in names)),
            reports_to(lambda: account.queue, QUEUE_URL),
            self._place,
            lambda: self.version.number,
        )

    @property
    def start_machine(self) -> Machine:
        """What answers a POST, as it is deployed now."""
        return self._start_machine(int(self.version.settings["streams_per_function"]))

    def deploy(self) -> None:
        """Puts the next version of all groups in place."""
        super().deploy()
        for one in self.all.values():
            one.version = self.version

    def begin(self, strike: Callable[[World, Fault], None]) -> None:
        """Lets the faults that meet all streams begin; the streams' own requests start the rest."""
        for fault in self._own:
            self.clock.call_at(self.origin_ms + fault.at_ms, lambda fault=fault: strike(self, fault))  # type: ignore[misc]

    @property
    def members(self) -> Sequence[Member]:
        """The streams."""
        return [one for one in self.beside if isinstance(one, Member)]

    def named(self, group: str) -> Group:
        """The group of that id, which is made where it is asked for first."""
        if group not in self.all:
            self.all[group] = beside = copy.copy(self)
            beside.stream = group
            beside.group_watch = GroupWatch(self.account)
            self.account.watch(group, beside.group_watch.changed)
        return self.all[group]

    async def answers(self, call: TaskCall) -> Any:
        """A Task's result of the machine that answers a POST."""
        if call.service == "dynamodb":
            await self._on_its_way()
            answer = request(self.dynamodb, call)
            await self._on_its_way()
            return answer
        if call.action == "describeExecution":
            await self._on_its_way()
            execution = self._described_by(call.parameters["ExecutionArn"])
            return {
                "ExecutionArn": execution.arn,
                "Status": execution.status,
                "StartDate": written(execution.started_ms),
            }
        if call.action == "startExecution":
            await self._on_its_way()
            kept = call.parameters["Input"]["pathParameters"]["streamId"]
            if not is_group(kept):
                self.account.cross(f"an execution is started for {kept} alone")
            execution = self.named(kept).successor(call.parameters)
            return {"ExecutionArn": execution.arn, "StartDate": execution.started_ms}
        raise TaskFailure("States.Runtime", f"there is no {call.service}:{call.action} here")

    def _needs(self, function: ChaosFunction) -> Needs:
        return needs_of_group(self.clock, function, self._around)

    def _place(self, stream: str, version: int) -> Place | None:
        return next((one.place(version) for one in self.members if one.stream == stream and version >= one.since), None)


class Member(World):
    """One stream of the groups, with its own schedule."""

    def __init__(
        self,
        group: Group,
        schedule: Schedule,
        own: Sequence[Fault],
        versions: list[Version],
        machine_of: Callable[[Version], Machine],
        number: int,
    ) -> None:
        super().__init__(group.account, schedule, own, versions, machine_of, number, stream=schedule.name)
        self.group = group
        self.say = self._says
        earlier = [fault for fault in schedule.faults if fault.kind == "redeploy" and fault.at_ms < schedule.joins_ms]
        self.since = 1 + len(earlier) if schedule.has_new_profile else 1  # the version that has its profile first
        self._asked = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.answered: list[int] = []  # when requests were answered
        self.wanted = ""  # the newest request of those, which wins whenever it was answered
        self._newest = 0

    def _says(self, text: str) -> None:
        self.account.say(f"{self.stream}: {text.strip()}")

    def place(self, version: int) -> Place:
        """What a function of that version finds of the stream."""
        return Place(self.deployed[version - 1].profile, self.upstream, self.slots)

    def live_of(self, record: Item, live: Item | None) -> Item | None:
        """The record of its newest connection, which is good until its function's heartbeats say so."""
        group = typed_values.text(record, "group")
        return live if group is None else live_of_member(live, group_lease(self.group.named(group).group_watch.lease))

    @property
    def own(self) -> Sequence[Fault]:
        """The faults that meet it alone."""
        return self._own

    @property
    def rejections(self) -> list[tuple[str, int]]:
        """When it was rejected by the upstream."""
        return super().rejections + [
            (self.stream, at_ms) for at_ms, error in self.watch.endings if error == "StreamRejected"
        ]

    def begin(self, strike: Callable[[World, Fault], None]) -> None:
        """Lets the stream join when it is to; the rest comes from the clock."""
        self._store = self.account.store_of(self.stream)
        self.upstream = ChaoticUpstream(self.clock, self.schedule, self.wire, self.say)
        for fault in self._own:
            self.clock.call_at(self.origin_ms + fault.at_ms, lambda fault=fault: strike(self, fault))  # type: ignore[misc]
        self.clock.call_at(self.origin_ms + self.schedule.joins_ms, self.post_stream)

    def post_stream(self) -> None:
        """Somebody asks for the stream to be connected, until that is answered or something else is asked for."""
        self._ask("POST")

    def delete(self) -> None:
        """Somebody asks for it to be stopped."""
        self._ask("DELETE")

    def _ask(self, method: str) -> None:
        self._asked += 1
        self.say(method)
        self._tasks.append(asyncio.get_running_loop().create_task(self._until_answered(self._asked, method)))

    async def _until_answered(self, number: int, method: str) -> None:
        while number == self._asked:
            is_answered = await self._posted() if method == "POST" else self._deleted()
            if is_answered:
                self.answered.append(self.clock.now_ms())
                if number > self._newest:
                    self._newest, self.wanted = number, method
                return
            await self.clock.sleep_until(self.clock.now_ms() + AGAIN_MS)

    async def _posted(self) -> bool:
        group = self.group
        group.posts += 1
        name = f"post{group.posts}"
        execution = group.start_machine.start(
            {"pathParameters": {"streamId": self.stream}, "queryStringParameters": {}},
            clock=self.clock,
            perform=group.answers,
            name=name,
            machine_arn=START_ARN,
        )
        await execution.wait()
        self.say(f"POST is answered: {execution.status} {execution.error or ''}")
        return execution.status == "SUCCEEDED"

    def _deleted(self) -> bool:
        records = StreamRecords(self.tables, self.control_table)
        records.stop(self.stream, written(self.clock.now_ms()), may_start=True)
        return True


def _not_at_all(_seconds: float) -> None:
    return
