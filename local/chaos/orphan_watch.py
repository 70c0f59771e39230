"""Checks the groups of a run once a minute, as the deployed watch does, when somebody stopped their executions.

What is orphaned, and what is started in its place, is the product's to say (`handlers/watching/orphan_recovery.py`).
"""

import json
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from handlers.store.leases import Leases
from handlers.watching.orphan_recovery import Orphans, StepFunctions
from local.chaos.group_world import Group
from local.chaos.world import MACHINE_ARN

LOOK_EVERY_MS = 60_000


class OrphanWatch:
    """Of all groups of a run."""

    def __init__(self, group: Group) -> None:
        self._group = group
        leases = Leases(group.tables, group.control_table)
        states = StepFunctions(lambda: _States(group), MACHINE_ARN, lambda: None)
        self._read_lease = leases.read
        self._orphans = Orphans(states, leases.read, states.youngest, may_start=lambda _group: True)

    def begin(self, after_ms: int) -> None:
        """It looks so much later for the first time, and then until the run is over."""
        clock = self._group.clock
        clock.call_at(clock.now_ms() + after_ms, self._look)

    def _look(self) -> None:
        for name in sorted(self._group.all):
            orphan = self._orphans.check(name, self._read_lease(name), self._group.clock.now_ms())
            if orphan is not None:
                self._group.say(f"the watch: {orphan.sentence}")
        self.begin(LOOK_EVERY_MS)


class _States:
    """Step Functions as boto3's client offers it, for the executions of groups."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:
        """DescribeExecution, by an ARN or by one that is made of a name."""
        name = executionArn.rpartition(":")[2]
        one = self._group.account.executions.get(executionArn) or self._group.started_as(name)
        if one is None:
            raise ClientError({"Error": {"Code": "ExecutionDoesNotExist"}}, "DescribeExecution")
        output = {"output": json.dumps(one.output)} if one.status == "SUCCEEDED" else {}
        return {"status": one.status, "startDate": datetime.fromtimestamp(one.started_ms / 1000, UTC), **output}

    def start_execution(self, *, name: str, input: str, **_machine: str) -> dict[str, Any]:
        """StartExecution."""
        data = json.loads(input)
        group = self._group.named(data["pathParameters"]["streamId"])
        return {"executionArn": group.successor({"Name": name, "Input": data}).arn}
