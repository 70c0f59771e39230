"""Judges whether a stream, or a wave of streams, is worse after its handover than before.

It reads the lease, the ledger's records of the newest connections, and the instant of the newest event in the events
table. The instant exposes a faulty version that counts events as stored and does not store them.

A single stream may have no events for a while without a known reason. But if most streams of a wave that had events
before have none, the version counts as at fault, because going back costs less than a wrong guess. Events and records
are written with a delay, so they count as missing only once `answer_ms` has passed since the handover.

Pure, times in milliseconds. Invariant: a stream that was as bad before is never worse.
"""

import enum
from collections.abc import Sequence

from handlers.api.verdict import plural
from handlers.values import dataclass

# The number of failures of a kind that may be chance.
BY_CHANCE = 1
# One stream of this many in a wave may be worse by chance.
TOLERANCE = 50
# A stream is expected to have an event if its former rate would have brought this many.
EXPECTED = 10.0
# The errors of an execution that may be the version's fault.
BAD_ENDINGS = ("StreamRejected", "InvalidRequest", "RenewalFailed", "ClaimFailed")
# A function leaks if it takes LEAK times the memory, and at least LEAK_MB more.
LEAK, LEAK_MB = 1.5, 32
MOST_REASONS = 10


@dataclass(frozen=True, slots=True)
class Stretch:
    """The numbers of a stream's connections in a stretch of time, which begins with the first claim.

    `errors` counts connections that ended by an error other than a handover, `killed` those without a recorded end.
    `frames` counts received events: `kept` of them are stored or were known already, `dead_lettered` are not stored.
    `memory_mb` is the most that a function used, 0 if no function reported it.
    """

    length_ms: int = 0
    connections: int = 0
    errors: int = 0
    killed: int = 0
    frames: int = 0
    kept: int = 0
    dead_lettered: int = 0
    memory_mb: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream that was asked to hand over, `asked_ms` ago.

    `is_ours` is whether it should still run the version: False once it was stopped or started anew. `has_handed_over`
    is whether an execution that was started since keeps it connected. `away_ms` is how long it has not been connected,
    `was_away` whether it was away when it was asked. `failures` counts the failures to connect in a row, `had_failures`
    those before it was asked. `ending` is the error by which its execution released it, "" for none. `silent_ms` is the
    age of the newest stored event, None if unknown. `before` and `after` are None if its connections were not read.
    """

    stream_id: str
    asked_ms: int
    is_ours: bool = True
    has_handed_over: bool = True
    away_ms: int = 0
    was_away: bool = False
    failures: int = 0
    had_failures: int = 0
    ending: str = ""
    silent_ms: int | None = None
    before: Stretch | None = None
    after: Stretch | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a handover may take, how long a stream may be away, and how long a wave is watched."""

    answer_ms: int
    away_ms: int
    watch_ms: int


class State(enum.Enum):
    """The result for a wave; the value is the word that the machine reads."""

    WAITING = "waiting"
    WELL = "well"
    WORSE = "worse"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a wave; `reasons` has a phrase for each worse stream, by its id, and for the whole wave, by ""."""

    state: State
    reasons: dict[str, str]

    def words(self) -> str:
        """Returns the reasons as one phrase, which names MOST_REASONS at most."""
        named = [f"{one}: {reason}" if one else reason for one, reason in sorted(self.reasons.items())]
        more = len(named) - MOST_REASONS
        return "; ".join(named[:MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")


def reason_if_worse(stream: Stream, limits: Limits) -> str:
    """Returns why a stream is worse than before, as a phrase; "" if it is not, or if that is not known yet."""
    if stream.ending in BAD_ENDINGS:
        return f"its execution ended by {stream.ending}"
    if not stream.is_ours or stream.ending:
        return ""
    if stream.away_ms > limits.away_ms and not stream.was_away:
        return f"it has not been connected for {stream.away_ms // 1000} s"
    if not stream.has_handed_over:
        is_late = stream.asked_ms > limits.answer_ms and not stream.was_away
        return f"it has not handed over for {stream.asked_ms // 1000} s" if is_late else ""
    if stream.failures > max(2, 2 * stream.had_failures):
        return f"{stream.failures} failures to connect in a row"
    if stream.before is None or stream.after is None:
        return ""
    return _compare(stream.before, stream.after, limits)


def _compare(before: Stretch, after: Stretch, limits: Limits) -> str:
    """Returns why `after` is worse than `before`, as a phrase; "" if it is not."""
    for words, then, now in (
        ("functions were killed", before.killed, after.killed),
        ("connections ended by an error", before.errors, after.errors),
        ("events were dead-lettered", before.dead_lettered, after.dead_lettered),
    ):
        if now > BY_CHANCE + 2 * _scale(then, before, after):
            return f"{now} {words}"
    if before.memory_mb and after.memory_mb > max(LEAK * before.memory_mb, before.memory_mb + LEAK_MB):
        return f"a function took {after.memory_mb} MB of memory, and {before.memory_mb} before"
    if after.length_ms >= limits.answer_ms and after.frames > BY_CHANCE and not after.kept and before.kept:
        return f"{after.frames} events came and none is stored"
    return ""


def _scale(count: int, before: Stretch, after: Stretch) -> float:
    """Scales a count of `before` to the length of `after`, but never down."""
    return count * max(1.0, after.length_ms / before.length_ms) if before.length_ms else count


def is_expected(stream: Stream, limits: Limits) -> bool:
    """Returns whether the stream's former rate would have brought events since its handover."""
    before, after = stream.before, stream.after
    if before is None or after is None or not before.length_ms or not stream.is_ours or not stream.has_handed_over:
        return False
    return after.length_ms >= limits.answer_ms and before.kept * after.length_ms / before.length_ms >= EXPECTED


def is_silent(stream: Stream, limits: Limits) -> bool:
    """Returns whether no event since the stream's handover is stored, even if its functions counted some.

    The connection before may have stored events for a moment after the claim.
    """
    if stream.after is None or not stream.after.kept:
        return True
    return stream.silent_ms is not None and stream.silent_ms > stream.after.length_ms - limits.answer_ms // 2


def judge_wave(streams: Sequence[Stream], limits: Limits) -> Verdict:
    """Returns the result for a wave, which is WELL only once the wave was watched for `watch_ms`."""
    reasons = {stream.stream_id: reason for stream in streams if (reason := reason_if_worse(stream, limits))}
    if len(reasons) > len(streams) // TOLERANCE:
        return Verdict(State.WORSE, reasons)
    expected = [stream for stream in streams if is_expected(stream, limits)]
    silent = [stream for stream in expected if is_silent(stream, limits)]
    if len(silent) > len(expected) / 2:
        words = f"{len(silent)} of {plural(len(expected), 'stream')} that had events before have none"
        return Verdict(State.WORSE, reasons | {"": words})
    waits = any(one.is_ours and not one.ending and one.asked_ms < limits.watch_ms for one in streams)
    return Verdict(State.WAITING if waits else State.WELL, reasons)


def judge_return(streams: Sequence[Stream], limits: Limits) -> Verdict:
    """Returns whether the streams that went back are connected by an execution that was started since."""
    missing = {}
    for stream in streams:
        if not stream.is_ours or stream.was_away or (stream.has_handed_over and not stream.away_ms):
            continue
        what = "is not connected" if stream.has_handed_over else "has not handed over"
        missing[stream.stream_id] = f"it {what} again"
    if not missing:
        return Verdict(State.WELL, {})
    asked_ms = {one.stream_id: one.asked_ms for one in streams}
    late = {one: why for one, why in missing.items() if asked_ms[one] > limits.answer_ms + limits.away_ms}
    return Verdict(State.WORSE, late) if late else Verdict(State.WAITING, missing)
