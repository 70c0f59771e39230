"""The proxy's faults do what they claim, so that a passing run under them has meaning."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from tests.chaos.real.proxy import Proxy


@pytest.fixture
def line() -> Iterator[tuple[Proxy, socket.socket, socket.socket]]:
    """A proxy, with the client's and the server's socket, which have exchanged a word."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        proxy = stack.enter_context(contextlib.closing(Proxy(server.getsockname()[1])))
        near = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), 5))
        far = stack.enter_context(server.accept()[0])
        far.settimeout(5)
        far.sendall(b"hello")
        assert near.recv(100) == b"hello"
        yield proxy, near, far


def test_pieces_arrive_late_and_short_and_complete(line: tuple[Proxy, socket.socket, socket.socket]) -> None:
    """All bytes arrive, in small pieces and no sooner than the latency; the end comes no sooner than a slow close."""
    proxy, near, far = line
    proxy.latency_s, proxy.slice_bytes, proxy.slow_close_s = 0.2, 3, 0.2
    for source, target in ((near, far), (far, near)):
        since_s, came = time.monotonic(), b""
        source.sendall(bytes(range(50)))
        while len(came) < 50:
            came += target.recv(100)
        assert came == bytes(range(50))
        assert time.monotonic() - since_s >= 0.2
    since_s = time.monotonic()
    near.close()
    assert far.recv(100) == b""
    assert time.monotonic() - since_s >= 0.2


def test_a_stall_loses_nothing_and_a_reset_is_an_error(line: tuple[Proxy, socket.socket, socket.socket]) -> None:
    """After a stall everything sent meanwhile arrives; a reset is an RST on both sides."""
    proxy, near, far = line
    near.settimeout(0.2)
    with proxy.stalled():
        far.sendall(b"late")
        with pytest.raises(TimeoutError):
            near.recv(100)
    near.settimeout(5)
    assert near.recv(100) == b"late"
    assert proxy.reset() == 1
    for end in (near, far):
        with pytest.raises(ConnectionResetError):
            end.recv(100)


def test_a_truncated_connection_ends_cleanly_in_the_middle(line: tuple[Proxy, socket.socket, socket.socket]) -> None:
    """Half of the next piece arrives, then the end."""
    proxy, near, far = line
    assert proxy.truncate() == 1
    far.sendall(b"0123456789")
    came = near.recv(100)
    while piece := near.recv(100):
        came += piece
    assert came == b"01234"
