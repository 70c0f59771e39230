"""Says in words how a connection or an execution ended.

The words are ours, or the name that HTTP gives a status: nothing here repeats what an upstream wrote. Invariant: a
phrase is one line of bounded length, and a connection that may still run is never called dead.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus

from handlers.api.connection_records import UNHEARD, Connection
from handlers.api.instants import at
from handlers.connection.details import bounded
from handlers.connection.lease import Lease
from handlers.connection.ledger import UNRECORDED

# Lambda's Cause is JSON; what the machine keeps of it may be cut, and its message comes first.
_MESSAGE = re.compile(r'\{.*?"errorMessage"\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)


def of_connection(cause: str, one: Connection) -> str:
    """How a connection ended, as in "refused: 401 Unauthorized"; `cause` is what `Connections.cause` returns."""
    if cause == UNHEARD:
        return f"lane {one.lane} has not been heard of since {at(one.heard_ms)}: its function is slow, paused or gone"
    if cause == UNRECORDED:
        return f"lane {one.lane} was last heard of at {at(one.heard_ms)}, and nobody recorded how its connection ended"
    words, more = cause.replace("_", " "), detail(one)
    return f"{words}: {more}" if more else words


def detail(one: Connection) -> str:
    """What is known of the end beside the word for it: the answer's status with its usual name, or our own words."""
    if one.http_status is None:
        return bounded(one.detail)
    # The name that RFC 9110 gives it, for the upstream's own may be any text.
    known = one.http_status in HTTPStatus._value2member_map_
    return f"{one.http_status} {HTTPStatus(one.http_status).phrase}" if known else str(one.http_status)


def of_execution(lease: Lease) -> str:
    """How the last execution ended, as in "InvalidRequest: the profile 'prices' is not valid TOML"."""
    words = ending_detail(lease)
    return f"{lease.ending}: {words}" if words else lease.ending


def ending_detail(lease: Lease) -> str:
    """What the machine wrote down beside the error's name, as a sentence; "" where there is none."""
    return of_cause(lease.ending_cause)


def of_cause(cause: str) -> str:
    """The function's own message out of the Cause of its error; a Cause that is no such JSON as it is."""
    message = _MESSAGE.match(cause)
    return bounded(json.loads(message[1], strict=False) if message else cause)
