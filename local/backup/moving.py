"""Moves a stream from one place to another: stops it here, copies it, and starts it there from its cursor.

The lease here gets `moved_to`: the target, the generation, and the instant of the stop. So a killed move can be
repeated from any step: a stopped stream stays stopped, a copied one is there, a started one runs. Invariants: nothing
is copied before the last connection here is closed, and nothing is started before all is copied; so a reader there sees
each event once, and the first connection there brings what came between, or leaves a gap.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from handlers.fleet.starting import started
from handlers.fleet.turns import Outcome
from handlers.store import control_record
from handlers.store.control_table import Table
from handlers.store.leases import LEASE
from handlers.store.stream_records import StreamRecords
from handlers.store.typed_values import Item, count, instant, key, text
from local.backup.reading import NotRestored, Tables
from local.backup.stage_places import Place
from local.backup.writing import Restored, Restoring, held_by

# A connection leaves after some reads of the lease; a machine in a back-off takes longer.
LET_GO_S, CLAIMED_S = 300.0, 60.0
CHECK_S, AGAIN_S = 0.5, 5.0


@dataclass(frozen=True)
class Moving:
    """Moves from `here` to `there`; `check` raises after Ctrl-C, `say` prints the progress of a stream."""

    here: Place
    there: Place
    check: Callable[[], None]
    say: Callable[[str], None]

    def move(self, stream_id: str) -> tuple[Restored, bool]:
        """What was copied, and whether it now runs there; raises NotRestored, StoreUnavailable and UserError."""
        tables = Tables(self.here)
        lease = tables.lease(stream_id)
        if lease is None:
            words = f"{self.here.name} has no such stream; --match '{stream_id}:*' moves the parts of one in parts"
            raise NotRestored(words)
        stopped_at = self._marked(stream_id, lease)
        lease = self._stopped(tables, stream_id, stopped_at)
        ran = text(lease, "stop_at") == stopped_at
        restoring = Restoring(self.there, f"{self.here.name} {stopped_at}", self.check)
        self.say(f"{stream_id}: copying")
        restored = restoring.restore(tables, stream_id, ran=ran)
        if not ran or not self.there.start_machine:
            return restored, False
        self.say(f"{stream_id}: starting at {self.there.name}")
        return restored, start(self.there, stream_id, stopped_at, self.check)

    def _marked(self, stream_id: str, lease: Item) -> str:
        """The instant of the stop by this move, which this or an earlier try has written into the lease."""
        generation = str(count(lease, "generation") or 0)
        where, _, known = (text(lease, "moved_to") or "").partition(" ")
        if where == self.there.name and known.partition(" ")[0] == generation:
            return known.partition(" ")[2]
        now = instant(time.time_ns() // 1_000_000)
        mark = {":mark": {"S": f"{self.there.name} {generation} {now}"}}
        table = Table(self.here.dynamodb, self.here.control_table)
        table.update(key(stream_id, LEASE), "SET #moved_to = :mark", "attribute_exists(PK)", mark)
        return now

    def _stopped(self, tables: Tables, stream_id: str, stopped_at: str) -> Item:
        """The lease once nothing keeps the stream here any more."""
        lease = tables.lease(stream_id) or {}
        held = control_record.lease(lease)
        if held.execution and not held.stop:
            self.say(f"{stream_id}: stopping at {self.here.name}")
            records = StreamRecords(self.here.dynamodb, self.here.control_table)
            records.stop(stream_id, stopped_at, may_start=False)
        until_s = time.monotonic() + LET_GO_S
        while True:
            lease = tables.lease(stream_id) or {}
            if not held_by(self.here, lease):
                return lease
            self.check()
            if time.monotonic() > until_s:
                raise NotRestored(
                    f"it has not stopped at {self.here.name} within {LET_GO_S:g} s: run the command again later"
                )
            time.sleep(CHECK_S)


def start(place: Place, stream_id: str, stopped_at: str, check: Callable[[], None]) -> bool:
    """Starts a copied stream, which was stopped at that instant; returns once an execution there keeps it.

    It is False if somebody has stopped the stream since (`stop_since`): then it stays stopped. Raises NotRestored.
    """
    tables, until_s, asked_s, why = Tables(place), time.monotonic() + CLAIMED_S, -AGAIN_S, "no execution has claimed it"
    while text(lease := tables.lease(stream_id) or {}, "stop_at") == stopped_at and "stop_since" not in lease:
        check()
        if time.monotonic() > until_s:
            raise NotRestored(f"it is copied but not started at {place.name}: {why}; run the command again")
        if time.monotonic() - asked_s > AGAIN_S:
            asked_s = time.monotonic()
            outcome, problem = started(place.states, place.start_machine, stream_id)
            why = why if outcome is Outcome.DONE else problem
            if outcome is Outcome.FAILED:
                until_s = 0.0
        time.sleep(CHECK_S)
    return not control_record.lease(lease).stop
