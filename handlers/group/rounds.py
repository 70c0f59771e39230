"""Decides whose step comes next where a function keeps many streams: in turns, a bounded amount of each.

Each stream is a generator of steps (`keeping.py`), and is at one step at a time. Those that wait for an arrival are
served in a circle: who was served goes to its end, so that one whose upstream always has more gets one arrival while
each other that has one gets one too. Steps that ask the store are handed out as they come, one of each stream at a
time, so that a slow answer holds up its own stream alone.

    a floods, b and c are quiet     served: a b a c a a …     never a a while b has something

Pure: it knows no thread, no socket and no store, and times are integer milliseconds that the caller passes. Invariants:
every step is taken once and answered once; what one stream's steps raise reaches no other; between two arrivals of one
stream every other that had one is served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from handlers.connection.steps import Answer, Await, Pause, Step, Steps

T = TypeVar("T")


class Rounds(Generic[T]):
    """The streams that a function keeps now; what each of them returns is taken with `ended`."""

    def __init__(self) -> None:
        self._steps: dict[str, Steps[T]] = {}
        self._asked: deque[tuple[str, Step]] = deque()  # not taken yet
        self._awaits: dict[str, Await] = {}  # in the order in which they are served
        self._pauses: dict[str, int] = {}  # until when
        self._ended: deque[tuple[str, T | Exception]] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def __contains__(self, stream: str) -> bool:
        return stream in self._steps

    def begin(self, stream: str, steps: Steps[T], now_ms: int) -> None:
        """Begins with a stream's steps; it must not be among those that are kept."""
        self._steps[stream] = steps
        self._advance(stream, now_ms, lambda: next(steps))

    def answer(self, stream: str, answer: Answer) -> None:
        """Answers the step at which the stream is."""
        self._forget(stream)
        self._advance(stream, answer.now_ms, lambda: self._steps[stream].send(answer))

    def fail(self, stream: str, error: Exception, now_ms: int) -> None:
        """Lets the step at which the stream is raise what came of performing it."""
        self._forget(stream)
        self._advance(stream, now_ms, lambda: self._steps[stream].throw(error))

    def asked(self) -> Iterator[tuple[str, Step]]:
        """Takes the steps that are to be performed now: all but Await and Pause, each once."""
        while self._asked:
            yield self._asked.popleft()

    @property
    def has_asked(self) -> bool:
        """Whether some step is to be taken."""
        return bool(self._asked)

    def ended(self) -> Iterator[tuple[str, T | Exception]]:
        """Takes the streams that have ended: what each returned, or what it raised, which is a defect."""
        while self._ended:
            yield self._ended.popleft()

    def awaiting(self) -> list[tuple[str, Await]]:
        """Returns who waits for an arrival, in the order in which they are to be served."""
        return list(self._awaits.items())

    def awaits(self, stream: str) -> bool:
        """Returns whether it waits for an arrival."""
        return stream in self._awaits

    def pauses(self, stream: str) -> bool:
        """Returns whether it pauses."""
        return stream in self._pauses

    def rested(self, now_ms: int) -> list[str]:
        """Returns whose pause is over."""
        return [stream for stream, until_ms in self._pauses.items() if until_ms <= now_ms]

    @property
    def due_ms(self) -> int | None:
        """Returns the first instant that a stream has named, whatever arrives; None where none has."""
        instants = [*(step.until_ms for step in self._awaits.values()), *self._pauses.values()]
        return min(instants, default=None)

    def _forget(self, stream: str) -> None:
        self._awaits.pop(stream, None)
        self._pauses.pop(stream, None)

    def _advance(self, stream: str, now_ms: int, move: Callable[[], Step]) -> None:
        try:
            step = move()
        except StopIteration as done:
            del self._steps[stream]
            self._ended.append((stream, done.value))
        except Exception as defect:
            del self._steps[stream]
            self._ended.append((stream, defect))
        else:
            if isinstance(step, Await):
                self._awaits[stream] = step  # at the end: whoever was served waits for all others
            elif isinstance(step, Pause):
                self._pauses[stream] = now_ms + step.for_ms
            else:
                self._asked.append((stream, step))
