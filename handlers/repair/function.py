"""Repairs the gaps of a profile's streams, one stream at a time, in one invocation of the function.

It takes the profile's turn, repairs what is due, and waits for what is due within SOON_MS. For what is due later, the
watch starts it again. It is a generator, as `walking.py` is. Invariants: two functions never ask one upstream at a
time; a request stays until every gap of its stream is repaired or given up; a killed function loses nothing that it has
stored.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import field
from typing import Any

from handlers.api.verdict import counted
from handlers.connection.effects import Outcome
from handlers.connection.gap_record import REPAIRED, Gap, Repair
from handlers.connection.inputs import LOG, Layout, Written
from handlers.errors import StreamDropped, StreamRejected
from handlers.framing.events import StreamEvent
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.repair.gap_edges import edges, repaired_spans, to_repair
from handlers.repair.pages import Fetched
from handlers.repair.walking import Pace, Ports, TakenOver, Unstorable, repair_gap
from handlers.repair.work import RepairWork, Request
from handlers.run.group_ports import Ask, Needs, Wait
from handlers.store.connection_store import Store
from handlers.store.event_items import REPAIRED_FENCE, StoragePolicy
from handlers.store.event_reader import EventReader
from handlers.store.segment_reader import SKEW_MS
from handlers.store.segment_writer import SegmentWriter
from handlers.store.stream_records import StreamRecords
from handlers.values import dataclass

# How long a turn lasts after its last renewal: longer than a page takes, with the back-off after a refusal.
TURN_MS = 45_000
# How soon a repair must be due for the function to wait for it.
SOON_MS = 30_000
MOST_GAPS = 500
# The number of the first event that an attempt stores. Attempts begin far apart, so that their numbers never meet.
FIRST, APART, TIMES = 5 * 10**11, 10**5, 10**6


@dataclass(frozen=True, slots=True)
class Deps:
    """What an invocation works with; `profile_of` returns None if the stream's profile has no repair."""

    work: RepairWork
    records: StreamRecords
    store: Store
    reader: EventReader
    profile_of: Callable[[str], Profile | None]
    secrets_of: Callable[[Profile], Secrets]
    fetch: Callable[[UpstreamRequest], Fetched]
    alert: Callable[[str, Gap, Repair], None]
    now_ms: Callable[[], int]
    left_ms: Callable[[], int]
    holder: str
    pace: Pace = field(default_factory=Pace)
    done: list[tuple[str, Gap, Repair]] = field(default_factory=list)


def repairs(deps: Deps, stream_id: str) -> Needs:
    """Repairs what is due of the stream and of its profile's others; the outcome's status is "done" or "busy"."""
    profile = stream_id.partition(":")[0]
    if not (yield Ask(lambda: turn(deps, profile))):
        return Outcome("", "busy", "another function repairs the gaps of this profile")
    rest_until_ms = 0
    while deps.left_ms() > 0 and not rest_until_ms:
        requests = yield Ask(lambda: _requests(deps, stream_id, profile))
        due = [one for one in requests if one.due_ms <= deps.now_ms()]
        if not due:
            wait_ms = min((one.due_ms for one in requests), default=1 << 62) - deps.now_ms()
            if wait_ms > min(SOON_MS, deps.left_ms()):
                break
            yield Wait(wait_ms / 1000)
            continue
        try:
            rest_until_ms = yield from _stream(deps, due[0])
        except TakenOver:
            return Outcome("", "busy", "another function has taken over")
    yield Ask(lambda: deps.work.leave(profile, deps.holder, rest_until_ms or deps.pace.next_ms))
    return Outcome("", "done", f"{counted(len(deps.done), 'gap')} tried")


def turn(deps: Deps, profile: str) -> bool:
    """Returns whether this function alone may ask the profile's upstream, for TURN_MS from now on."""
    now_ms = deps.now_ms()
    return deps.work.take_turn(profile, deps.holder, now_ms, now_ms + TURN_MS)


def _requests(deps: Deps, stream_id: str, profile: str) -> list[Request]:
    # The index may not yet have the stream for which this invocation was started.
    listed = {one.stream_id: one for one in (*deps.work.requested(profile), *deps.work.read([stream_id]))}
    return sorted(listed.values(), key=lambda one: (one.due_ms, one.stream_id))


def _stream(deps: Deps, request: Request) -> Generator[Ask | Wait, Any, int]:
    """Repairs what is due of one stream; returns until when the upstream must not be asked, 0 if it may be."""
    stream_id, rest_until_ms = request.stream_id, 0
    profile, layout = deps.profile_of(stream_id), (yield Ask(lambda: deps.records.layout(stream_id)))
    next_ms: int | None = None
    if profile is not None and profile.repair is not None and layout is not None:
        held, problem = yield Ask(lambda: secrets(deps, profile))
        gaps = yield Ask(lambda: deps.records.newest_gaps(stream_id, MOST_GAPS))
        left = []
        for due_ms, gap in to_repair(gaps, deps.now_ms()):
            due_ms = max(due_ms, gap.to_ms + profile.repair.after_ms)
            if due_ms > deps.now_ms() or rest_until_ms or deps.left_ms() <= 0:
                left.append(due_ms)
                continue
            repair = yield from repair_gap(ports(deps, profile, stream_id, layout, held, problem), gap)
            deps.done.append((stream_id, gap, repair))
            if not repair.is_over:
                left.append(repair.next_ms)
            if repair.rest_until_ms > deps.now_ms():
                rest_until_ms = repair.rest_until_ms
        next_ms = min(left, default=None)
        spans = repaired_spans(gaps)
        spans += [repair.span for one, _, repair in deps.done if one == stream_id and repair.state == REPAIRED]
        if spans:
            yield Ask(lambda: deps.work.shows(stream_id, spans))
    yield Ask(lambda: deps.work.done(request, deps.now_ms(), next_ms))
    return rest_until_ms


def secrets(deps: Deps, profile: Profile) -> tuple[Secrets, str]:
    """Returns the secrets, or why the address cannot be asked."""
    try:
        return deps.secrets_of(profile), ""
    except (StreamRejected, StreamDropped) as error:
        return {}, str(error)


def ports(
    deps: Deps, profile: Profile, stream_id: str, layout: Layout, held: Secrets, problem: str = ""
) -> Ports:  # fmt: skip
    """Returns what the repair of a gap of this stream needs; `problem` is why the address cannot be asked."""
    said = profile.repair
    assert said is not None

    def save(gap: Gap, repair: Repair) -> bool:
        return deps.store.ledger.save_repair(stream_id, gap, repair) and turn(deps, profile.name)

    return Ports(
        profile=profile,
        stream_id=stream_id,
        secrets=held,
        fetch=deps.fetch,
        borders=lambda gap: edges(deps.reader, deps.records, stream_id, layout, gap, said, deps.now_ms()),
        store=_Storing(deps, profile, stream_id, layout).store,
        save=save,
        alert=lambda gap, repair: deps.alert(stream_id, gap, repair),
        renew=lambda: turn(deps, profile.name),
        pace=deps.pace,
        now_ms=deps.now_ms,
        left_ms=deps.left_ms,
        problem=problem,
    )


class _Storing:
    """Stores what the repair of one gap brings, as the stream's connections do: it refuses known events."""

    def __init__(self, deps: Deps, profile: Profile, stream_id: str, layout: Layout) -> None:
        self._deps, self._profile, self._stream_id, self._layout = deps, profile, stream_id, layout
        self._next = 0
        self._log: SegmentWriter | None = None

    def store(self, events: Sequence[StreamEvent], since_ms: int) -> Written:
        """Stores events; returns how many were new. Raises Unstorable if too many came since then to know that."""
        profile, layout, now_ms = self._profile, self._layout, self._deps.now_ms()
        first = self._next or FIRST + now_ms // 1000 % TIMES * APART
        self._next = first + len(events)
        if layout.partitions != LOG:
            policy = StoragePolicy(layout.partitions, profile.keep_days, None, layout.order)
            return self._deps.store.write(self._stream_id, REPAIRED_FENCE, first, events, policy)
        if self._log is None:
            window_ms = now_ms - since_ms + SKEW_MS
            self._log = self._deps.store.log(
                self._stream_id, REPAIRED_FENCE, self._deps.now_ms, window_ms=window_ms, keep_days=profile.keep_days,
                layout=layout,
            )  # fmt: skip
            if not self._log.looks_back():
                self._log = None
                raise Unstorable("too many events have come since the gap to compare their keys")
        return self._log.write(first, events)
