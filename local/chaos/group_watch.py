"""Watches the records of one group during a run: its counters, its functions' heartbeats, and who has claimed it.

It changes nothing. Invariant: a violation is one sentence with its time.
"""

from __future__ import annotations

from handlers.store.group_store import group_lease
from local.chaos.account import Account
from local.chaos.table_watch import Holder
from local.simulation.dynamodb_expressions import Item
from local.simulation.tables import Key


class GroupWatch:
    """The listener of one group."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._counters = (0, 0)
        self._buried: set[str] = set()
        self._holder = Holder(account.executions)
        self.lease: Item = {}
        self.usurped: list[str] = []
        self.backwards: list[str] = []

    def changed(self, _table: str, key: Key, item: Item) -> None:
        """Records one change."""
        if key[1] != "lease":
            return
        self.lease = item
        lease = group_lease(item)
        usurped = self._holder.held_by(lease.execution)
        if usurped:
            self.usurped.append(self._said(usurped))
        counters = (lease.token, lease.version)
        if any(now < before for now, before in zip(counters, self._counters, strict=True)):
            self.backwards.append(self._said(f"token and version of {key[0]} went from {self._counters} to {counters}"))
        self._counters = counters
        for request_id, heartbeat in lease.heartbeats.items():
            if heartbeat.is_ended:
                self._buried.add(request_id)
            elif request_id in self._buried:
                self._buried.remove(request_id)
                self.backwards.append(self._said(f"function {request_id} of {key[0]} was buried, and beats"))

    def _said(self, text: str) -> str:
        return f"{(self._account.clock.now_ms() - self._account.origin_ms) / 1000:.3f} s: {text}"
