"""The messages of a socket: the case list of the Autobahn test-suite, compressed messages, bombs, and what is sent.

The suite's own server is not run here: its list, sections 1 to 7, 9, 10 and 12, is rebuilt as a table of wires, each
with the result of a client. Each wire is read in one piece and byte by byte, a long one in pieces instead.
"""

import json
import random
import zlib
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing import websocket
from handlers.framing.frames import FrameTooLong, FramingError, as_frames
from handlers.framing.oversize import Oversize
from tests.handlers.connection.wires import cut, one_by_one

MOST = 16 * 1024 * 1024


def wire_frame(first: int, payload: bytes = b"") -> bytes:
    """Return a wire frame with this first byte."""
    return bytes([first]) + websocket.encoded_frame(websocket.TEXT, payload)[1:]


class Read(NamedTuple):
    """The result of a client that reads a wire; `code` is that of its close, 0 if nothing is wrong."""

    messages: list[str | bytes | Oversize] = []  # noqa: RUF012
    pings: list[bytes] = []  # noqa: RUF012
    ended: websocket.CloseFrame | None = None
    code: int = 0


def read(chunks: list[bytes], *, most: int = MOST, skips: bool = True, extension: str = "") -> Read:
    made = websocket.WebSocketDecoder(most, skips=skips)
    made.take_headers({"sec-websocket-extensions": extension} if extension else {})
    messages: list[str | bytes | Oversize] = []
    pings: list[bytes] = []
    code = 0
    for chunk in chunks:
        try:
            messages += [frame.data for frame in as_frames(made.feed(chunk))]
        except FramingError as failure:
            messages += [frame.data for frame in as_frames(failure.frames)]
            code = failure.code if isinstance(failure, websocket.BadMessage) else 1009
        pings += made.pings
        made.pings.clear()
    return Read(messages, pings, made.close_frame, code)


ONE, FIRST, NEXT, LAST, PINGED, PONGED, CLOSED = 0x81, 0x01, 0x00, 0x80, 0x89, 0x8A, 0x88
GREEK = "Hello-µ@ßöäüàá-UTF-8!!"
COSMOS = "κόσμε".encode()
NORMAL = wire_frame(CLOSED, b"\x03\xe8")
BAD, UTF8 = Read(code=1002), Read(code=1007)
HI = wire_frame(ONE, b"hi")


def fragments(payload: bytes, size: int, first: int = FIRST) -> bytes:
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    heads = [first & 0x7F, *[NEXT] * (len(pieces) - 1)]
    heads[-1] |= 0x80
    return b"".join(map(wire_frame, heads, pieces))


def closing(payload: bytes, code: int, reason: str = "") -> tuple[bytes, Read]:
    return wire_frame(CLOSED, payload), Read(ended=websocket.CloseFrame(code, reason))


SIZES = (0, 125, 126, 127, 128, 65_535, 65_536)
CASES: dict[str, tuple[bytes, Read]] = {
    **{f"1.1.{at}": (wire_frame(ONE, b"*" * size), Read(["*" * size])) for at, size in enumerate(SIZES, 1)},
    **{f"1.2.{at}": (wire_frame(0x82, b"\xfe" * n), Read([b"\xfe" * n or ""])) for at, n in enumerate(SIZES, 1)},
    "2.1": (wire_frame(PINGED), Read(pings=[b""])),
    "2.2": (wire_frame(PINGED, b"Hello, world!"), Read(pings=[b"Hello, world!"])),
    "2.3": (wire_frame(PINGED, b"\x00\xff\xfe\xfd"), Read(pings=[b"\x00\xff\xfe\xfd"])),
    "2.4": (wire_frame(PINGED, b"\xfe" * 125), Read(pings=[b"\xfe" * 125])),
    "2.5": (wire_frame(PINGED, b"\xfe" * 126), BAD),
    "2.7": (wire_frame(PONGED), Read()),
    "2.8": (wire_frame(PONGED, b"unsolicited"), Read()),
    "2.9": (wire_frame(PONGED, b"unsolicited") + wire_frame(PINGED, b"p"), Read(pings=[b"p"])),
    "2.10": (b"".join(wire_frame(PINGED, b"p%d" % n) for n in range(10)), Read(pings=[b"p%d" % n for n in range(10)])),
    "3.1": (wire_frame(ONE | 0x10, b"a"), BAD),
    "3.2": (HI + wire_frame(ONE | 0x20, b"a"), Read(["hi"], code=1002)),
    "3.3": (HI + wire_frame(ONE | 0x30, b"a"), Read(["hi"], code=1002)),
    "3.4": (HI + wire_frame(ONE | 0x40, b"a") + wire_frame(PINGED), Read(["hi"], code=1002)),
    "3.5": (wire_frame(0x82 | 0x50, b"a"), BAD),
    "3.6": (wire_frame(PINGED | 0x60, b"a"), BAD),
    "3.7": (wire_frame(CLOSED | 0x70), BAD),
    **{f"4.1.{code - 2}": (HI + wire_frame(0x80 | code, b"a"), Read(["hi"], code=1002)) for code in range(3, 8)},
    **{f"4.2.{code - 10}": (HI + wire_frame(0x80 | code, b"a"), Read(["hi"], code=1002)) for code in range(11, 16)},
    "5.1": (wire_frame(0x09, b"a") + wire_frame(LAST, b"b"), BAD),
    "5.2": (wire_frame(0x0A, b"a") + wire_frame(LAST, b"b"), BAD),
    "5.3": (fragments(b"fragment1fragment2", 9), Read(["fragment1fragment2"])),
    "5.6": (
        wire_frame(FIRST, b"a") + wire_frame(PINGED, b"p") + wire_frame(LAST, b"b"),
        Read(["ab"], [b"p"]),
    ),
    "5.9": (wire_frame(LAST, b"none") + HI, BAD),
    "5.12": (wire_frame(NEXT, b"none") + HI, BAD),
    "5.15": (fragments(b"abcd", 2) + wire_frame(NEXT, b"e") + HI, Read(["abcd"], code=1002)),
    "5.16": ((wire_frame(NEXT, b"a") + fragments(b"bc", 1)) * 2, BAD),
    "5.17": ((wire_frame(LAST, b"a") + fragments(b"bc", 1)) * 2, BAD),
    "5.18": (wire_frame(FIRST, b"a") + wire_frame(ONE, b"b"), BAD),
    "5.19": (
        wire_frame(FIRST, b"1") + wire_frame(NEXT, b"2") + wire_frame(PINGED, b"p1") + wire_frame(NEXT, b"3")
        + wire_frame(NEXT, b"4") + wire_frame(PINGED, b"p2") + wire_frame(LAST, b"5"),
        Read(["12345"], [b"p1", b"p2"]),
    ),
    "6.1.1": (wire_frame(ONE), Read([""])),
    "6.1.2": (wire_frame(FIRST) + wire_frame(NEXT) + wire_frame(LAST), Read([""])),
    "6.1.3": (wire_frame(FIRST) + wire_frame(NEXT, b"middle") + wire_frame(LAST), Read(["middle"])),
    "6.2.1": (wire_frame(ONE, GREEK.encode()), Read([GREEK])),
    "6.2.3": (fragments(GREEK.encode(), 1), Read([GREEK])),
    "6.3.1": (wire_frame(ONE, COSMOS + b"\xed\xa0\x80edited"), UTF8),
    "6.3.2": (fragments(COSMOS + b"\xed\xa0\x80edited", 1), UTF8),
    "6.4.1": (wire_frame(FIRST, COSMOS) + wire_frame(NEXT, b"\xf4\x90\x80\x80") + wire_frame(LAST, b"edited"), UTF8),
    # 6.5 to 6.23: valid and invalid UTF-8, each by itself.
    **{f"6.good {good!r}": (wire_frame(ONE, good.encode()), Read([good])) for good in (
        "κ", "κόσμε", "\0", "\x80", "\u0800", "\U00010000", "\x7f", "\u07ff", "\uffff", "\U0010ffff", "\ud7ff",
        "\ue000", "\ufffd", "\ufffe", "\U0001fffe",
    )},
    **{f"6.bad {bad!r}": (wire_frame(ONE, bad), UTF8) for bad in (
        b"\xce", b"\xce\xba\xe1", b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80", b"\xf7\xbf\xbf\xbf",
        b"\xfb\xbf\xbf\xbf\xbf", b"\x80", b"\xbf", b"\x80\xbf", b"\xc0 ", b"\xe0 ", b"\xf0 ", b"\xf8 ", b"\xc0\xaf",
        b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xed\xa0\x80",
        b"\xed\xaf\xbf", b"\xed\xb0\x80", b"\xed\xbf\xbf", b"\xed\xa0\x80\xed\xb0\x80", b"\xfe", b"\xff",
    )},
    "7.1.1": (HI + NORMAL, Read(["hi"], ended=websocket.CloseFrame(1000, ""))),
    "7.1.2": (NORMAL * 2, Read(ended=websocket.CloseFrame(1000, ""))),
    "7.1.3": (NORMAL + wire_frame(PINGED), Read(ended=websocket.CloseFrame(1000, ""))),
    "7.1.4": (NORMAL + HI, Read(ended=websocket.CloseFrame(1000, ""))),
    "7.1.5": (wire_frame(FIRST, b"a") + NORMAL + wire_frame(LAST, b"b"), Read(ended=websocket.CloseFrame(1000, ""))),
    "7.1.6": (
        wire_frame(ONE, b"B" * 262_144) + NORMAL + wire_frame(PINGED),
        Read(["B" * 262_144], ended=websocket.CloseFrame(1000, "")),
    ),
    "7.3.1": closing(b"", 1005),
    "7.3.2": (wire_frame(CLOSED, b"\x03"), BAD),
    "7.3.3": closing(b"\x03\xe8", 1000),
    "7.3.4": closing(b"\x03\xe8Hello World!", 1000, "Hello World!"),
    "7.3.5": closing(b"\x03\xe8" + b"*" * 123, 1000, "*" * 123),
    "7.3.6": (wire_frame(CLOSED, b"\x03\xe8" + b"*" * 124), BAD),
    "7.5.1": (wire_frame(CLOSED, b"\x03\xe8" + COSMOS + b"\xed\xa0\x80edited"), UTF8),
    **{
        f"7.7 {code}": closing(code.to_bytes(2, "big"), code)
        for code in (*range(1000, 1004), *range(1007, 1015), 3000, 3999, 4000, 4999)
    },
    **{
        f"7.9 {code}": (wire_frame(CLOSED, code.to_bytes(2, "big")), BAD)
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535)
    },
    # The suite does not send these to clients: a mask, and lengths that are not in their shortest form.
    "masked": (websocket.encoded_frame(websocket.TEXT, b"a", b"1234"), BAD),
    "long for short": (b"\x81\x7e\x00\x01a", BAD),
    "longer for long": (b"\x81\x7f" + (65_535).to_bytes(8, "big"), BAD),
    "negative": (b"\x81\x7f\xff" + b"\0" * 7, BAD),
}  # fmt: skip


def test_each_case_of_the_autobahn_suite_has_its_result() -> None:
    """Each case has its result however it is cut; 1.x.8, 2.6, 2.11, 5.4 and their like are other cases, chopped."""
    wrong = []
    for name, (wire, said) in CASES.items():
        ways = [[wire], one_by_one(wire) if len(wire) < 2000 else cut(wire, range(0, len(wire), 997))]
        wrong += [name for chunks in ways if read(chunks) != said]
    assert not wrong


def test_text_that_cannot_become_utf_8_ends_the_socket_at_once() -> None:
    """Section 6.4: the first invalid byte raises, in fragments and in pieces of a frame, but not beyond the bound."""
    bad = COSMOS + b"\xf4\x90"
    whole = wire_frame(ONE, bad + b"\x80\x80edited")
    for chunks in (
        [wire_frame(FIRST, COSMOS), wire_frame(NEXT, b"\xf4\x90")],
        [wire_frame(FIRST, COSMOS), wire_frame(NEXT, b"\xf4"), wire_frame(NEXT, b"\x90")],
        [whole[: 2 + len(bad)]],
        one_by_one(whole[: 2 + len(bad)]),
    ):
        assert (read(chunks[:-1]), read(chunks)) == (Read(), UTF8)
    long = wire_frame(ONE, bad)
    assert {read(one_by_one(long), most=most).code for most in range(len(bad) - 1)} == {0}
    assert {read(cut(long, [at]), most=len(bad) - 1).code for at in range(len(long))} == {0}


@pytest.mark.parametrize("size", [65_536, 4 * 1024 * 1024, 16 * 1024 * 1024])
def test_large_messages_come_whole(size: int) -> None:
    """Sections 9 and 10: up to 16 MB come unchanged, in one frame or in fragments, read in pieces."""
    data = random.Random(size).randbytes(1 << 16) * (size >> 16)
    for wire in (wire_frame(0x82, data), fragments(data, max(1300, size // 64), 0x02)):
        assert read(cut(wire, range(0, len(wire), 65_536))).messages == [data]


# --- compressed -------------------------------------------------------------------------------------------------------


def packed(texts: list[bytes], *, window: int = 15, forgets: bool = False, ends: bool = False) -> list[bytes]:
    """Return each text as a server packs it: with earlier ones as context unless it `forgets` or `ends` each."""
    out: list[bytes] = []
    made = zlib.compressobj(wbits=-window)
    for text in texts:
        if ends:
            whole = zlib.compressobj(wbits=-window)
            # RFC 7692, section 7.2.3.4: an octet of zeros follows a block that is marked as the last.
            out.append(whole.compress(text) + whole.flush() + b"\x00")
            continue
        out.append((made.compress(text) + made.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\x00\x00\xff\xff"))
        if forgets:
            made = zlib.compressobj(wbits=-window)
    return out


@pytest.mark.parametrize(
    ("extension", "way"),
    [
        ("permessage-deflate", {}),
        ("permessage-deflate; server_max_window_bits=9", {"window": 9}),
        ("permessage-deflate; server_no_context_takeover", {"forgets": True}),
        ("permessage-deflate; server_no_context_takeover", {"ends": True}),
    ],
)
@given(
    texts=st.lists(st.text(max_size=40) | st.just("abc" * 5000), max_size=5),
    size=st.integers(1, 900),
    places=st.lists(st.integers(0, 400)),
)
def test_compressed_messages_come_as_they_were(
    extension: str, way: dict[str, int], texts: list[str], size: int, places: list[int]
) -> None:
    """Section 12: in one frame or fragments, cut anywhere, with or without earlier context, between plain ones."""
    bodies = packed([text.encode() for text in texts], **way)  # type: ignore[arg-type]
    wire = b"".join(HI + (fragments(body, size, 0x41) if body else wire_frame(0xC1)) for body in bodies)
    expected: list[str] = [one for text in texts for one in ("hi", text)]
    for chunks in (cut(wire, places), one_by_one(wire)):
        assert read(chunks, extension=extension) == Read(list(expected))


def test_a_decompression_bomb_is_refused() -> None:
    """A bomb is a message beyond the bound that unpacks to over 100 times its size, or to over 64 MB."""
    (one,) = packed([b"\0" * 1_000_000])
    bomb, larger = (b"\x00\x00\xff\xff".join([one] * count) for count in (4, 70))
    made = websocket.WebSocketDecoder(1 << 20, skips=True)
    made.take_headers({"sec-websocket-extensions": "permessage-deflate"})
    with pytest.raises(
        websocket.BadMessage, match=r"^a decompression bomb: .* more than 100 times its size$"
    ) as caught:
        made.feed(wire_frame(0xC1, bomb))
    assert caught.value.code == 1009
    made = websocket.WebSocketDecoder(1 << 20, skips=True)
    made.take_headers({"sec-websocket-extensions": "permessage-deflate"})
    with pytest.raises(
        websocket.BadMessage, match=r"^a decompression bomb: a message unpacks to more than 67108864 bytes$"
    ):
        made.feed(wire_frame(0x41, larger))


def test_a_compressed_message_that_is_too_long_is_skipped() -> None:
    """An oversize compressed message leaves its size and head; the next is read with the context that it left."""
    drawn = random.Random(1)
    texts = [json.dumps([drawn.random() for _ in range(3000)]).encode(), b"after"]
    bodies = packed(texts)
    wire = b"".join(wire_frame(0xC1, body) for body in bodies)
    (left, after) = read(one_by_one(wire), most=1000, extension="permessage-deflate").messages
    assert isinstance(left, Oversize)
    assert (left.size_bytes, left.head, after) == (len(texts[0]), texts[0][:65_536], "after")
    assert read([wire], most=1000, skips=False, extension="permessage-deflate").code == 1009


def test_damage_is_an_error_and_an_extension_must_be_agreed_upon() -> None:
    """Damaged bytes, compression that was not negotiated, and a compressed bit at a wrong place close with 1002."""
    assert read([wire_frame(0xC1, b"\xff\xff")], extension="permessage-deflate").code == 1002
    assert read([wire_frame(0xC1, b"\x4a\x04\x00")]).code == 1002
    for later in (
        HI + wire_frame(0xC0, b"a"),
        wire_frame(0x41, b"\x4a") + wire_frame(0xC0, b"\x04\x00"),
        wire_frame(0xC9),
    ):
        assert read([later], extension="permessage-deflate").code == 1002


def test_without_skipping_a_long_message_ends_the_stream() -> None:
    """The first fragment that makes the message too long raises FrameTooLong."""
    made = websocket.WebSocketDecoder(4)
    assert made.feed(wire_frame(FIRST, b"abc")) == []
    with pytest.raises(FrameTooLong, match=r"max_frame_bytes \(4\)"):
        made.feed(wire_frame(NEXT, b"de"))


# --- what is sent -----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300) | st.just(b"x" * 70_000), st.binary(min_size=4, max_size=4))
def test_a_frame_that_is_sent_is_masked(payload: bytes, mask: bytes) -> None:
    """Section 5.3: octet i of the payload is combined by XOR with octet i modulo 4 of the mask."""
    sent = websocket.encoded_frame(websocket.BINARY, payload, mask)
    head = sent[: len(sent) - len(payload)]
    assert head[-4:] == mask
    assert head[1] & 0x80
    assert bytes(octet ^ mask[at % 4] for at, octet in enumerate(sent[len(head) :])) == payload
    plain = websocket.encoded_frame(websocket.BINARY, payload)
    assert head[:-4] == bytes([plain[0], plain[1] | 0x80, *plain[2 : len(head) - 4]])


def test_a_close_is_answered_with_its_code() -> None:
    """A close without a code is answered without one."""
    assert [websocket.close_payload(code) for code in (1000, 1005, 4999)] == [b"\x03\xe8", b"", b"\x13\x87"]
    assert websocket.encoded_frame(websocket.CLOSE, b"\x03\xe8", b"\0\0\0\0") == b"\x88\x82\0\0\0\0\x03\xe8"
    assert websocket.encoded_frame(websocket.PING, b"") == b"\x89\x00"
