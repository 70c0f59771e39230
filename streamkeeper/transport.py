"""Sends a request to the API over a pool of connections, which threads may share.

Invariant: the key goes to https:// addresses and to this machine alone, no redirect is followed, and no error holds it.
"""

import re
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, SSLError
from urllib3.util import Timeout, Url, parse_url

from streamkeeper.exceptions import InvalidRequest, Unreachable
from streamkeeper.retrying import Outcome, Reply, Send

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_KEY = re.compile("[!-~]*")


class Transport:
    """The API at an address; raises InvalidRequest for an address or a key that cannot be one."""

    def __init__(self, url: str, key: str | None, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        address = _parsed(self.url)
        self.origin = f"{address.scheme}://{address.netloc}"
        if not _KEY.fullmatch(key or ""):
            raise InvalidRequest("A key has letters of ASCII, digits and signs alone; this one has others.")
        if key and address.scheme != "https" and address.host not in _LOOPBACK:
            raise InvalidRequest(f"A key is sent to https:// addresses alone, and {self.url} is none.")
        self._answered = False
        self._headers = {"accept": "application/json", "accept-encoding": "gzip"} | ({"x-api-key": key} if key else {})
        self._pool = urllib3.PoolManager(maxsize=8, retries=False, timeout=Timeout(connect=10, read=timeout_s))

    def send(self, request: Send) -> Outcome:
        """Returns the reply, or the error where none came."""
        try:
            response: Any = self._pool.request(
                request.method, self.url + request.path, headers=self._headers, redirect=False
            )
            self._answered = True
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, headers, response.data.decode("utf-8", "replace"))
        except SSLError:
            return Unreachable(f"{self.origin} has no TLS, or a certificate that is not trusted.", may_pass=False)
        except HTTPError:
            return Unreachable(f"{self.origin} does not answer.", may_pass=self._answered)

    def close(self) -> None:
        """Closes the connections that are kept."""
        self._pool.clear()


def _parsed(url: str) -> Url:
    try:
        address = parse_url(url)
    except LocationParseError:
        address = Url()
    is_plain = not (address.auth or address.query or address.fragment)
    if address.scheme not in ("http", "https") or not address.host or not is_plain:
        raise InvalidRequest("The address of the API must be such as http://127.0.0.1:3000, without a user or a query.")
    return address
