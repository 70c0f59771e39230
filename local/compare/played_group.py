"""Plays the functions of a group in virtual time: streams that the product keeps (`handlers/group`).

All streams of the group have the upstream and the faults that are asked for, each its own. The one that is compared is
in the middle of the order in which a function opens them. As in a replay (`local/replay/virtual_invocation.py`) nothing
is asked for again that cannot have changed: a group's function tells a connection of each change of its lease.
Invariant: nothing is left out that another step or another function depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handlers.connection.effects import CloseUpstream, MarkConnected, Outcome, RecordGaps, SaveRecord
from handlers.connection.inputs import Arrival
from handlers.connection.steps import Answer, Await, Ended, Invocation, Steps
from handlers.group.fates import Delays
from handlers.group.keeping import Keeps, Kept
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.upstream.reader import Share
from local.costs.counted_group import GROUP, CountedGroup, Group
from local.costs.steady_upstream import Client
from local.replay.command import Latencies
from local.replay.scenario import Scenario
from local.replay.scripted_upstream import Link, ScriptedUpstream
from local.replay.tasks import RunningInvocation, VirtualSandbox
from local.replay.virtual_invocation import VirtualConnection
from local.replay.virtual_reader import Reader
from local.simulation.started_executions import VirtualExecutions
from states_language.clock import Clock

STREAMS = 100
INPUT = {"pathParameters": {"streamId": GROUP}, "queryStringParameters": {}}


class _Opening:
    """A client of a scripted upstream that passes on what its link brings."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def arrived(self, _link: Link, arrival: Arrival) -> None:
        """Passes it on."""
        self._client.arrived(arrival)


class _Scripted:
    """A scripted upstream as a group's function opens it."""

    def __init__(self, upstream: ScriptedUpstream) -> None:
        self._upstream = upstream

    def open(self, client: Client, _cursor: str | None) -> VirtualConnection:
        """Returns an opening; the script has no events to resume from."""
        return VirtualConnection(self._upstream.open(_Opening(client)))

    def close(self, connection: VirtualConnection) -> None:
        """Closes it from the client's side."""
        assert connection.link is not None
        self._upstream.close(connection.link)


class PlayedGroup(CountedGroup):
    """A function of the group; `connections` are those of the stream that is compared."""

    compared = ""

    def kill(self) -> None:
        """Ends it as SIGKILL does."""
        for connection in self.connections[-1:]:
            assert connection.link is not None
            if connection.link.closed_ms is None:
                connection.ended_by = "killed"
        super().kill()

    def _kept(self, profile: Profile, who: Invocation, now_ms: int, delays: Delays, keeps: Keeps) -> Steps[Kept]:
        steps = super()._kept(profile, who, now_ms, delays, keeps)
        return self._without_ledger(_without_rereading(steps), who.stream_id == self.compared)

    def _open(self, stream_id: str, cursor: str | None, profile: Profile, values: Secrets, share: Share) -> Reader:
        opening = super()._open(stream_id, cursor, profile, values, share)
        if stream_id == self.compared:
            self.connections.append(opening.link)
        return opening

    def _without_ledger(self, steps: Steps[Kept], is_compared: bool) -> Steps[Kept]:
        """The same steps; nothing is written into the ledger, and the timeline counts what would be."""
        step = next(steps)
        while True:
            if isinstance(step, SaveRecord | RecordGaps):
                if isinstance(step, SaveRecord) and is_compared:
                    self.connections[-1].ended_by = step.progress.ended_by
                answer = Answer(self._clock.now_ms())
            else:
                answer = yield step
            try:
                step = steps.send(answer)
            except StopIteration as ended:
                kept: Kept = ended.value
                return kept


class GroupSandbox(VirtualSandbox):
    """The functions of a group of so many streams and their tables."""

    def __init__(
        self,
        source: Scenario,
        streams: int,
        clock: Clock,
        profile: Profile,
        upstream: ScriptedUpstream,
        settings: Mapping[str, Any],
        names: Mapping[str, str],
        executions: VirtualExecutions,
    ) -> None:
        super().__init__(clock, profile, upstream, settings, names, executions)
        ids = [f"replay:{number:03d}" for number in range(streams)]
        self._compared = ids[streams // 2]
        origin_ms = clock.now_ms()
        upstreams = {
            one: _Scripted(ScriptedUpstream(clock, source.upstream, origin_ms, Latencies(source).connect_ms))
            for one in ids
        }
        self._group = Group(profile, upstreams, settings, names, self.tables)
        self._group.joins()

    def _begin(self, who: Invocation, on_end: Callable[[Outcome], None]) -> RunningInvocation:
        function = PlayedGroup(self._clock, self._group, who, on_end)
        function.compared = self._compared
        return function


def _without_rereading(steps: Steps[Kept]) -> Steps[Kept]:
    """The same steps; a connection that is marked waits for what happens, and not to ask for its lease again."""
    is_marked, step = False, next(steps)
    while True:
        match step:
            case MarkConnected():
                is_marked = True
            case CloseUpstream() | Ended():
                is_marked = False
            case Await(int() as wake_ms, int()) if is_marked:
                step = Await(wake_ms, None)
        answer: Answer = yield step
        try:
            step = steps.send(answer)
        except StopIteration as ended:
            kept: Kept = ended.value
            return kept
