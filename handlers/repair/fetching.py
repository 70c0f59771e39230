"""Fetches one page over HTTP, as a stream is opened: the same addresses, TLS and redirects, within bounds.

Invariant: a problem is one phrase without an address, a header or anything that was received; no more than
MOST_BYTES of a body are held, and none for longer than MOST_S.
"""

import time

import urllib3

from handlers.connection.judging import retry_after_s
from handlers.framing.content_codings import BodyDecoder, Corrupt, Unfinished, UnknownCoding, coding
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.repair.pages import Fetched
from handlers.upstream.address_policy import AddressRefused
from handlers.upstream.opening import RedirectRefused, opened
from handlers.upstream.strict_response import StrictResponse

MOST_BYTES = 8 * 1024 * 1024
MOST_S = 20
CONNECT_S, READ_S = 3, 10


def fetch(request: UpstreamRequest) -> Fetched:
    """Returns the answer, or why there is none."""
    began_s, body = time.monotonic(), bytearray()
    try:
        timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        with opened(request, timeout, lambda _socket: None, StrictResponse) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            if not 200 <= response.status < 300:
                retry_s = retry_after_s(headers.get("retry-after", ""), headers.get("date", ""))
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
            return Fetched(response.status, headers, bytes(body))
    except (UnknownCoding, Corrupt, Unfinished, AddressRefused, RedirectRefused) as problem:
        return Fetched(problem=str(problem))
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as problem:
        # Its own message may hold the address, and that a secret.
        return Fetched(problem=f"no answer: {type(problem).__name__}")
