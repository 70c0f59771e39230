"""What the one thread that decides hears from the others of a group's function: a bell, and threads that ask the store.

Readers of upstreams ring when something has come, requests when they are answered, so whoever decides waits in one
place for all of them. It knows no stream, no step and no request. Invariants: what was rung for is taken once; whatever
a request raises is an answer, and ends no thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


class Bell:
    """Any thread may ring it, for whom it likes; one waits."""

    def __init__(self) -> None:
        self._rung: set[str] = set()
        self._changed = threading.Condition()

    def ring(self, whom: str) -> None:
        """Wakes whoever waits."""
        with self._changed:
            self._rung.add(whom)
            self._changed.notify()

    def wait(self, for_s: float) -> set[str]:
        """For whom it was rung since it was asked last; none where nobody rang for so long."""
        with self._changed:
            if not self._rung and for_s > 0:
                self._changed.wait(for_s)
            rung, self._rung = self._rung, set()
            return rung


@dataclass(frozen=True, slots=True)
class Answered:
    """What a request has returned, or raised."""

    value: Any = None
    error: Exception | None = None


class Pool:
    """So many threads; each answer rings `bell` for `name`."""

    def __init__(self, threads: int, bell: Bell, name: str) -> None:
        self._bell = bell
        self._name = name
        self._requests: queue.SimpleQueue[tuple[str, tuple[Callable[[], Any], ...]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[str, Answered]] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def ask(self, whom: str, *requests: Callable[[], Any]) -> None:
        """Lets a thread make the requests, one by one until one raises; the last answer is among `answered` later."""
        self._requests.put((whom, requests))

    def answered(self) -> Iterator[tuple[str, Answered]]:
        """Takes the answers that have come, each with whose it is."""
        while not self._answers.empty():
            yield self._answers.get()

    def stop(self, wait_s: float) -> None:
        """Lets each thread end after what it does now, and waits so long for that."""
        for _ in self._threads:
            self._requests.put(None)
        until_s = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _run(self) -> None:
        while (asked := self._requests.get()) is not None:
            whom, requests = asked
            try:
                answer = Answered([request() for request in requests][-1])
            except Exception as error:
                answer = Answered(error=error)
            self._answers.put((whom, answer))
            del asked, requests, answer  # and with them events, which may be large, while this waits for the next
            self._bell.ring(self._name)
