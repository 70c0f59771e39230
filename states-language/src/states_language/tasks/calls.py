"""Defines the call of a Task, the function that performs it, and AWS's own latencies.

Invariant: the interpreter never cancels a call; it only stops waiting for the answer.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from states_language.tasks.callbacks import Pending


@dataclass(frozen=True)
class Whole:
    """An answer that becomes the Task's result unchanged: a function's is not wrapped as lambda:invoke's response."""

    value: Any


@dataclass(frozen=True)
class Exchange:
    """The request and response of http:invoke, in `shown`. Without `reveal` the connection's additions are left out."""

    reveal: bool
    shown: dict[str, dict[str, str]] = field(default_factory=dict)


class TaskCall(NamedTuple):
    """One attempt of a Task state.

    For a Lambda function (lambda:invoke or its own ARN as Resource) `function` is its bare name and `payload` its
    event; the answer is what the function returned. For any other service `parameters` are the API's and the answer is
    its response. `timeout_ms` is the Task's own limit, None if it has none.

    `pattern` is "", or "sync", "sync:2" or "waitForTaskToken". With one of these the answer only says that the work
    has begun; `pending` gets the Task's result later, by its `succeed` or `fail`.

    `state` is the state's name, `input` its input, `attempt` counts from 1 at each visit of it. `reads` is whether an
    ItemReader asks: then the Body of an object may be bytes. `exchange` is where http:invoke notes what it sends.
    """

    resource: str
    service: str
    action: str
    sdk: bool
    function: str | None
    parameters: Any
    payload: Any
    execution_arn: str
    state: str
    entered_ms: int
    timeout_ms: int | None
    pattern: str = ""
    pending: Pending | None = None
    attempt: int = 1
    input: Any = None
    reads: bool = False
    exchange: Exchange | None = None


Perform = Callable[[TaskCall], Awaitable[Any]]
"""A function that returns the answer of a call, or a Whole; raises TaskFailure."""


class Latencies(Protocol):
    """The latencies of AWS in milliseconds, which its documents do not promise."""

    def start_ms(self) -> int:
        """Return the time from the start of an execution to its first state; asked once an execution."""

    def wait_overshoot_ms(self) -> int:
        """Return how late a Wait state ends; called once for each Wait that ends."""

    def wait_to_task_ms(self) -> int:
        """Return the time from the end of a Wait state to the start of the next Task state; called once for each."""


class NoLatencies:
    """AWS without latencies."""

    def start_ms(self) -> int:
        return 0

    wait_overshoot_ms = wait_to_task_ms = start_ms
