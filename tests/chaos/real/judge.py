"""Compares the upstream's journal with the API's answers about one stream, and reports each contradiction.

It decides from the collected data alone. Invariant: no rule asks the product whether the product is right.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from handlers.api.verdict import plural
from tests.chaos.real.shapes import INTERVAL_MS, KINDS, Journal, Kind

Span = tuple[int, int]
# How much earlier or later than an end of its gap an event may have happened, and how much later the upstream may
# notice that a connection was closed: two instants of a busy machine.
EDGE_MS = 400
# How long an event is on its way at most: the worst latency of a bad network. An event that arrives after its
# connection was closed is lost with those after it, and happened before that gap.
ON_ITS_WAY_MS = 500
# A connection is silent after four of its renewals of a second; the rest is for the request and a busy machine.
SILENT_MS = 7_000
# A stream that has been connected for so long without trouble must be shown as connected.
SETTLED_MS = 5_000
# The time until a function has recorded a change: after a standstill it may first record that it is connected, and if
# it is killed just after a handover it has not recorded the handover's end.
WRITTEN_MS = 2_000
FINAL = {"stopping", "stopped", "ended", "rejected", "broken"}


@dataclass
class Answers:
    """The API's answers about a stream: events in order, gaps that were not delivered, and each status."""

    stored: list[int] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    gaps: list[Span] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    """The events that it showed while the soak ran."""
    statuses: list[tuple[int, int, str]] = field(default_factory=list)
    """Each with when it was asked for and when the answer was there."""


@dataclass(frozen=True)
class Case:
    """A stream, the API's answers, the journal; the times of trouble, of stops, and without any byte."""

    stream: str
    answers: Answers
    journal: Journal
    troubles: Sequence[Span] = ()
    away: Sequence[Span] = ()
    silences: Sequence[Span] = ()

    @property
    def kind(self) -> Kind:
        return KINDS[self.stream.partition(":")[0]]

    @property
    def missing(self) -> list[int]:
        """Returns the wanted events between the first and the last that are not stored."""
        stored = {*self.answers.stored}
        between = range(min(stored, default=0), max(stored, default=-1) + 1)
        return [number for number in between if number not in stored and not _touch(self.happened(number), self.away)]

    def happened(self, number: int) -> Span:
        """Returns the interval from when an event happened to when it should have arrived at last."""
        at_ms = number * INTERVAL_MS
        return at_ms, max(at_ms, self.journal.sent[self.stream].get(number, 0)) + ON_ITS_WAY_MS

    def is_calm(self, from_ms: int, to_ms: int) -> bool:
        """Returns whether there was no trouble between two instants."""
        return not _touch((from_ms, to_ms), [*self.troubles, *self.away])


def until_connected(journal: Journal, stream: str, stops: Sequence[Span]) -> list[Span]:
    """Returns each stop, from its request to the next connection: events before that do not count as missed."""
    opened = [at_ms for at_ms, count in journal.connected[stream] if count]
    return [(from_ms, max(to_ms, min((at for at in opened if at > to_ms), default=to_ms))) for from_ms, to_ms in stops]


def _touch(span: Span, others: Sequence[Span], edge_ms: int = 0) -> bool:
    return any(from_ms - edge_ms <= span[1] and span[0] <= to_ms + edge_ms for from_ms, to_ms in others)


def lost(case: Case) -> Iterator[str]:
    """Each event is stored, or lies in a gap; an event that the upstream sends again is stored."""
    if not case.answers.stored:
        yield "nothing is stored"
    missing = case.missing
    known = [*case.answers.gaps, *case.silences]
    untold = [number for number in missing if not _touch(case.happened(number), known, EDGE_MS)]
    if untold:
        yield f"{len(untold)} of {len(missing)} missing events lie in no gap, {_runs(untold)}"
    elif missing and case.kind.resumes:
        yield f"{plural(len(missing), 'event')} missing that the upstream would have sent again, {_runs(missing)}"


def twice(case: Case) -> Iterator[str]:
    """No event is stored twice."""
    again = sorted(number for number, times in Counter(case.answers.stored).items() if times > 1)
    if again:
        yield f"{plural(len(again), 'event')} stored twice, {_runs(again)}"


def torn(case: Case) -> Iterator[str]:
    """Each event is stored as it was sent, and no other one is stored."""
    yield from (f"torn: {event[:200]!r}" for event in case.answers.torn[:3])
    if never := sorted({*case.answers.stored} - {*case.journal.sent[case.stream]}):
        yield f"{len(never)} stored events were never sent, {_runs(never)}"


def vanished(case: Case) -> Iterator[str]:
    """An event that was shown once is still there in the end."""
    if gone := sorted({*case.answers.seen} - {*case.answers.stored}):
        yield f"{plural(len(gone), 'event')} shown, and gone since, {_runs(gone)}"


def order(case: Case) -> Iterator[str]:
    """A log has the events of an upstream that resumes in their order."""
    if case.kind.is_log and case.kind.resumes and case.answers.stored != sorted(case.answers.stored):
        yield "its log is out of order"


def status(case: Case) -> Iterator[str]:
    """No status contradicts the connections for longer than a record takes, and none becomes final by itself."""
    since_ms = 0
    for asked_ms, answered_ms, word in case.answers.statuses:
        if word in FINAL and not _touch((asked_ms, answered_ms), case.away):
            yield f"{word} at {_at(answered_ms)}, which nobody asked for"
        wrong = _contradiction(case, asked_ms, answered_ms, word)
        since_ms = (since_ms or asked_ms) if wrong else 0
        # An answer is as old as its request: the API may have waited for its tables.
        if wrong and asked_ms - since_ms > WRITTEN_MS:
            yield f"{word} at {_at(answered_ms)}, and {wrong}"


def _contradiction(case: Case, asked_ms: int, answered_ms: int, word: str) -> str:
    if word == "running":
        is_bare = max(case.journal.counts(case.stream, asked_ms - SILENT_MS, answered_ms)) == 0
        return f"nobody was connected for {SILENT_MS / 1000:g} s" if is_bare else ""
    from_ms = asked_ms - SETTLED_MS
    is_connected = min(case.journal.counts(case.stream, from_ms, answered_ms)) > 0 and case.is_calm(
        from_ms, answered_ms
    )
    return f"somebody was connected for {SETTLED_MS / 1000:g} s" if is_connected and word not in FINAL else ""


def gaps(case: Case) -> Iterator[str]:
    """Each gap that was not delivered has a reason: a missing event, no connection, or a fault."""
    missing = [case.happened(number) for number in case.missing]
    begun_ms = min(case.answers.stored, default=0) * INTERVAL_MS
    for from_ms, to_ms in case.answers.gaps:
        # Before the first event there is no cursor, so no connection could request the events of the gap.
        if to_ms <= begun_ms or any(_touch(happened, [(from_ms, to_ms)]) for happened in missing):
            continue
        what = f"a gap of {to_ms - from_ms} ms at {_at(from_ms)}"
        if case.kind.resumes:
            # The last gap may not be recorded as delivered yet.
            if to_ms < case.answers.statuses[-1][1] - SILENT_MS:
                yield f"{what}, of which all was delivered"
            continue
        is_bare = min(case.journal.counts(case.stream, from_ms - EDGE_MS, to_ms + EDGE_MS)) == 0
        if not is_bare and case.is_calm(from_ms - SETTLED_MS, to_ms + WRITTEN_MS):
            yield f"{what}, and somebody was connected throughout"


def limit(case: Case) -> Iterator[str]:
    """If two are forbidden there are never two, unless a dead or frozen function still holds a socket."""
    most = {"forbids": 1, "tolerates": 2, "evicts": 2}[case.kind.overlap]
    changes = [*case.journal.connected[case.stream], (case.answers.statuses[-1][1], 0)]
    for (at_ms, count), (until_ms, _) in pairwise(changes):
        if count > most and until_ms - at_ms > EDGE_MS and case.is_calm(at_ms - SETTLED_MS, at_ms):
            yield f"{count} connections at {_at(at_ms)}"


RULES: tuple[Callable[[Case], Iterator[str]], ...] = (lost, twice, torn, vanished, order, status, gaps, limit)


def judge(case: Case) -> list[str]:
    """Returns each contradiction as a sentence that begins with the stream and the rule."""
    return [f"{case.stream}: {rule.__name__}: {sentence}" for rule in RULES for sentence in rule(case)]


def _at(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _runs(numbers: Sequence[int]) -> str:
    return f"from {_at(numbers[0] * INTERVAL_MS)} to {_at(numbers[-1] * INTERVAL_MS)}"
