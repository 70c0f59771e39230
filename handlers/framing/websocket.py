"""Decodes the messages of a WebSocket (RFC 6455), compressed ones too (RFC 7692), and encodes what is sent to it.

    81 05 "hello"                   the text hello
    01 03 "hel"  89 00  80 02 "lo"  the same in two fragments, with a ping between them

A message is a frame in the sense of handlers/framing/frames.py, whose invariant the decoder keeps; a wire frame is a
part of one. Besides messages it collects what the caller must answer: `pings` and `close_frame`. Anything that the
server must not send raises `BadMessage`, with the code for the close. A text must be UTF-8, up to `max_frame_bytes`;
the first invalid byte raises, even if the rest of the message has not come.
"""

import codecs
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from handlers.framing.frames import BadFrame, Body, Decoder, FramingError, text_or_bytes

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_FIN, _RSV1, _RSV = 0x80, 0x40, 0x70
_WHOLE_TEXT = _FIN | TEXT
_MASKED = 0x80
_MOST_CONTROL = 125  # section 5.5: "All control frames MUST have a payload length of 125 bytes or less"
# Section 7.4: the codes that a close frame may have; 1004 to 1006 and 1015 are not among them.
_CODES = frozenset({*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)})
NO_CODE, PROTOCOL_ERROR, NOT_UTF8, TOO_BIG = 1005, 1002, 1007, 1009
# Section 5.5.3: a Pong may answer "only the most recently processed Ping frame"; at most these are answered.
MOST_PINGS = 16
DEFLATE = "permessage-deflate"
_TAIL = b"\x00\x00\xff\xff"  # RFC 7692, section 7.2.2: what the sender has removed from the end of a message
_PIECE_BYTES = 64 * 1024
# Text compresses to about a tenth of its size. A message that is too long and compressed to less than a hundredth was
# made to fill memory; so was one longer than this, which is four times the largest `max_frame_bytes`.
_BOMB_RATIO, _BOMB_BYTES = 100, 64 * 1024 * 1024


class CloseFrame(NamedTuple):
    """A close frame: its code (1005 if it has none) and its reason."""

    code: int
    reason: str


class BadMessage(BadFrame):
    """The server broke the protocol; the socket is closed with `code`."""

    def __init__(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message, [])
        self.code = code


def encoded_frame(opcode: int, payload: bytes, mask: bytes = b"") -> bytes:
    """A wire frame that is a whole message; `mask` has four bytes in a client's, none in a server's."""
    size, masked = len(payload), _MASKED if mask else 0
    if size <= _MOST_CONTROL:
        head = bytes((_FIN | opcode, masked | size))
    elif size < 0x10000:
        head = bytes((_FIN | opcode, masked | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_FIN | opcode, masked | 127)) + size.to_bytes(8, "big")
    return head + mask + (_masked(payload, mask) if mask else payload)


def close_payload(code: int) -> bytes:
    """The payload of the close frame that answers `code`; empty for a close without a code."""
    return b"" if code == NO_CODE else code.to_bytes(2, "big")


def _masked(payload: bytes, mask: bytes) -> bytes:
    # Section 5.3: "octet i of the transformed data is the XOR of octet i of the original data with octet at index
    # i modulo 4 of the masking key". As two large numbers that is one operation.
    whole = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(whole, "big")).to_bytes(len(payload), "big")


class WebSocketDecoder(Decoder):
    """What a server sends once it has switched to WebSocket."""

    def __init__(self, max_frame_bytes: int, *, comments: bool = False, skips: bool = False) -> None:
        super().__init__(max_frame_bytes, comments=comments, skips=skips)
        self.pings: deque[bytes] = deque(maxlen=MOST_PINGS)
        self.close_frame: CloseFrame | None = None
        self._held = b""  # the head of a wire frame, or a control frame, that is incomplete
        self._opcode = CONTINUATION  # of the message that has begun; CONTINUATION if none has
        self._is_last = False  # whether its wire frame is the last
        self._is_packed = False
        self._left = -1  # how many bytes of the wire frame's payload are still to come; -1 between two wire frames
        self._message = bytearray()
        self._utf8 = codecs.getincrementaldecoder("utf-8")()  # of a text that came in parts
        self._wire_bytes = 0  # of the message, as they came; of its heads the first
        self._unpacked_bytes = 0
        self._deflate: Inflater | None = None
        self._failure: FramingError | None = None

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + len(self._message) + len(self._held)

    @property
    def is_inside_frame(self) -> bool:
        if self._skipped is not None:
            return False
        return self._opcode != CONTINUATION or (bool(self._held) and self._held[0] & 0x0F < CLOSE)

    def take_headers(self, headers: Mapping[str, str]) -> None:
        extension = headers.get("sec-websocket-extensions", "")
        if extension.partition(";")[0].strip().lower() == DEFLATE:
            self._deflate = Inflater("server_no_context_takeover" in extension.lower())

    def feed(self, data: bytes) -> list[Body]:
        messages: list[Body] = []
        if self._failure is None and self.close_frame is None:
            try:
                self._cut(self._held + data if self._held else data, messages)
            except FramingError as failure:
                self._failure, self._held = failure, b""
                self._forget_message()
        if self._failure is not None:
            self._failure.frames = messages
            raise self._failure
        return messages

    def close(self) -> int:
        dropped, self._held = len(self._held) + self._wire_bytes, b""
        self._forget_message()
        return dropped

    def _cut(self, data: bytes, messages: list[Body]) -> None:
        at, end, most_bytes = 0, len(data), self._max_frame_bytes
        while at < end:
            if self._left >= 0:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._take(piece, messages)
                continue
            if end - at < 2:
                break
            # Nearly every message is a whole text in one short wire frame.
            first, size, begin = data[at], data[at + 1], at + 2
            if size == 126 and end - begin >= 2:
                size, begin = data[begin] << 8 | data[begin + 1], begin + 2
                size = size if size >= 126 else -1
            is_plain = first == _WHOLE_TEXT and 0 <= size < 0x10000 and self._opcode == CONTINUATION
            if is_plain and (size < 126 or begin == at + 4) and begin + size <= end and size <= most_bytes:
                messages.append(_text(data[begin : begin + size]))
                at = begin + size
                continue
            after = self._begin(data, at)
            if after < 0 or self.close_frame is not None:
                at = at if after < 0 else end
                break
            at = after
            if self._left == 0:
                self._take(b"", messages)
        self._held = data[at:]

    def _begin(self, data: bytes, at: int) -> int:
        """Processes the head of a wire frame; returns where the payload begins, or -1 if the head is incomplete."""
        first, second = data[at], data[at + 1]
        opcode, size = first & 0x0F, second & 0x7F
        self._check(first, second)
        begin = at + 2
        if size >= 126:
            begin += 2 if size == 126 else 8
            if len(data) < begin:
                return -1
            least, size = 126 if size == 126 else 0x10000, int.from_bytes(data[at + 2 : begin], "big")
            # Section 5.2: "the minimal number of bytes MUST be used", and "the most significant bit MUST be 0".
            if size < least or size >> 63:
                raise BadMessage("a frame of the socket has a length that is not in its shortest form")
        if opcode >= CLOSE:
            if len(data) < begin + size:
                return -1
            self._control(opcode, data[begin : begin + size])
            return begin + size
        if opcode != CONTINUATION:
            self._opcode, self._is_packed = opcode, bool(first & _RSV1)
            self._wire_bytes = begin - at
        self._is_last, self._left = bool(first & _FIN), size
        return begin

    def _check(self, first: int, second: int) -> None:
        """Raises BadMessage if a server must not send these first two bytes of a wire frame now."""
        opcode, reserved = first & 0x0F, first & _RSV
        if second & _MASKED:
            # Section 5.1: "A client MUST close a connection if it detects a masked frame."
            raise BadMessage("the server masks its frames")
        if BINARY < opcode < CLOSE or opcode > PONG:
            raise BadMessage(f"a frame of the socket has the opcode {opcode}, which RFC 6455 does not define")
        # RFC 7692, section 6: RSV1 is set only in a message's first frame, and never in a control frame.
        if reserved and not (reserved == _RSV1 and self._deflate is not None and opcode in (TEXT, BINARY)):
            raise BadMessage("a frame of the socket has reserved bits that were not negotiated")
        if opcode >= CLOSE:
            if not first & _FIN or second > _MOST_CONTROL:
                raise BadMessage("a control frame of the socket is in fragments or longer than 125 bytes")
        elif (opcode == CONTINUATION) != (self._opcode != CONTINUATION):
            raise BadMessage("the fragments of a message are not in order")

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self.pings.append(payload)
        elif opcode == CLOSE:
            code = int.from_bytes(payload[:2], "big") if payload else NO_CODE
            if payload and (len(payload) < 2 or code not in _CODES):
                raise BadMessage("the socket was closed with a code that must not be sent")
            self.close_frame = CloseFrame(code, _text(payload[2:]))

    # --- the payload of a message -------------------------------------------------------------------------------------

    def _take(self, piece: bytes, messages: list[Body]) -> None:
        """Takes the next bytes of the wire frame's payload, and ends the message if they complete it."""
        self._wire_bytes += len(piece)
        is_end = self._left == 0 and self._is_last
        if self._is_packed:
            assert self._deflate is not None
            for part in self._deflate.pieces(piece, is_end=is_end):
                self._add(part)
        else:
            self._add(piece)
        if self._left == 0:
            self._left = -1
        if is_end:
            messages.append(self._whole_message())
            self._forget_message()

    def _add(self, part: bytes) -> None:
        if self._is_packed:
            self._unpacked_bytes += len(part)
            if self._unpacked_bytes > _BOMB_BYTES:
                raise BadMessage(f"a decompression bomb: a message unpacks to more than {_BOMB_BYTES} bytes", TOO_BIG)
        fits = self._max_frame_bytes - len(self._message)
        if self._skipped is None and self._opcode == TEXT:
            # Section 8.1: bytes that are not UTF-8 "MUST _Fail the WebSocket Connection_", at once.
            _text(part[:fits], self._utf8)
        if self._skipped is None and len(part) > fits:
            if not self._skips:
                raise self._too_long_error([])
            self._skipped = self._begin_skipping()
            self._skipped.add(self._message)
            self._message = bytearray()
        if self._skipped is not None:
            self._skipped.add(part)
        else:
            self._message += part

    def _whole_message(self) -> Body:
        if self._skipped is not None:
            # Both numbers count the whole message, so it does not matter how the bytes were cut.
            is_long = self._unpacked_bytes > max(self._own_bytes, self._max_frame_bytes)
            if is_long and self._unpacked_bytes > _BOMB_RATIO * self._wire_bytes:
                why = f"a message beyond max_frame_bytes unpacks to more than {_BOMB_RATIO} times its size"
                raise BadMessage(f"a decompression bomb: {why}", TOO_BIG)
            return self._skipped.result(is_whole=True)
        return _text(self._message) if self._opcode == TEXT else text_or_bytes(self._message)

    def _forget_message(self) -> None:
        self._skipped, self._message = None, bytearray()
        self._opcode, self._left = CONTINUATION, -1
        self._utf8.reset()
        self._wire_bytes = self._unpacked_bytes = 0


def _text(data: bytes | bytearray, part_of: codecs.IncrementalDecoder | None = None) -> str:
    """Returns the text; for a part of one, its complete characters so far. Raises BadMessage."""
    try:
        return data.decode() if part_of is None else part_of.decode(data)
    except UnicodeDecodeError:
        raise BadMessage("a text of the socket is not UTF-8", NOT_UTF8) from None


class Inflater:
    """Decompresses the messages of one connection; with `forgets` each is compressed by itself."""

    def __init__(self, forgets: bool) -> None:
        self._forgets = forgets
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)

    def pieces(self, data: bytes, *, is_end: bool) -> Iterator[bytes]:
        """Yields what `data` adds to its message, in pieces of at most 64 KB; raises BadMessage if it is damaged."""
        data, piece = data + _TAIL if is_end else data, b""
        # After a full piece, zlib may hold more output even though it has taken all bytes.
        while data or len(piece) == _PIECE_BYTES:
            try:
                piece = self._stream.decompress(data, _PIECE_BYTES)
            except zlib.error:
                raise BadMessage("a compressed message of the socket is damaged") from None
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if self._stream.eof:
                # RFC 7692, section 7.2.3.4: a sender may end its data; what follows begins anew.
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
            if piece:
                yield piece
        if is_end and self._forgets:
            self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
