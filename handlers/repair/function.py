"""Repairs the gaps of a profile's streams, one stream at a time, in one invocation of the function.

It takes the profile's turn, repairs what is due, and waits for what is due within SOON_MS. For what is due later, the
watch starts it again. It is a generator, as `walking.py` is. Invariants: two functions never ask one upstream at a
time; a request stays until every gap of its stream is repaired or given up; a killed function loses nothing that it has
stored.
"""

from collections.abc import Generator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from handlers.api.verdict import plural
from handlers.connection.effects import Outcome
from handlers.connection.gap_record import REPAIRED, Gap, Repair
from handlers.connection.inputs import Written
from handlers.errors import StoreUnavailable, StreamDropped, StreamRejected
from handlers.framing.events import StreamEvent
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.repair.gap_edges import gaps_since, gaps_to_repair, incomplete_gaps, repair_again, repaired_spans
from handlers.repair.gap_ports import Deps, GapPorts, TakenOver
from handlers.repair.walking import repair_gap
from handlers.repair.work import Request
from handlers.run.group_ports import Ask, Needs, Wait
from handlers.values import dataclass

# How soon a repair must be due for the function to wait for it.
SOON_MS = 30_000
# A stream without a valid profile is tried again after this time, for a week after its request.
NO_PROFILE_REST_MS, NO_PROFILE_KEPT_MS = 600_000, 7 * 86_400_000
# A stream whose records cannot be read now is tried again after this time.
UNREADABLE_REST_MS = 60_000
# How long after the address's reach a gap may still wait for its last try, after which a person is alerted.
GIVEN_UP_MS = 86_400_000


def repair_streams(deps: Deps, stream_id: str) -> Needs:
    """Repairs what is due of the stream and of its profile's others; the outcome's status is "done" or "busy".

    Raises StoreUnavailable, after the others' repair if the records of one stream were refused.
    """
    profile, rest_until_ms = stream_id.partition(":")[0], 0
    unreadable: StoreUnavailable | None = None
    due: list[Request] = []
    while deps.has_time and not rest_until_ms:
        # The turn is taken before each stream, because several waits outlast it.
        if not (yield Ask(lambda: deps.take_turn(profile))):
            return Outcome("", "busy", "another function repairs the gaps of this profile")
        if not due:
            # The requests are not read after each stream, because thousands may have been dropped at once.
            # The index may not yet have the stream for which this invocation was started.
            requests = yield Ask(lambda: deps.work.requests_of(profile, stream_id))
            due = [one for one in requests if one.due_ms <= deps.now_ms()]
        if not due:
            wait_ms = min((one.due_ms for one in requests), default=1 << 62) - deps.now_ms()
            if wait_ms > min(SOON_MS, deps.left_ms()):
                break
            yield Wait(wait_ms / 1000)
            continue
        request = due.pop(0)
        try:
            rest_until_ms = yield from _repair_stream(deps, request)
        except TakenOver:
            # Another function has the turn, or a person has requested the gap again.
            continue
        except StoreUnavailable as problem:
            # Only this stream's record may be damaged, so the repair of the others continues.
            unreadable, now_ms = problem, deps.now_ms()
            yield Ask(partial(deps.work.finish_request, request, now_ms, now_ms + UNREADABLE_REST_MS))
    yield Ask(lambda: deps.work.end_turn(profile, deps.holder, rest_until_ms or deps.pace.next_ms))
    if unreadable is not None:
        raise unreadable
    return Outcome("", "done", f"{plural(len(deps.done), 'gap')} tried")


def _repair_stream(deps: Deps, request: Request) -> Generator[Ask | Wait, Any, int]:
    """Repairs the due gaps of one stream; returns the end of the upstream's back-off, 0 if it may be asked now."""
    stream_id, rest_until_ms = request.stream_id, 0
    profile, now_ms = deps.profile_of(stream_id), deps.now_ms()
    if profile is None and now_ms - request.asked_ms < NO_PROFILE_KEPT_MS:
        # A person may correct it.
        yield Ask(lambda: deps.work.finish_request(request, now_ms, now_ms + NO_PROFILE_REST_MS))
        return 0
    gaps = yield from newest_gaps(deps, stream_id, profile)
    left = []
    for due_ms, gap in gaps_to_repair(list(gaps), deps.now_ms()):
        due_ms = max(due_ms, gap.to_ms + gaps[gap].field.after_ms)
        if due_ms > deps.now_ms() or rest_until_ms or not deps.has_time:
            left.append(due_ms)
            continue
        repair = yield from repair_gap(gaps[gap], gap)
        deps.done.append((stream_id, gap, repair))
        if not repair.is_over:
            left.append(repair.next_ms)
        if repair.rest_until_ms > deps.now_ms():
            rest_until_ms = repair.rest_until_ms
    spans = repaired_spans(list(gaps))
    spans += [repair.span for one, _, repair in deps.done if one == stream_id and repair.state == REPAIRED]
    if spans:
        yield Ask(lambda: deps.work.show_repaired(stream_id, spans))
    next_ms = min(left, default=None)
    yield Ask(lambda: deps.work.finish_request(request, deps.now_ms(), next_ms))
    return rest_until_ms


def newest_gaps(
    deps: Deps, stream_id: str, profile: Profile | None, ports: type[GapPorts] = GapPorts
) -> Generator[Ask, Any, dict[Gap, GapPorts]]:
    """Returns the gaps that may be repaired, each with what that calls; none if the profile has no repair."""
    layout = yield Ask(lambda: deps.records.layout(stream_id))
    if profile is None or profile.repair is None or layout is None:
        return {}
    held, problem = yield Ask(lambda: _secrets(deps, profile))
    since_ms = deps.now_ms() - profile.repair.reach_ms - GIVEN_UP_MS
    gaps = yield Ask(lambda: gaps_since(deps.records, stream_id, since_ms))
    return {gap: ports(deps, stream_id, profile, layout, held, problem) for gap in gaps}


def _secrets(deps: Deps, profile: Profile) -> tuple[Secrets, str]:
    """Returns the secrets, or why the address cannot be asked."""
    try:
        return deps.secrets_of(profile), ""
    except (StreamRejected, StreamDropped) as error:
        return {}, str(error)


def dry_run(deps: Deps, stream_id: str, from_ms: int, to_ms: int) -> Needs:
    """Walks over the gaps of [from_ms, to_ms) as a repair does but stores nothing; `deps.done` gets each result."""
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
