"""Decides what an upstream's answer means, before any of its body is read.

It knows no lease and no phase. Invariants: what the profile says about a status outranks what HTTP says; a page for
people is not a stream, whatever its status.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from handlers.connection.effects import Outcome
from handlers.connection.ends import End
from handlers.connection.inputs import Opened
from handlers.framing import content_codings
from handlers.framing.decoders import content_type_problem
from handlers.profile.behaviour import Profile
from handlers.profile.sections import Meaning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from handlers.framing.frames import Body
    from handlers.profile.time_field import OwnTime

# A Retry-After longer than a day counts as a day.
MOST_RETRY_AFTER_S = 86_400.0
# Seconds since 1970 have more digits; as a duration they would be three years. Milliseconds have more than those.
_MOST_DIGITS, _OF_AN_EPOCH = 8, 11
# Refusals that a request without a cursor would get as well: of the caller, the payment, the method.
_NOT_OF_THE_CURSOR = frozenset({401, 402, 403, 405, 407})
# One second because a Date has whole seconds, and one for the answer's travel time and the upstream's several clocks.
SLACK_MS = 2_000


def judge_answer(profile: Profile, opened: Opened, meaning: Meaning, now_ms: int) -> End | None:
    """Returns the end that an answer means; None if the answer is a stream.

    A refusal is StreamRejected; `ends.outcome_of_refusal` decides whether it is final.
    """
    status = opened.status
    if meaning == "ended":
        return End(Outcome("", "ended", f"the upstream answered {status}: the stream has ended"), "ended")
    wait_s = retry_after_s(opened.headers, now_ms)
    if meaning == "success":
        if profile.is_socket:
            return None  # the head of a handshake is the reader's to check
        if what := content_type_problem(profile.framing, opened.headers.get("content-type")):
            return _end_unreadable(profile, f"the upstream answered with {what}", wait_s)
        try:
            content_codings.coding(opened.headers.get("content-encoding"))
        except content_codings.UnknownCoding as error:
            return _end_unreadable(profile, str(error), wait_s)
        return None
    if meaning == "throttled":
        return End(Outcome("StreamThrottled", "", f"the upstream answered {status}", wait_s, status), "refused")
    name, limit_ms = ("StreamDropped", None) if meaning == "dropped" else ("StreamRejected", profile.reject_after_ms)
    # A status that the profile itself calls rejected is final at once.
    limit_ms = 0 if meaning == "rejected" else limit_ms
    return End(Outcome(name, "", f"the upstream answered {status}", wait_s, status), "refused", refused_ms=limit_ms)


def _end_unreadable(profile: Profile, message: str, wait_s: float | None) -> End:
    """Returns the end after a 200 that no decoder can read: we refuse it."""
    outcome = Outcome("StreamRejected", "", message, wait_s, detail=message)
    return End(outcome, "unreadable", refused_ms=profile.reject_after_ms)


def is_cursor_refused(profile: Profile, status: int) -> bool:
    """Returns whether an answer to a request that carried a cursor refuses that cursor.

    A 410 does, unless the profile says otherwise. A cursor that was sent by default may be unknown to the upstream:
    then any refusal that a request without a cursor would not get counts too, and the next request has no cursor.
    """
    meaning = profile.meaning_of_status(status)
    if meaning == "expired":
        return True
    is_default = profile.resume is not None and profile.resume.is_default and status not in dict(profile.statuses)
    return is_default and meaning == "refused" and status >= 400 and status not in _NOT_OF_THE_CURSOR


def is_resume_confirmed(profile: Profile, opened: Opened, cursor: str) -> bool:
    """Returns False if the answer itself says that it does not begin after the cursor that was sent."""
    resume = profile.resume
    if resume is None or not resume.confirmed_by:
        return True
    confirmed = opened.headers.get(resume.confirmed_by)
    return confirmed is None or confirmed == resume.sent_text(cursor)


def retry_after_s(headers: Mapping[str, str], now_ms: int) -> float | None:
    """Returns the seconds of a Retry-After (RFC 9110, section 10.2.3), at most a day; None if none is valid.

    The names of headers are in lower case; `now_ms` is by our clock.
    """
    digits = headers.get("retry-after", "").strip()
    if digits.isascii() and digits.isdigit():
        return min(float(digits), MOST_RETRY_AFTER_S)
    until_ms = instant_ms(digits)
    if until_ms is None:
        return None
    return min(max((until_ms - _sent_ms(headers, now_ms)) / 1000, 0.0), MOST_RETRY_AFTER_S)


def _sent_ms(headers: Mapping[str, str], now_ms: int) -> int:
    """Returns when the answer was sent, by the upstream's clock; by ours if it has no Date."""
    # An instant in an answer is by the same clock as its Date. So with a Date it does not matter whether ours is right.
    sent_ms = instant_ms(headers.get("date", ""))
    return now_ms if sent_ms is None else sent_ms


def rate_limit_s(headers: Mapping[str, str], now_ms: int) -> float | None:
    """Returns for how many seconds a rate limit stays used up; None if the answer shows no used-up one.

    The end is a number of seconds, or an epoch's seconds or milliseconds; the names of headers are in lower case.
    """
    for prefix in ("ratelimit-", "x-ratelimit-", "x-rate-limit-"):
        end = headers.get(f"{prefix}reset", "").strip()
        if headers.get(f"{prefix}remaining", "").strip() == "0" and end.isascii() and end.isdigit():
            since_ms = _sent_ms(headers, now_ms) if len(end) > _MOST_DIGITS else 0
            end_s = int(end) / (1000 if len(end) > _OF_AN_EPOCH else 1)
            return min(max(end_s - since_ms / 1000, 0.0), MOST_RETRY_AFTER_S)
    return None


def instant_ms(text: str) -> int | None:
    """Returns the epoch milliseconds of an instant in a header; None if the text is not one.

    RFC 9110, section 5.6.7: a recipient "MUST accept all three HTTP-date formats".
    """
    try:
        instant = parsedate_to_datetime(text)
        return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()) * 1000
    except (ValueError, OverflowError):
        return None


class OwnTimes:
    """What one answer says about the upstream's clock: its header `date` came at `came_ms` by our clock.

    An event's own time shows how far behind its upstream a connection still is:

        answer    Date: Sat, 28 Nov 2026 10:00:00 GMT, when our clock says 10:00:07.200
        10 s on   an event of 10:00:06: all has come until 4 s after the answer at least, so it is 6 s behind

    Both instants are by the upstream's clock, so that may differ from ours. We assume that an upstream sends its
    backlog in the order in which it happened, and then what happens. An event that has not happened yet proves nothing.
    """

    def __init__(self, time: OwnTime, date: str, came_ms: int) -> None:
        self._time = time
        self._date_ms = instant_ms(date)
        self._came_ms = came_ms

    def delivered_until_ms(self, data: Body, arrived_ms: int) -> int | None:
        """Returns until when, by our clock, all had come with the event of `arrived_ms`; None if that is unknown."""
        own_ms = None if self._date_ms is None else self._time.event_ms(data)
        if own_ms is None or self._date_ms is None:
            return None
        brought_ms = self._came_ms + own_ms - self._date_ms - SLACK_MS
        return brought_ms if brought_ms <= arrived_ms else None
