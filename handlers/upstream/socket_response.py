"""Reads an answer that has switched to WebSocket, and sends messages meanwhile, both in the reader's thread.

Two threads must not read and write a TLS connection at the same time, and the deciding thread must not wait for an
upstream that reads nothing. So frames to send go into an outbox, and the thread that waits for the socket waits for the
outbox too. Invariants: only one thread touches the socket once it has switched; behind the message that is being sent,
at most `MOST_UNSENT_BYTES` wait; an answer that is not a switch is read like any other.
"""

import base64
import hashlib
import os
import re
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from handlers.framing.websocket import DEFLATE
from handlers.upstream.strict_response import BadAnswer, StrictResponse, TooSlow

SWITCHED = 101
# A pong repeats its ping's payload; this bounds the pongs to an upstream that sends many pings and reads nothing.
MOST_UNSENT_BYTES = 256 * 1024
# RFC 6455, section 1.3.
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def new_key() -> bytes:
    """A value for Sec-WebSocket-Key: section 4.1, "a randomly selected 16-byte value"."""
    return base64.b64encode(os.urandom(16))


def accept_of(key: bytes) -> str:
    """The Sec-WebSocket-Accept that belongs to a Sec-WebSocket-Key."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()


def check_switch(asked: Mapping[str, bytes], answer: Mapping[str, str], version: int) -> None:
    """Raises BadAnswer if a 101 is not the switch that was `asked` for: RFC 6455, section 4.1. Case is ignored."""
    key = asked["sec-websocket-key"]
    if version != 11 or not _has(answer, "Upgrade", "websocket") or not _has(answer, "Connection", "upgrade"):
        raise BadAnswer("the upstream answered 101 and did not switch to WebSocket")
    if answer.get("Sec-WebSocket-Accept", "").strip() != accept_of(key):
        raise BadAnswer("the upstream's Sec-WebSocket-Accept does not belong to the key that was sent")
    offered = asked.get("sec-websocket-extensions", b"").decode()
    chosen = [part.strip() for part in answer.get("Sec-WebSocket-Extensions", "").split(",") if part.strip()]
    if len(chosen) > 1 or any(one.partition(";")[0].strip().lower() != (offered or None) for one in chosen):
        raise BadAnswer("the upstream chose an extension of WebSocket that was not offered")
    parameters = [part.strip().lower() for part in chosen[0].split(";")[1:]] if chosen else []
    names = [part.partition("=")[0].strip() for part in parameters]
    if len(names) > len(set(names)) or not all(map(_PARAMETER.fullmatch, parameters)):
        raise BadAnswer(f"the upstream chose {DEFLATE} with a parameter that was not offered, is wrong or comes twice")
    protocols = [one.strip() for one in asked.get("sec-websocket-protocol", b"").decode().split(",")]
    protocol = answer.get("Sec-WebSocket-Protocol")
    if protocol is not None and protocol.strip() not in protocols:
        raise BadAnswer("the upstream chose a subprotocol of WebSocket that was not offered")


# RFC 7692, section 7.1: what a server may choose if only the extension's name was offered; a client must refuse any
# other value. The largest window reads whatever a smaller one wrote.
_PARAMETER = re.compile(r'(server|client)_no_context_takeover|server_max_window_bits *= *("?)([89]|1[0-5])\2')


def _has(answer: Mapping[str, str], name: str, token: str) -> bool:
    return token in [part.strip().lower() for part in answer.get(name, "").split(",")]


class Outbox:
    """The frames to send on one socket; any thread may put them, the reader's thread sends them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: deque[memoryview] = deque()
        self._bytes = 0
        self._wake: int | None = None  # a descriptor that wakes the reader; None while it does not read the socket
        self._closes = False
        self._is_over = False

    def put(self, frame: bytes) -> None:
        """Queues a frame to be sent soon, unless the connection is closed."""
        with self._lock:
            if not self._is_over and not self._closes:
                self._frames.append(memoryview(frame))
                self._bytes += len(frame)
                self._wake_reader()

    def close(self) -> bool:
        """Tells the reader to send what it can at once and end; returns whether it reads the socket at all."""
        with self._lock:
            self._closes = True
            self._wake_reader()
            return self._wake is not None

    def begin(self) -> None:
        """Lets the reader wait for the outbox too from now on."""
        with self._lock:
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._wake_reader()

    def end(self) -> None:
        """The reader has ended."""
        with self._lock:
            self._is_over = True
            if self._wake is not None:
                os.close(self._wake)
                self._wake = None

    def _wake_reader(self) -> None:
        if self._wake is not None:
            os.eventfd_write(self._wake, 1)

    def flush(self, sock: socket.socket) -> int:
        """Sends what the socket takes at once; returns the events to wait for, 0 if nothing is left to send."""
        with self._lock:
            try:
                while self._frames:
                    count = sock.send(self._frames[0])
                    self._bytes -= count
                    self._frames[0] = self._frames[0][count:]
                    if not self._frames[0]:
                        self._frames.popleft()
            except _WOULD_BLOCK as error:
                # The first message may itself be longer.
                if self._bytes - len(self._frames[0]) > MOST_UNSENT_BYTES:
                    raise BadAnswer("the upstream does not read what is sent to it") from None
                return select.POLLIN if isinstance(error, ssl.SSLWantReadError) else select.POLLOUT
            return 0

    def receive(self, sock: socket.socket, most_bytes: int, limit_s: float | None) -> bytes:
        """Returns the next bytes, b"" at the end or once closed; raises TooSlow if none come within `limit_s`."""
        until_s = None if limit_s is None else time.monotonic() + limit_s
        assert self._wake is not None
        while True:
            wants = select.POLLIN | self.flush(sock)
            if self._closes:
                return b""
            try:
                return sock.recv(most_bytes)
            except ssl.SSLWantWriteError:
                wants |= select.POLLOUT
            except _WOULD_BLOCK:
                pass
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise TooSlow(f"no byte came for {limit_s:g} s")
            poll = select.poll()
            poll.register(sock, wants)
            poll.register(self._wake, select.POLLIN)
            for descriptor, _ in poll.poll(None if left_s is None else 1000 * left_s):
                if descriptor == self._wake:
                    os.eventfd_read(self._wake)


class SocketResponse(StrictResponse):
    """An answer that may switch to WebSocket; then the bytes are read as they come, and `outbox` is sent meanwhile."""

    def __init__(self, sock: Any, *args: Any, outbox: Outbox, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self._sock, self._limit_s = sock, sock.gettimeout()
        self._outbox = outbox
        self._has_begun = False

    def read1(self, n: int = -1) -> bytes:
        """Returns the next bytes; none at the end."""
        if self.status != SWITCHED:
            return super().read1(n)
        if not self._has_begun:
            self._has_begun = True
            self._lines.begin_body()
            self._sock.setblocking(False)
            self._outbox.begin()
        # Bytes that came with the headers are in the buffer above the socket.
        if held := self._lines.buffered()[: n if n >= 0 else None]:
            self._lines.read(len(held))
            return held
        return self._outbox.receive(self._sock, n, self._limit_s)
