"""The conditions of a group's writes as pure functions, and what its functions make of two records.

`model_group.py` uses them; defects are planted in them (`tests/planted/group_model.toml`). It decides nothing else.
Invariant: no function changes its argument.
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
    """The sound conditions."""

    looks_at_newer = looks_at_members = looks_again = True
    join_order: tuple[str, ...] = ("record", "member", "version")
    roster: type[Roster] = Roster

    # --- the group's lease --------------------------------------------------------------------------------------------

    def changed(self, group: GroupLease) -> GroupLease:
        """The lease after somebody has joined, or was asked to stop."""
        return replace(group, version=group.version + 1)

    def ends_group(self, group: GroupLease, version: int) -> GroupLease | None:
        """The lease after an empty group was ended; None where somebody has joined since `version`."""
        return replace(group, stop=True) if group.version == version else None

    def mark_ended(self, group: GroupLease, request: str, known: GroupHeartbeat) -> GroupLease | None:
        """The lease after a function was ended; None where it has sent a heartbeat since it was `known` so."""
        if group.heartbeats.get(request) != known:
            return None
        return replace(group, heartbeats={**group.heartbeats, request: replace(known, is_ended=True)})

    def over_with(self, group: GroupLease, request: str) -> GroupLease:
        """The lease after a function has ended: it is as good as ended, for it has closed all that it had."""
        return replace(
            group, heartbeats={**group.heartbeats, request: replace(group.heartbeats[request], is_ended=True)}
        )

    def version_listed(self, _group: GroupLease, known: GroupLease) -> int:
        """Of which version the members count that are read now."""
        return known.version

    # --- a stream's record --------------------------------------------------------------------------------------------

    def join(self, record: Record, stamp: int) -> Record | None:
        """The record after a POST; None where a younger stop request stands."""
        if record.stop_at >= stamp:
            return None
        return replace(record, lease=replace(record.lease, stop=False), joined=stamp)

    def remove(self, members: Mapping[str, int], stream: str, joined: int) -> dict[str, int]:
        """The members without one that has joined then; with it where it has joined anew."""
        return {name: stamp for name, stamp in members.items() if name != stream or stamp != joined}

    def claim(self, record: Record, token: int) -> Record | None:
        """The record after a claim; None where it is refused."""
        if record.lease.stop or not record.joined or record.token > token:
            return None
        return replace(record, lease=replace(record.lease, fence=record.lease.fence + 1), token=token)

    def mark(self, record: Record, fence: int, request: str) -> Record:
        """The record after the mark, or as it was."""
        lease = record.lease
        if lease.fence >= fence >= lease.connected_token and lease.released_token < fence:
            return replace(record, lease=replace(lease, connected_token=fence, connected_by=request))
        return record

    def take_turn(self, record: Record, fence: int, request: str, over: int) -> Record:
        """The record after the turn was taken, or as it was; connection `over` is over."""
        lease = record.lease
        if lease.connected_token <= lease.released_token or lease.connected_token in (fence, over):
            return self.mark(record, fence, request)
        return record

    def release(self, record: Record, fence: int) -> Record:
        """The record after the mark of the release, or as it was."""
        lease = record.lease
        if lease.fence >= fence >= lease.released_token:
            return replace(record, lease=replace(lease, released_token=fence))
        return record

    # --- what a function makes of both --------------------------------------------------------------------------------

    def record_of(self, records: Mapping[str, Record], stream: str) -> Record:
        """The record that a connection of the stream is told of."""
        return records[stream]

    def to_bury(self, own: Lease, group: GroupLease, fence: int, died: str) -> str:
        """Who is to be ended before the turn is taken."""
        return group_lease.to_bury(own, group, fence, NOW_MS, died)

    def over(self, own: Lease, group: GroupLease) -> int:
        """Which connection is known to be over."""
        return group_lease.known_over(own, group)
