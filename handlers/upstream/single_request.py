"""Makes one request before a connection is opened: for a token or a ticket.

Invariant: no redirect is followed, and no message has an address, a header or anything that was received.
"""

import socket
from collections.abc import Callable

import urllib3

from handlers.connection.inputs import Closed
from handlers.connection.opening_steps import ANSWER_BYTES, Answer, Ask
from handlers.upstream.end_reasons import explain
from handlers.upstream.opening import RedirectRefused, open_response
from handlers.upstream.standstill import elapsed_s
from handlers.upstream.strict_response import StrictResponse


class ClosedHere(Exception):
    """The connection was closed by the main thread."""


def send_request(ask: Ask, limit_s: float, connected: Callable[[socket.socket], None]) -> Answer | Closed:
    """Returns the answer, within the limit, or why none came; `connected` is called with the socket."""
    timeout, until_s = urllib3.Timeout(connect=limit_s, read=limit_s), elapsed_s() + limit_s
    try:
        with open_response(ask.request, timeout, connected, StrictResponse, most_redirects=0) as response:
            body = b""
            while ask.with_body and (data := response.read1(ANSWER_BYTES)):
                body += data
                if len(body) > ANSWER_BYTES:
                    return Closed("protocol", f"more than {ANSWER_BYTES} bytes came")
                if elapsed_s() > until_s:
                    return Closed("stalled", f"its answer did not come within {limit_s:g} s")
            return Answer(response.status, {name.lower(): one for name, one in response.headers.items()}, body)
    except RedirectRefused:
        return Closed("rejected", "it redirects, which is not followed")
    except ClosedHere:
        raise
    except Exception as error:
        return explain(error, limit_s)
