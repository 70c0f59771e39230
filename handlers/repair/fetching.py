"""Fetches one page over HTTP, by the same rules as a stream: for addresses, TLS and redirects.

If the profile names no other headers, the stream's own go to the address of its repair, and its token with them. The
token is requested as for an opening, held while it is valid, and requested anew after a 401.

Invariant: a problem is one phrase without an address, a header or anything that was received; no more than
MOST_BYTES of a body are held, and none for longer than MOST_S.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import urllib3

from handlers.connection.judging import rate_limit_s, retry_after_s
from handlers.connection.opening_steps import Call, Replacements, SignToken, Tokens, Unready
from handlers.connection.preparation import UNAUTHORIZED, add_token
from handlers.errors import StreamDropped
from handlers.framing.content_codings import BodyDecoder, coding
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.repair.pages import Fetched
from handlers.upstream.end_reasons import explain, send_request
from handlers.upstream.opening import open_response
from handlers.upstream.strict_response import StrictResponse

MOST_BYTES = 8 * 1024 * 1024
MOST_S = 20
CONNECT_S, READ_S = 3, 10


def fetch(request: UpstreamRequest) -> Fetched:
    """Returns the answer, or why there is none."""
    began_s, body = time.monotonic(), bytearray()
    try:
        timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        with open_response(request, timeout, lambda _socket: None, StrictResponse) as response:
            # A field with several lines, such as Link, becomes one list (RFC 9110, section 5.3).
            headers = {name.lower(): response.headers[name] for name in response.headers}
            now_ms = time.time_ns() // 1_000_000
            retry_s = retry_after_s(headers, now_ms)
            retry_s = rate_limit_s(headers, now_ms) if retry_s is None else retry_s
            if not 200 <= response.status < 300:
                return Fetched(response.status, headers, problem=f"answered {response.status}", retry_after_s=retry_s)
            decoder = BodyDecoder(coding(headers.get("content-encoding")), MOST_BYTES)
            while data := response.read1(64 * 1024):
                for piece in decoder.pieces(data):
                    body += piece
                    if len(body) > MOST_BYTES:
                        return Fetched(problem=f"the answer has more than {MOST_BYTES} bytes")
                if time.monotonic() - began_s > MOST_S:
                    return Fetched(problem=f"the answer did not come whole in {MOST_S} s")
            decoder.close()
            return Fetched(response.status, headers, bytes(body), retry_after_s=retry_s)
    except Exception as problem:
        return Fetched(problem=explain(problem, READ_S).detail)


class OwnTokens:
    """The tokens of a process; `now_ms` is its clock, and the other arguments are those of `Tokens`."""

    def __init__(
        self, now_ms: Callable[[], int], replacements: Replacements | None = None, sign: SignToken | None = None
    ) -> None:
        self._tokens, self._now_ms = Tokens(threading.Lock, replacements, sign), now_ms

    def add_token(self, profile: Profile, secrets: Secrets) -> Secrets:
        """Returns the secrets, with the token if the repair sends it; raises StreamDropped without a valid one."""
        if profile.repair is None or profile.repair.headers is not None:
            return secrets
        steps = add_token(profile, secrets, self._tokens, self._now_ms)
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = step.run() if isinstance(step, Call) else send_request(step, READ_S, lambda _socket: None)
        except StopIteration as ended:
            found: Secrets = ended.value
            return found
        except Unready as problem:
            raise StreamDropped(problem.closed.detail or problem.closed.reason) from None

    def fetch(self, request: UpstreamRequest) -> Fetched:
        """Returns the answer to a request; after a 401 the next try has another token."""
        answer = fetch(request)
        if answer.status == UNAUTHORIZED:
            self._tokens.forget()
        return answer
