"""Walks over the streams of a document and finds those that must be started or stopped.

A round walks once, in the order of the ids, a hundred streams at a time. The first acts on each stream that is not as
wanted; later ones check the results, and act again if a request was refused. Invariants: a round finds what was done
already, so it may be repeated from any place; a stream that is over is started again once, not in every round.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from handlers.api.status_words import MOVED, NOT_TWICE
from handlers.fleet.fleet_document import Wanted
from handlers.fleet.request_pacing import StreamRequest
from handlers.values import dataclass

BATCH = 100
# How many streams that are not as wanted it names.
NAMED = 100
NEVER = ""
# In which rounds a stream that is still starting is requested again: its start may have ended half way, with a lease
# that names a group which does not know it. Otherwise the request changes nothing.
STARTING_AGAIN = 6
# With one of these statuses no execution connects the stream, so a start helps. An "unknown" stream may be alive.
_OVER = ("stopped", "ended", "rejected", "broken")
_ASKED_AGAIN = (NEVER, "stopped", "stopping")
# A stream that ended for one of these reasons is started only by a POST of its own.
_BY_HAND = (MOVED, NOT_TWICE)
_AWAY_WORDS = {NEVER: "it was not started yet", "stopped": "it is stopped", "stopping": "it is stopping"}


@dataclass
class Round:
    """One walk. `known` returns the ever started ids after an id, `state` the statuses and reasons of many.

    `counts` has the streams up to the place that is saved: the next step reads those after it again. Another round
    `may_help` unless only a person starts what is left.
    """

    wanted: Wanted
    known: Callable[[str], Iterable[str]]
    state: Callable[[Sequence[str]], Mapping[str, tuple[str, str]]]
    number: int
    counts: Counter[str] = field(default_factory=Counter)
    not_yet: list[dict[str, Any]] = field(default_factory=list)
    may_help: bool = False
    _read: deque[tuple[bytes, str]] = field(default_factory=deque)

    def needed_requests(self, after: str) -> Iterator[StreamRequest | str]:
        """Yields the streams after an id that need a request, and the last id of each batch, asked for or not.

        It notes all that are not as wanted.
        """
        ids = self._ids(after)
        while batch := list(itertools.islice(ids, BATCH)):
            states = self.state(batch)
            for stream_id in batch:
                is_connected, (status, why) = self.wanted.should_connect(stream_id), states.get(stream_id, ("", ""))
                if is_connected is not None and self._needs_request(stream_id, is_connected, status, why):
                    yield StreamRequest(stream_id, is_connected, is_known=status == "starting")
            yield batch[-1]

    def note_failures(self, left: Mapping[str, str]) -> None:
        """Notes why the requests failed, for streams for which all did."""
        by_id = {one["stream"]: one for one in self.not_yet}
        for stream_id, why in left.items():
            if stream_id in by_id:
                by_id[stream_id]["why"] = why

    def count_until(self, place: str | None) -> None:
        """Counts the streams up to this id; None is the end."""
        bound = None if place is None else place.encode()
        while self._read and (bound is None or self._read[0][0] <= bound):
            self.counts[self._read.popleft()[1]] += 1

    def _needs_request(self, stream_id: str, is_connected: bool, status: str, why: str) -> bool:
        is_so = status == "running" if is_connected else status in (NEVER, *_OVER)
        self._read.append((stream_id.encode(), "as_wanted" if is_so else "left"))
        if is_so:
            return False
        is_by_hand = is_connected and why.endswith(_BY_HAND)
        self.may_help |= not is_by_hand
        if len(self.not_yet) < NAMED:
            word = "connected" if is_connected else "stopped"
            reason = why or _AWAY_WORDS.get(status, f"it is {status}")
            self.not_yet.append(
                {"stream": stream_id, "wanted": word, "status": status or "never started", "why": reason}
            )
        if is_connected and status == "starting":
            return self.number % STARTING_AGAIN == 0
        if is_connected:
            return not is_by_hand and status in (_ASKED_AGAIN if self.number else (*_ASKED_AGAIN, *_OVER))
        return status != "stopping"

    def _ids(self, after: str) -> Iterator[str]:
        """Returns the ids after one, sorted by their bytes: the document's, and all known ones if it has patterns."""
        place = after.encode()
        own = (one for one in self.wanted.ids if one.encode() > place)
        if not self.wanted.patterns:
            return own
        merged = heapq.merge(own, self.known(after), key=str.encode)
        return (one for one, _ in itertools.groupby(merged))
