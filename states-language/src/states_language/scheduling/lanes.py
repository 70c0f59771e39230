"""Lets many executions share one event loop, so that no expression keeps it for long.

Each line of states runs in a lane: a greenlet, which plain code deep inside an expression can pause. A lane takes its
turn before it evaluates, and counts the steps that it used; an evaluation that costs too much goes to a process of its
own (`pool`). Invariant: between two passes of the event loop, all lanes together begin nothing more once they have used
STEPS_PER_TURN steps. Without lanes, as in virtual time, nothing pauses and `current_lane` returns None.
"""

import asyncio
import contextvars
import gc
import heapq
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from typing import Any, Protocol, TypeVar

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # the library has no types

T = TypeVar("T")

STEPS_PER_TURN = 100
"""Steps that all lanes together take in one pass of the event loop: a millisecond or two."""
STATE_ENTRY_STEPS = 40
"""The steps of entering a state."""
BATCH_SIZE = 20
"""How many executions of a Map Run begin, and how many of them or of lanes end, in one pass: a millisecond or two."""
PASSES_PER_COLLECTION = 10
"""After so many passes that end some, the young objects are collected: a millisecond or two."""
SHORT = 4_096
"""JSON texts of at most so many characters are not counted."""

Job = dict[str, Any]
"""A question to `evaluator`, and its answer: JSON objects."""


class Costly(Exception):
    """The evaluation needs more than it may use here; it begins again in a process, where it may use more."""


class Evaluators(Protocol):
    """The processes to which lanes pass costly evaluations."""

    async def evaluate(self, job: Job) -> Job:
        """Return the answer to a job."""


class Lanes:
    """The lanes of one event loop."""

    def __init__(self, evaluators: Evaluators) -> None:
        self.evaluators = evaluators
        self._steps_left = STEPS_PER_TURN
        self._renewing = False
        self._is_least_used_next = False
        self._waiting: dict[Lane, deque[asyncio.Future[None]]] = {}
        # Ordered by the steps used when a lane was put here; it may have used more since, or no longer wait.
        self._by_use: list[tuple[int, int, Lane]] = []
        self.pending_evaluations = 0
        self._entries = count()
        self._ending: deque[tuple[Callable[[], object], int]] = deque()
        self._is_ending, self._passes_of_endings = False, 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return _LaneCoroutine(Lane(self, coroutine), coroutine)

    def spend(self, steps: int, lane: "Lane | None" = None) -> None:
        """Count steps of a lane; the next pass of the event loop has STEPS_PER_TURN of them again."""
        self._steps_left -= steps
        if lane is not None:
            lane.used += steps
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def call_in_batches(self, work: Callable[[], object], size: int = 1) -> None:
        """Call this soon; calls whose sizes are BATCH_SIZE in sum share a pass of the event loop."""
        self._ending.append((work, size))
        if not self._is_ending:
            self._is_ending = True
            asyncio.get_running_loop().call_soon(self._run_endings)

    def _run_endings(self) -> None:
        left = BATCH_SIZE
        while self._ending and left > 0:
            work, size = self._ending.popleft()
            left -= size
            work()
        # Python counts objects made minus those freed, so it would leave the young ones for one long collection.
        self._passes_of_endings += 1
        if self._passes_of_endings % PASSES_PER_COLLECTION == 0:
            gc.collect(1)
        self._is_ending = bool(self._ending)
        if self._is_ending:
            asyncio.get_running_loop().call_soon(self._run_endings)

    @property
    def is_busy(self) -> bool:
        """Return whether a lane waits for its turn or for an evaluator."""
        return bool(self._waiting) or self.pending_evaluations > 0

    def next_turn(self, lane: "Lane") -> "asyncio.Future[None] | None":
        """Return the future of the next turn of all that began in this lane; None if it has its turn now."""
        if self._steps_left > 0:
            return None
        turn = asyncio.get_running_loop().create_future()
        if lane not in self._waiting:
            self._waiting[lane] = deque()
            heapq.heappush(self._by_use, (lane.used, next(self._entries), lane))
        self._waiting[lane].append(turn)
        return turn

    def _renew(self) -> None:
        self._steps_left, self._renewing = STEPS_PER_TURN, False
        while self._waiting:
            turn = self._next_turn()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self.spend(0)

    def _next_turn(self) -> "asyncio.Future[None]":
        """Return whose turn is next. The lines of one lane, such as a Map's forty iterations, count as one."""
        # Every second turn goes to the lane that used least, so that small work ends soon; the others take turns.
        self._is_least_used_next = not self._is_least_used_next
        first = self._least_used() if self._is_least_used_next else next(iter(self._waiting))
        turns = self._waiting.pop(first)
        turn = turns.popleft()
        if turns:
            self._waiting[first] = turns
            if self._is_least_used_next:  # which has taken its entry out
                heapq.heappush(self._by_use, (first.used, next(self._entries), first))
        elif len(self._by_use) > 2 * len(self._waiting) + 16:
            self._by_use = [(lane.used, next(self._entries), lane) for lane in self._waiting]
            heapq.heapify(self._by_use)
        return turn

    def _least_used(self) -> "Lane":
        while True:
            used, _, lane = heapq.heappop(self._by_use)
            if lane in self._waiting:
                if lane.used <= used:
                    return lane
                heapq.heappush(self._by_use, (lane.used, next(self._entries), lane))


_outermost_lane: "contextvars.ContextVar[Lane]" = contextvars.ContextVar("_first")
"""The lane in which the work of this lane began."""


class Lane(greenlet):  # type: ignore[misc]  # the library has no types
    """A greenlet that runs one coroutine; its parent passes on what the coroutine awaits."""

    def __init__(self, lanes: Lanes, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self.used = 0
        self._lanes = lanes
        self._coroutine = coroutine

    def run(self) -> Any:
        if _outermost_lane.get(None) is not None:
            return self._pass_on(self._coroutine)
        token = _outermost_lane.set(self)
        try:
            return self._pass_on(self._coroutine)
        finally:
            # Lane and context know each other, so only the garbage collector would free them.
            _outermost_lane.reset(token)

    def wait_for_turn(self) -> None:
        """Return once it is this lane's turn."""
        turn = self._lanes.next_turn(_outermost_lane.get())
        if turn is not None:
            self._pass_on(turn.__await__())

    def spend(self, steps: int) -> None:
        """Count steps that were used."""
        self._lanes.spend(steps, _outermost_lane.get())

    def evaluate(self, job: Job) -> Job:
        """Return a process's answer to the job; others run meanwhile."""
        self._lanes.pending_evaluations += 1
        try:
            answer: Job = self._pass_on(self._lanes.evaluators.evaluate(job))
        finally:
            self._lanes.pending_evaluations -= 1
        return answer

    def _pass_on(self, steps: Any) -> Any:
        """Return the result of a coroutine; the lane's task awaits what the coroutine awaits."""
        send, argument = steps.send, None
        while True:
            try:
                awaited = send(argument)
            except StopIteration as end:
                return end.value
            finally:
                argument = None  # the frames of an exception have it, as they have what is awaited
            try:
                send, argument = steps.send, self.parent.switch(awaited)
            except BaseException as problem:
                send, argument = steps.throw, problem
            awaited = None


class _LaneCoroutine(Coroutine[Any, Any, T]):
    """A coroutine that runs another in a lane."""

    def __init__(self, lane: Lane, coroutine: Coroutine[Any, Any, T]) -> None:
        self._lane = lane
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Run up to the next await; raises StopIteration with the result."""
        if not self._lane:
            # The lane uses the task's own context, so a variable that is set within stays set outside.
            self._lane.parent, self._lane.gr_context = getcurrent(), getcurrent().gr_context
            return self._next_awaited(self._lane.switch())
        return self._next_awaited(self._lane.switch(value))

    def throw(self, *problem: Any) -> Any:
        """Go on with an exception."""
        try:
            return self._next_awaited(self._lane.throw(*problem)) if self._lane else self._coroutine.throw(*problem)
        finally:
            del problem  # its frames have it

    def close(self) -> None:
        """End the coroutine that runs."""
        if self._lane:
            self._lane.throw()
        self._coroutine.close()

    def _next_awaited(self, awaited: Any) -> Any:
        if self._lane.dead:
            raise StopIteration(awaited)
        return awaited


def spend_for_json(text: str | bytes) -> None:
    """Count the work of reading or writing a JSON text, if others wait."""
    if len(text) > SHORT and (host := current_lane()) is not None:
        host.spend(len(text) >> 7)


def take_turn_for_json(text: str | bytes) -> None:
    """Take a turn for reading or writing so much JSON, if others wait."""
    if len(text) > SHORT and (host := current_lane()) is not None:
        host.wait_for_turn()
        spend_for_json(text)


def take_turn(steps: int) -> None:
    """Take a turn for so many steps, if others wait."""
    if (host := current_lane()) is not None:
        host.wait_for_turn()
        host.spend(steps)


class WorkerThread(threading.local):
    """The function by which a thread beside the event loop gives way to it; None in every other thread."""

    give_way: Callable[[], None] | None = None


worker_thread = WorkerThread()


def give_way() -> None:
    """Let the event loop go on if this thread works beside it."""
    if worker_thread.give_way is not None:
        worker_thread.give_way()


def current_lane() -> Lane | None:
    """Return the lane of the running code; None if no other execution waits."""
    lane = getcurrent()
    return lane if isinstance(lane, Lane) else None
