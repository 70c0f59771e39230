"""Explains why a connection ended, or why none was made: each transport error is mapped once, here.

Invariant: no message has an address, a header or anything that the upstream sent: any of them may hold a secret.
"""

import http.client
import os
import socket
import ssl
from collections.abc import Callable, Iterator

import urllib3
from urllib3 import exceptions

from handlers.connection.inputs import Closed
from handlers.connection.opening_steps import ANSWER_BYTES, Answer, Ask
from handlers.framing import content_codings
from handlers.profile.addresses import ProfileError
from handlers.upstream.address_policy import AddressRefused
from handlers.upstream.opening import RedirectRefused, open_response
from handlers.upstream.standstill import elapsed_s
from handlers.upstream.strict_response import BadAnswer, StrictResponse, TooSlow

# How an open connection ends; the first row that fits counts: the error, the reason, the words (None: its own).
_ENDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str, str | None], ...] = (
    ((AddressRefused, RedirectRefused, content_codings.UnknownCoding, ProfileError), "rejected", None),
    (TooSlow, "stalled", None),
    ((BadAnswer, content_codings.Corrupt), "protocol", None),
    (content_codings.Unfinished, "truncated", None),
    (http.client.LineTooLong, "protocol", "a line of the answer's head is too long"),
    ((exceptions.IncompleteRead, http.client.IncompleteRead), "truncated", "the body ended before its end"),
    (http.client.RemoteDisconnected, "reset", "the connection was closed without an answer"),
)


def explain(error: BaseException, stall_after_s: float) -> Closed:
    """Returns why the connection ended; `reason` is one word that code may compare, `detail` a phrase for people."""
    causes = list(_causes(error))
    match error:
        case exceptions.ReadTimeoutError():
            return Closed("stalled", f"no byte came for {stall_after_s:g} s")
        case exceptions.NameResolutionError():
            return Closed("unreachable", "the host's name cannot be resolved")
        case exceptions.NewConnectionError():
            return _not_connected(causes)
        case exceptions.ConnectTimeoutError():
            return Closed("unreachable", "the connection was not accepted in time")
    ends = (closed for cause in causes if (closed := _explain_cause(cause)) is not None)
    return next(ends, Closed("protocol", f"the answer is not valid HTTP ({type(error).__name__})"))


def _explain_cause(cause: BaseException) -> Closed | None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Closed("tls", f"the upstream's certificate cannot be trusted: {cause.verify_message}")
    if isinstance(cause, ssl.SSLError):
        # OpenSSL's own name, such as "tlsv13 alert certificate required" if the upstream wants another certificate.
        reason = getattr(cause, "reason", None) or ""
        return Closed("tls", ": ".join(filter(None, ("TLS failed", reason.replace("_", " ").lower()))))
    for kind, reason, words in _ENDS:
        if isinstance(cause, kind):
            return Closed(reason, str(cause) if words is None else words)
    if isinstance(cause, TimeoutError) and cause.errno is None:
        return Closed("stalled", "no byte came in time")
    return _network(cause, "reset")


def _not_connected(causes: list[BaseException]) -> Closed:
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return Closed("refused", "nothing listens at the address")
    ends = (closed for cause in causes if (closed := _network(cause, "unreachable")) is not None)
    return next(ends, Closed("unreachable", "the connection could not be made"))


def _network(cause: BaseException, reason: str) -> Closed | None:
    if not isinstance(cause, OSError) or cause.errno is None:
        return None
    return Closed(reason, os.strerror(cause.errno).lower())


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, what it wraps and what caused it, outermost first."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        cause = waiting.pop(0)
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            waiting += [*cause.args, cause.__cause__, cause.__context__]


class ClosedHere(Exception):
    """The connection was closed by the main thread."""


def send_request(ask: Ask, limit_s: float, connected: Callable[[socket.socket], None]) -> Answer | Closed:
    """Returns the answer, within the limit, or why none came; `connected` is called with the socket.

    It comes before a connection is opened, for a token or a ticket. Invariant: no redirect is followed, and no message
    has an address, a header or anything that was received.
    """
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
