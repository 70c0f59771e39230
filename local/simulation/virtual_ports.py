"""The ports of the performer in virtual time: a bell that wakes the function, pools of requests, and a reader.

They replace `handlers/run/threads.py` and `handlers/upstream/reader.py` without a thread, and decide nothing.
Invariants: requests begin in order; a closed reader returns the earlier arrivals, then `Closed`.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from handlers.connection.inputs import Arrival, Closed
from handlers.run.ports import STORE
from handlers.run.threads import Answered, Bell

Requests = tuple[Callable[[], Any], ...]
CLOSED_HERE = Closed("closed_here")


class Client(Protocol):
    """The opener of an upstream's link."""

    def take_arrival(self, link: Any, arrival: Arrival) -> None:
        """Receives an arrival from the link; a Closed has the reasons of `handlers/upstream/reader.py`."""


class VirtualBell(Bell):
    """A bell that calls `on_ring` at each ring."""

    def __init__(self, on_ring: Callable[[], None]) -> None:
        self._rung: set[str] = set()
        self._on_ring = on_ring

    def ring(self, name: str) -> None:
        """Wakes the function if it waits."""
        self._rung.add(name)
        self._on_ring()

    def wait(self, for_s: float) -> set[str]:  # noqa: ARG002  # the function waits
        """Returns the names for which it rang since the last call."""
        rung, self._rung = self._rung, set()
        return rung


class Answers:
    """The answers to requests, kept until they are taken."""

    def __init__(self) -> None:
        self._answers: deque[tuple[str, Answered]] = deque()

    def take_answers(self) -> Iterator[tuple[str, Answered]]:
        """Takes the answers that have arrived, each with its stream or name."""
        while self._answers:
            yield self._answers.popleft()

    def stop(self, wait_s: float) -> None:
        """Does nothing: requests under way go on, but their answers are not awaited."""


class OwnThread(Answers):
    """The function's one thread, which makes the requests of its one stream itself: `requests` are the next."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Requests | None = None
        self._stream_id = ""

    def ask(self, stream_id: str, *requests: Callable[[], Any]) -> None:
        """Lets the function make the requests when it waits next."""
        self._stream_id, self.requests = stream_id, requests

    def add_answer(self, answer: Answered) -> None:
        """Takes the answer to the requests."""
        self.requests = None
        self._answers.append((self._stream_id, answer))


class PromptPool(Answers):
    """Requests that take no time, as one thread makes them; each answer rings `bell` for `name`."""

    def __init__(self, bell: Bell, _threads: int = 1, name: str = STORE) -> None:
        super().__init__()
        self._bell, self._name = bell, name

    def ask(self, stream_id: str, *requests: Callable[[], Any]) -> None:
        """Makes the requests, one by one until one raises."""
        answer = Answered()
        try:
            for request in requests:
                answer = Answered(request())
        except Exception as error:
            answer = Answered(error=error)
        self._answers.append((stream_id, answer))
        self._bell.ring(self._name)


class VirtualReader:
    """The arrivals of one opening that were not taken yet.

    It calls `on_arrival` at each arrival, `close` with the link when it is closed, and `say` with a frame to send. The
    opener sets `link`. `last_run_ms` returns when the function last ran: now, unless it stands still.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        last_run_ms: Callable[[], int],
        on_arrival: Callable[[], None],
        close: Callable[[Any], None],
        say: Callable[[Any, bytes], None],
    ) -> None:
        self._now_ms, self._last_run_ms = now_ms, last_run_ms
        self._on_arrival = on_arrival
        self._close, self._say = close, say
        self._inbox: deque[tuple[Arrival, int]] = deque()
        self._is_closed = False
        self.link: Any = None
        self.blocked_ms = 0
        self.taken_age_s = 0.0

    @property
    def unread_age_s(self) -> float | None:
        """Returns how long the oldest arrival has been waiting; None if none waits."""
        return (self._now_ms() - self._inbox[0][1]) / 1000 if self._inbox else None

    def add_arrival(self, arrival: Arrival) -> None:
        """Receives an arrival."""
        if not self._is_closed:
            self._inbox.append((arrival, self._last_run_ms()))
            self._on_arrival()

    def get(self, wait_s: float) -> Arrival | None:  # noqa: ARG002  # it never waits
        """Returns the next arrival, or None."""
        if not self._inbox:
            self.taken_age_s = 0.0
            return CLOSED_HERE if self._is_closed else None
        arrival, at_ms = self._inbox.popleft()
        self.taken_age_s = (self._now_ms() - at_ms) / 1000
        return arrival

    def send(self, frame: bytes) -> None:
        """Sends a wire frame to the upstream."""
        if self.link is not None and not self._is_closed:
            self._say(self.link, frame)

    def close(self, join_s: float) -> None:  # noqa: ARG002  # there is no thread to wait for
        """Closes it; earlier arrivals can still be taken."""
        self._is_closed = True
        if self.link is not None:
            self._close(self.link)
