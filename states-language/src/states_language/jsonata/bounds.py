"""Bounds an evaluation by counting: its steps, its depth and the size of its values, and the seconds of its searches.

Invariant: what was counted decides, never how long it took, so two runs fail alike.
"""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from states_language.jsonata.library import Utils
from states_language.scheduling.lanes import Costly
from states_language.values import count_values, estimate_json_length

_DEPTH_BEFORE_MEASURING = 8
"""How many nested evaluations begin before the stack is measured."""
_FRAMES = 16
"""Frames of the stack that a nested evaluation, or a $map with the function that it calls, takes at most."""
_SPARE = 240
"""Frames of the stack that a function needs which calls no expression, and a part of a tree before it."""

DEEPEST = 100
"""The most nested evaluations; AWS stops between 99 and 101 (measured by others)."""
DEEPEST_FUNCTIONS = 250
"""The most nested calls of built-in functions, such as a $map in the function of a $map; AWS's bound is unknown."""
MOST_STEPS = 750_000
"""The most steps of one expression, about a second's work. AWS bounds the time and does not document it; a $map over
200,000 numbers, three evaluations each, is allowed (measured by others), and JSONata's test performance/case001
takes 726,000."""
LARGEST_BYTES = 873_782 * 8
"""The size of one value, at 8 bytes an element and 1 a character; AWS accepts [1..873782] and not one more."""


@dataclass(frozen=True)
class Limits:
    """What one evaluation may take: steps, the size of a value in bytes, seconds of searching."""

    steps: int
    largest_bytes: int
    search_s: float


FULL_LIMITS = Limits(MOST_STEPS, LARGEST_BYTES, 1.0)
"""The limits of an expression."""
SHARED_LIMITS = Limits(400, 16_384, 0.004)
"""The limits of an expression while others wait: a few milliseconds."""
SHORT = 64
"""A text below takes no step."""
_FEW = 8
"""A value of at most so many parts is not measured."""

TOO_DEEP = "Stack overflow error: Check for non-terminating recursive function. Consider rewriting as tail-recursive"
TOO_LONG = "Expression evaluation timeout: Check for infinite loop"
TOO_LARGE = "Expression evaluation memory limit exceeded: Check for excessive memory usage"


class Exceeded(Exception):
    """An evaluation exceeded a bound; the message is AWS's."""


_SIZED = (str, list)
_NESTED = (dict, list)
_MEASURED = (str, dict, list)


class Bounds:
    """How many steps, what depth and how much search time one evaluation has used; `states` is its $states, as JSON."""

    __slots__ = ("depth", "limits", "most_steps", "nested", "reach", "searched_s", "states", "steps")

    def __init__(self, limits: Limits, states: dict[str, Any]) -> None:
        self.states = states
        self.limits = limits
        self.most_steps = limits.steps
        self.depth = 0
        self.nested = 0
        self.reach = (
            _DEPTH_BEFORE_MEASURING  # how deep evaluations and functions may nest on this stack, as far as is known
        )
        self.steps = 0
        self.searched_s = 0.0  # seconds that regular expressions have searched

    def exceeded_error(self, bound: str) -> Exception:
        return Exceeded(bound) if self.limits is FULL_LIMITS else Costly()

    def overrun_error(self) -> Exception:
        """Return the exception if `steps` exceeds `most_steps`, otherwise that for a node deeper than DEEPEST."""
        return self.exceeded_error(TOO_LONG) if self.steps > self.most_steps else Exceeded(TOO_DEEP)

    def enter(self) -> None:
        """Count a step, and a level until `depth` is reduced; raises Exceeded or Costly."""
        self.steps += 1
        if self.steps > self.most_steps or self.depth >= DEEPEST:
            raise self.overrun_error()
        self.depth += 1

    def has_stack_room(self) -> bool:
        """Return whether the stack has room for what nests now, and note how much more has room."""
        deep = self.depth + self.nested
        self.reach = deep + (free_frames() - _SPARE) // _FRAMES
        return deep < self.reach

    def check_thread_allowed(self) -> None:
        """Raise Costly if others would wait for another thread, which a busy machine runs late."""
        if self.limits is not FULL_LIMITS:
            raise Costly

    def spend(self, steps: int) -> None:
        """Count steps; raises Exceeded or Costly."""
        self.steps += steps
        if self.steps > self.most_steps:
            raise self.exceeded_error(TOO_LONG)

    def count_result(self, expression: Any, result: Any) -> Any:
        """Return an expression's result, whose size counts; raises Exceeded or Costly."""
        if isinstance(result, _SIZED):
            size = len(result)
            if isinstance(result, list):
                size = 8 * (result.b - result.a if isinstance(result, Utils.RangeList) else size)  # its len is one off
            if size > self.limits.largest_bytes:
                raise self.exceeded_error(TOO_LARGE)
            if expression.type in ("binary", "function", "unary"):
                self.steps += size >> 6
            if expression.tuple is not None and isinstance(result, list):
                # The library makes a record of the variables bound to each element.
                self.steps += 2 * len(result)
        elif isinstance(result, dict) and expression.type == "function":
            self.steps += len(result) >> 3
        return result

    def check_bytes(self, size: float) -> None:
        """Raise Exceeded or Costly if a value of so many bytes is too large."""
        if size > self.limits.largest_bytes:
            raise self.exceeded_error(TOO_LARGE)

    def check_value(self, value: Any) -> None:
        """Raise Exceeded or Costly for a value that is too large; a part counts as often as it occurs in it."""
        if isinstance(value, _NESTED):
            count = count_values(value, {})
            self.check_bytes(8 * count)
            if count > _FEW:
                self.check_bytes(estimate_json_length(value, {}))

    def charge_arguments(self, arguments: Any) -> None:
        """Charge a step for every 32 elements or 64 characters of the arguments."""
        for argument in arguments or ():
            if isinstance(argument, _MEASURED):
                self.steps += len(argument) >> (6 if isinstance(argument, str) else 5)
                if self.steps > self.most_steps:
                    raise self.exceeded_error(TOO_LONG)


# ---- room on Python's stack, without raising the recursion limit, which belongs to the host ----

T = TypeVar("T")


def free_frames() -> int:
    """Return how many frames the recursion limit leaves to this thread at least.

    Until Python 3.12 the limit also counts calls from C, which no frame shows; they are less than half as many.
    """
    used, frame = 0, sys._getframe()
    while (outer := frame.f_back) is not None:
        used, frame = used + 1, outer
    return sys.getrecursionlimit() - used - used // 2


def on_new_stack(work: Callable[[], T]) -> T:
    """Run the work in a thread of its own while this one waits; return what it returns, raise what it raises."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as problem:
            done.set_exception(problem)

    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    return done.result()
