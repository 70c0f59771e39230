"""Removes a body's content coding piece by piece: gzip and deflate, as RFC 9110, section 8.4.1, names them.

Invariants: no piece is longer than `most_bytes`, however much the upstream packed into few bytes; what the upstream
flushed is returned at once; bytes before damage are returned before the error is raised.
"""

import zlib
from collections.abc import Iterator
from typing import Literal

Coding = Literal["", "gzip", "deflate"]
# Section 8.4.1.3: "A recipient SHOULD consider 'x-gzip' to be equivalent to 'gzip'."
_CODINGS: dict[str, Coding] = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
# Servers of event streams write "none", and others a charset, for a body that is not compressed.
_NO_CODINGS = ("", "identity", "none", "utf-8")
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15
# zlib copies its unused input at each step: with more than this at a time, copying would dominate.
_STEP_BYTES = 4096


class UnknownCoding(Exception):
    """A body has a content coding that is not supported."""


class Corrupt(Exception):
    """A body is not compressed as its header says."""


class Unfinished(Exception):
    """A compressed body was cut off."""


def coding(header: str | None) -> Coding:
    """Returns the coding that a Content-Encoding header names, "" if there is none; raises UnknownCoding."""
    named = [name for part in (header or "").split(",") if (name := part.strip().lower()) not in _NO_CODINGS]
    if not named:
        return ""
    if len(named) > 1 or named[0] not in _CODINGS:
        raise UnknownCoding("the body is compressed by a coding that was not requested")
    return _CODINGS[named[0]]


class BodyDecoder:
    """Removes the coding of one body: one deflate stream, or any number of gzip members."""

    def __init__(self, coding: Coding, most_bytes: int) -> None:
        self._coding = coding
        self._most_bytes = most_bytes
        self._stream: zlib._Decompress | None = None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yields what `data` adds to the body; raises Corrupt after all bytes before the damage."""
        if not self._coding:
            yield data
            return
        for start in range(0, len(data), _STEP_BYTES):
            yield from self._step(data[start : start + _STEP_BYTES])

    def close(self) -> None:
        """Raises Unfinished if the body cannot end here."""
        # An empty body is valid: the upstream compresses, but had nothing to send.
        if self._stream is not None and not self._stream.eof:
            raise Unfinished("the compressed body was cut off")

    def _step(self, data: bytes) -> Iterator[bytes]:
        piece = b""
        # After a full piece, zlib may hold more output even though it has taken all bytes.
        while data or len(piece) == self._most_bytes:
            stream = self._stream_for(data)
            before = stream.copy()
            try:
                piece = stream.decompress(data, self._most_bytes)
            except zlib.error:
                yield from self._before_the_damage(before, data)
                raise Corrupt("the body is not compressed as its header says") from None
            data = stream.unused_data if stream.eof else stream.unconsumed_tail
            if piece:
                yield piece

    def _stream_for(self, data: bytes) -> "zlib._Decompress":
        if self._stream is not None and self._stream.eof and data:
            # RFC 1952, section 2.2: "A gzip file consists of a series of 'members'". Nothing follows a deflate stream.
            if self._coding == "deflate":
                raise Corrupt("the body has bytes after its compressed data")
            self._stream = None
        if self._stream is None:
            bits = _GZIP_BITS if self._coding == "gzip" else _deflate_bits(data)
            self._stream = zlib.decompressobj(bits)
        return self._stream

    def _before_the_damage(self, stream: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
        """Yields, byte by byte, what zlib made of `data` before it failed; when it raises, it returns nothing."""
        for at in range(len(data)):
            piece = b""
            rest = data[at : at + 1]
            while rest or len(piece) == self._most_bytes:
                try:
                    piece = stream.decompress(rest, self._most_bytes)
                except zlib.error:
                    return
                rest = stream.unconsumed_tail
                if piece:
                    yield piece


def _deflate_bits(data: bytes) -> int:
    """Returns how to read "deflate": by RFC 9110 in zlib's frame, but "some non-conformant" senders omit that.

    The frame's first byte ends in 8 (RFC 1950, section 2.2: the method). A bare stream's first byte could do so only
    with a bit set in the padding of a stored block.
    """
    return _ZLIB_BITS if data[0] & 0x0F == 8 else _RAW_BITS
