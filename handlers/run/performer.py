"""Performs the steps of streams: of one that has a function to itself, or of many that share one.

It is the only performer: threads and sockets, a replay in virtual time, a world of faults and a counted run differ only
by the ports that they pass (`ports.py`). Threads make a step's requests to the store, so a slow answer delays only its
own stream. Streams that wait for an arrival are served in turn, a bounded amount at a time.

    a floods, b and c are quiet     served: a b a c a a …     never a a while b has something

Invariants: every step is answered once, and no later than the hard stop, whatever the store and the upstreams do; no
two steps of a stream are under way at once; an exception in one stream's steps, upstream or requests reaches no other
stream.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Generic, TypeVar

from handlers.connection.effects import CloseUpstream, MarkConnected, Open, Send
from handlers.connection.inputs import Closed, LeaseRead, Opened, StoreFailed
from handlers.connection.lease import Lease
from handlers.connection.steps import Answer, Await, Ended, Invocation, Pause, ReadSecrets, Step, Steps
from handlers.errors import StoreUnavailable
from handlers.framing.websocket import encoded_frame
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets, placeholder_values
from handlers.run.ports import NO_TIME, STORE, TOO_LATE, Ports, Reader, hard_stop_ms, judge_token
from handlers.run.requests import Requests
from handlers.run.threads import Answered
from handlers.upstream.reader import CHUNK_BYTES, INBOX_BYTES, JOIN_S, Share
from handlers.values import dataclass

T = TypeVar("T")

# The most bytes that a turn takes from one of many streams: the others wait while they are decoded.
SHARED_CHUNK_BYTES = 16 * 1024
# How many requests of many streams are under way at once: few threads are enough.
THREADS = 8


@dataclass(slots=True)
class _Stream(Generic[T]):
    """The open state of one stream."""

    profile: Profile
    invocation: Invocation
    steps: Steps[T]
    requests: Requests
    values: Secrets = field(default_factory=dict)
    unsendable: str = ""  # why no request can be made with the current secrets
    token: str = ""  # with which the upstream was opened
    upstream: Reader | None = None
    blocked_ms: int = 0


class Performer(Generic[T]):
    """The performer of one function, on the deciding thread; `take_ended` returns what each stream's steps return.

    `most` is how many streams may come, which share the memory; None for a stream that has the function to itself.
    """

    def __init__(self, ports: Ports, most: Callable[[], int] | None = None) -> None:
        self._clock, self._bell, self._mask, self._tokens = ports.clock, ports.bell, ports.mask, ports.tokens
        self._pool = ports.pool(1 if most is None else THREADS, STORE)
        self._open_upstream, self._secrets, self._log_report = ports.open_upstream, ports.secrets, ports.log_report
        self._most = most
        self._streams: dict[str, _Stream[T]] = {}
        # Each stream is in one of these, with its step: to be performed; waiting for an arrival until an instant, in
        # the order of service; pausing until an instant; at the store; or ended.
        self._asked: deque[tuple[str, Step]] = deque()
        self._awaits: dict[str, int] = {}
        self._pauses: dict[str, int] = {}
        self._at_store: set[str] = set()
        self.finished: deque[tuple[str, T | Exception]] = deque()  # not fetched yet
        self._stop_ms = 0
        self._rung: set[str] = set()  # streams whose reader has rung
        self._changed_leases: dict[str, Callable[[], Lease]] = {}  # streams that do not know their changed lease yet
        self.openings_over: set[str] = set()  # streams whose openings are over, for the pacing
        self.connected: set[str] = set()

    def begin(self, profile: Profile, invocation: Invocation, steps: Steps[T], requests: Requests) -> None:
        """Begins the steps of a stream; `requests` makes their requests to the store."""
        stream = invocation.stream_id
        self._streams[stream] = _Stream(profile, invocation, steps, requests)
        self._stop_ms = hard_stop_ms(invocation.deadline_ms, invocation.margin_ms)
        self._move(stream, steps.__next__, self._clock.now_ms())

    def run(self) -> T:
        """Returns what the steps of the only stream return, once they do; raises what they raise."""
        rung: set[str] = set()
        while not self.finished:
            self.turn(rung)
            rung = set()
            if not (self._asked or self.finished) and self._rung.isdisjoint(self._awaits):
                due_ms = self.due_ms
                rung = self._bell.wait(0 if due_ms is None else (due_ms - self._clock.now_ms()) / 1000)
        ((_, end),) = self.take_ended()
        if isinstance(end, Exception):
            raise end
        return end

    def turn(self, rung: set[str]) -> bool:
        """Performs the steps that are due and serves the streams that waited, each once; returns whether any were.

        `rung` are the streams for which the bell has rung.
        """
        self._rung |= rung
        is_busy = False
        for stream, answer in self._pool.take_answers():
            self._take(stream, answer)
            is_busy = True
        # Steps that follow from these are performed in the next turn.
        for _ in range(len(self._asked)):
            self._perform(*self._asked.popleft())
            is_busy = True
        now_ms = self._clock.now_ms()
        if now_ms >= self._stop_ms and self._at_store:
            for stream in sorted(self._at_store):
                self._take(stream, Answered(error=StoreUnavailable(TOO_LATE)))
        return self._serve(now_ms) or is_busy

    def take_ended(self) -> Iterator[tuple[str, T | Exception]]:
        """Yields the streams that have ended, with what each returned, or raised, which is a defect."""
        while self.finished:
            stream, end = self.finished.popleft()
            self._forget_upstream(stream)
            self.connected.discard(stream)
            self._changed_leases.pop(stream, None)
            del self._streams[stream]
            yield stream, end

    @property
    def due_ms(self) -> int | None:
        """Returns the earliest instant at which a stream needs a turn; None if none does."""
        at_store = [self._stop_ms] if self._at_store else []
        return min([*self._awaits.values(), *self._pauses.values(), *at_store], default=None)

    def notify(self, stream: str, known: Callable[[], Lease]) -> None:
        """Answers a stream with its changed lease, which `known` returns: now, or once it waits for an arrival."""
        if stream in self._streams:
            self._changed_leases[stream] = known

    def wake(self, stream: str) -> None:
        """Ends the pause of a stream."""
        if stream in self._pauses:
            self._answer(stream)

    def fail_waiting(self, detail: str) -> None:
        """Ends the connections that wait for an arrival, as if the store had refused."""
        for stream in list(self._awaits):
            self._answer(stream, StoreFailed(detail))

    def close(self, wait_s: float) -> None:
        """Closes what is open and lets the store's threads end, waiting at most `wait_s`."""
        for stream in self._streams:
            self._forget_upstream(stream)
        self._pool.stop(wait_s)

    # --- serving ------------------------------------------------------------------------------------------------------

    def _serve(self, now_ms: int) -> bool:
        served = False
        for stream, until_ms in list(self._awaits.items()):
            if self._changed_leases and stream in self._changed_leases:
                self._answer(stream, LeaseRead(self._changed_leases.pop(stream)()))
                served = True
                continue
            upstream = self._streams[stream].upstream
            if stream in self._rung and upstream is not None and (arrival := upstream.get(0)) is not None:
                arrived_ms = self._clock.now_ms() - round(upstream.taken_age_s * 1000)
                if isinstance(arrival, Closed):
                    self._forget_upstream(stream)
                elif isinstance(arrival, Opened):
                    self._streams[stream].token = placeholder_values(arrival.places).get("token", "")
                self._answer(stream, arrival, arrived_ms)
            else:
                self._rung.discard(stream)
                if until_ms > now_ms:
                    continue
                self._answer(stream)
            served = True
        for stream in [stream for stream, until_ms in self._pauses.items() if until_ms <= now_ms]:
            self._answer(stream)
            served = True
        return served

    def _take(self, stream: str, answer: Answered) -> None:
        """Takes the answer of a request; after the hard stop it is ignored, because the step was answered then."""
        if stream not in self._at_store:
            return
        self._at_store.discard(stream)
        if answer.error is None:
            self._answer(stream, answer.value)
        elif isinstance(answer.error, StoreUnavailable):
            self._answer(stream, StoreFailed(str(answer.error)))
        else:
            self._fail(stream, answer.error)

    def _answer(self, stream: str, value: Any = None, arrived_ms: int | None = None) -> None:
        """Answers the stream's current step, and adds when the oldest arrival that still waits had come."""
        self._awaits.pop(stream, None)
        self._pauses.pop(stream, None)
        one, now_ms = self._streams[stream], self._clock.now_ms()
        unread_s = None if one.upstream is None else one.upstream.unread_age_s
        unread_ms = None if unread_s is None else now_ms - round(unread_s * 1000)
        self._move(stream, functools.partial(one.steps.send, Answer(now_ms, value, arrived_ms, unread_ms)), now_ms)

    def _fail(self, stream: str, error: Exception) -> None:
        """Raises the error of performing the stream's current step inside its steps."""
        self._move(stream, functools.partial(self._streams[stream].steps.throw, error), self._clock.now_ms())

    def _move(self, stream: str, move: Callable[[], Step], now_ms: int) -> None:
        try:
            step = move()
        except StopIteration as done:
            self.finished.append((stream, done.value))
        except Exception as defect:
            self.finished.append((stream, defect))
        else:
            if isinstance(step, Await):
                # A stream that was served goes to the end of the queue. Each wait lasts one instant at least.
                self._awaits[stream] = min(ms for ms in (step.wake_ms, step.lease_ms) if ms is not None)
                self._rung.add(stream)  # the bell did not ring for what came before (`_ring_if_waiting`)
            elif isinstance(step, Pause):
                self._pauses[stream] = now_ms + step.for_ms
            else:
                self._asked.append((stream, step))

    # --- performing ---------------------------------------------------------------------------------------------------

    def _perform(self, stream: str, step: Step) -> None:
        one = self._streams[stream]
        if isinstance(step, MarkConnected | Ended):
            self.openings_over.add(stream)
            (self.connected.add if isinstance(step, MarkConnected) else self.connected.discard)(stream)
        requests: Sequence[Callable[[], Any]] = ()
        answer: Any = None
        try:
            match step:
                case Open() if one.unsendable:
                    answer = Closed("rejected", one.unsendable)
                case Open(cursor):
                    self._open(stream, one, cursor)
                case Send(opcode, payload):
                    if one.upstream is not None:
                        one.upstream.send(encoded_frame(opcode, payload, self._mask()))
                case CloseUpstream():
                    if one.upstream is not None:
                        # Whatever it has read still arrives, then Closed.
                        one.upstream.close(0 if self._most else JOIN_S)
                case Ended(report):
                    self._forget_upstream(stream)
                    blocked_ms, one.blocked_ms = one.blocked_ms, 0
                    self._log_report(one.profile, one.invocation, report, blocked_ms)
                    answer = one.token and judge_token(one.profile, one.values, self._tokens, one.token, report)
                case ReadSecrets(anew):
                    requests = [functools.partial(self._read_secrets, one, anew)]
                case _:
                    requests = one.requests.requests_of(step)
            if requests:
                self._at_store.add(stream)
                if self._clock.now_ms() >= self._stop_ms:
                    self._take(stream, Answered(error=StoreUnavailable(NO_TIME)))
                else:
                    self._pool.ask(stream, *requests)
                return
        except Exception as defect:
            self._fail(stream, defect)
        else:
            self._answer(stream, answer)

    def _read_secrets(self, one: _Stream[T], anew: bool) -> Secrets:
        one.values, one.unsendable = self._secrets.read_for_request(one.profile, one.invocation.stream_id, anew=anew)
        return one.values

    def _open(self, stream: str, one: _Stream[T], cursor: str | None) -> None:
        self._forget_upstream(stream)
        one.token = ""
        ring = functools.partial(self._ring_if_waiting, stream)
        share = Share(CHUNK_BYTES, INBOX_BYTES, ring)
        if self._most is not None:
            # The more streams there are, the fewer bytes of each may wait.
            inbox_bytes = INBOX_BYTES // max(1, self._most())
            share = Share(SHARED_CHUNK_BYTES, max(SHARED_CHUNK_BYTES, inbox_bytes), ring)
        one.upstream = self._open_upstream(stream, cursor, one.profile, one.values, share)

    def _ring_if_waiting(self, stream: str) -> None:
        """Rings for a stream that waits: any other finds what has come when it waits. A reader's thread calls this."""
        if stream in self._awaits:
            self._bell.ring(stream)

    def _forget_upstream(self, stream: str) -> None:
        one = self._streams[stream]
        if one.upstream is not None:
            one.upstream.close(0 if self._most else JOIN_S)
            one.blocked_ms += one.upstream.blocked_ms
            one.upstream = None
