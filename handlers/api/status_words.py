"""Decides the status of a stream in one word, and says in sentences why and how connections and executions ended.

    starting      an execution holds the stream, and its first try to connect has not ended yet
    running       a connection is open
    reconnecting  an execution holds the stream and no connection is known to be open
    stopping      a stop is requested, and a connection is open or the execution has not let go yet
    stopped       a stop request ended it, or came before it began: nobody may connect until the next POST
    ended         the upstream ended the stream
    rejected      the upstream refused the request, or the request or the profile is wrong
    broken        the last execution failed
    unknown       an execution holds the stream and has left no trace for ten minutes: it may be dead, or Lambda has no
                  concurrency left for its functions

The machine writes into the lease how an execution ended, when it lets go of the stream. So a stop request after an end
changes nothing: a stream that was rejected, and is then stopped, stays rejected. Invariants: the word follows from the
lease and the connections, in whatever order the requests came; a phrase is one line of bounded length, in our own words
or with HTTP's name of a status, never what an upstream wrote; a connection that may still run is never called dead.
"""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from handlers.api.connection_records import UNHEARD, Connection, Connections, Records
from handlers.connection import epochs
from handlers.connection.ends import ALREADY_ANSWERED, safe_phrase
from handlers.connection.evidence import UNRECORDED
from handlers.connection.lease import Lease
from handlers.connection.liveness import Silence

# A living execution leaves a trace whenever a lane tries again; the longest back-off is five minutes.
UNHEARD_MS = 600_000
ACTIVE = ("starting", "running", "reconnecting", "stopping")
CLAIMED = (*ACTIVE, "unknown")
# What the machine records when it lets go of the stream; any other error means that it failed.
_ENDINGS = {"StreamRejected": "rejected", "InvalidRequest": "rejected"}
# Lambda's Cause is JSON, with its message first; the machine may have cut it off.
_MESSAGE = re.compile(r'\{.*?"errorMessage"\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)
FROM_ITS_CURSOR = "start it to continue from its cursor"
# The records of a list have no cursor, and some streams never have one.
ONWARD = "start it to continue"
# For a stream that was never connected.
FROM_THE_START = "start it to try again"
# For a stream that `streamkeeper move` has taken elsewhere.
MOVED = "start it there"
# For requests that are made once: a stream with an answer takes no other.
NOT_TWICE = "for another answer start another id, such as name:2"


def status(connections: Connections) -> str:
    """Returns the status that the records show."""
    lease, newest, is_open = connections.lease, connections.newest, bool(connections.open)
    heard_ms = max((max(one.last_ms, one.wrote_ms) for one in connections.all), default=0)
    heard_ms = max(heard_ms, lease.started_at_ms, lease.paused_until_ms)
    is_heard = is_open or connections.now_ms - heard_ms <= UNHEARD_MS
    if lease.ending and not lease.execution:
        if lease.ending != "StreamEnded":
            return _ENDINGS.get(lease.ending, "broken")
        if lease.ending_cause != "stopped":
            return "ended"
        return "stopping" if is_open else "stopped"
    if lease.stop:
        return "stopping" if is_open or (lease.execution and is_heard) else "stopped"
    if is_open or not lease.execution:
        return "running" if is_open else "ended"
    if not is_heard:
        return "unknown"
    return "reconnecting" if newest is not None and connections.is_of_this_start(newest) else "starting"


def reason(status: str, connections: Connections) -> str | None:
    """Returns why the stream has this status, as one sentence without its full stop; None if nothing is wrong."""
    if status == "unknown":
        return (
            "its execution has left no trace for ten minutes: it may be dead, or Lambda has no room for its functions"
        )
    if status in ("stopping", "stopped"):
        moved_to = connections.lease.moved_to
        how = f"moved to {moved_to}" if moved_to else "stopped on request" if status == "stopped" else "stop requested"
        return f"{how}; {how_to_restart(connections)}"
    words = end_reason(status, connections)
    return f"{words}; {how_to_restart(connections)}" if words else None


def how_to_restart(connections: Connections) -> str:
    """Returns what a person must do to get more of a stream that has ended, or is stopped."""
    lease = connections.lease
    if lease.moved_to:
        return MOVED
    if connections.has_only_answer or lease.ending == "StreamBroken" or ALREADY_ANSWERED.message in lease.ending_cause:
        return NOT_TWICE
    if connections.has_cursor:
        return FROM_ITS_CURSOR
    return ONWARD if lease.connected_token and not connections.is_once else FROM_THE_START


def end_reason(status: str, connections: Connections) -> str:
    """Returns in a phrase why the last run ended; "" if it was stopped, or has not ended."""
    lease, newest = connections.lease, connections.newest
    if status == "ended":
        has_reason = newest is not None and newest.ended_by == "ended" and newest.detail
        return detail(newest) if newest is not None and has_reason else "the upstream ended the stream"
    if status == "broken" and lease.ending != "StreamBroken":
        return f"the last execution failed: {execution_words(lease)}"
    if status not in ("rejected", "broken"):
        return ""
    one = next((one for one in reversed(connections.all) if one.is_rejected), None)
    # A wrong request or profile was refused before any connection.
    is_met = lease.ending == "StreamRejected" and one is not None
    return connection_words(connections.cause(one), one) if is_met and one is not None else execution_words(lease)


def short(cause: str, one: Connection) -> str:
    """Returns the failure in a few words, such as "401 Unauthorized"; `cause` is that of `Connections.cause`."""
    known = {UNHEARD: "its function is slow, paused or gone", UNRECORDED: "its function ended without a report"}
    return known.get(cause) or detail(one) or cause.replace("_", " ")


def silence(connections: Connections, records: Records) -> Silence:
    """Returns what the newest answered connection recorded of pauses, and the log of the last event."""
    last = next(
        (one.silence for one in reversed(connections.all) if one.opened_ms is not None), Silence(None, None, None)
    )
    came_ms = max((one.event_ms or 0 for one in connections.all), default=0)
    return last._replace(event_ms=max(came_ms, records.logged_ms) or None)


def alerts(connections: Connections, records: Records) -> dict[str, str]:
    """Returns the alerts about a connected stream, by kind; an alert stays the same while its cause lasts."""
    again, quiet, budget = _signs(connections, records)
    is_expected = silence(connections, records).expect_ms is not None
    found = {again: again, "quiet": quiet if is_expected else "", "budget": budget}
    return {what: words for what, words in found.items() if words}


def alert_words(status: str, connections: Connections, records: Records) -> str:
    """Returns what is wrong with a running stream (ids start over, quiet, near its budget); "" if nothing."""
    if status != "running":
        return ""
    again, quiet, budget = _signs(connections, records)
    # The last event of a stream in a group is seldom recorded, unless its profile expects events.
    is_known = not records.group or records.logged_ms or records.cursor is not None
    is_known = is_known or silence(connections, records).expect_ms is not None
    return again or (quiet if is_known else "") or budget


def _signs(connections: Connections, records: Records) -> tuple[str, str, str]:
    """Returns in words that ids start over, that the stream is quiet, and how much of its budget is used; "" if not."""
    now_ms, spending = connections.now_ms, records.spending
    quiet = silence(connections, records).describe(records.lease.started_at_ms, now_ms, is_late=bool(records.group))
    return epochs.describe_restart(records.epoch, now_ms), quiet, "" if spending is None else spending.describe(now_ms)


def connection_words(cause: str, one: Connection) -> str:
    """Returns how it ended, such as "refused: 401 Unauthorized"; `cause` is that of `Connections.cause`."""
    if cause == UNHEARD:
        return f"lane {one.lane} is silent: its function is slow, paused or gone"
    if cause == UNRECORDED:
        return f"lane {one.lane} is silent, and nobody recorded how its connection ended"
    words, more = cause.replace("_", " "), detail(one)
    return f"{words}: {more}" if more else words


def detail(one: Connection) -> str:
    """Returns more about the end than its one word: the answer's status with its usual name, or our own words."""
    if not one.http_status:
        return safe_phrase(one.detail)
    # RFC 9110's name of the status: the upstream's own may be any text.
    known = one.http_status in HTTPStatus._value2member_map_
    return f"{one.http_status} {HTTPStatus(one.http_status).phrase}" if known else str(one.http_status)


def execution_words(lease: Lease) -> str:
    """Returns how the last execution ended: in the function's own words, else by the machine's error and its cause."""
    words = cause_words(lease.ending_cause)
    is_own = words and (lease.ending in _ENDINGS or lease.ending == "StreamBroken")
    return words if is_own else f"{lease.ending}: {words}" if words else lease.ending


def cause_words(cause: str) -> str:
    """Returns the function's own message from the Cause of its error; a Cause of another form as it is."""
    message = _MESSAGE.match(cause)
    return safe_phrase(json.loads(message[1], strict=False) if message else cause)


def stop_consequences(stream: Mapping[str, Any], within_s: int) -> str:
    """Returns what happens after the stop request, which a connection sees within this time."""
    if stream["generation"] == stream["fence"] == 0:
        return "The stream was never started; a POST that came before this request starts nothing, one after it does."
    if stream["status"] in ("stopped", "ended", "rejected", "broken"):
        return f"No lane is connected: {stream['reason']}."
    if stream["holder"] is None:
        return "No lane is connected; none connects again, and the execution ends."
    return (
        f"The connection sees the stop request within {within_s} s, stores what it has read and closes; "
        "the execution ends."
    )
