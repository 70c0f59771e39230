"""Serves HTTP on one socket inside the service's event loop: uvicorn without its signal handlers and clock ticks.

Invariants: it binds only 127.0.0.1, and passes on no request that is meant for another host or comes from another
host's page (`host_refusal`); an idle listener does nothing at all; neither a client that leaves nor a malformed request
prints anything.
"""

import asyncio
import contextlib
import errno
import ipaddress
import re
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

import httptools
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from handlers.api.answers import CONTENT_TYPE, Problem
from local.terminal import UserError, suppress_failures

HOSTS_VARIABLE = "STREAMKEEPER_HOSTS"
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
    listed = environment.get(HOSTS_VARIABLE, "")
    names = tuple(name.strip().lower() for name in listed.split(",")) if listed else ()
    for name in names:
        found = _HOST.fullmatch(name.removeprefix("."))
        if found is None or not 0 < int(found[2] or 1) <= 65535:
            raise UserError(
                f"{HOSTS_VARIABLE} must be names separated by commas, with or without a port, such as "
                "devbox.example:3000."
            )
    return names


def with_host_check(app: ASGIApp, port: int, names: Collection[str], hosts: Collection[str] = ()) -> ASGIApp:
    """Returns the application behind the check.

    `names` are allowed besides the loopback's at `port`; `hosts` only in Host, because their pages are not ours.

    A page in the user's browser can send requests to the loopback. It sends its Origin; a page whose name was rebound
    to 127.0.0.1 (DNS rebinding) sends that name in Host; for an image or a link, a browser sends Sec-Fetch-Site. SDKs,
    curl and functions send the Host of their address, but no Origin and no Sec-Fetch-Site.

        for port 3000: localhost:3000, 127.0.0.1:3000 and [::1]:3000, in any case, with a dot at the end or without

    Invariant: a refused request has no effect; its body is not read.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        is_asked = scope["type"] in ("http", "websocket")
        sentence = host_refusal(scope["headers"], port, names, hosts) if is_asked else ""
        await (problem_response(Problem("another-site", sentence)) if sentence else app)(scope, receive, send)

    return guard


def problem_response(problem: Problem, request_id: str = "") -> Response:
    return JSONResponse(problem.body(request_id), problem.status, problem.headers, CONTENT_TYPE)


def host_refusal(headers: Headers, port: int, names: Collection[str], host_only: Collection[str] = ()) -> str:
    """Returns why a request is refused, as one sentence, or "".

    `host_only` are names that are allowed in Host but not in Origin.
    """
    hosts, origins, sites = (
        [value for name, value in headers if name == key] for key in (b"host", b"origin", b"sec-fetch-site")
    )
    alone = " and ".join(f"{name}:{port}" for name in _OWN_NAMES).replace(" and ", ", ", 1)
    if len(hosts) != 1 or not _is_allowed(hosts[0].decode("latin-1").lower(), "http", port, (*names, *host_only)):
        return f"This address only serves {alone}, and the request has another Host; {HOSTS_VARIABLE} can name more."
    origin = _ORIGIN.fullmatch(origins[0].decode("latin-1").lower()) if len(origins) == 1 else None
    if origins and (origin is None or not _is_allowed(origin[2], origin[1], port, names)):
        return f"This address only serves {alone}, and the request has another Origin; {HOSTS_VARIABLE} can name more."
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


HOST = "127.0.0.1"
_BACKLOG = 512
# How long a connection stays open between two requests: a client that was busy for longer than uvicorn's five seconds
# would find it closed under its next one.
IDLE_S = 75
# How often a socket is pinged.
WS_PING_S = 5.0


def bind(port: int, purpose: str, option: str = "PORT") -> socket.socket:
    """Returns a listening socket on 127.0.0.1, on any free port for 0.

    UserError names `purpose` for a taken port, and the `option` or variable that chooses another.
    """
    # asyncio sets TCP_NODELAY only if the protocol is named. Without it, the second part of an answer waits 40 ms for
    # the acknowledgement of the first (Nagle's algorithm with delayed acknowledgements).
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(_BACKLOG)
    except OSError as failure:
        listening.close()
        why = f"cannot be opened: {failure.strerror}"
        if failure.errno == errno.EADDRINUSE:
            why = f"is in use; stop the process that listens there or set {option} to another number"
        raise UserError(f"Port {port}, needed for {purpose}, {why}.") from None
    listening.setblocking(False)
    return listening


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


class Server(uvicorn.Server):
    """A uvicorn.Server that ends on an event; uvicorn itself polls a flag ten times a second.

    `names` are hosts that it serves besides the loopback's at its own port; requests may name `hosts`, but not come
    from their pages. `has_sockets` says whether the application serves WebSockets.
    """

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        names: Collection[str],
        hosts: Collection[str],
        lifespan: Literal["on", "off"] = "off",
        *,
        has_sockets: bool = False,
    ) -> None:
        config = uvicorn.Config(
            with_host_check(app, port_of(listening), names, hosts),
            http=HttpProtocol,
            loop="none",
            ws="wsproto" if has_sockets else "none",
            ws_ping_interval=WS_PING_S,
            lifespan=lifespan,
            log_config=None,
            log_level="error",
            access_log=False,
            date_header=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=IDLE_S,
        )
        super().__init__(config)
        self.ready = asyncio.Event()
        self.end = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self.server_state.default_headers = list(self.config.encoded_headers)
        self.ready.set()
        await self.end.wait()


def _without_tracebacks(app: ASGIApp) -> ASGIApp:
    """The application without uvicorn's tracebacks; Starlette has answered 500 by then, or `close` cuts it off."""

    async def quiet(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress_failures("an answer"), contextlib.suppress(ClientDisconnect, asyncio.CancelledError):
            await app(scope, receive, send)

    return quiet


class Listener:
    """Serves one ASGI application on one socket until it is closed; other arguments as for `Server`."""

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        names: Collection[str] = (),
        hosts: Collection[str] = (),
        *,
        has_sockets: bool = False,
    ) -> None:
        self._socket = listening
        self._server = Server(_without_tracebacks(app), listening, names, hosts, has_sockets=has_sockets)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return port_of(self._socket)

    async def start(self) -> None:
        """Returns once connections are answered."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        ready = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            ready.cancel()
            self._task.result()

    def stop_accepting(self) -> None:
        """Refuses new connections; open ones continue."""
        for server in getattr(self._server, "servers", []):
            server.close()

    def reset(self, client: tuple[str, int]) -> None:
        """Ends the connection from `client` (host, port) with a TCP reset."""
        for connection in list(self._server.server_state.connections):
            transport: asyncio.Transport | None = getattr(connection, "transport", None)
            if transport is not None and transport.get_extra_info("peername") == client:
                # SO_LINGER with zero seconds makes close(2) send RST instead of FIN.
                transport.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                transport.abort()

    async def close(self) -> None:
        """Closes the listener and its connections; running requests are cut off."""
        if self._task is None:
            self._socket.close()
            return
        self._server.force_exit = True
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        self._server.end.set()
        await self._task
        for task in list(self._server.server_state.tasks):
            task.cancel()
