"""Opens one HTTP connection for a request, and follows redirects within bounds.

It decides which redirects are followed and which headers go with them. Invariants: a socket is connected only to an
address that handlers/upstream/address_policy.py allows; TLS is verified; whatever may hold a credential goes only to
the profile's own origin; no redirect leads from https to http.
"""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, quote_plus, urljoin, urlsplit

import urllib3
from urllib3 import exceptions
from urllib3.connection import HTTPConnection
from urllib3.util import parse_url

from handlers.profile.upstream_requests import UpstreamRequest
from handlers.tls import own_tls, tls
from handlers.upstream.address_policy import resolve
from handlers.upstream.strict_response import StrictResponse

MAX_REDIRECTS = 5
# How many of a name's addresses are tried; each gets an equal share of the time to connect.
MOST_ADDRESSES = 4
# How many connections to one origin are kept, and for how long; how many bytes of an answer are read to keep one.
KEPT, KEPT_S, DROPPED_BYTES, DROPPED_WITHIN_S = 8, 20, 64 * 1024, 0.5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# The headers that every request may carry to any host; the cursor's own header is added by name.
_SAFE = frozenset(
    {"accept", "accept-encoding", "cache-control", "connection", "content-type", "upgrade", "user-agent"}
    | {f"sec-websocket-{name}" for name in ("extensions", "key", "protocol", "version")}
)
_PORTS = {"http": 80, "https": 443}


class RedirectRefused(Exception):
    """The upstream redirected the request to a forbidden place; the message is a phrase without an address."""


ResponseClass = Callable[..., StrictResponse]
"""Makes the answer from its socket."""
Watch = Callable[[socket.socket], None]
"""Called with each connected socket, before the request is sent on it; an exception from it ends the connection."""


@contextlib.contextmanager
def open_response(
    request: UpstreamRequest,
    timeout: urllib3.Timeout,
    watch: Watch,
    response_class: ResponseClass,
    *,
    most_redirects: int = MAX_REDIRECTS,
) -> Iterator[urllib3.BaseHTTPResponse]:
    """Returns the answer to `request`, after redirects; `response_class` reads its body, which is unread yet.

    Raises RedirectRefused, AddressRefused, and urllib3's errors.
    """
    for _ in range(most_redirects + 1):
        with _answer(request, timeout, watch, response_class) as response:
            location = response.headers.get("location") if response.status in _REDIRECTS else None
            if location is None:
                yield response
                return
            request = follow_redirect(request, response.status, location)
    raise RedirectRefused(f"the upstream redirected more than {most_redirects} times")


class KeptConnections:
    """Sends requests over connections that are kept for the next request; any number of threads may use it."""

    def __init__(self) -> None:
        self._pools: dict[tuple[tuple[str, str, int], bool], tuple[Any, float]] = {}
        self._opened = threading.local()

    def post(self, request: UpstreamRequest, timeout: urllib3.Timeout) -> tuple[int, Mapping[str, str]]:
        """Returns the answer's status and headers, drops its body.

        If the server ended a kept connection as the request was sent, it is sent again on a new one. Raises
        RedirectRefused, AddressRefused and urllib3's errors.
        """
        self._opened.now, begun_s = False, time.monotonic()
        try:
            response = _send(self._pool(request), request, timeout)
        except exceptions.ProtocolError as error:
            is_prompt = time.monotonic() - begun_s < DROPPED_WITHIN_S
            if self._opened.now or not is_prompt or not isinstance(error.args[-1], ConnectionError):
                raise
            response = _send(self._pool(request, is_new=True), request, timeout)
        try:
            if response.status in _REDIRECTS and response.headers.get("location") is not None:
                raise RedirectRefused("the upstream redirected, and this request follows no redirect")
            # If the body is longer, broken, or does not come, the connection is given up rather than waited for.
            with contextlib.suppress(exceptions.HTTPError, OSError):
                if (connection := response.connection) is not None and connection.sock is not None:
                    connection.sock.settimeout(DROPPED_WITHIN_S)
                    left, until_s = DROPPED_BYTES, time.monotonic() + DROPPED_WITHIN_S
                    while left > 0 and time.monotonic() < until_s:
                        if not (data := response.read1(left)):
                            response.release_conn()
                            break
                        left -= len(data)
            return response.status, response.headers
        finally:
            response.close()

    def _pool(self, request: UpstreamRequest, *, is_new: bool = False) -> Any:
        which = _origin(request.address), request.allow_private
        pool, used_s = self._pools.get(which, (None, 0.0))
        # A function that was suspended does not know whether a connection has ended meanwhile.
        if is_new or pool is None or time.time() - used_s > KEPT_S:
            pool = _pool_of(request, StrictResponse, lambda _: setattr(self._opened, "now", True), maxsize=KEPT)
        self._pools[which] = pool, time.time()
        return pool


def _pool_of(request: UpstreamRequest, response_class: ResponseClass, watch: Watch, **sizes: Any) -> Any:
    """Returns a pool of connections to the request's origin."""
    trusted = None
    if _origin(request.address)[0] == "https":
        trusted = tls() if request.trust is None else own_tls(request.trust)
    pools = urllib3.PoolManager(1, cert_reqs="CERT_REQUIRED", ssl_context=trusted, **sizes)
    pool: Any = pools.connection_from_url(request.address)
    pool.ConnectionCls = _checking_class(pool.ConnectionCls, response_class, request.allow_private, watch)
    return pool


def _send(pool: Any, request: UpstreamRequest, timeout: urllib3.Timeout) -> Any:
    """Returns the answer to the request, its body unread and not decoded: urllib3's decoders ignore damage."""
    return pool.urlopen(
        request.method,
        parse_url(request.address).request_uri,
        body=request.body,
        headers=request.headers,
        timeout=timeout,
        retries=False,
        redirect=False,
        preload_content=False,
        decode_content=False,
    )


def redirect_to_ticket(request: UpstreamRequest, address: str) -> UpstreamRequest:
    """Returns the request at the address that a ticket gives, as after a redirect; raises RedirectRefused.

    The other values from the ticket's server go there too: in messages, and in headers that hold no other secret.
    """
    own = [one for one in request.secrets if one not in request.ticket_secrets]
    filled = {
        name for name, value in request.headers.items() if any(one.encode() in value for one in request.ticket_secrets)
    }
    without = replace(
        request,
        secrets=tuple(own),
        portable_headers=request.portable_headers | filled,
        message_secrets=request.message_secrets - request.ticket_secrets,
    )
    try:
        opened = follow_redirect(without, 307, address)
    except RedirectRefused as refused:
        raise RedirectRefused(str(refused).replace("the upstream redirected", "the ticket leads")) from None
    return replace(
        opened,
        secrets=request.secrets,
        portable_headers=request.portable_headers,
        message_secrets=request.message_secrets,
    )


def follow_redirect(request: UpstreamRequest, status: int, location: str) -> UpstreamRequest:
    """Returns the request after a redirect; raises RedirectRefused if it must not be followed."""
    try:
        address = urljoin(request.address, location).partition("#")[0]
        if request.is_upgrade:  # RFC 6455, section 3: ws and wss are requested as http and https are
            address = re.sub("^ws", "http", address, flags=re.IGNORECASE)
        netloc = urlsplit(address).netloc
        before, after = _origin(request.address), _origin(address)
    except ValueError:
        raise RedirectRefused("the upstream redirected to something that is not a valid address") from None
    if after[0] in ("ws", "wss"):
        raise RedirectRefused('the upstream redirected to a WebSocket, for which framing must be "websocket"')
    if after[0] not in _PORTS or not after[1] or "@" in netloc:
        raise RedirectRefused("the upstream redirected to an address that is not a valid one for a stream")
    if (before[0], after[0]) == ("https", "http"):
        raise RedirectRefused("the upstream redirected from https to http")
    # RFC 9110, sections 15.4.2 to 15.4.4: 303 requires GET; 301 and 302 turn a POST into one, as all clients do.
    if status == 303 or (status in (301, 302) and request.method == "POST"):
        request = replace(request, method="GET", body=None)
    if before != after:
        request = _without_credentials(request, address)
    return replace(request, address=address)


def _without_credentials(request: UpstreamRequest, address: str) -> UpstreamRequest:
    for secret in request.secrets:
        if any(spelled in address for spelled in (secret, quote(secret, safe=""), quote_plus(secret))):
            raise RedirectRefused("the upstream redirected to another host with a secret in the address")
        if request.body is not None and secret.encode() in request.body:
            raise RedirectRefused("the upstream redirected to another host, and the body holds a secret")
    if request.message_secrets:
        raise RedirectRefused("the upstream redirected to another host, and a message to it would hold a secret")
    kept = {name: value for name, value in request.headers.items() if name in _SAFE | request.portable_headers}
    held = {name: value for name, value in kept.items() if not any(s.encode() in value for s in request.secrets)}
    return replace(request, headers=held, trust=None if request.trust is None else request.trust.for_other_host())


def _origin(address: str) -> tuple[str, str, int]:
    """Returns scheme, host and port as urllib3 reads them to connect: two parsers may differ on a malformed address."""
    url = parse_url(address)
    scheme = url.scheme or ""
    return scheme, url.host or "", url.port or _PORTS.get(scheme, 0)


@contextlib.contextmanager
def _answer(
    request: UpstreamRequest, timeout: urllib3.Timeout, watch: Watch, response_class: ResponseClass
) -> Iterator[urllib3.BaseHTTPResponse]:
    # A pool of its own: no connection is shared, reused or retried without the manager's knowledge.
    with _pool_of(request, response_class, watch, maxsize=1, block=True) as pool:
        response = _send(pool, request, timeout)
        try:
            yield response
        finally:
            response.close()


def _checking_class(connection_class: Any, answer_class: ResponseClass, allow_private: bool, watch: Watch) -> Any:
    """Returns the class whose sockets connect only to allowed addresses and are passed to `watch` before requests."""

    class Checked(connection_class):  # type: ignore[misc]
        _dns_host: str
        timeout: float
        response_class = staticmethod(answer_class)

        def _new_conn(self) -> socket.socket:
            name = self._dns_host
            try:
                addresses = resolve(name, self.port, allow_private=allow_private)[:MOST_ADDRESSES]
            except socket.gaierror as error:
                raise exceptions.NameResolutionError(self.host, self, error) from error
            limit_s = self.timeout
            for address in addresses:
                try:
                    # For this call alone, address and share replace name and limit; TLS and Host still use the name.
                    self._dns_host, self.timeout = address, limit_s / len(addresses)
                    sock: socket.socket = super()._new_conn()
                except (exceptions.NewConnectionError, exceptions.ConnectTimeoutError):
                    if address == addresses[-1]:
                        raise
                    continue
                finally:
                    self._dns_host, self.timeout = name, limit_s
                sock.settimeout(limit_s)
                return sock
            raise AssertionError("getaddrinfo answers with an address or raises")

        def connect(self) -> None:
            super().connect()
            try:
                watch(self.sock)
            except BaseException:
                self.close()
                raise

    assert issubclass(Checked, HTTPConnection)
    return Checked
