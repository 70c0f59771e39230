"""Carries out a step of an application: makes rounds until all streams are as wanted, no round is left, or it is late.

A round walks once, in the order of the ids, a hundred streams at a time. The first acts on each stream that is not as
wanted; later ones check the results, and act again if a request was refused. `request_pacing.py` decides when a request
is made; threads here make the requests. The place is saved once a second, so after a kill one second of requests is
made again, which changes nothing.

Invariants: a round finds what was done already, so it may be repeated from any place; a stream that is over is started
again once, not in every round; at the end of a step no request is under way, and the next step repeats those without an
answer.
"""

import contextlib
import heapq
import itertools
import json
import queue
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from typing import Any

from handlers.api.status_words import MOVED, NOT_TWICE
from handlers.errors import StoreUnavailable
from handlers.fleet.fleet_document import Wanted
from handlers.fleet.fleet_records import DONE, Fleet, FleetRecords, Replaced
from handlers.fleet.request_pacing import AT_ONCE, Outcome, Rate, RequestQueue, StreamRequest, Unpaced
from handlers.values import dataclass

BATCH = 100
# How many streams that are not as wanted it names.
NAMED = 100
NEVER = ""
# In which rounds a stream that is still starting is requested again: its start may have ended half way, with a lease
# that names a group which does not know it. Otherwise the request changes nothing.
STARTING_AGAIN = 6
# With one of these statuses no execution connects the stream, so a start helps. An "unknown" stream may be alive.
_OVER = ("stopped", "ended", "rejected", "broken")
_ASKED_AGAIN = (NEVER, "stopped", "stopping")
# A stream that ended for one of these reasons is started only by a POST of its own.
_BY_HAND = (MOVED, NOT_TWICE)
_AWAY_WORDS = {NEVER: "it was not started yet", "stopped": "it is stopped", "stopping": "it is stopping"}


@dataclass
class Round:
    """One walk. `known` returns the ever started ids after an id, `state` the statuses and reasons of many.

    `counts` has the streams up to the place that is saved: the next step reads those after it again. Another round
    `may_help` unless only a person starts what is left.
    """

    wanted: Wanted
    known: Callable[[str], Iterable[str]]
    state: Callable[[Sequence[str]], Mapping[str, tuple[str, str]]]
    number: int
    counts: Counter[str] = field(default_factory=Counter)
    not_yet: list[dict[str, Any]] = field(default_factory=list)
    may_help: bool = False
    _read: deque[tuple[bytes, str]] = field(default_factory=deque)

    def needed_requests(self, after: str) -> Iterator[StreamRequest | str]:
        """Yields the streams after an id that need a request, and the last id of each batch, asked for or not.

        It notes all that are not as wanted.
        """
        ids = self._ids(after)
        while batch := list(itertools.islice(ids, BATCH)):
            states = self.state(batch)
            for stream_id in batch:
                is_connected, (status, why) = self.wanted.should_connect(stream_id), states.get(stream_id, ("", ""))
                if is_connected is not None and self._needs_request(stream_id, is_connected, status, why):
                    yield StreamRequest(stream_id, is_connected, is_known=status == "starting")
            yield batch[-1]

    def note_failures(self, left: Mapping[str, str]) -> None:
        """Notes why the requests failed, for streams for which all did."""
        by_id = {one["stream"]: one for one in self.not_yet}
        for stream_id, why in left.items():
            if stream_id in by_id:
                by_id[stream_id]["why"] = why

    def count_until(self, place: str | None) -> None:
        """Counts the streams up to this id; None is the end."""
        bound = None if place is None else place.encode()
        while self._read and (bound is None or self._read[0][0] <= bound):
            self.counts[self._read.popleft()[1]] += 1

    def _needs_request(self, stream_id: str, is_connected: bool, status: str, why: str) -> bool:
        is_so = status == "running" if is_connected else status in (NEVER, *_OVER)
        self._read.append((stream_id.encode(), "as_wanted" if is_so else "left"))
        if is_so:
            return False
        is_by_hand = is_connected and why.endswith(_BY_HAND)
        self.may_help |= not is_by_hand
        if len(self.not_yet) < NAMED:
            word = "connected" if is_connected else "stopped"
            reason = why or _AWAY_WORDS.get(status, f"it is {status}")
            self.not_yet.append(
                {"stream": stream_id, "wanted": word, "status": status or "never started", "why": reason}
            )
        if is_connected and status == "starting":
            return self.number % STARTING_AGAIN == 0
        if is_connected:
            return not is_by_hand and status in (_ASKED_AGAIN if self.number else (*_ASKED_AGAIN, *_OVER))
        return status != "stopping"

    def _ids(self, after: str) -> Iterator[str]:
        """Returns the ids after one, sorted by their bytes: the document's, and all known ones if it has patterns."""
        place = after.encode()
        own = (one for one in self.wanted.ids if one.encode() > place)
        if not self.wanted.patterns:
            return own
        merged = heapq.merge(own, self.known(after), key=str.encode)
        return (one for one, _ in itertools.groupby(merged))


# Started streams take some seconds to connect; those that are not connected after all rounds are named.
WAIT_S, MOST_ROUNDS = 5, 24
SAVE_EVERY_MS = 1_000

# Makes the request for a stream; returns its outcome, and why it failed if it did.
Request = Callable[[StreamRequest], tuple[Outcome, str]]
Answer = Future[tuple[StreamRequest, Outcome, str]]


@dataclass(frozen=True)
class Ports:
    """What a step needs: `round_of` makes a round by number, `request` makes a request, `is_late` ends the step.

    `now_ms` is the time of the day, which may step back; `elapsed_ms` never does.
    """

    records: FleetRecords
    round_of: Callable[[Fleet, int], Round]
    request: Request
    most_per_s: float
    now_ms: Callable[[], int]
    elapsed_ms: Callable[[], int]
    is_late: Callable[[], bool]
    draw: Callable[[], float]


def step(ports: Ports, execution: str, *, is_dry: bool) -> dict[str, Any]:
    """Continues the recorded work; returns {"is_done", "wait_s"}: whether nothing is left, else when to continue."""
    fleet, is_through = ports.records.begin(execution, ports.now_ms()), True
    if fleet.execution == execution and fleet.state != DONE:
        with contextlib.suppress(Replaced):
            is_through = _round(ports, fleet, is_dry=is_dry)
        fleet = ports.records.read()
    return {"is_done": fleet.execution != execution or fleet.state == DONE, "wait_s": WAIT_S if is_through else 0}


def _round(ports: Ports, fleet: Fleet, *, is_dry: bool) -> bool:
    """Makes one round; returns whether it came to its end, with its findings saved."""
    one = ports.round_of(fleet, fleet.rounds)
    if fleet.position:
        one.counts |= Counter(as_wanted=fleet.as_wanted, left=fleet.left)
        one.may_help = fleet.left > 0
        place = fleet.position.encode()
        one.not_yet += [found for found in json.loads(fleet.not_yet or "[]") if found["stream"].encode() <= place]
    rate = (Unpaced if is_dry else Rate)(ports.most_per_s, ports.elapsed_ms())
    asking = RequestQueue(one.needed_requests(fleet.position), rate, ports.draw, fleet.position)
    before = Counter(started=fleet.started, stopped=fleet.stopped, refused=fleet.refused)

    def note(*, is_through: bool = False) -> None:
        one.note_failures(asking.failed)
        one.count_until(None if is_through else asking.position)
        found, rounds = before + asking.counts + one.counts, fleet.rounds + is_through
        names = ("started", "stopped", "refused", "as_wanted", "left")
        counts = {name: found[name] for name in names} | {"per_s": round(asking.per_s), "rounds": rounds}
        now_ms, position = ports.now_ms(), "" if is_through else asking.position
        is_settled = not one.may_help and now_ms >= fleet.former_until_ms
        is_over = is_through and (is_dry or is_settled or rounds >= MOST_ROUNDS)
        ports.records.save_progress(fleet.execution, position, counts, one.not_yet, now_ms, is_over=is_over)

    request: Request = (lambda _ask: (Outcome.DONE, "")) if is_dry else ports.request
    is_through = _make_requests(ports, asking, request, note)
    note(is_through=is_through)
    return is_through


def _make_requests(ports: Ports, asking: RequestQueue, request: Request, note: Callable[[], None]) -> bool:
    """Makes the requests; returns whether all were made before time was up. No request is under way then."""
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    under_way, saved_ms = 0, ports.elapsed_ms()

    def perform(ask: StreamRequest) -> tuple[StreamRequest, Outcome, str]:
        try:
            return ask, *request(ask)
        except StoreUnavailable as problem:
            return ask, Outcome.REFUSED, str(problem)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        while True:
            is_late = ports.is_late()
            due = None if is_late else asking.next_request(ports.elapsed_ms())
            if isinstance(due, StreamRequest):
                threads.submit(perform, due).add_done_callback(answers.put)
                under_way += 1
            elif due is None and under_way == 0:
                return not is_late
            with contextlib.suppress(queue.Empty):
                answer = answers.get(timeout=0 if isinstance(due, StreamRequest) else (due or 50) / 1000)
                under_way -= 1
                asking.record_outcome(*answer.result(), ports.elapsed_ms())
            if ports.elapsed_ms() - saved_ms >= SAVE_EVERY_MS:
                saved_ms = ports.elapsed_ms()
                note()
