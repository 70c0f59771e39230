"""The profiles of a group's streams: read as each begins, and requested if the function's own is missing or wrong.

A function knows the profiles that were deployed before it began. A stream with a newer profile may join while it runs,
and one that was rejected may join again once its profile is corrected. So no stream is rejected for its profile before
the function has requested the deployed one: once for all waiting streams of a name, and once more if a stream joins
anew.

    read("new:1")                      InvalidRequest
    must_wait("new:1", joined)         True, and the stream waits
    take_answers(…)                    ("new:1", None): it is begun, and read("new:1") is the profile
                                       ("new:1", InvalidRequest): there is none either

Invariant: for each name one request is under way; one that failed is repeated at intervals.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from handlers.errors import InvalidRequest
from handlers.profile.addresses import ProfileError
from handlers.profile.behaviour import MAX_FRAME_BYTES, Profile
from handlers.run.group_ports import ReadProfiles
from handlers.run.ports import Threads

PROFILES = "profiles"
AGAIN_MS = 15_000
# The most that a stream may hold, however many share its function, if the others hold little (`oversize.py`).
MOST_FRAME_BYTES = MAX_FRAME_BYTES // 4


class GroupProfiles:
    """The profiles of one function; `threads` makes the thread for requests, if one is needed."""

    def __init__(self, read: ReadProfiles, threads: Callable[[int, str], Threads]) -> None:
        self._read = read
        self._make_threads = threads
        self._threads: Threads | None = None
        # By name: the received deployed profile, and the function's own at that time.
        self._deployed: dict[str, tuple[Profile, Profile | None]] = {}
        self._doubted: set[str] = set()  # the names with a stream that an upstream has rejected since the last answer
        self._waiting: dict[str, dict[str, str | None]] = {}  # by name: the waiting streams, and when they joined
        self._answered_joins: dict[str, str | None] = {}  # when the streams that were answered had joined
        self._again_ms: dict[str, int] = {}  # by name: when a failed request is repeated

    def read(self, stream: str, joined: str | None) -> Profile:
        """Returns the profile of the stream that joined then.

        Raises InvalidRequest if there is none, if it does not suit this stream, or if it allows longer frames than a
        shared function holds. So it does if another stream was rejected with it, because it may have been corrected.
        """
        name = _name(stream)
        if name in self._doubted and not self._is_answered(stream, joined):
            raise InvalidRequest(f"a stream of the profile {name!r} was rejected, and the profile is requested anew")
        profile = self._profile(stream)
        if (wanted := profile.max_frame_bytes) > MOST_FRAME_BYTES:
            raise InvalidRequest(
                f"the profile {name!r} has max_frame_bytes = {wanted}, and a function that streams share holds "
                f"{MOST_FRAME_BYTES} bytes of a frame at most: lower it, or set streams_per_function: 1 for its stage"
            )
        if not profile.again:
            raise InvalidRequest(
                f"the profile {name!r} must not be requested twice (again = false), and a function that streams share "
                "connects each again: set streams_per_function: 1 for its stage, or again = true"
            )
        return profile

    def record_rejection(self, stream: str) -> None:
        """Records that an upstream rejected the stream: streams that join from now on await the deployed profile."""
        self._doubted.add(_name(stream))

    def must_wait(self, stream: str, joined: str | None) -> bool:
        """Returns whether the stream must wait for an answer; False if it has had one since it joined."""
        if self._is_answered(stream, joined):
            return False
        name = _name(stream)
        if name not in self._waiting:
            self._ask(name, stream)
        self._waiting.setdefault(name, {})[stream] = joined
        return True

    def take_answers(self, now_ms: int) -> Iterator[tuple[str, InvalidRequest | None]]:
        """Yields the streams that wait no longer, each with why it has no profile; repeats the due requests."""
        for name, answer in [] if self._threads is None else list(self._threads.take_answers()):
            if answer.error is not None and not isinstance(answer.error, InvalidRequest):
                self._again_ms[name] = now_ms + AGAIN_MS
                continue
            streams = self._waiting.pop(name)
            if answer.error is None:
                self._deployed[name] = answer.value, self._own(next(iter(streams)))
                self._doubted.discard(name)
            self._answered_joins |= streams
            for stream in streams:
                yield stream, answer.error
        for name in [name for name, again_ms in self._again_ms.items() if again_ms <= now_ms]:
            del self._again_ms[name]
            self._ask(name, next(iter(self._waiting[name])))

    @property
    def due_ms(self) -> int | None:
        """Returns when a request is repeated; None if none has failed."""
        return min(self._again_ms.values(), default=None)

    def stop(self) -> None:
        """Lets the thread end after its current request."""
        if self._threads is not None:
            self._threads.stop(0)

    def _is_answered(self, stream: str, joined: str | None) -> bool:
        return stream in self._answered_joins and self._answered_joins[stream] == joined

    def _own(self, stream: str) -> Profile | None:
        try:
            return self._read.own(stream)
        except InvalidRequest:
            return None

    def _profile(self, stream: str) -> Profile:
        """Returns the received deployed profile; the function's own without one, or if it has changed since."""
        told, before = self._deployed.get(_name(stream), (None, None))
        own = self._own(stream)
        profile = told if told is not None and (own is None or own == before) else self._read.own(stream)
        try:
            profile.address_for(stream)
        except ProfileError as error:
            raise InvalidRequest(str(error)) from None
        return profile

    def _ask(self, name: str, stream: str) -> None:
        if self._threads is None:
            self._threads = self._make_threads(1, PROFILES)
        self._threads.ask(name, functools.partial(self._read.deployed, stream))


def _name(stream: str) -> str:
    """The profile's name, which most streams of a group share."""
    return stream.partition(":")[0]
