"""The performer's ports in a function: the system's clock, threads that make requests, and a bell that they ring.

Readers of upstreams ring when something has come, and requests when they are answered, so the deciding thread waits in
one place for all of them. This module knows no stream, step or request. Invariants: each ring is taken once; an
exception of a request is an answer, and ends no thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from handlers.errors import StoreUnavailable
from handlers.upstream.standstill import elapsed_s
from handlers.values import dataclass


class SystemClock:
    """Epoch milliseconds that never go back: the wall clock once, then a clock that no suspended host stops."""

    def __init__(self) -> None:
        self._start_ms = time.time_ns() // 1_000_000
        self._start_s = elapsed_s()

    def now_ms(self) -> int:
        """The time."""
        return self._start_ms + int(1000 * (elapsed_s() - self._start_s))


class Bell:
    """Any thread may ring it, for any name; one thread waits."""

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[str] = queue.SimpleQueue()

    def ring(self, name: str) -> None:
        """Wakes the thread that waits."""
        self._rings.put(name)

    def wait(self, for_s: float) -> set[str]:
        """Returns the names for which it rang since the last call; none if it did not ring in time."""
        try:
            rung = {self._rings.get(for_s > 0, max(0.0, for_s))}
        except queue.Empty:
            return set()
        while not self._rings.empty():
            rung.add(self._rings.get())
        return rung


@dataclass(frozen=True, slots=True)
class Answered:
    """What a request returned or raised."""

    value: Any = None
    error: Exception | None = None


class Pool:
    """A fixed number of threads; each answer rings `bell` for `name`."""

    def __init__(self, bell: Bell, threads: int, name: str) -> None:
        self._bell = bell
        self._name = name
        self._requests: queue.SimpleQueue[tuple[str, tuple[Callable[[], Any], ...]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[str, Answered]] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def ask(self, sender: str, *requests: Callable[[], Any]) -> None:
        """Lets a thread make the requests, one by one until one raises; the last answer is in `take_answers` later."""
        self._requests.put((sender, requests))

    def take_answers(self) -> Iterator[tuple[str, Answered]]:
        """Returns the answers that have come, each with its stream."""
        while not self._answers.empty():
            yield self._answers.get()

    def stop(self, wait_s: float) -> None:
        """Lets each thread end after its current request, waiting at most `wait_s`."""
        for _ in self._threads:
            self._requests.put(None)
        until_s = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _run(self) -> None:
        while (asked := self._requests.get()) is not None:
            sender, requests = asked
            try:
                answer = Answered([request() for request in requests][-1])
            except Exception as error:
                answer = Answered(error=error)
            self._answers.put((sender, answer))
            del asked, requests, answer  # they may hold large events, and the next request may be far away
            self._bell.ring(self._name)


def ask_until(until_ms: int, clock: SystemClock, request: Callable[[], Any]) -> Any:
    """Returns or raises what `request` does, in a thread of its own; raises StoreUnavailable if neither is in time."""
    bell = Bell()
    pool = Pool(bell, 1, "ask")
    pool.ask("", request)
    pool.stop(0)
    bell.wait((until_ms - clock.now_ms()) / 1000)
    for _, answer in pool.take_answers():
        if answer.error is not None:
            raise answer.error
        return answer.value
    raise StoreUnavailable("the store did not answer before the function's deadline")
