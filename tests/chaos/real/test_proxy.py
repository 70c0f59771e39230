"""The proxy's faults are what they say, so that a green run under them means something."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from tests.chaos.real.proxy import Proxy


class Line:
    """A connection through a proxy: `near` is the client's socket, `far` the server's."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.proxy = stack.enter_context(contextlib.closing(Proxy(server.getsockname()[1])))
        self.near = stack.enter_context(socket.create_connection(("127.0.0.1", self.proxy.port), 5))
        self.far = stack.enter_context(server.accept()[0])
        self.far.settimeout(5)
        self.far.sendall(b"hello")
        assert self.near.recv(100) == b"hello"


@pytest.fixture
def line() -> Iterator[Line]:
    """A line on which a word has passed."""
    with contextlib.ExitStack() as stack:
        yield Line(stack)


def read(source: socket.socket, count: int) -> list[bytes]:
    """What comes until `count` bytes have come, piece by piece."""
    pieces: list[bytes] = []
    while sum(map(len, pieces)) < count:
        pieces.append(source.recv(100))
    return pieces


def test_latency_holds_each_piece_back(line: Line) -> None:
    """A piece comes no sooner than the latency says, in both directions."""
    line.proxy.latency_s = 0.2
    for source, target in ((line.near, line.far), (line.far, line.near)):
        since_s = time.monotonic()
        source.sendall(b"word")
        assert target.recv(100) == b"word"
        assert time.monotonic() - since_s >= 0.2


def test_slices_are_short_and_whole(line: Line) -> None:
    """All bytes come, in order."""
    line.proxy.slice_bytes = 3
    line.far.sendall(bytes(range(50)))
    assert b"".join(read(line.near, 50)) == bytes(range(50))


def test_a_reset_is_seen_on_both_sides(line: Line) -> None:
    """Not an end: an error."""
    assert line.proxy.reset() == 1
    for end in (line.near, line.far):
        with pytest.raises(ConnectionResetError):
            end.recv(100)


def test_a_truncated_connection_ends_cleanly_in_the_middle(line: Line) -> None:
    """Half of the next piece, then the end."""
    assert line.proxy.truncate() == 1
    line.far.sendall(b"0123456789")
    assert b"".join(read(line.near, 5)) == b"01234"
    assert line.near.recv(100) == b""


def test_a_stall_closes_nothing_and_loses_nothing(line: Line) -> None:
    """Silence, and afterwards what was said meanwhile."""
    line.near.settimeout(0.2)
    with line.proxy.stalled():
        line.far.sendall(b"late")
        with pytest.raises(TimeoutError):
            line.near.recv(100)
    line.near.settimeout(5)
    assert line.near.recv(100) == b"late"


def test_a_slow_close_is_heard_late(line: Line) -> None:
    """The other side hears of the end after the delay, no sooner."""
    line.proxy.slow_close_s = 0.2
    since_s = time.monotonic()
    line.near.close()
    assert line.far.recv(100) == b""
    assert time.monotonic() - since_s >= 0.2
