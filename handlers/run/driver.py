"""Performs the steps of one invocation in real time: the upstream on a socket, the store in a thread of its own.

It chooses nothing of what is done or in which order (`handlers/connection/reconnection.py` does): it carries one step
out
and answers when that is done. Beside that it knows the clock (one reading of the wall clock carried on by the monotonic
clock, so that time never jumps) and the hard stop. Invariant: a step is answered before the function's deadline,
whatever the store and the upstream do, unless reading a secret takes longer.
"""

import time
from collections.abc import Callable
from typing import Any

from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import CloseUpstream, Open
from handlers.connection.inputs import Arrival, Closed, StoreFailed
from handlers.connection.steps import Answer, Await, Ended, Invocation, Pause, ReadSecrets, Report, Step
from handlers.errors import StoreUnavailable, StreamRejected
from handlers.profile.addresses import ProfileError
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.store.connection_store import Store
from handlers.store.requests import Requests
from handlers.store.worker import Worker
from handlers.upstream.reader import Upstream

# Hears of each connection that has ended, and for how long its reader stood still because the store was slower.
LogReport = Callable[[Report, int], None]


class Clock:
    """Epoch milliseconds that never go back: the wall clock once, the monotonic clock after."""

    def __init__(self) -> None:
        self._start_ms = time.time_ns() // 1_000_000
        self._start = time.monotonic_ns()

    def now_ms(self) -> int:
        """The time."""
        return self._start_ms + (time.monotonic_ns() - self._start) // 1_000_000

    def sleep_ms(self, for_ms: int) -> None:
        """Returns so many milliseconds later."""
        time.sleep(for_ms / 1000)


class Driver:
    """The performer of one invocation, on the main thread; `close` leaves nothing open."""

    def __init__(
        self,
        profile: Profile,
        store: Store,
        secrets: SecretValues,
        invocation: Invocation,
        clock: Clock,
        log_report: LogReport,
    ) -> None:
        self._profile = profile
        self._secrets = secrets
        self._invocation = invocation
        self._clock = clock
        self._log_report = log_report
        self._requests = Requests(profile, store, invocation, clock.now_ms)
        self._worker = Worker(invocation, clock.now_ms)
        self._values: Secrets = {}
        self._upstream: Upstream | None = None
        self._blocked_ms = 0

    def perform(self, step: Step) -> Answer:
        """The answer to the step; raises what the secrets raise."""
        match step:
            case Await():
                return self._await(step)
            case Open(cursor):
                self._open(cursor)
            case CloseUpstream():
                if self._upstream is not None:
                    self._upstream.close()  # what it has read still arrives, then Closed
            case Ended(report):
                self._forget_upstream()
                self._log_report(report, self._blocked_ms)
                self._blocked_ms = 0
            case Pause(for_ms):
                self._clock.sleep_ms(for_ms)
            case ReadSecrets(anew):
                self._values = self._read_secrets(anew)
                return self._answer(self._values)
            case _:
                return self._answer(self._ask_store(step))
        return self._answer()

    def close(self) -> None:
        """Closes what is open and lets the store's thread end."""
        self._forget_upstream()
        self._worker.stop()

    def _answer(self, value: Any = None, arrived_ms: int | None = None) -> Answer:
        """The answer of now, with when the oldest arrival had come that still waits."""
        now_ms = self._clock.now_ms()
        unread_s = None if self._upstream is None else self._upstream.unread_s
        return Answer(now_ms, value, arrived_ms, None if unread_s is None else now_ms - round(unread_s * 1000))

    def _await(self, step: Await) -> Answer:
        wait_ms = max(0, step.until_ms - self._clock.now_ms())
        if self._upstream is None:
            self._clock.sleep_ms(wait_ms)
            return self._answer()
        arrival: Arrival | None = self._upstream.get(wait_ms / 1000)
        if arrival is None:
            return self._answer()
        arrived_ms = self._clock.now_ms() - round(self._upstream.taken_s * 1000)
        if isinstance(arrival, Closed):
            self._forget_upstream()
        return self._answer(arrival, arrived_ms)

    def _ask_store(self, step: Step) -> Any:
        """The answer of the store, waited for until the hard stop and no longer."""
        requests = self._requests.of(step)
        try:
            return self._worker.ask(lambda: [request() for request in requests][-1])
        except StoreUnavailable as error:
            return StoreFailed(str(error))

    def _read_secrets(self, anew: bool) -> Secrets:
        """The values, before anything is claimed for them; raises StreamRejected where no request can carry one."""
        values = self._secrets.read(self._profile.secrets, anew=anew)
        try:
            self._profile.request(self._invocation.stream_id, None, values)
        except ProfileError as error:
            raise StreamRejected(str(error)) from None
        return values

    def _open(self, cursor: str | None) -> None:
        self._forget_upstream()
        self._upstream = Upstream(
            self._profile.request(self._invocation.stream_id, cursor, self._values),
            connect_timeout_s=self._profile.connect_timeout_s,
            stall_after_s=self._profile.stall_after_s,
            joins=self._profile.joins_chunks,
            rest_s=self._profile.read_rest_s,
        )
        self._upstream.start()

    def _forget_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._blocked_ms += self._upstream.blocked_ms
            self._upstream = None
