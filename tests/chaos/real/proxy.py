"""A TCP proxy on 127.0.0.1 that treats connections as bad networks do.

It decides when bytes pass, in which pieces, and how a connection ends. It knows nothing of HTTP. Invariant: a fault
lasts while it is set; held-back bytes pass when it ends, unless the fault ended the connection.
"""

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator

READ_BYTES = 65_536


class Proxy:
    """Passes connections on to a port; the attributes are the faults, all off at first."""

    def __init__(self, to_port: int, seed: int = 0) -> None:
        self.latency_s = 0.0
        """How long every piece is under way, in each direction."""
        self.slice_bytes = 0
        """The longest piece, 0 for as it comes; a piece of 1 to this many bytes, at random."""
        self.slow_close_s = 0.0
        """How long the other side does not hear that one has closed."""
        self._random = random.Random(seed)
        self._to_port = to_port
        self._flows = threading.Event()
        self._flows.set()
        self._never = threading.Event()
        self._pairs: set[_Pair] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Lets no byte pass and closes nothing, so connections look alive; new ones are accepted and stall too."""
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()

    def reset(self) -> int:
        """Resets the connections and returns how many; both sides see RST."""
        return self._each(_Pair.reset)

    def truncate(self) -> int:
        """Makes connections end cleanly after half of the next piece, and returns how many."""
        return self._each(_Pair.truncate)

    def close(self) -> None:
        """Accepts no more connections and resets the open ones."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._flows.set()
        self.reset()

    def pass_on(self, pair: "_Pair", source: socket.socket, target: socket.socket) -> None:
        """Passes on one direction until it ends; then the other side learns of it."""
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                self._never.wait(self.latency_s)
                self._flows.wait()
                if pair.truncates:
                    target.sendall(data[: len(data) // 2])
                    break
                for piece in self._pieces(data):
                    target.sendall(piece)
        self._never.wait(self.slow_close_s)
        self._flows.wait()
        pair.shut()
        self._pairs.discard(pair)

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        while self.slice_bytes and data:
            size = self._random.randint(1, self.slice_bytes)
            yield data[:size]
            data = data[size:]
        if data:
            yield data

    def _each(self, fault: "Callable[[_Pair], None]") -> int:
        pairs = set(self._pairs)
        for pair in pairs:
            fault(pair)
        return len(pairs)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listening.accept()[0]
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    far = socket.create_connection(("127.0.0.1", self._to_port))
                except OSError:
                    near.close()
                    continue
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pair = _Pair(near, far)
                self._pairs.add(pair)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self.pass_on, args=(pair, *ends), daemon=True).start()


class _Pair:
    """The two sockets of one connection."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.truncates = False
        self._ends = (near, far)

    def truncate(self) -> None:
        self.truncates = True

    def reset(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                # SO_LINGER with zero seconds makes close(2) send RST.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for end in self._ends:
            with contextlib.suppress(OSError):
                # Wakes the thread that reads, and that thread closes both.
                end.shutdown(socket.SHUT_RD)

    def shut(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RD)
            end.close()
