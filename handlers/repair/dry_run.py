"""Walks as a repair does but stores nothing, to show what a repair of a stream's gaps would bring."""

from collections.abc import Sequence
from dataclasses import field, replace

from handlers.connection.effects import Outcome
from handlers.connection.gap_record import Repair
from handlers.connection.inputs import Written
from handlers.framing.events import StreamEvent
from handlers.repair.function import newest_gaps
from handlers.repair.gap_edges import incomplete_gaps, repair_again
from handlers.repair.gap_ports import Deps, GapPorts, TakenOver
from handlers.repair.walking import repair_gap
from handlers.run.group_ports import Ask, Needs
from handlers.values import dataclass


def dry_run(deps: Deps, stream_id: str, from_ms: int, to_ms: int) -> Needs:
    """Tries the gaps of [from_ms, to_ms) once; `deps.done` gets the result of each."""
    profile_name = stream_id.partition(":")[0]
    if not (yield Ask(lambda: deps.take_turn(profile_name))):
        return Outcome("", "busy", "another function repairs the gaps of this profile")
    gaps = yield from newest_gaps(deps, stream_id, deps.profile_of(stream_id), _DryPorts)
    rest_until_ms = 0
    for gap in reversed(incomplete_gaps(list(gaps))):
        if gap.from_ms < to_ms and gap.to_ms >= from_ms and deps.has_time and rest_until_ms <= deps.now_ms():
            try:
                repair: Repair = yield from repair_gap(gaps[gap], replace(gap, repair=repair_again(gap, 0)))
            except TakenOver:
                return Outcome("", "busy", "another function has taken over")
            deps.done.append((stream_id, gap, replace(repair, next_ms=0)))
            rest_until_ms = repair.rest_until_ms
    yield Ask(lambda: deps.work.end_turn(profile_name, deps.holder, max(rest_until_ms, deps.pace.next_ms)))
    return Outcome("", "done", "")


@dataclass
class _DryPorts(GapPorts):
    """Counts which events are stored already; stores and saves nothing."""

    _seen: set[str] = field(default_factory=set)

    def save(self, *_: object) -> bool:
        return self.renew_turn()

    def alert(self, *_: object) -> None:
        pass

    def count_repaired(self, *_: object) -> int:
        return 0

    def store(self, events: Sequence[StreamEvent], since_ms: int) -> Written:
        """Returns how many of the events would be new."""
        wanted = {event.key for event in events} - self._seen
        self._seen |= wanted
        new = len(wanted - self.known_keys(wanted, since_ms))
        return Written(new, len(events) - new)
