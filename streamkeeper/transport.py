"""Sends requests to the API over a pool of connections, which threads may share; through the environment's proxy.

Invariants: the key is sent only to https:// addresses and to this machine, and no error contains it; no redirect is
followed.
"""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, ProxySchemeUnknown, SSLError
from urllib3.util import Timeout, Url, make_headers, parse_url

from streamkeeper.exceptions import InvalidRequest, Unreachable
from streamkeeper.retrying import Outcome, Reply, Send

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_KEY = re.compile("[!-~]*")


class Transport:
    """The API at an address; raises InvalidRequest if the address or the key cannot be one."""

    def __init__(self, url: str, key: str | None, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        self.address = address = _parse_url(self.url)
        self.origin = f"{address.scheme}://{address.netloc}"
        if not _KEY.fullmatch(key or ""):
            raise InvalidRequest("A key has only ASCII letters, digits and signs; this one has other characters.")
        if key and address.scheme != "https" and address.host not in _LOOPBACK:
            raise InvalidRequest(f"A key is sent only to https:// addresses, and {self.url} is not one.")
        self._answered = False
        self._headers = {"accept-encoding": "gzip"} | ({"x-api-key": key} if key else {})
        self._timeout_s, self._process = timeout_s, os.getpid()
        self._pool = _pool(address, timeout_s)

    def send(self, request: Send) -> Outcome:
        """Returns the reply, or an error if none came."""
        # After a fork, both processes would read each other's answers from the same connection.
        if self._process != os.getpid():
            self._process, self._pool = os.getpid(), _pool(self.address, self._timeout_s)
        try:
            response: Any = self._pool.request(
                request.method,
                self.url + request.path,
                body=request.body or None,
                headers={**request.headers, **self._headers},
                redirect=False,
            )
            self._answered = True
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, headers, response.data.decode("utf-8", "replace"))
        except SSLError:
            return Unreachable(f"{self.origin} has no TLS, or a certificate that is not trusted.", may_pass=False)
        except HTTPError:
            return Unreachable(f"{self.origin} does not answer.", may_pass=self._answered)

    def close(self) -> None:
        """Closes the idle connections."""
        self._pool.clear()


def path_of(stream_id: str, below: str = "") -> str:
    """The path of a stream, whose id is one segment of it; raises InvalidRequest if there is no such id."""
    if not stream_id:
        raise InvalidRequest("The stream id is empty: write a profile's name, optionally with a colon and any text.")
    try:
        segment = quote(stream_id, safe="")
    except UnicodeEncodeError:
        raise InvalidRequest("The stream id has half of a surrogate pair, which UTF-8 does not have.") from None
    # A segment of dots alone would lead to another path.
    return f"/connections/{segment if segment.strip('.') else segment.replace('.', '%2E')}{below}"


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """The path with the parts of the query that have a value."""
    chosen = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(chosen)}" if chosen else path


def _pool(address: Url, timeout_s: float) -> urllib3.PoolManager:
    # Each follower may have a request under way; a connection beyond maxsize would be closed after each.
    options: Any = {"maxsize": 1000, "retries": False, "timeout": Timeout(connect=10, read=timeout_s)}
    is_direct = address.host in _LOOPBACK or proxy_bypass(address.host or "")
    proxy = None if is_direct else getproxies().get(address.scheme or "")
    if proxy is None:
        return urllib3.PoolManager(**options)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        auth = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=unquote(auth)) if auth else None
        return urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
    except (LocationParseError, ProxySchemeUnknown):
        # It may hold a password.
        raise InvalidRequest("The proxy of the environment must be like http://proxy.example.org:3128.") from None


def _parse_url(url: str) -> Url:
    try:
        address = parse_url(url)
    except LocationParseError:
        address = Url()
    is_plain = not (address.auth or address.query or address.fragment)
    if address.scheme not in ("http", "https") or not address.host or not is_plain:
        raise InvalidRequest("The address of the API must be like http://127.0.0.1:3000, without a user or a query.")
    return address
