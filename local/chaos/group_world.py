"""Holds the world of groups: their machine's Tasks and functions, and each stream with its upstream and its faults.

The deployed start machine answers a `POST`, the control API's code a `DELETE`. Invariants: a group's machine requests
only the group's own items; the faults of one stream's upstream affect no other.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from handlers.connection.steps import Invocation, Report
from handlers.errors import InvalidRequest
from handlers.group import GROUP, is_group
from handlers.group.next_step import BROKEN, Delays
from handlers.profile.behaviour import Profile
from handlers.run.group_ports import GroupTables, Needs, ReadProfiles, reporter_to
from handlers.run.group_profiles import PROFILES
from handlers.store import typed_values
from handlers.store.group_store import group_lease, live_of_member
from handlers.store.typed_values import Item
from local import stages
from local.chaos.account import Account, input_of
from local.chaos.deployments import QUEUE_URL, STAGE
from local.chaos.plans import Fault
from local.chaos.schedule import Schedule
from local.chaos.table_watch import GroupWatch
from local.chaos.world import World
from local.simulation.links import RecordedSlot
from local.simulation.slots import group_needs
from local.simulation.slow_requests import VirtualPool
from local.simulation.virtual_function import VirtualFunction, Waits
from states_language import Machine, TaskCall, load

START_ARN = "arn:aws:states:us-east-1:111111111111:stateMachine:start"
FIRST = "#1"
# How long people wait before they repeat a failed request.
AGAIN_MS = 1_000
# How long a function takes to start if another one requests a profile from it.
STARTS_MS = (100, 1_500)


@cache
def start_machine(together: int) -> Machine:
    """Returns the deployed machine that answers a POST, for functions that keep `together` streams."""
    definition = stages.read_machine_file(stages.ROOT / "statemachines" / "start.asl.yml")
    settings = stages.load(STAGE, {"streams_per_function": together})
    return load(stages.resolve(definition, settings, stages.names(STAGE)))


class Group(World):
    """The first group; the others are copies that share everything except their id and their records."""

    def __init__(self, account: Account, schedule: Schedule) -> None:
        super().__init__(account, schedule, schedule.faults, stream=FIRST)
        account.watch(GROUP, lambda *_change: None)
        account.watch_group = lambda name: self.group_of(name).group_watch.record_change if is_group(name) else None
        self.posts = 0
        self.group_watch = GroupWatch(account, self.blame)
        account.watch(FIRST, self.group_watch.record_change)
        self.all = {FIRST: self}
        names = ("retry_max_delay_s", "throttle_delay_s", "throttle_max_delay_s", "cool_down_s", "jitter_s")
        self._delays = Delays(*(float(self.settings[name]) for name in names))
        self._group_tables = GroupTables(account.dynamodb, lambda: account.queue, **account.store_settings)

    @property
    def start_machine(self) -> Machine:
        """The machine that answers a POST, in the version deployed now."""
        return start_machine(int(self.version.settings["streams_per_function"]))

    def deploy(self) -> None:
        """Deploys the next version for all groups."""
        super().deploy()
        for one in self.all.values():
            one.version = self.version

    def begin(self, strike: Callable[[World, Fault], None]) -> None:
        """Schedules the faults that affect all streams; the streams' own requests start the rest."""
        self._await_faults(strike)

    @property
    def members(self) -> Sequence[Member]:
        """The streams."""
        return [one for one in self.beside if isinstance(one, Member)]

    def group_of(self, group: str) -> Group:
        """Returns the group of that id, which is made on first use."""
        if group not in self.all:
            self.all[group] = beside = copy.copy(self)
            beside.stream = group
            beside.group_watch = GroupWatch(self.account, self.blame)
            self.account.watch(group, beside.group_watch.record_change)
        return self.all[group]

    async def perform_start_task(self, call: TaskCall) -> Any:
        """Returns the result of a Task of the machine that answers a POST."""
        if call.service == "dynamodb":
            return await self._perform_request(call)
        await self._await_latency()
        if call.action == "describeExecution":
            return self._describe(call)
        kept = call.parameters["Input"]["pathParameters"]["streamId"]
        if not is_group(kept):
            self.account.record_crossing(f"an execution is started for {kept} alone")
        execution = self.group_of(kept).successor(call.parameters)
        return {"ExecutionArn": execution.arn, "StartDate": execution.started_ms}

    def _needs(self, function: VirtualFunction) -> Needs:
        """Returns the ports of a function of the group; its profiles are those of its own version."""
        clock, account = self.clock, self.account

        def starts_another(request: Callable[[], Any]) -> Waits[Any]:
            """Returns the answer of a function of the deployed version, which has to start first."""
            yield clock.now_ms() + function.draws.randrange(*STARTS_MS), False
            return request()

        def pool(threads: int, name: str) -> VirtualPool:
            return VirtualPool(clock, function, threads, name, starts_another if name == PROFILES else None)

        def read(stream: str, version: int) -> Profile:
            member = self._member(stream)
            if member is None or version < member.since:
                raise InvalidRequest(f"there is no stream {stream!r}")
            return member.deployed[version - 1].profile

        def slot_of(_profile: Profile, who: Invocation) -> RecordedSlot:
            member = self._member(who.stream_id)
            assert member is not None, "its profile was read"
            slot = RecordedSlot(clock, function, who, member.upstream)
            member.slots.append(slot)
            return slot

        profiles = ReadProfiles(
            own=lambda stream: read(stream, function.task.version),
            deployed=lambda stream: read(stream, self.version.number),
        )

        def report_end(_profile: Profile, who: Invocation, report: Report, _blocked_ms: int) -> None:
            member = self._member(who.stream_id)
            if report.outcome.error == BROKEN and member is not None:
                member.blame("unnamed-ends", f"a connection ended by {report.outcome.message}")

        reports = reporter_to(lambda: account.queue, QUEUE_URL)
        return group_needs(
            function,
            slot_of,
            self._group_tables,
            self._delays,
            profiles,
            pool=pool,
            log_report=report_end,
            reports=reports,
        )

    def _member(self, stream: str) -> Member | None:
        return next((one for one in self.members if one.stream == stream), None)


class Member(World):
    """One stream of the groups, with its own schedule."""

    def __init__(self, group: Group, schedule: Schedule, own: Sequence[Fault], number: int) -> None:
        super().__init__(group.account, schedule, own, number, stream=schedule.name)
        self.group, self.guard = group, group.guard
        self.say = self._say_of_member
        earlier = [fault for fault in schedule.faults if fault.kind == "redeploy" and fault.at_ms < schedule.joins_ms]
        self.since = 1 + len(earlier) if schedule.has_new_profile else 1  # the first version with its profile
        self._asked = self.asked_ms = 0  # the number of the newest request, and when it was made
        self._tasks: list[asyncio.Task[None]] = []
        self.wanted = ""  # the newest answered request, which counts whenever it was answered
        self._newest = 0

    def _say_of_member(self, text: str) -> None:
        self.account.say(f"{self.stream}: {text.strip()}")

    def live_of(self, record: Item, live: Item | None) -> Item | None:
        """Returns the record of its newest connection, extended by the heartbeats of its function."""
        group = typed_values.read_text(record, "group")
        return (
            live if group is None else live_of_member(live, group_lease(self.group.group_of(group).group_watch.lease))
        )

    @property
    def rejections(self) -> list[tuple[str, int]]:
        """The instants at which the upstream rejected it."""
        return super().rejections + [
            (self.stream, at_ms) for at_ms, error in self.watch.endings if error == "StreamRejected"
        ]

    def _join(self) -> None:
        self.clock.call_at(self.origin_ms + self.schedule.joins_ms, lambda: self.ask("POST"))

    def ask(self, method: str) -> None:
        """Requests the stream or its stop repeatedly, until it is answered or something else is requested."""
        self._asked, self.asked_ms = self._asked + 1, self.clock.now_ms()
        self.say(method)
        self._tasks.append(asyncio.get_running_loop().create_task(self._ask_until_answered(self._asked, method)))

    async def _ask_until_answered(self, number: int, method: str) -> None:
        while number == self._asked:
            if method == "DELETE":
                self._stop()
            if method == "DELETE" or await self._post_stream():
                self.answered.append(self.clock.now_ms())
                if number > self._newest:
                    self._newest, self.wanted = number, method
                return
            await self.clock.sleep_until(self.clock.now_ms() + AGAIN_MS)

    async def _post_stream(self) -> bool:
        group = self.group
        group.posts += 1
        clock, name = self.clock, f"post{group.posts}"
        execution = group.start_machine.start(
            input_of(self.stream), clock=clock, perform=group.perform_start_task, name=name, machine_arn=START_ARN
        )
        await execution.wait()
        self.say(f"POST is answered: {execution.status} {execution.error or ''}")
        return execution.status == "SUCCEEDED"
