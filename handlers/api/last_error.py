"""Decides what is shown as a stream's last error: what failed, since when, and when it is tried again.

It is the end of the newest connection that ended by an error, or of the execution if the machine itself ended by one.
It says when the next try comes, as far as that is known:

    tried_again_at  the back-off lasts until then (Retry-After, or the profile's): not before
    tried_again_by  nothing is written down, so the machine's own Retriers and Waits decide: then at the latest
    neither         nobody knows, or nobody will: the message says which

While a connection tries, the recorded back-off only keeps others from trying: it is not the instant of a try. A refusal
that may pass has `final_at`: from then on the next refusal ends the stream.

Once a later connection was answered the error is over: `over_at` has the instant, and nothing is shown as present.
Invariant: an instant that has passed is never shown as one at which something will be tried.
"""

from typing import Any, NamedTuple

from handlers.api import status_words
from handlers.api.answers import to_iso
from handlers.api.connection_records import Connection, Connections
from handlers.connection.backoff import Backoff
from handlers.connection.spending import OVER_BUDGET

# The ends that are not errors.
_CALM = ("", "taken_over", "stopped", "ended")
# What the machine recorded at an end that a connection's own record explains, or that is not an error.
_EXPLAINED = ("", "StreamEnded", "StreamRejected")
# All members in order; an execution's error has null in those that only a connection has.
_MEMBERS = (
    *("message", "cause", "http_status", "detail", "at", "since", "failures", "lane", "fence"),
    *("tried_again_at", "tried_again_by", "final_at", "over_at"),
)
_NOTHING: dict[str, Any] = dict.fromkeys(_MEMBERS)


class Retries(NamedTuple):
    """How long after a connection's end, at most, the machine tries again, by the error that the function raised."""

    dropped_ms: int
    throttled_ms: int


def last_error(status: str, connections: Connections, rest: Backoff, retries: Retries) -> dict[str, Any] | None:
    """Returns the error for JSON; None if nothing failed. `status` is the stream's."""
    lease = connections.lease
    if lease.ending not in _EXPLAINED:
        words = f"{status_words.execution_words(lease)}; not tried again: {status_words.how_to_restart(connections)}"
        texts = {
            "message": words,
            "cause": lease.ending,
            "detail": status_words.cause_words(lease.ending_cause) or None,
        }
        ended = to_iso(lease.ended_at_ms or None)
        return _NOTHING | texts | {"at": ended, "since": ended, "failures": 1}
    one = last_failed(connections)
    if one is None:
        return None
    number = connections.all.index(one)
    cause = connections.cause(one)
    phrase = status_words.connection_words(cause, one)
    row = _failures_in_row(connections, number)
    answers = [answered_ms for later in connections.all[number + 1 :] if (answered_ms := _answered_ms(later))]
    over_ms = min(answers, default=None)
    at_ms, by_ms, words = _next_try(status, connections, one, rest, retries)
    final_ms = _final_ms(status, connections, one, rest)
    if final_ms is not None:
        words = ", ".join(filter(None, (words, "rejected if the refusals continue")))
    if over_ms is not None:
        at_ms, by_ms, final_ms, words = None, None, None, "reconnected since"
    return {
        "message": f"{phrase}; {words}" if words else phrase,
        "cause": cause,
        "http_status": one.http_status or None,
        "detail": status_words.detail(one) or None,
        "at": to_iso(_failed_ms(one)),
        "since": to_iso(_failed_ms(row[0])),
        "failures": len(row),
        "lane": one.lane,
        "fence": one.fence,
        "tried_again_at": to_iso(at_ms),
        "tried_again_by": to_iso(by_ms),
        "final_at": to_iso(final_ms),
        "over_at": to_iso(over_ms),
    }


def last_failed(connections: Connections) -> Connection | None:
    """Returns the newest connection that ended by an error; None if none did."""
    return next((one for one in reversed(connections.all) if connections.cause(one) not in _CALM), None)


def _next_try(
    status: str, connections: Connections, one: Connection, rest: Backoff, retries: Retries
) -> tuple[int | None, int | None, str]:
    """Returns when the next try comes, when at the latest, and that in words; None and "" if unknown."""
    now_ms, lease = connections.now_ms, connections.lease
    if status in ("stopping", "stopped"):
        return None, None, "not tried again: a stop is requested"
    if status not in status_words.CLAIMED:
        return None, None, f"not tried again: {status_words.how_to_restart(connections)}"
    newest = connections.newest
    if newest is not None and lease.fence > newest.fence:
        return None, None, "trying again now"
    if rest.tried_ms and rest.until_ms > now_ms:
        # No other tries until then, but the back-off after this try is known only once it has ended.
        return None, None, "trying again now" if rest.tried_ms > _failed_ms(one) else ""
    if rest.until_ms > now_ms:
        words = "continues on the next day (UTC)" if one.ended_by == OVER_BUDGET else "next try after its back-off"
        return rest.until_ms, None, words
    within_ms = {"StreamDropped": retries.dropped_ms, "StreamThrottled": retries.throttled_ms}.get(one.error)
    by_ms = None if within_ms is None else _failed_ms(one) + within_ms
    if by_ms is None or by_ms <= now_ms:
        return None, None, ""
    return None, by_ms, "next try soon"


def _final_ms(status: str, connections: Connections, one: Connection, rest: Backoff) -> int | None:
    """Returns when a refusal that goes on ends the stream; None if it has passed, or is no such refusal."""
    is_refused = one.http_status > 0 or one.ended_by in ("unreadable", "rejected")
    is_passing = is_refused and not one.is_rejected and rest.kind == "refused"
    is_wanted = status in status_words.CLAIMED and status != "stopping"
    # A POST ends a row of refusals, and the next one begins with the next refusal.
    is_known = rest.refused_since_ms >= connections.lease.started_at_ms and rest.final_ms > connections.now_ms
    return rest.final_ms if is_passing and is_wanted and is_known else None


def _failures_in_row(connections: Connections, number: int) -> list[Connection]:
    """Returns the failures in a row up to this one, since the last answered connection ended or since a POST."""
    every, first = connections.all, number
    is_now = connections.is_of_this_start(every[number])
    while first and every[first].opened_ms is None:
        if connections.cause(every[first - 1]) in _CALM or connections.is_of_this_start(every[first - 1]) != is_now:
            break
        first -= 1
    return every[first : number + 1]


def _failed_ms(one: Connection) -> int:
    """Returns when it ended; if it was never answered, when it recorded that."""
    if one.closed_ms is not None:
        return one.closed_ms
    return one.wrote_ms if one.opened_ms is None else one.seen_ms


def _answered_ms(one: Connection) -> int | None:
    """Returns when the upstream answered with the stream, or with the stream's end; None if it did neither."""
    return _failed_ms(one) if one.opened_ms is None and one.ended_by == "ended" else one.opened_ms
