"""Says in a sentence or two whether a stream is connected, for how long, and whether anything was lost.

    Connected 3 h 12 min. Nothing lost: 3 gaps, all delivered later.
    Connected 4 min. 1 gap of 12 s is not proved complete yet.
    Away 2 min: 401 Unauthorized. 0 events lost so far; the upstream keeps 10 min.

Status, list, page and alerts take their words from here. Pure. Invariants: the text has no instant: a page or a
terminal, which knows the viewer's zone, inserts one by `with_instant`; "nothing lost" is said only of a time that is
known completely, and never while a gap is open.
"""

import re
from collections.abc import Sequence

from handlers.api.figures import Coverage, is_lost, length_ms, lost_events
from handlers.connection.gap_record import FAILED, OPEN, PARTLY, REPAIRED, Gap
from handlers.values import dataclass

_SIZES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
# Losses that the upstream did not announce: a version of the function dropped what it had read, or its profile did.
_OURS = ("not_stored", "ids_restarted")
# Up to the colon or the full stop; the point of "Away 2.5 s" is neither.
_AWAY = re.compile(r"^Away .+?(?=[:.]( |$))")
_OVER = re.compile(r"^(?:Stopped on request|Ended|Rejected|Broken)(?=[:.])")


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of a stream: its status, and what failed (`why`, "" if nothing did).

    `for_ms` is for how long it has been connected or away, None to leave that out; with `at_least`, it may be longer.
    `trouble` is a further sentence, without its full stop. If `is_brief`, as in the list, a length has only its largest
    unit, so that an answer seldom changes, and only the newest known losses count. `keeps_ms` is how far back the
    upstream goes, by its profile, 0 if unknown.
    """

    status: str
    why: str = ""
    for_ms: int | None = None
    at_least: bool = False
    has_connected: bool = True
    trouble: str = ""
    is_brief: bool = False
    keeps_ms: int = 0


def verdict(situation: Situation, coverage: Coverage | None) -> str:
    """Returns one or two sentences; without `coverage` they leave out losses."""
    trouble = f"{situation.trouble[:1].upper()}{situation.trouble[1:]}." if situation.trouble else ""
    is_away = situation.status == "reconnecting" and situation.has_connected and not situation.is_brief
    keeps_ms = situation.keeps_ms if is_away else 0
    # Events that were sent meanwhile can still be fetched.
    is_kept = 0 < (situation.for_ms or 0) <= keeps_ms
    dead = losses = ""
    if coverage is not None and situation.status != "starting":
        dead = f"{words}." if (words := dead_letter_words(coverage)) else ""
        # The queue has only the beginning of an event that was too long.
        nothing = "0 events lost so far" if is_kept else "" if dead else "Nothing lost"
        losses = _losses(coverage, situation.is_brief, nothing)
    text = " ".join(filter(None, (_first_sentence(situation), trouble, dead, losses)))
    if is_kept:
        return f"{text.removesuffix('.')}; the upstream keeps {length_words(keeps_ms)}."
    return f"{text} The upstream keeps {length_words(keeps_ms)}: what it sent before may be lost." if keeps_ms else text


def with_instant(verdict: str, instant: str) -> str:
    """Returns a verdict with its instant: Away since 16:08: reset. Stopped on request at 16:12."""
    return _OVER.sub(lambda over: f"{over[0]} at {instant}", _AWAY.sub(lambda _: f"Away since {instant}", verdict))


def _first_sentence(situation: Situation) -> str:
    reason = f": {situation.why}" if situation.why else ""
    match situation.status:
        case "running":
            least = " at least" if situation.at_least and situation.for_ms is not None else ""
            return f"Connected{least}{_length(situation.for_ms, situation.is_brief)}."
        case "reconnecting" if situation.has_connected:
            return f"{away_words(situation.for_ms, situation.is_brief)}{reason}."
        case "reconnecting":
            return f"Not connected yet{reason}."
        case "starting":
            return "Starting: the upstream has not answered yet."
        case "stopping":
            return "Stopping on request."
        case "stopped":
            return "Stopped on request."
    return f"{situation.status.capitalize()}{reason}."


def away_words(for_ms: int | None, is_brief: bool = False) -> str:
    """Returns that no connection is open, and for how long, as in "Away 2 min"."""
    return f"Away{_length(for_ms, is_brief)}"


def _length(for_ms: int | None, is_brief: bool) -> str:
    return "" if for_ms is None else f" {length_words(for_ms, 1 if is_brief else 2)}"


def _losses(coverage: Coverage, is_brief: bool, nothing: str) -> str:
    """Returns what was lost, and what is not proved; the first sentence has the gap that goes on.

    `nothing` is what to say if nothing was lost; "" for no sentence.
    """
    failed = [gap for gap in coverage.gaps if gap.state in (PARTLY, FAILED)]
    unproved = [gap for gap in coverage.gaps if gap.state == OPEN]
    # Once no connection is wanted any more, none will close the last gap.
    if coverage.away is not None and coverage.is_over:
        unproved.append(coverage.away)
    sentences = [f"{words}."] if (words := lost_words(coverage)) else []
    waits_ms = 0 if coverage.waiting_since_ms is None else coverage.to_ms - coverage.waiting_since_ms
    waiting = (
        f"What came in the last {length_words(waits_ms, 1 if is_brief else 2)} is not stored yet. " if waits_ms else ""
    )
    if unproved:
        verb, yet = "is" if len(unproved) == 1 else "are", "" if coverage.is_over else " yet"
        sentences.append(f"{_gap_words(unproved)} {verb} not proved complete{yet}.")
    if failed:
        is_over = all(gap.repair is None or not gap.repair.next_ms for gap in failed)
        sentences.append(f"{_gap_words(failed)} could not be repaired{'' if is_over else ' yet'}.")
    if sentences or not nothing or is_brief:  # a brief verdict has not read all records
        return f"{waiting}{' '.join(sentences)}".strip()
    is_all = coverage.away is None and not waiting
    where = "" if is_all or nothing.endswith("so far") else " before that"
    if not coverage.reaches_start:
        where += f" in the last {length_words(coverage.to_ms - coverage.since_ms)}"
    return f"{waiting}{nothing}{where}{_later_words(coverage.gaps)}."


def _later_words(gaps: Sequence[Gap]) -> str:
    """Returns how the gaps were closed: that all were delivered later, or how many of them were repaired."""
    count, repaired = len(gaps), sum(gap.state == REPAIRED for gap in gaps)
    if not count:
        return ""
    if 0 < repaired < count:
        return f": {plural(count, 'gap')}, {count - repaired} delivered later, {repaired} repaired"
    return f": {plural(count, 'gap')}, {'all ' if count > 1 else ''}{'repaired' if repaired else 'delivered later'}"


def lost_words(coverage: Coverage) -> str:
    """Returns what was lost, as in "12 events lost, as the upstream reports"; "" if nothing is known to be lost."""
    gaps = [gap for gap in coverage.gaps if is_lost(gap)]
    if not gaps:
        return ""
    events = lost_events(gaps)
    reporter = "" if any(gap.cause in _OURS for gap in gaps) else ", as the upstream reports"
    what = f"Events lost in {_gap_words(gaps)}" if events is None else f"{plural(events, 'event')} lost"
    return f"{what}{reporter}"


def dead_letter_words(coverage: Coverage) -> str:
    """Returns how many events were not stored but sent to the dead-letter queue; "" if none were."""
    sent = coverage.dead_lettered
    return f"{plural(sent, 'event')} went to the dead-letter queue" if sent else ""


def _gap_words(gaps: Sequence[Gap]) -> str:
    lasted_ms = length_ms((gap.from_ms, gap.to_ms) for gap in gaps)
    return f"{plural(len(gaps), 'gap')} of {length_words(lasted_ms)}{' in all' if len(gaps) > 1 else ''}"


def plural(count: int, what: str) -> str:
    """Returns a number and what it counts: 1 gap, 2 gaps."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def length_words(lasted_ms: int, units: int = 2) -> str:
    """Returns a length for people, in its `units` largest units: 104 ms, 1.9 s, 12 s, 3 h 12 min, 2 d 3 h."""
    if lasted_ms < 1000:
        return f"{max(0, lasted_ms)} ms"
    if lasted_ms < 10_000 and units > 1:
        return f"{lasted_ms // 100 / 10:g} s"
    rest, parts = lasted_ms // 1000, list[str]()
    for size, unit in _SIZES:
        count, rest = divmod(rest, size)
        # After the first unit only the next smaller one may follow.
        if count and len(parts) < units:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts)
