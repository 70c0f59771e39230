"""Serves HTTP on one socket inside the service's event loop: uvicorn without its signal handlers and clock ticks.

Invariants: it binds only 127.0.0.1, and passes on no request that is meant for another host or comes from another
host's page (`host_check`); an idle listener does nothing at all; neither a client that leaves nor a malformed request
prints anything.
"""

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Collection, Iterator
from typing import Literal

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from local import host_check
from local.options import UserError
from local.printable import suppress_failures

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
    """Returns the port that `listening` holds."""
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
            host_check.with_host_check(app, port_of(listening), names, hosts),
            http=host_check.HttpProtocol,
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
        """The port it listens on."""
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
