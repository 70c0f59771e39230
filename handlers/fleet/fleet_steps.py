"""Carries out a step of an application: makes rounds until all streams are as wanted, the rounds are used up, or it is
late.

`fleet_round.py` decides which streams need a request, `request_pacing.py` when to make it; threads here make the
requests. The place is saved once a second, so after a kill one second of requests is made again, which changes nothing.
Invariant: at the end of a step no request is under way, and the next step repeats those without an answer.
"""

from __future__ import annotations

import contextlib
import json
import queue
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from handlers.errors import StoreUnavailable
from handlers.fleet.fleet_records import DONE, Fleet, FleetRecords, Replaced
from handlers.fleet.fleet_round import Round
from handlers.fleet.request_pacing import AT_ONCE, Outcome, Rate, RequestQueue, StreamRequest, Unpaced
from handlers.values import dataclass

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
    fleet, is_through = ports.records.begin(execution), True
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
        is_over = is_through and (is_dry or not one.may_help or rounds >= MOST_ROUNDS)
        position, ended_ms = "" if is_through else asking.position, ports.now_ms() if is_over else 0
        ports.records.save_progress(fleet.execution, position, counts, one.not_yet, ended_ms)

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
