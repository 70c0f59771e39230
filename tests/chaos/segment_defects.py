"""Deliberate defects of the log's protocol, which the model must catch (`model_segments.py`).

Each says what is wrong in one sentence and where it is looked for. It decides nothing else. Invariant: without the
defect the same exploration finds nothing (`test_model_segments.py` holds both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from handlers.framing.events import StreamEvent
from handlers.segments.appending import Answer, Appended, Appender, Cursor, Page, Put, ReadOn, Request, Segment
from handlers.segments.known import key_hash
from tests.chaos.model_segments import Search

Following = Request | Appended | None


class _KnowsTheLastSegmentAlone(Appender):
    def _proceed(self) -> Following:
        self._back_to = None
        return super()._proceed()


class _ReadsNothingOfAnother(Appender):
    def answered(self, answer: Answer) -> Following:
        if isinstance(self._request, Put) and not answer:
            self._next += 1
            return self._proceed()
        return super().answered(answer)


class _LearnsNumbersAlone(Appender):
    def answered(self, answer: Answer) -> Following:
        if isinstance(self._request, ReadOn) and isinstance(answer, Page):
            others = [one if self._is_own(one, one.number) else one._replace(keys=b"") for one in answer.segments]
            answer = answer._replace(segments=others)
        return super().answered(answer)


class _TakesItsOwnForAnothers(Appender):
    def _is_own(self, _segment: Segment, _number: int) -> bool:
        return False


class _KnowsItsEventsTooEarly(Appender):
    def _asks(self, request: Request) -> Request:
        if isinstance(request, Put):
            self._known.add(self._now_ms, request.segment.keys)
        return super()._asks(request)


class _SavesItsOwnCursor(Appender):
    def _cursor_behind(self) -> Cursor | None:
        return Cursor(self._fence, self._now_ms, self._events[-1].cursor or "")


class _DropsANewersCursor(Appender):
    def _cursor_behind(self) -> Cursor | None:
        cursor = super()._cursor_behind()
        return cursor if cursor is not None and cursor.fence == self._fence else None


class _StoresTheFirstWithTheCursorOfAll(Appender):
    def _asks(self, request: Request) -> Request:
        if isinstance(request, Put):
            segment = request.segment._replace(keys=request.segment.keys[: len(key_hash(""))])
            request = Put(segment, request.events[:1])
        return super()._asks(request)


class _LeavesANumberOut(Appender):
    def _appended(self, segment: Segment) -> Appended:
        appended = super()._appended(segment)
        self._next += 1
        return appended


class _AppendsInTheOppositeOrder(Appender):
    def append(self, now_ms: int, first: int, events: Sequence[StreamEvent]) -> Following:
        return super().append(now_ms, first, events[::-1])


class _DropsAllForOneDuplicate(Appender):
    def _proceed(self) -> Following:
        if self._events and any(key_hash(event.key) in self._known for event in self._events):
            return self._ended(Appended(0, len(self._events)))
        return super()._proceed()


class _AppendsTwiceWhatWasRefused(Appender):
    """After a conflict the number of the first event is another, so its own segment is not known again."""

    def answered(self, answer: Answer) -> Following:
        following = super().answered(answer)
        if isinstance(following, ReadOn):
            self._first += 100
        return following


@dataclass(frozen=True)
class Defect:
    """One defect, where it is looked for, and the invariants of which one must name it."""

    what: str
    search: Search
    caught_by: frozenset[str]


def _defect(what: str, appender: type[Appender], caught_by: str, search: Search) -> Defect:
    return Defect(what, replace(search, appender=appender), frozenset(caught_by.split(", ")))


TWO, THREE = Search(events=2, connections=2), Search(events=3, connections=3, losses=0, lates=0)

DEFECTS = (
    _defect("only the last segment is read at opening", _KnowsTheLastSegmentAlone, "once", THREE),
    _defect("what another wrote is not read", _ReadsNothingOfAnother, "once", TWO),
    _defect("the keys of another's segment are not learned", _LearnsNumbersAlone, "once", TWO),
    _defect("its own segment is not recognised", _TakesItsOwnForAnothers, "counts", TWO),
    _defect("events are known before they are stored", _KnowsItsEventsTooEarly, "counts, nothing is lost", TWO),
    _defect("an older connection saves its own cursor", _SavesItsOwnCursor, "the cursor stays", TWO),
    _defect("an older connection drops the cursor", _DropsANewersCursor, "the cursor stays", TWO),
    _defect(
        "a part is stored with the cursor of the whole",
        _StoresTheFirstWithTheCursorOfAll,
        "the cursor passes nothing",
        TWO,
    ),
    _defect("a number is left out", _LeavesANumberOut, "once, in order", THREE),
    _defect("a batch is appended backwards", _AppendsInTheOppositeOrder, "in order, the cursor passes nothing", TWO),
    _defect("one duplicate drops its batch", _DropsAllForOneDuplicate, "nothing is lost", TWO),
    _defect("a write has no lasting name", _AppendsTwiceWhatWasRefused, "counts", TWO),
    Defect(
        "a segment is written without its condition", replace(TWO, is_conditional=False), frozenset({"stays", "counts"})
    ),
)
