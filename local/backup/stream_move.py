"""Moves a stream from one place to another: stops it here, copies it, and starts it there from its cursor.

With the stop request the lease here gets `moved_to`: the target, and the instant of the stop. A killed move can
therefore be repeated from any step: a stopped stream stays stopped, a copied one is there, a started one runs.
Invariants: nothing is copied before the last connection here is closed, and nothing is started before all is copied. So
a reader there sees each event once, and the first connection there brings the events in between, or leaves a gap. If
two moves to two places run at once, only one of them starts the stream.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from handlers.fleet.request_pacing import Outcome, start_stream
from handlers.store import control_record
from handlers.store.stream_records import StreamRecords
from handlers.store.typed_values import Item, instant_text, read_text
from local.backup.stream_restore import RestoreCounts, StreamRestore, running_execution
from local.backup.stream_source import NotRestored, Place, Tables

# A connection leaves after some reads of the lease; a machine in a back-off takes longer.
LET_GO_S, CLAIMED_S = 300.0, 60.0
CHECK_S, AGAIN_S = 0.5, 5.0


@dataclass(frozen=True)
class StreamMove:
    """Moves from `here` to `there`; `check` raises after Ctrl-C, `say` prints the progress of a stream."""

    here: Place
    there: Place
    check: Callable[[], None]
    say: Callable[[str], None]

    def move(self, stream_id: str) -> tuple[RestoreCounts, bool]:
        """Returns what was copied, and whether it runs there; raises NotRestored, StoreUnavailable and UserError."""
        tables = Tables(self.here)
        if tables.lease(stream_id) is None:
            words = f"{self.here.name} has no such stream; --match '{stream_id}:*' moves the parts of one in parts"
            raise NotRestored(words)
        lease = self._stop(tables, stream_id)
        stopped_at = read_text(lease, "stop_at") or read_text(lease, "ended_at") or ""
        ran = control_record.lease_of(lease).moved_to != ""
        restoring = StreamRestore(self.there, f"{self.here.name} {stopped_at}", self.check)
        self.say(f"{stream_id}: copying")
        restored = restoring.restore(tables, stream_id, ran=ran)
        if not ran or not self.there.start_machine:
            return restored, False
        self.say(f"{stream_id}: starting at {self.there.name}")
        return restored, start_copied_stream(self.there, stream_id, stopped_at, self.check)

    def _stop(self, tables: Tables, stream_id: str) -> Item:
        """Returns the lease once nothing keeps the stream here; raises NotRestored if another move has stopped it."""
        records = StreamRecords(self.here.dynamodb, self.here.control_table)
        until_s, is_asked = time.monotonic() + LET_GO_S, False
        while True:
            self.check()
            lease = tables.lease(stream_id) or {}
            held = control_record.lease_of(lease)
            if (place := held.moved_to) not in ("", self.there.name):
                raise NotRestored(
                    f"it is being moved to {place} since {read_text(lease, 'stop_at')}: run that move again, or start "
                    f"the stream at {self.here.name} first"
                )
            if held.execution and (place or not held.stop) and not is_asked:
                self.say(f"{stream_id}: stopping at {self.here.name}")
                # A killed try may not have notified the group's function: the same request is repeated.
                asked_at = read_text(lease, "stop_at") if place else instant_text(time.time_ns() // 1_000_000)
                is_asked = bool(records.stop(stream_id, asked_at or "", may_start=False, moved_to=self.there.name))
                continue
            if not running_execution(self.here, lease):
                return lease
            if time.monotonic() > until_s:
                raise NotRestored(
                    f"it has not stopped at {self.here.name} within {LET_GO_S:g} s: run the command again later"
                )
            time.sleep(CHECK_S)


def start_copied_stream(place: Place, stream_id: str, stopped_at: str, check: Callable[[], None]) -> bool:
    """Starts a copied stream, which was stopped at that instant; returns once an execution there keeps it.

    The answer is False if the stream was stopped again since (`stop_since`): it then stays stopped. Raises NotRestored.
    """
    tables, until_s, asked_s, why = (
        Tables(place),
        time.monotonic() + CLAIMED_S,
        -AGAIN_S,
        "no execution has claimed it",
    )
    while read_text(lease := tables.lease(stream_id) or {}, "stop_at") == stopped_at and "stop_since" not in lease:
        check()
        if time.monotonic() > until_s:
            raise NotRestored(f"it is copied but not started at {place.name}: {why}; run the command again")
        if time.monotonic() - asked_s > AGAIN_S:
            asked_s = time.monotonic()
            outcome, problem = start_stream(place.states, place.start_machine, stream_id)
            why = why if outcome is Outcome.DONE else problem
            if outcome is Outcome.FAILED:
                until_s = 0.0
        time.sleep(CHECK_S)
    return not control_record.lease_of(lease).stop
