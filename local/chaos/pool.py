"""The bell and the threads of a group's function in virtual time: requests take time, and end with the function.

As `handlers/run/threads.py` has them. Invariant: no more requests are under way than there are threads; what was
asked for first is begun first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from handlers.connection.inputs import StoreFailed
from handlers.errors import StoreUnavailable
from handlers.run.threads import Answered, Bell
from local.chaos.running import Running
from local.chaos.slow_requests import Killed, Waits
from states_language.clock import VirtualClock

Requests = tuple[Callable[[], Any], ...]


class VirtualBell(Bell):
    """`heard` is called whenever somebody rings."""

    def __init__(self, heard: Callable[[], None]) -> None:
        super().__init__()
        self._heard = heard

    def ring(self, whom: str) -> None:
        """Wakes whoever waits."""
        super().ring(whom)
        self._heard()


class VirtualPool:
    """So many threads of `function`; each answer rings `bell` for `name`.

    `takes` are the pauses of some requests, and their answer; without it they are made of the store.
    """

    def __init__(
        self,
        clock: VirtualClock,
        function: Running,
        bell: Bell,
        threads: int,
        name: str,
        takes: Callable[..., Waits[Any]] | None = None,
    ) -> None:
        self._takes = takes or function.slow.ask
        self._clock = clock
        self._function = function
        self._bell = bell
        self._name = name
        self._free = threads
        self._asked: deque[tuple[str, Requests]] = deque()
        self._answers: deque[tuple[str, Answered]] = deque()

    def ask(self, whom: str, *requests: Callable[[], Any]) -> None:
        """Lets a thread make the requests; the last answer is among `answered` later."""
        self._asked.append((whom, requests))
        self._begin()

    def answered(self) -> Iterator[tuple[str, Answered]]:
        """Takes the answers that have come, each with whose it is."""
        while self._answers:
            yield self._answers.popleft()

    def stop(self, wait_s: float) -> None:
        """What is under way goes on, and nobody waits for it."""

    def _begin(self) -> None:
        while self._free and self._asked:
            self._free -= 1
            whom, requests = self._asked.popleft()
            self._go_on(whom, self._takes(*requests))

    def _go_on(self, whom: str, waits: Waits[Any]) -> None:
        """Moves on what is under way, as far as it goes now."""
        function = self._function
        if function.died_ms is not None:
            return
        if self._clock.now_ms() < function.frozen_until_ms:
            self._clock.call_at(function.frozen_until_ms, lambda: self._go_on(whom, waits))
            return
        try:
            until_ms, _ = next(waits)
        except StopIteration as done:
            failed = isinstance(done.value, StoreFailed)
            self._take(whom, Answered(error=StoreUnavailable(done.value.detail)) if failed else Answered(done.value))
        except Killed:
            function.on_kill()
        except Exception as error:
            self._take(whom, Answered(error=error))
        else:
            self._clock.call_at(until_ms, lambda: self._go_on(whom, waits))

    def _take(self, whom: str, answer: Answered) -> None:
        self._free += 1
        self._answers.append((whom, answer))
        self._begin()
        self._bell.ring(self._name)
