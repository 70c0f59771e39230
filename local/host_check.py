"""Refuses requests that were not meant for this machine's service: another `Host`, or a page of another `Origin`.

A page in the user's browser can send requests to the loopback. It sends its Origin; a page whose name was rebound to
127.0.0.1 (DNS rebinding) sends that name in Host; for an image or a link, a browser sends Sec-Fetch-Site. SDKs, curl
and functions send the Host of their address, but no Origin and no Sec-Fetch-Site.

    for port 3000: localhost:3000, 127.0.0.1:3000 and [::1]:3000, whatever their case, with a dot at the end or without

Invariant: a refused request has no effect; its body is not read.
"""

import contextlib
import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping

import httptools
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from handlers.api.answers import CONTENT_TYPE, Problem
from local.options import UserError

VARIABLE = "STREAMKEEPER_HOSTS"
# The loopback at any port: the Host of a request through a proxy or another port of the service.
LOOPBACK = ("localhost", ".localhost", "127.0.0.1", "[::1]")
_OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+?)\.?(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")
_DEFAULT_PORT = {"http": "80", "https": "443"}
# For a request without Origin: typed by the person, or from the service. Source: Fetch Metadata, section 2.3.
_ALLOWED_SITES = (b"none", b"same-origin")
Headers = Iterable[tuple[bytes, bytes]]


class HttpProtocol(HttpToolsProtocol):
    """HTTP of a guarded listener: a host in the request line replaces that in the header."""

    def on_headers_complete(self) -> None:
        """Replaces `Host` by the host of an absolute request target (RFC 9112, section 3.2.2)."""
        target = httptools.parse_url(self.url) if not self.url.startswith(b"/") else None
        if target is not None and target.host is not None:
            host = b"[%b]" % target.host if b":" in target.host else target.host
            authority = host if target.port is None else b"%b:%d" % (host, target.port)
            self.headers[:] = [*(one for one in self.headers if one[0] != b"host"), (b"host", authority)]
        super().on_headers_complete()


def allowed_hosts(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the further names in STREAMKEEPER_HOSTS; raises UserError if one is invalid.

    `name` allows any port, `name:port` only that one, `.name` all names with that ending.
    """
    listed = environment.get(VARIABLE, "")
    names = tuple(name.strip().lower() for name in listed.split(",")) if listed else ()
    for name in names:
        found = _HOST.fullmatch(name.removeprefix("."))
        if found is None or not 0 < int(found[2] or 1) <= 65535:
            raise UserError(
                f"{VARIABLE} must be names separated by commas, with or without a port, such as devbox.example:3000."
            )
    return names


def with_host_check(app: ASGIApp, port: int, names: Collection[str], hosts: Collection[str] = ()) -> ASGIApp:
    """Returns the application behind the check.

    `names` are allowed besides the loopback's at `port`; `hosts` only in Host, because their pages are not ours.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        is_asked = scope["type"] in ("http", "websocket")
        sentence = refusal(scope["headers"], port, names, hosts) if is_asked else ""
        await (problem_response(Problem("another-site", sentence)) if sentence else app)(scope, receive, send)

    return guard


def problem_response(problem: Problem, request_id: str = "") -> Response:
    """Returns the answer with a problem."""
    return JSONResponse(problem.body(request_id), problem.status, problem.headers, CONTENT_TYPE)


def refusal(headers: Headers, port: int, names: Collection[str], host_only: Collection[str] = ()) -> str:
    """Returns why a request is refused, as one sentence, or "".

    `host_only` are names that are allowed in Host but not in Origin.
    """
    hosts, origins, sites = (
        [value for name, value in headers if name == key] for key in (b"host", b"origin", b"sec-fetch-site")
    )
    alone = " and ".join(f"{name}:{port}" for name in _OWN_NAMES).replace(" and ", ", ", 1)
    if len(hosts) != 1 or not _is_allowed(hosts[0].decode("latin-1").lower(), "http", port, (*names, *host_only)):
        return f"This address only serves {alone}, and the request has another Host; {VARIABLE} can name more."
    origin = _ORIGIN.fullmatch(origins[0].decode("latin-1").lower()) if len(origins) == 1 else None
    if origins and (origin is None or not _is_allowed(origin[2], origin[1], port, names)):
        return f"This address only serves {alone}, and the request has another Origin; {VARIABLE} can name more."
    if not origins and any(site not in _ALLOWED_SITES for site in sites):
        return "The request comes from a page of another site (Sec-Fetch-Site); type the address yourself."
    return ""


def _is_allowed(host: str, scheme: str, port: int, names: Collection[str]) -> bool:
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name, at = match[1], match[2] or _DEFAULT_PORT[scheme]
    if name.startswith("["):
        # An IPv6 address in its short form.
        with contextlib.suppress(ValueError):
            name = f"[{ipaddress.IPv6Address(name[1:-1])}]"
    if scheme == "http" and name in _OWN_NAMES and at == str(port):
        return True
    return any(
        spelling.endswith(allowed) if allowed.startswith(".") else spelling == allowed
        for allowed in names
        for spelling in (name, f"{name}:{at}")
    )
