"""Walks as a repair does but stores nothing, to show what a repair of a stream's gaps would bring."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from handlers.connection.effects import Outcome
from handlers.connection.gap_record import Repair
from handlers.connection.inputs import LOG, Layout, Written
from handlers.framing.events import StreamEvent
from handlers.repair.function import MOST_GAPS, Deps, ports, secrets, turn
from handlers.repair.gap_edges import MOST_READ, again, left
from handlers.repair.walking import repair_gap
from handlers.run.group_ports import Ask, Needs, Wait
from handlers.store.control_table import KEYS, Table
from handlers.store.event_items import partition_key
from handlers.store.typed_values import key


def dry_run(deps: Deps, stream_id: str, from_ms: int, to_ms: int) -> Needs:
    """Tries the gaps of [from_ms, to_ms) once; `deps.done` is called with the result of each."""
    profile_name = stream_id.partition(":")[0]
    if not (yield Ask(lambda: turn(deps, profile_name))):
        return Outcome("", "busy", "another function repairs the gaps of this profile")
    yield from _walks(deps, stream_id, from_ms, to_ms)
    yield Ask(lambda: deps.work.leave(profile_name, deps.holder, deps.pace.next_ms))
    return Outcome("", "done", "")


def _walks(deps: Deps, stream_id: str, from_ms: int, to_ms: int) -> Generator[Ask | Wait, Any, None]:
    profile, layout = deps.profile_of(stream_id), (yield Ask(lambda: deps.records.layout(stream_id)))
    if profile is None or profile.repair is None or layout is None:
        return
    values, problem = yield Ask(lambda: secrets(deps, profile))
    gaps = yield Ask(lambda: deps.records.newest_gaps(stream_id, MOST_GAPS))
    for gap in reversed(left(gaps)):
        if gap.from_ms < to_ms and gap.to_ms >= from_ms and deps.left_ms() > 0:
            dry = replace(
                ports(deps, profile, stream_id, layout, values, problem),
                store=_Counting(deps, stream_id, layout).store,
                save=lambda _gap, _repair: True,
                alert=lambda _gap, _repair: None,
            )
            repair: Repair = yield from repair_gap(dry, replace(gap, repair=again(gap, 0)))
            deps.done.append((stream_id, gap, replace(repair, next_ms=0)))


class _Counting:
    """Counts which events are stored already, and stores none."""

    def __init__(self, deps: Deps, stream_id: str, layout: Layout) -> None:
        self._deps, self._stream_id, self._layout = deps, stream_id, layout
        self._seen: set[str] = set()

    def store(self, events: Sequence[StreamEvent], since_ms: int) -> Written:
        """Returns how many of the events would be new."""
        wanted = {event.key for event in events} - self._seen
        self._seen |= wanted
        new = len(wanted - set(self._known(wanted, since_ms)))
        return Written(new, len(events) - new)

    def _known(self, keys: set[str], since_ms: int) -> list[str]:
        deps, layout = self._deps, self._layout
        if layout.partitions == LOG:
            begin = deps.reader.place_at(self._stream_id, layout, since_ms)
            entries = deps.reader.entries(self._stream_id, layout, deps.now_ms(), begin, MOST_READ)
            return [entry.event.key for entry in entries if entry.event is not None]
        table, ordered = deps.reader.table, sorted(keys)
        parts = [ordered[first : first + KEYS] for first in range(0, len(ordered), KEYS)]
        return [item["SK"]["S"] for part in parts for item in self._items(table, part)]

    def _items(self, table: Table, keys: Sequence[str]) -> list[dict[str, Any]]:
        places = [key(partition_key(self._stream_id, one, self._layout.partitions), one) for one in keys]
        return list(table.items(places, consistent=True, only=("PK", "SK")))
