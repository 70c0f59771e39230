"""Opens one connection to an upstream, reads it in a thread of its own, and reports why it ended.

Invariants: the last arrival is `Closed`, whatever happened; no message has an address, a header or anything that the
upstream sent: any of them may hold a secret.
"""

import contextlib
import functools
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import replace

import urllib3

from handlers.connection.inputs import Arrival, Chunk, Closed, Opened
from handlers.connection.opening_steps import Ask, Call, Preparation, Unready, open_directly
from handlers.framing import content_codings
from handlers.profile.secret_references import Secrets
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.upstream.end_reasons import ClosedHere, explain, send_request
from handlers.upstream.inbox import Inbox
from handlers.upstream.opening import ResponseClass, open_response, redirect_to_ticket
from handlers.upstream.socket_response import SWITCHED, Outbox, SocketResponse, check_switch, new_key
from handlers.upstream.standstill import Pulse, elapsed_s, waiting_bytes
from handlers.upstream.strict_response import BUFFER_BYTES, JoiningResponse, StrictResponse
from handlers.values import dataclass

# The most bytes of one read, and of one result of `get`: enough to fill several batches, and few enough that the main
# thread, which stores their events in one go, soon returns to the lease. 640 events take 0.2 s if a batch takes 8 ms.
CHUNK_BYTES = 64 * 1024
# How many bytes may wait between the two threads.
INBOX_BYTES = 1024 * 1024
# How long `close` waits for the reader: a socket that was shut down returns at once, a connect that is under way does
# not.
JOIN_S = 0.1

CLOSED_HERE = Closed("closed_here")
# A read that takes longer than this had to wait for the socket.
AT_ONCE_S = 0.001

# The most bytes that are buffered above the socket: by the response, and a record of TLS.
ABOVE_BYTES = BUFFER_BYTES + 16 * 1024

# A read that returns more than this was worth its cost.
LITTLE_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Share:
    """The most bytes of one read, the most that may wait, and what the reader's thread calls after each arrival."""

    chunk_bytes: int
    inbox_bytes: int
    on_arrival: Callable[[], None] | None = None


ALONE = Share(CHUNK_BYTES, INBOX_BYTES)


class Upstream:
    """One connection. `start` opens it; what arrives is taken with `get`; `close` ends it from any thread.

    `joins` is whether waiting chunks may be joined: not if a chunk is a message. After a read that returned little and
    left nothing, nothing is read for `rest_s`, so that the bytes of that time are read together. `shares` is its share
    of a function that reads other streams too. `before` makes the requests before the opening and the final request,
    which then replaces `request`. `pulse` knows when the process was suspended; without one that is unknown.
    """

    def __init__(
        self,
        request: UpstreamRequest,
        *,
        connect_timeout_s: float,
        stall_after_s: float,
        joins: bool = True,
        rest_s: float = 0,
        before: Preparation | None = None,
        shares: Share | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self._before = open_directly(request) if before is None else before
        share = shares or ALONE
        self._chunk_bytes = share.chunk_bytes
        self._most_bytes = share.chunk_bytes if joins else 0
        self._outbox = Outbox() if request.is_upgrade else None
        self._response_class: ResponseClass = JoiningResponse if joins else StrictResponse
        if self._outbox is not None:
            self._response_class = functools.partial(SocketResponse, outbox=self._outbox)
        self._timeout = urllib3.Timeout(connect=connect_timeout_s, read=stall_after_s)
        self._connect_timeout_s = connect_timeout_s
        self._stall_after_s = stall_after_s
        self._rest_s = rest_s
        self._inbox: Inbox[Arrival] = Inbox(share.inbox_bytes, share.on_arrival)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False
        self._pulse = pulse
        self._checked_s = elapsed_s()  # the effects of standstills are known until then
        self._old_s: float | None = None  # when the bytes being read may have come, if that was during a standstill
        self._old_bytes = 0  # at most this many of them are still unread
        self._thread = threading.Thread(target=self._run, name="upstream", daemon=True)

    @property
    def blocked_ms(self) -> int:
        """How long reading has stood still because the store was slower than the upstream."""
        return self._inbox.blocked_ms

    @property
    def taken_age_s(self) -> float:
        """How long ago the bytes that `get` last returned had arrived."""
        return self._inbox.taken_age_s

    @property
    def unread_age_s(self) -> float | None:
        """How long ago the oldest bytes that `get` has not returned yet had arrived; None if there are none."""
        unread_s = self._inbox.unread_age_s
        # After a standstill this may be called before the reader's thread runs.
        waits_s = self._waiting_since_s()
        return unread_s if waits_s is None else max(unread_s or 0, elapsed_s() - waits_s)

    def start(self) -> None:
        """Begins to open the connection; Opened or Closed follows."""
        self._thread.start()

    def get(self, wait_s: float) -> Arrival | None:
        """Returns the next arrival, None if none came within `wait_s`; Closed once nothing can arrive any more."""
        arrivals = self._inbox.take(wait_s, self._most_bytes)
        if not arrivals:
            return CLOSED_HERE if self._closed else None
        if len(arrivals) == 1:
            return arrivals[0]
        return Chunk(b"".join([arrival.data for arrival in arrivals if isinstance(arrival, Chunk)]))

    def send(self, frame: bytes) -> None:
        """Sends a wire frame soon, if this is an open socket."""
        if self._outbox is not None:
            self._outbox.put(frame)

    def close(self, join_s: float = JOIN_S) -> None:
        """Closes the connection, whatever it is doing; `get` still returns what was read before."""
        # The inbox first: over TLS, bytes that are read after the shutdown may be ciphertext.
        self._inbox.close(self._waiting_since_s())
        with self._lock:
            self._closed = True
            # On a WebSocket the last messages are sent first, by the thread that reads it.
            is_left_to_reader = self._outbox is not None and self._outbox.close()
            if self._socket is not None and not is_left_to_reader:
                # Closing a socket does not wake a thread that reads it; shutting it down does.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(join_s)

    # --- standing still -----------------------------------------------------------------------------------------------

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """Returns the next bytes, b"" at the end; notes how old they may be after a standstill or a rest."""
        if self._old_s is None and not self._rest_s:
            return response.read1(self._chunk_bytes)
        is_waiting, began_s, data = self._is_waiting(), elapsed_s(), b""
        try:
            data = response.read1(self._chunk_bytes)
            return data
        finally:
            self._old_bytes -= len(data)
            # Bytes that are buffered above the socket are returned at once.
            has_waited = not is_waiting and elapsed_s() - began_s > AT_ONCE_S
            if has_waited:
                self._inbox.record_wait()
            if has_waited or self._old_bytes < 0:
                self._old_s = None

    def _earliest_arrival_s(self) -> float | None:
        """Returns the earliest instant at which the bytes just read may have come; None for now.

        After a standstill it is when the process last ran, until everything that came meanwhile is read. If a close
        came meanwhile, it stays at the socket, so everything before it counts as just as old.
        """
        if self._pulse is not None and (still_s := self._pulse.last_run_before_s(self._checked_s)) is not None:
            self._checked_s = elapsed_s()
            self._old_s = still_s if self._old_s is None else self._old_s
            self._old_bytes = ABOVE_BYTES + self._waiting_bytes()
        return self._old_s

    def _waiting_since_s(self) -> float | None:
        """Returns since when something from a standstill may wait at the socket; None if nothing does.

        The deciding thread calls this; after a standstill it may run before the reader's thread does.
        """
        if self._pulse is None:
            return None
        still_s, now_s = self._pulse.last_run_before_s(self._checked_s), elapsed_s()
        if still_s is None and self._old_s is None:
            return None
        if self._is_waiting():
            return still_s if self._old_s is None else self._old_s
        self._checked_s = now_s
        return None

    def _is_waiting(self) -> bool:
        """Whether bytes or a close wait at the socket; False before it is connected."""
        with self._lock:
            if self._socket is None or self._closed:
                return False
            try:
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                return bool(poll.poll(0))
            except (OSError, ValueError):  # the socket is closed already
                return True

    def _waiting_bytes(self) -> int:
        with self._lock:
            return 0 if self._socket is None else waiting_bytes(self._socket)

    # --- the reader's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with contextlib.closing(self._before) as steps:
                if not self._perform(steps):
                    return
            # If the end of the connection ends the body, a cut-off looks the same, even over TLS: Python's sockets
            # accept an end without a close_notify.
            self._inbox.put(Closed("ended_by_upstream"), came=self._earliest_arrival_s())
        except Unready as error:
            self._inbox.put(error.closed)
        except Exception as error:
            self._inbox.put(explain(error, self._stall_after_s), came=self._earliest_arrival_s())
        finally:
            with self._lock:
                self._socket = None
            if self._outbox is not None:
                self._outbox.end()

    def _flush(self) -> None:
        """Sends the last messages of a connection that was closed here while the inbox was full."""
        if self._outbox is not None and self._socket is not None:
            self._outbox.flush(self._socket)

    def _perform(self, steps: Preparation) -> bool:
        """Makes the requests before the opening, opens and reads; returns whether it read to the end."""
        step = next(steps)
        while True:
            if isinstance(step, Ask):
                step = steps.send(send_request(step, self._connect_timeout_s, self._hold_socket))
                continue
            if isinstance(step, Call):
                step = steps.send(step.run())
                continue
            request = redirect_to_ticket(step.request, step.opens) if step.opens else step.request
            if self._outbox is not None:
                request = replace(request, headers={**request.headers, "sec-websocket-key": new_key()})
            with open_response(request, self._timeout, self._hold_socket, self._response_class) as response:
                try:
                    following = steps.send(response.status)
                except StopIteration:
                    return self._read_all(request, response, step.places)
            step = following

    def _read_all(self, request: UpstreamRequest, response: urllib3.BaseHTTPResponse, places: Secrets) -> bool:
        """Reads the body of the answer; returns whether it read to the end, rather than until it was closed here."""
        headers = {name.lower(): value for name, value in response.headers.items()}
        if codings := response.headers.get("content-encoding"):
            # RFC 9110, section 5.3: header lines of one name form a list. For other headers the last line counts.
            headers["content-encoding"] = codings
        if self._outbox is not None and response.status == SWITCHED:
            check_switch(request.headers, response.headers, response.version)
            response.length_remaining = None
            headers.pop("content-encoding", None)
        opened = Opened(response.status, headers, places)
        self._inbox.put(opened)
        body = content_codings.BodyDecoder(content_codings.coding(headers.get("content-encoding")), self._chunk_bytes)
        piece = b""
        # stream() and iteration hold a close-delimited body back until a block is full; read1() does not.
        while data := self._read(response):
            came_s = self._earliest_arrival_s()
            for piece in body.pieces(data):
                if not self._inbox.put(Chunk(piece), len(piece), came_s):
                    self._flush()
                    return False
            # A short read may also be the end of what was buffered, while more waits at the socket.
            if self._rest_s and len(data) < LITTLE_BYTES and not self._is_waiting():
                self._inbox.pause(self._rest_s)
        body.close()
        # The JSON of a long poll seldom ends with the LF that ends a line. Its length shows that it is whole.
        if opened.is_one_json and self._most_bytes and piece[-1:] in (b"}", b"]"):
            self._inbox.put(Chunk(b"\n"), 1, self._earliest_arrival_s())
        return True

    def _hold_socket(self, connected: socket.socket) -> None:
        """Records the socket for `close`; raises if `close` was called already, so that nothing is sent."""
        with self._lock:
            self._socket = connected
            if self._closed:
                raise ClosedHere
