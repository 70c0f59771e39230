"""Defines what the performer needs from outside: a clock, threads for requests, and upstreams that can be read.

In a function these are the system's own; in a simulation they belong to its world. They decide nothing. Invariant: the
performer (`performer.py`) reaches the world only through its ports.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from handlers.aws.secret_values import SecretValues
from handlers.connection.inputs import Arrival
from handlers.connection.opening_steps import Preparation, Tokens
from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.profile.upstream_requests import request_of
from handlers.run.threads import Answered, Bell
from handlers.upstream.reader import Share, Upstream
from handlers.upstream.standstill import Pulse, elapsed_s
from handlers.values import dataclass

# The name of the threads for requests to the store; they ring for it.
STORE = "store"
# How long before the function's end it stops waiting for the store: a quarter of the margin, at most half a second. The
# manager has ended by then; this leaves time for the answer.
HARD_STOP_MS = 500
NO_TIME = "no time is left to ask the store"
TOO_LATE = "the store did not answer before the function's deadline"

# Called after each connection, with how long its reader waited because the store was slower.
LogReport = Callable[[Profile, Invocation, Report, int], None]


class Clock(Protocol):
    """Epoch milliseconds that never go back."""

    def now_ms(self) -> int:
        """The time."""


class Reader(Protocol):
    """One opening of an upstream, as `handlers/upstream/reader.py` has it."""

    @property
    def blocked_ms(self) -> int:
        """How long it has waited because the store was slower."""

    @property
    def taken_age_s(self) -> float:
        """How long ago the item that `get` last returned had come."""

    @property
    def unread_age_s(self) -> float | None:
        """How long ago the oldest waiting item had come; None if none waits."""

    def get(self, wait_s: float) -> Arrival | None:
        """Returns the next arrival, or None."""

    def send(self, frame: bytes) -> None:
        """Sends a wire frame on its socket soon; does nothing once that is closed."""

    def close(self, join_s: float) -> None:
        """Closes it; what was read before can still be taken."""


class Threads(Protocol):
    """Threads that make requests, as `handlers/run/threads.py` has them."""

    def ask(self, sender: str, *requests: Callable[[], Any]) -> None:
        """Lets a thread make the requests, one by one until one raises."""

    def take_answers(self) -> Iterator[tuple[str, Answered]]:
        """Returns the answers that have come, each with its stream."""

    def stop(self, wait_s: float) -> None:
        """Lets each thread end after its current request."""


# Makes the four unpredictable bytes that mask a frame sent on a socket.
Mask = Callable[[], bytes]
random_mask: Mask = functools.partial(os.urandom, 4)
# The tokens of this process, for all its streams.
TOKENS = Tokens(threading.Lock)
# Opens a stream's upstream from a cursor, and reads at most its share at once.
OpenUpstream = Callable[[str, str | None, Profile, Secrets, Share], Reader]


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one function; each ring of `bell` names the stream that it is for.

    `pool` makes a number of threads, which ring for a name.
    """

    clock: Clock
    bell: Bell
    pool: Callable[[int, str], Threads]
    open_upstream: OpenUpstream
    secrets: SecretValues
    log_report: LogReport
    mask: Mask = random_mask
    tokens: Tokens = TOKENS


def hard_stop_ms(deadline_ms: int, margin_ms: int) -> int:
    """Returns until when an invocation waits for the store."""
    return deadline_ms - min(HARD_STOP_MS, margin_ms // 4)


def preparation_of(
    profile: Profile,
    stream: str,
    cursor: str | None,
    values: Secrets,
    now_ms: Callable[[], int],
    tokens: Tokens = TOKENS,
) -> Preparation | None:
    """Returns the requests that precede the opening of a stream; None if there are none."""
    if profile.token is None and profile.ticket is None:
        return None
    from handlers.connection.preparation import prepare_opening

    return prepare_opening(profile, stream, cursor, values, tokens, now_ms)


def judge_token(profile: Profile, values: Secrets, tokens: Tokens, token: str, report: Report) -> bool:
    """Records how the upstream took the token of a connection that has ended; returns whether to open with another."""
    from handlers.connection.preparation import is_token_refused

    return is_token_refused(profile, values, tokens, token, report)


def open_upstream(
    pulse: Pulse, stream: str, cursor: str | None, profile: Profile, values: Secrets, share: Share
) -> Reader:
    """Opens an upstream on a socket, read by a thread of its own; `pulse` is the process's."""
    upstream = Upstream(
        request_of(profile, stream, cursor, values),
        before=preparation_of(profile, stream, cursor, values, lambda: round(1000 * elapsed_s())),
        connect_timeout_s=profile.connect_timeout_s,
        stall_after_s=profile.stall_after_s,
        joins=profile.may_join_chunks,
        rest_s=profile.read_wait_s,
        shares=share,
        pulse=pulse,
    )
    upstream.start()
    return upstream
