"""Reads a response of HTTP/1.1 within bounds, and its chunks strictly: Python's own client is lenient.

It limits, in length and in time, the lines of a response outside its body: the head, interim responses, the sizes of
chunks, trailers. Invariants: between two pieces of the body at most LINES_BYTES are read, in at most twice the socket's
time-out; a chunk that does not keep to its size ends the response.
"""

import http.client
import io
import re
import time
from typing import Any

from urllib3.exceptions import HeaderParsingError
from urllib3.util.response import assert_header_parsing

LINES_BYTES = 128 * 1024
# The most bytes of one read of the socket.
BUFFER_BYTES = 64 * 1024
# Python's own limit for the lines of a head, if each is as short as possible.
MOST_LINES = 100
# RFC 9112, section 7.1: "chunk-size = 1*HEXDIG", then blanks that a sender should not have sent.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?\r?\n", re.DOTALL)

# The end of a chunk, and the size of the next one, without extensions.
_NEXT_CHUNK = re.compile(rb"\r\n([0-9A-Fa-f]{1,16})\r\n")


class BadAnswer(http.client.HTTPException):
    """The response is not valid HTTP, or exceeds the bounds; the message repeats nothing that was received."""


class TooSlow(BadAnswer):
    """Too few bytes came within the time-out."""


class StrictResponse(http.client.HTTPResponse):
    """An answer whose lines are bounded and whose chunks are checked."""

    def __init__(self, sock: Any, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self._lines = self.fp = _Lines(self.fp.detach(), sock.gettimeout())
        self._chunk_left: int | None = None  # None before the first chunk

    def begin(self) -> None:
        """Reads the head of the final answer."""
        self._begin()
        # RFC 9110, section 15.2: "A client MUST be able to parse one or more 1xx responses received prior to a final
        # response". Python's client knows only 100. 101 is final, and was not requested.
        while 101 < self.status < 200:
            self.headers = None  # type: ignore[assignment]
            self._begin()
        # RFC 9112, section 8: a response that ends before the empty line is incomplete. Python's client accepts it.
        if self._lines.last.strip(b"\r\n") or not self._lines.last:
            raise BadAnswer("the answer's head ended before its end")
        try:
            assert_header_parsing(self.headers)
        except HeaderParsingError:
            # The headers after such a line would be lost, and with them the coding of the body; urllib3 would only log
            # it, with the whole address.
            raise BadAnswer("a line of the answer's head is not a valid header") from None
        codings = self.headers.get_all("transfer-encoding", [])
        if codings and [coding.strip().lower() for coding in codings] != ["chunked"]:
            raise BadAnswer("the answer has a transfer coding that was not requested")

    def _begin(self) -> None:
        try:
            super().begin()
        except http.client.HTTPException as error:
            # Python's client raises this class itself only for these; every other problem has its own class.
            if type(error) is http.client.HTTPException:
                whose = "there are" if (is_interim := "interim" in str(error)) else "the answer's head has"
                what = "interim answers" if is_interim else "lines"
                raise BadAnswer(f"{whose} more than {MOST_LINES} {what}") from None
            raise

    def read1(self, n: int = -1) -> bytes:
        """Returns the next bytes of the body, from one chunk at most; none at its end."""
        if self.fp is None or not self.chunked:
            self._lines.begin_body()
            return super().read1(n)
        if not self._chunk_left:
            self._chunk_left = self._next_chunk()
            if not self._chunk_left:
                self.close()
                return b""
        self._lines.begin_body()
        data: bytes = self.fp.read1(min(n, self._chunk_left) if n >= 0 else self._chunk_left)
        if not data:
            raise http.client.IncompleteRead(b"")
        self._chunk_left -= len(data)
        return data

    def _next_chunk(self) -> int:
        """Returns the size of the next chunk; 0 once the body is over and its trailers are read."""
        if self._chunk_left is not None and (end := self.fp.read(2)) != b"\r\n":
            if len(end) < 2:
                raise http.client.IncompleteRead(b"")
            raise BadAnswer("a chunk of the body is not as long as its size says")
        line = self.fp.readline(LINES_BYTES + 1)  # one byte more than allowed, so that a longer line is noticed
        if not line.endswith(b"\n"):
            raise http.client.IncompleteRead(b"")
        match = _SIZE.fullmatch(line)
        if match is None:
            raise BadAnswer("a chunk of the body has no size")
        size = int(match[1], 16)
        while not size and self.fp.readline(LINES_BYTES) not in (b"\r\n", b"\n", b""):
            pass
        return size


class JoiningResponse(StrictResponse):
    """A StrictResponse for a body whose chunks have no meaning: a read returns all whole chunks that have arrived."""

    def read1(self, n: int = -1) -> bytes:
        """Returns the next bytes of the body, none at its end; waits for at most one chunk."""
        data = super().read1(n)
        if self._chunk_left != 0 or not data:
            return data
        held = self._lines.buffered()
        pieces, at, left = [data], 0, n - len(data)
        # Anything but a whole chunk in its plainest form is for `_next_chunk`.
        while (match := _NEXT_CHUNK.match(held, at)) is not None:
            begin, size = match.end(), int(match[1], 16)
            if not size or begin + size > len(held) or (n >= 0 and size > left):
                break
            at = begin + size
            left -= size
            pieces.append(held[begin:at])
        self._lines.read(at)
        return b"".join(pieces)


class _Lines(io.BufferedReader):
    """The bytes of the socket; lines, which are never part of the body, are bounded until the body continues."""

    def __init__(self, raw: io.RawIOBase, limit_s: float | None) -> None:
        self._timed = _Timed(raw, limit_s)
        self._line_bytes = 0
        self.last = b""
        super().__init__(self._timed, BUFFER_BYTES)

    def begin_body(self) -> None:
        """Records that the body follows; the count of bytes in lines begins anew after it."""
        self._line_bytes = 0
        self._timed.stop()

    def buffered(self) -> bytes:
        """Returns the bytes that have arrived and are not read yet; does not wait."""
        self._timed.is_held_back = True
        try:
            return self.peek()
        finally:
            self._timed.is_held_back = False

    def readline(self, size: int | None = -1, /) -> bytes:
        """Returns the next line with its line end; without it only at the end of the stream, or at `size` bytes."""
        self._timed.is_line = True
        self.last = line = super().readline(size)
        self._line_bytes += len(line)
        if self._line_bytes > LINES_BYTES:
            raise BadAnswer(f"more than {LINES_BYTES} bytes came outside the body")
        return line


class _Timed(io.RawIOBase):
    """The socket's own reader. While `is_line`, the bytes must come within the limit, counted from the first."""

    def __init__(self, raw: io.RawIOBase, limit_s: float | None) -> None:
        self._raw = raw
        self._limit_s = limit_s
        self._since: float | None = None
        self.is_line = True
        self.is_held_back = False

    def stop(self) -> None:
        """Ends the limit of time: the body continues."""
        self.is_line = False
        self._since = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Reads as the socket does, but nothing while held back; raises TooSlow if bytes come too late."""
        if self.is_held_back:
            return None
        count = self._raw.readinto(buffer)
        if self.is_line and self._limit_s is not None:
            now = time.monotonic()
            if self._since is None:
                self._since = now
            elif now - self._since > self._limit_s:
                raise TooSlow(f"a line outside the body did not arrive whole in {self._limit_s:g} s")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
