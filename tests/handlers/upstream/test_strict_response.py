"""The bytes of an answer's body are the same whether its chunks are joined or read one by one."""

import http.client
import io
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handlers.upstream.strict_response import JoiningResponse, StrictResponse
from tests.handlers.connection.wires import cut

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = [
    *(b"1\r\na\r\n", b"3\r\n\r\nb\r\n", b"A\r\n0123456789\r\n", b"002;x=y\r\ncd\r\n", b"2 \r\nef\r\n", b"1\ng\r\n"),
    *(b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n"),
    *(b"2\r\nabc\r\n", b"2\r\nab\n", b"-1\r\na\r\n", b"0x1\r\na\r\n", b"\r\n", b"9"),
]


class Pieces(io.RawIOBase):
    """A socket that delivers the pieces one after the other, and then its end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        piece = self._pieces.pop(0) if self._pieces else b""
        count = min(len(piece), len(buffer))
        buffer[:count] = piece[:count]
        if piece[count:]:
            self._pieces.insert(0, piece[count:])
        return count

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def gettimeout(self) -> float:
        return 1.0


def body(kind: type[StrictResponse], pieces: Iterable[bytes], most: int) -> tuple[list[bytes], str]:
    """Return the bytes of each read, and the error that ends the body."""
    response = kind(Pieces([HEAD, *pieces]))
    response.begin()
    reads: list[bytes] = []
    try:
        while data := response.read1(most):
            reads.append(data)
    except http.client.HTTPException as error:
        return reads, f"{type(error).__name__}: {error}"
    return reads, ""


WIRES = st.lists(st.sampled_from(CHUNKS), max_size=12).map(b"".join)


@given(WIRES, st.lists(st.integers(0, 90), max_size=6), st.sampled_from([1, 3, 1000, -1]))
def test_reading_joined_chunks_equals_reading_each_chunk(wire: bytes, places: list[int], most: int) -> None:
    """All bytes before an invalid chunk come, then its error; no read returns more than was requested."""
    reads, failed = body(JoiningResponse, cut(wire, places), most)
    chunks, expected = body(StrictResponse, [wire], most)
    assert (b"".join(reads), failed) == (b"".join(chunks), expected)
    assert most < 0 or all(len(data) <= most for data in reads)


def test_whole_chunks_that_have_come_are_read_together_without_waiting() -> None:
    """Three whole chunks come in one read; the beginning of the fourth comes without waiting for its rest."""
    pieces = [b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n2\r\nd", b"e\r\n0\r\n\r\n"]
    assert body(JoiningResponse, pieces, 100) == ([b"abc", b"d", b"e"], "")
    assert body(StrictResponse, pieces, 100) == ([b"a", b"b", b"c", b"d", b"e"], "")
