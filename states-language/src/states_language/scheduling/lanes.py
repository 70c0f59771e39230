"""Lets many executions share one event loop, so that no expression keeps it for long.

Each line of states runs in a lane: a greenlet, which plain code deep inside an expression can pause. A lane takes its
turn before it evaluates, and counts what it used. What costs too much goes to a process of its own (`pool`), and the
lane waits for the answer.

    lanes = Lanes(pool)
    task = loop.create_task(lanes.run(coroutine))  # and within it:
    if (host := here()) is not None:
        host.turn()

Turns go round: a Map of forty lanes has as many as an execution of one.
Invariant: between two passes of the event loop all lanes together begin nothing more once they used TURN steps.
Without lanes, as in virtual time, nothing pauses and `here` returns None.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # the library has no types

T = TypeVar("T")

TURN = 1_000
"""Steps that all lanes together take in one pass of the event loop: some milliseconds."""
STATE = 40
"""The steps of entering a state."""

Job = dict[str, Any]
"""A question to `evaluator`, and its answer: JSON objects."""


class Costly(Exception):
    """The evaluation needs more than may be used here; it begins again where it may use more."""


class Evaluators(Protocol):
    """What evaluates elsewhere."""

    async def ask(self, job: Job) -> Job:
        """Return the answer to a job."""
        ...


class Host(Protocol):
    """Where code runs that others must not wait for."""

    def turn(self) -> None:
        """Return when it is this code's turn."""
        ...

    def spend(self, steps: int) -> None:
        """Count steps that were used."""
        ...

    def ask(self, job: Job) -> Job:
        """Return the answer of a process to the job; others run meanwhile."""
        ...


class Lanes:
    """The lanes of one event loop."""

    def __init__(self, evaluators: Evaluators) -> None:
        self.evaluators = evaluators
        self._left = TURN
        self._renewing = False
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return a coroutine that runs this one in a lane."""
        return _InLane(_Lane(self, coroutine), coroutine)

    def spend(self, steps: int) -> None:
        """Count steps; the next pass of the event loop has TURN of them again."""
        self._left -= steps
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def wait(self) -> "asyncio.Future[None] | None":
        """Return the future of this lane's turn; None where it is now."""
        if self._left > 0:
            return None
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(_first.get(), deque()).append(turn)
        return turn

    def _renew(self) -> None:
        self._left, self._renewing = TURN, False
        while self._waiting:
            turn = self._next()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self.spend(0)

    def _next(self) -> "asyncio.Future[None]":
        """Return whose turn is next: all that began in one lane has together as many as another."""
        first = next(iter(self._waiting))
        turns = self._waiting.pop(first)
        turn = turns.popleft()
        if turns:
            self._waiting[first] = turns
        return turn


_first: contextvars.ContextVar[object] = contextvars.ContextVar("_first", default=None)
"""The lane in which all began that led to this one."""


class _Lane(greenlet):  # type: ignore[misc]  # the library has no types
    """A greenlet that runs one coroutine; its parent passes on what the coroutine awaits."""

    def __init__(self, lanes: Lanes, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self._lanes = lanes
        self._coroutine = coroutine

    def run(self) -> Any:
        if _first.get() is None:
            _first.set(self)
        return self._pass_on(self._coroutine)

    def turn(self) -> None:
        turn = self._lanes.wait()
        if turn is not None:
            self._pass_on(turn.__await__())

    def spend(self, steps: int) -> None:
        self._lanes.spend(steps)

    def ask(self, job: Job) -> Job:
        answer: Job = self._pass_on(self._lanes.evaluators.ask(job))
        return answer

    def _pass_on(self, steps: Any) -> Any:
        """Return the result of a coroutine; what it awaits, the lane's task awaits."""
        send, argument = steps.send, None
        while True:
            try:
                awaited = send(argument)
            except StopIteration as end:
                return end.value
            try:
                send, argument = steps.send, self.parent.switch(awaited)
            except BaseException as problem:
                send, argument = steps.throw, problem


class _InLane(Coroutine[Any, Any, T]):
    """A coroutine that runs another in a lane."""

    def __init__(self, lane: _Lane, coroutine: Coroutine[Any, Any, T]) -> None:
        self._lane = lane
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Run on to what is awaited next; raises StopIteration with the result."""
        if not self._lane:
            # The lane belongs to the task's own context: what is set within stays set outside.
            self._lane.parent, self._lane.gr_context = getcurrent(), getcurrent().gr_context
            return self._awaited(self._lane.switch())
        return self._awaited(self._lane.switch(value))

    def throw(self, *problem: Any) -> Any:
        """Run on with an exception."""
        return self._awaited(self._lane.throw(*problem)) if self._lane else self._coroutine.throw(*problem)

    def close(self) -> None:
        """End what runs."""
        if self._lane:
            self._lane.throw()
        self._coroutine.close()

    def _awaited(self, awaited: Any) -> Any:
        if self._lane.dead:
            raise StopIteration(awaited)
        return awaited


class Turns:
    """A lock that threads get in the order in which they came."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False

    def take(self) -> None:
        """Return when it is this thread's turn."""
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()

    @property
    def wanted(self) -> int:
        """Return how many threads wait."""
        return len(self._waiting)

    def give(self) -> None:
        """End this thread's turn."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


class Beside:
    """The host of threads beside the event loop `loop`: one of them calculates at a time, each waits without the loop.

    Several that calculate would take the interpreter's lock in turns, and the loop would wait for each of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, evaluators: Evaluators) -> None:
        self._loop = loop
        self._evaluators = evaluators
        self._turns = Turns()

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what a function returns that runs in this thread."""
        self._turns.take()
        token = beside.set(self)
        try:
            return function(*arguments)
        finally:
            beside.reset(token)
            self._turns.give()

    def turn(self) -> None:
        """Return when those who waited had a turn."""
        self._turns.give()
        self._turns.take()

    def spend(self, steps: int) -> None:
        """Count nothing."""

    def ask(self, job: Job) -> Job:
        """Return the answer to the job; others calculate meanwhile."""
        self._turns.give()
        try:
            return asyncio.run_coroutine_threadsafe(self._evaluators.ask(job), self._loop).result()
        finally:
            self._turns.take()


beside: contextvars.ContextVar[Host | None] = contextvars.ContextVar("beside", default=None)
"""The host of code that runs in a thread beside the event loop."""


def here() -> Host | None:
    """Return the host of the running code; None where nobody else waits."""
    lane = getcurrent()
    return lane if isinstance(lane, _Lane) else beside.get()
