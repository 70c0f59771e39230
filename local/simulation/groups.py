"""Describes the streams that share the functions of a simulated stage, and makes the needs of such a function.

The function is the product's own (`handlers/run/group_function.py`); nothing is decided here.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from handlers.connection.steps import Invocation
from handlers.group.next_step import Delays
from handlers.profile.behaviour import Profile
from handlers.run.group_ports import GroupTables, Needs, ReadProfiles
from handlers.run.ports import LogReport
from handlers.store import typed_values
from handlers.store.group_store import GroupStore
from handlers.store.typed_values import Item
from local.simulation.shared_tasks import no_client
from local.simulation.slots import Slot, Upstream, group_needs
from local.simulation.virtual_function import VirtualFunction

GROUP = "#1"
INPUT = {"pathParameters": {"streamId": GROUP}}


def join(client: Any, control_table: str, streams: Collection[str], execution: str = "") -> None:
    """Records that the streams have joined, as their POSTs do; the group's `execution` if no machine claims it."""
    lease = typed_values.item_key(GROUP, "lease") | ({"execution": {"S": execution}} if execution else {})
    client.put_item(TableName=control_table, Item=lease)
    groups, joined = GroupStore(client, control_table, GROUP), "2026-01-01T00:00:00.000Z"
    for stream_id in streams:
        place: Item = {"joined": {"S": joined}, "group": {"S": GROUP}, "generation": typed_values.number_value(1)}
        client.put_item(TableName=control_table, Item=typed_values.item_key(stream_id, "lease") | place)
        groups.add_member(stream_id, joined)
    groups.record_size(0, len(streams), frees_places=False)


@dataclass(frozen=True, slots=True)
class Group:
    """A group of streams that share a stage's functions: the profile and upstream of each, by its id."""

    profile_of: Callable[[str], Profile]
    upstreams: Mapping[str, Upstream]
    settings: Mapping[str, Any]
    names: Mapping[str, str]
    client: Any

    def needs(
        self,
        function: VirtualFunction,
        slot: Callable[[VirtualFunction, Upstream], Slot] = Slot,
        log_report: LogReport = lambda *_: None,
    ) -> Needs:
        """Returns the dependencies of a function of the group, with a slot for each stream."""
        settings, names = self.settings, self.names
        tables = GroupTables(
            self.client,
            no_client,
            events_table=names["events_table"],
            control_table=names["control_table"],
            dead_letter_queue_url="",
            ledger_keep_days=settings["ledger_keep_days"],
        )
        delays = Delays(*(settings[name] for name in Delays.__slots__))

        def slot_of(_profile: Profile, who: Invocation) -> Slot:
            return slot(function, self.upstreams[who.stream_id])

        profiles = ReadProfiles(self.profile_of, self.profile_of)
        return group_needs(function, slot_of, tables, delays, profiles, log_report=log_report)
