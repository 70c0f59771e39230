"""Performs the steps of a group's streams in real time: upstreams on sockets, the store in a few threads for all.

As `driver.py` does for one stream. It chooses nothing of what is done (`handlers/group` does): each turn takes a
bounded amount from each stream that has something, and hands out what asks the store. Reading is bounded for the sum:
the more streams, the less may wait of each. Invariants: what one stream's upstream or requests do reaches no other; no
two steps of a stream are under way at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import CloseUpstream, MarkConnected, Open
from handlers.connection.inputs import Closed, LeaseRead, StoreFailed
from handlers.connection.steps import Answer, Ended, Invocation, ReadSecrets, Step, Steps
from handlers.errors import StoreUnavailable, StreamRejected
from handlers.group.keeping import Kept
from handlers.group.rounds import Rounds
from handlers.profile.addresses import ProfileError
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.run.ports import Clock, LogReport, OpenUpstream, Reader, Threads
from handlers.run.threads import Answered, Bell
from handlers.store.grouped_store import GroupedStore
from handlers.store.requests import Requests
from handlers.upstream.reader import INBOX_BYTES, Share, Upstream

# Requests under way at once: as the streams' answers are awaited side by side, few threads are enough.
THREADS = 8
STORE = "the store"
# What a turn takes of one stream at most. It is decoded at once, and the others wait for that.
CHUNK_BYTES = 16 * 1024
# How much may wait of all streams that was read and not taken: what may wait of one that has a function of its own.
INBOXES_BYTES = INBOX_BYTES


def open_upstream(stream: str, cursor: str | None, profile: Profile, values: Secrets, share: Share) -> Reader:
    """Opens it on a socket, read by a thread of its own."""
    upstream = Upstream(
        profile.request(stream, cursor, values),
        connect_timeout_s=profile.connect_timeout_s,
        stall_after_s=profile.stall_after_s,
        joins=profile.joins_chunks,
        rest_s=profile.read_rest_s,
        shares=share,
    )
    upstream.start()
    return upstream


@dataclass(slots=True)
class _Stream:
    """What is open of one stream."""

    profile: Profile
    invocation: Invocation
    requests: Requests
    values: Secrets = field(default_factory=dict)
    upstream: Reader | None = None
    blocked_ms: int = 0


class Performer:
    """The performer of one function, on the thread that decides; `most` streams may come."""

    def __init__(
        self,
        store: GroupedStore,
        secrets: SecretValues,
        clock: Clock,
        bell: Bell,
        pool: Threads,
        opens: OpenUpstream,
        most: Callable[[], int],
        log_report: LogReport,
    ) -> None:
        self._store = store
        self._secrets = secrets
        self._clock = clock
        self._most = most
        self._log_report = log_report
        self._streams: dict[str, _Stream] = {}
        self._news: set[str] = set()
        self._untold: set[str] = set()  # whose lease is another than the one they know
        self._rounds: Rounds[Kept] = Rounds()
        self._bell = bell
        self._pool = pool
        self._opens = opens
        self.answered: set[str] = set()  # whose openings are over, for whoever paces them
        self.connected: set[str] = set()

    def begin(self, profile: Profile, invocation: Invocation, steps: Steps[Kept]) -> None:
        """Begins with the steps of a stream."""
        requests = Requests(profile, self._store, invocation, self._clock.now_ms)
        self._streams[invocation.stream_id] = _Stream(profile, invocation, requests)
        self._rounds.begin(invocation.stream_id, steps, self._clock.now_ms())

    def turn(self, rung: set[str]) -> bool:
        """Performs what is asked for and serves whoever waited, each once; whether there was anything.

        `rung` are those for whom the bell has rung.
        """
        self._news |= rung
        answers = list(self._pool.answered())
        for stream, answer in answers:
            self._take(stream, answer)
        asked = list(self._rounds.asked())
        for stream, step in asked:
            self._perform(stream, step)
        return self._serve() or bool(answers or asked)

    def ended(self) -> Iterator[tuple[str, Kept | Exception]]:
        """Takes the streams that have ended."""
        for stream, kept in self._rounds.ended():
            self._forget_upstream(stream)
            self.connected.discard(stream)
            self._untold.discard(stream)
            del self._streams[stream]
            yield stream, kept

    @property
    def due_ms(self) -> int | None:
        """Returns the first instant that a stream has named."""
        return self._rounds.due_ms

    def tell(self, stream: str) -> None:
        """Tells a stream that its lease is known to be another: now, or when what it asks for is answered."""
        if stream in self._streams:
            self._untold.add(stream)

    def wake(self, stream: str) -> None:
        """Ends the pause of a stream that rests."""
        if self._rounds.pauses(stream):
            self._rounds.answer(stream, self._answer(stream))

    def fail_waiting(self, detail: str) -> None:
        """Ends the connections that wait for an arrival, as if the store had refused."""
        for stream, _ in self._rounds.awaiting():
            self._rounds.answer(stream, self._answer(stream, StoreFailed(detail)))

    def close(self, wait_s: float) -> None:
        """Closes what is open and lets the store's threads end, for which it waits so long."""
        for stream in self._streams:
            self._forget_upstream(stream)
        self._pool.stop(wait_s)

    # --- serving ------------------------------------------------------------------------------------------------------

    def _serve(self) -> bool:
        now_ms, served = self._clock.now_ms(), False
        for stream, step in self._rounds.awaiting():
            if stream in self._untold:
                self._untold.discard(stream)
                self._rounds.answer(stream, self._answer(stream, LeaseRead(self._store.known(stream))))
                served = True
                continue
            upstream = self._streams[stream].upstream
            arrival = upstream.get(0) if stream in self._news and upstream is not None else None
            if arrival is None:
                self._news.discard(stream)
                if step.until_ms > now_ms:
                    continue
                self._rounds.answer(stream, self._answer(stream))
            else:
                assert upstream is not None
                arrived_ms = self._clock.now_ms() - round(upstream.taken_s * 1000)
                if isinstance(arrival, Closed):
                    self._forget_upstream(stream)
                self._rounds.answer(stream, self._answer(stream, arrival, arrived_ms))
            served = True
        for stream in self._rounds.rested(now_ms):
            self._rounds.answer(stream, self._answer(stream))
            served = True
        return served

    def _take(self, stream: str, answer: Answered) -> None:
        if answer.error is None:
            if isinstance(answer.value, _Values):
                self._streams[stream].values = answer.value.secrets
                self._rounds.answer(stream, self._answer(stream, answer.value.secrets))
            else:
                self._rounds.answer(stream, self._answer(stream, answer.value))
        elif isinstance(answer.error, StoreUnavailable):
            self._rounds.answer(stream, self._answer(stream, StoreFailed(str(answer.error))))
        else:
            self._rounds.fail(stream, answer.error, self._clock.now_ms())

    def _answer(self, stream: str, value: Any = None, arrived_ms: int | None = None) -> Answer:
        """The answer of now, with when the oldest arrival had come that still waits."""
        now_ms, upstream = self._clock.now_ms(), self._streams[stream].upstream
        unread_s = None if upstream is None else upstream.unread_s
        return Answer(now_ms, value, arrived_ms, None if unread_s is None else now_ms - round(unread_s * 1000))

    # --- performing ---------------------------------------------------------------------------------------------------

    def _perform(self, stream: str, step: Step) -> None:
        one = self._streams[stream]
        if isinstance(step, MarkConnected | Ended):
            self.answered.add(stream)
            (self.connected.add if isinstance(step, MarkConnected) else self.connected.discard)(stream)
        try:
            match step:
                case Open(cursor):
                    self._open(stream, one, cursor)
                case CloseUpstream():
                    if one.upstream is not None:
                        one.upstream.close(0)
                        self._news.add(stream)  # what it has read still arrives, then Closed
                case Ended(report):
                    self._forget_upstream(stream)
                    self._store.over(stream)
                    blocked_ms, one.blocked_ms = one.blocked_ms, 0
                    self._log_report(one.profile, one.invocation, report, blocked_ms)
                case ReadSecrets(anew):
                    self._pool.ask(stream, functools.partial(self._read_secrets, one, anew))
                    return
                case _:
                    self._pool.ask(stream, *one.requests.of(step))
                    return
        except Exception as defect:
            self._rounds.fail(stream, defect, self._clock.now_ms())
        else:
            self._rounds.answer(stream, self._answer(stream))

    def _read_secrets(self, one: _Stream, anew: bool) -> _Values:
        values = self._secrets.read(one.profile.secrets, anew=anew)
        try:
            one.profile.request(one.invocation.stream_id, None, values)
        except ProfileError as error:
            raise StreamRejected(str(error)) from None
        return _Values(values)

    def _open(self, stream: str, one: _Stream, cursor: str | None) -> None:
        self._forget_upstream(stream)
        share = Share(
            CHUNK_BYTES,
            max(CHUNK_BYTES, INBOXES_BYTES // max(1, self._most())),
            functools.partial(self._bell.ring, stream),
        )
        one.upstream = self._opens(stream, cursor, one.profile, one.values, share)

    def _forget_upstream(self, stream: str) -> None:
        one = self._streams[stream]
        if one.upstream is not None:
            one.upstream.close(0)
            one.blocked_ms += one.upstream.blocked_ms
            one.upstream = None


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of secrets: no answer of the store."""

    secrets: Secrets
