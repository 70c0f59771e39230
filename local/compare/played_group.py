"""Plays the functions of a group in virtual time: streams that the product keeps (`handlers/group`).

All streams of the group have the upstream and the faults that are asked for, each its own. The one that is compared is
in the middle of the order in which a function opens them. As in a replay (`local/simulation/skipping.py`) nothing is
requested again that cannot have changed: a group's function notifies a connection of each change of its lease.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from handlers.profile.behaviour import Profile
from handlers.run.group_ports import Needs
from local.replay.command import Latencies
from local.simulation.groups import Group
from local.simulation.sandbox import VirtualSandbox
from local.simulation.scenario import Scenario
from local.simulation.scripted_upstream import ScriptedUpstream
from local.simulation.skipping import SkippingSlot, VirtualConnection
from local.simulation.started_executions import VirtualExecutions
from local.simulation.virtual_function import VirtualFunction
from states_language.clock import VirtualClock

STREAMS = 100


class GroupSandbox(VirtualSandbox):
    """The functions of a group of so many streams and their tables."""

    def __init__(
        self,
        source: Scenario,
        streams: int,
        clock: VirtualClock,
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
            one: ScriptedUpstream(clock, source.upstream, origin_ms, Latencies(source).connect_ms) for one in ids
        }
        self._group = Group(lambda _stream_id: profile, upstreams, settings, names, self.tables)
        self._group.joins()

    def _needs(self, function: VirtualFunction) -> Needs:
        """What a function of the group does."""
        return self._group.needs(function, functools.partial(SkippingSlot, is_notified=True))

    def _connections_of(self, function: VirtualFunction) -> Sequence[VirtualConnection]:
        """Those of the stream that is compared."""
        slot = function.slots.get(self._compared)
        return [] if slot is None else slot.connections
