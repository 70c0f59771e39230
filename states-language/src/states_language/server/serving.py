"""Serves an ASGI application on a port of this machine, in the caller's event loop.

Invariant: it binds the given address and no other, and leaves signals to the host.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from states_language.workbench import Mistake

HOST = "127.0.0.1"
_GRACE_S = 1
"""How long requests that run may still take when the serving ends."""
_IDLE_S = 75
"""How long a connection stays open between two requests. After uvicorn's five seconds a client that was busy meanwhile
would find it closed under its next request."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind_socket(port: int, host: str = HOST) -> socket.socket:
    """Returns a socket bound to this port (0: any free one); raises Mistake if it cannot be opened."""
    # Without IPPROTO_TCP asyncio would not set TCP_NODELAY, and each answer of two parts would take 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as problem:
        listening.close()
        if isinstance(problem, socket.gaierror | UnicodeError) or getattr(problem, "errno", 0) == errno.EADDRNOTAVAIL:
            raise Mistake(f"--host {host!r} is not an IPv4 address or name of this machine.") from None
        if isinstance(problem, OSError) and problem.errno == errno.EADDRINUSE:
            raise Mistake(f"Port {port} is in use: stop what listens there, or choose another by --port.") from None
        raise Mistake(f"Port {port} cannot be opened: {str(problem).rstrip('.')}.") from None
    return listening


@contextlib.asynccontextmanager
async def serve_application(application: ASGIApp, port: int = 0, host: str = HOST) -> AsyncIterator[str]:
    """Yields the address at which the application answers until the context ends."""
    listening = bind_socket(port, host)
    config = uvicorn.Config(
        application,
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=_IDLE_S,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    # From here on the socket takes connections, which uvicorn accepts in its next turns.
    listening.listen(512)
    try:
        yield f"http://{host}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
