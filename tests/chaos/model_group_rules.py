"""The conditions of a group's writes as pure functions, and the conclusions of its functions from two records.

`model_group.py` uses them, and defects are planted in them (`tests/planted/group_model.toml`). Invariant: no function
changes its argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from handlers.connection.lease import Lease
from handlers.group import group_lease
from handlers.group.group_lease import GroupHeartbeat, GroupLease
from handlers.group.roster import Roster
from tests.chaos.model_group_world import NOW_MS, Record


class Rules:
    """The correct conditions."""

    reads_beside_newer = reads_after_members = rereads_lease = True
    join_order: tuple[str, ...] = ("record", "member", "version")
    roster: type[Roster] = Roster

    # --- the group's lease --------------------------------------------------------------------------------------------

    def with_change(self, group: GroupLease) -> GroupLease:
        """Returns the lease after a stream has joined, or was asked to stop."""
        return replace(group, version=group.version + 1)

    def ends_group(self, group: GroupLease, version: int) -> GroupLease | None:
        """Returns the lease after an empty group has ended; None if a stream has joined since `version`."""
        return replace(group, stop=True) if group.version == version else None

    def mark_ended(self, group: GroupLease, request: str, known: GroupHeartbeat) -> GroupLease | None:
        """Returns the lease after marking a function as ended; None if it has sent a heartbeat after `known`."""
        if group.heartbeats.get(request) != known:
            return None
        return replace(group, heartbeats={**group.heartbeats, request: replace(known, is_ended=True)})

    def over_with(self, group: GroupLease, request: str) -> GroupLease:
        """Returns the lease after the end of a function that has closed all its connections."""
        return replace(
            group, heartbeats={**group.heartbeats, request: replace(group.heartbeats[request], is_ended=True)}
        )

    def version_listed(self, _group: GroupLease, known: GroupLease) -> int:
        """Returns the version of the members that are read now."""
        return known.version

    # --- a stream's record --------------------------------------------------------------------------------------------

    def join(self, record: Record, stamp: int) -> Record | None:
        """Returns the record after a POST; None if a younger stop request exists."""
        if record.stop_at >= stamp:
            return None
        return replace(record, lease=replace(record.lease, stop=False), joined=stamp)

    def remove(self, members: Mapping[str, int], stream: str, joined: int) -> dict[str, int]:
        """Returns the members without the one that joined at that stamp; with it if it has joined again."""
        return {name: stamp for name, stamp in members.items() if name != stream or stamp != joined}

    def claim(self, record: Record, token: int) -> Record | None:
        """Returns the record after a claim; None if it is refused."""
        if record.lease.stop or not record.joined or record.token > token:
            return None
        return replace(record, lease=replace(record.lease, fence=record.lease.fence + 1), token=token)

    def mark(self, record: Record, fence: int, request: str) -> Record:
        """Returns the record after the mark, or unchanged."""
        lease = record.lease
        if lease.fence >= fence >= lease.connected_token and lease.released_token < fence:
            return replace(record, lease=replace(lease, connected_token=fence, connected_by=request))
        return record

    def take_turn(self, record: Record, fence: int, request: str, over: int) -> Record:
        """Returns the record after the turn was taken, or unchanged; connection `over` is over."""
        lease = record.lease
        if lease.connected_token <= lease.released_token or lease.connected_token in (fence, over):
            return self.mark(record, fence, request)
        return record

    def release(self, record: Record, fence: int) -> Record:
        """Returns the record after the mark of the release, or unchanged."""
        lease = record.lease
        if lease.fence >= fence >= lease.released_token:
            return replace(record, lease=replace(lease, released_token=fence))
        return record

    # --- conclusions from both records --------------------------------------------------------------------------------

    def record_of(self, records: Mapping[str, Record], stream: str) -> Record:
        """Returns the record that a connection of the stream reads."""
        return records[stream]

    def function_to_mark_ended(self, own: Lease, group: GroupLease, fence: int, died: str) -> str:
        """Returns the function that must be marked as ended before the turn is taken."""
        return group_lease.function_to_mark_ended(own, group, fence, NOW_MS, died)

    def ended_turn(self, own: Lease, group: GroupLease) -> int:
        """Returns the connection that is known to be over."""
        return group_lease.known_ended_turn(own, group)
