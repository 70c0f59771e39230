"""Decides which ends of connections are failures, and whether a stream is stuck at its cursor: connection after
connection ends there in the same way.

An upstream that fails at one event would otherwise be asked for that event again and again, at full speed and in vain.
But a quiet stream may be dropped any number of times. So an end counts only if it came soon, by bytes that cannot be
framed, or in the middle of an event.

    opened, reset after 2 s at cursor 41      1
    opened, reset after 2 s at cursor 41      2
    opened, reset after 2 s at cursor 41      3: reported, and the next try is put off for a second
    opened, reset after 2 s at cursor 41      4: two seconds, and so on, a minute at most
    opened, event 42 is stored, reset         0
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from handlers.connection.backoff import ACCEPTED_AFTER_MS, Backoff, FailureKind, Pace
from handlers.connection.effects import Progress
from handlers.connection.steps import Report
from handlers.profile.behaviour import Profile

# The same end this many times in a row is no coincidence.
STUCK_AFTER = 3
# A connection that lived longer than this did not fail at an event; the stream may have been quiet.
SOON_MS = 10_000
PACE = Pace(start_s=1, factor=2, max_s=60)
_CLEAN = "ended_by_upstream"
_UNREADABLE = "bad_frame"
# The upstream has no part in these ends.
_OURS = ("StreamTakenOver", "ConnectionExpired")


def was_accepted(progress: Progress) -> bool:
    """Returns whether it was open for `ACCEPTED_AFTER_MS`: after an immediate close the upstream needs a back-off."""
    closed_ms, opened_ms = progress.closed_ms, progress.opened_ms
    if closed_ms is None or opened_ms is None:
        return False
    # If half an event came last, it counts as closed before that, but it lived until then.
    return max(closed_ms, progress.heard_ms or 0) - opened_ms >= ACCEPTED_AFTER_MS


def has_lasted(progress: Progress) -> bool:
    """Returns whether it was open for longer than a connection that fails soon."""
    closed_ms, opened_ms = progress.closed_ms, progress.opened_ms
    return closed_ms is not None and opened_ms is not None and closed_ms - opened_ms >= SOON_MS


def failure_kind(report: Report) -> FailureKind | None:
    """Returns the kind of failure that sets the pace of the back-off; None if the end needs no back-off."""
    outcome = report.outcome
    if outcome.error == "StreamThrottled":
        return "throttled"
    if outcome.error == "StreamDropped":
        if report.refusal is not None:
            return "refused"
        return "http" if outcome.http_status else "network"
    return None


def should_reconnect(profile: Profile, report: Report, tries: int, remaining_ms: int, margin_ms: int) -> bool:
    """Returns whether the function connects again by itself: a try is left, and more time than leaving takes.

    After 429 or 420 it does so only if the profile says how long to back off.
    """
    kind = failure_kind(report)
    is_ours = kind is not None and (kind != "throttled" or profile.pace("throttled") is not None)
    return is_ours and tries > 0 and remaining_ms > 3 * margin_ms


def end_fingerprint(report: Report) -> str:
    """Returns a text that is equal only for the same cursor and end; "" if the connection's end does not count."""
    outcome, progress = report.outcome, report.progress
    closed_ms, opened_ms = progress.closed_ms, progress.opened_ms
    if outcome.error != "StreamDropped" or report.stuck_cursor is None or closed_ms is None or opened_ms is None:
        return ""
    is_at_an_event = progress.ended_by == _UNREADABLE or progress.unterminated_bytes > 0
    if closed_ms - opened_ms >= SOON_MS and not is_at_an_event:
        return ""
    if progress.ended_by == _CLEAN and report.reconnection_ms:
        return ""
    words = "\n".join((report.stuck_cursor, progress.ended_by, outcome.message))
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def count_same_ends(before: Backoff, report: Report) -> tuple[int, str]:
    """Returns how many connections in a row ended like this one, and that end; unchanged if this one shows nothing."""
    end = end_fingerprint(report)
    if end:
        return (before.same_ends + 1 if before.same_end == end else 1), end
    return (before.same_ends, before.same_end) if _is_inconclusive(report) else (0, "")


def _is_inconclusive(report: Report) -> bool:
    """Whether the connection was never answered, or left for a successor before anything could come."""
    closed_ms, opened_ms = report.progress.closed_ms, report.progress.opened_ms
    if opened_ms is None:
        return True
    is_in_vain = report.stuck_cursor is not None and closed_ms is not None and closed_ms - opened_ms < SOON_MS
    return is_in_vain and report.outcome.error in _OURS


def with_end_counted(before: Backoff, after: Backoff, report: Report, now_ms: int) -> Backoff:
    """Returns `after`, the back-off after the connection, with its end counted, and longer if the stream is stuck."""
    ends, end = count_same_ends(before, report)
    known = replace(after, same_ends=ends, same_end=end)
    if ends < STUCK_AFTER or not end_fingerprint(report):
        return known
    return replace(known, until_ms=max(after.until_ms, now_ms + PACE.backoff_ms(ends - STUCK_AFTER + 1)))
