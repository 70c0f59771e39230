"""Starts streams again that nobody asks for anew: what an earlier run left, and orphans.

Invariants: a stream whose stop was requested meanwhile stays stopped; no more are started than the machine has room
for, and the others are named.
"""

import asyncio
from collections.abc import Callable, Iterable

from handlers import orphans
from handlers.store import control_items
from local.aws_endpoints import Endpoints
from local.service.capacity import Room
from local.service.orphan_watch import OrphanWatch
from local.stepfunctions.executions import Executions
from local.stepfunctions.known_executions import KnownExecution


class LeftStreams:
    """Those of one run; `control_table` is None where the template has none, and `say` prints a line."""

    def __init__(
        self, executions: Executions, endpoints: Endpoints, control_table: str | None, room: Room,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._executions = executions
        self._endpoints = endpoints
        self._control_table = control_table
        self._room = room
        self._say = say

    async def wanted(self) -> list[KnownExecution]:
        """Returns the executions that an earlier run left, without those of streams that somebody has stopped."""
        left = self._executions.restore()
        return [known for known in left if not await asyncio.to_thread(self._stop_requested, known)]

    def resume(self, left: Iterable[KnownExecution]) -> None:
        """Goes on with them as far as there is room; for the rest the watch of orphans waits."""
        known = list(left)
        streams = list(dict.fromkeys(one.stream_id for one in known if one.stream_id))
        waiting = streams[self._room.capacity.most :]
        for one in self._executions.resume(one for one in known if one.stream_id not in waiting):
            self._say(f"resumed: {one.stream_id or one.opening.name}")
        if waiting:
            sentence = self._room.capacity.sentence
            self._say(f"ALERT: {sentence}, so these are not resumed before there is room: {', '.join(waiting)}")

    def watch(self, states_url: str, machine_arn: str | None, *, shares_tables: bool) -> OrphanWatch | None:
        """Returns what looks after orphans with the Step Functions there; None where no machine keeps streams."""
        if self._control_table is None or machine_arn is None:
            return None
        own = Endpoints({}, states_url)
        # The local Step Functions has no quota.
        states = orphans.StepFunctions(lambda: own.client("stepfunctions"), machine_arn, lambda: None)
        return OrphanWatch(
            self._executions, lambda: self._endpoints.client("dynamodb"), states, self._control_table, shares_tables,
            self._room.admits, self._say,
        )  # fmt: skip

    def _stop_requested(self, known: KnownExecution) -> bool:
        if self._control_table is None or not known.stream_id:
            return False
        key = control_items.key(known.stream_id, "lease")
        item = self._endpoints.client("dynamodb").get_item(TableName=self._control_table, Key=key).get("Item", {})
        return control_items.lease(item).stop
