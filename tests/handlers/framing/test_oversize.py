"""Frames that are too long are skipped: counted, hashed, their beginning kept, and the stream goes on after them."""

import hashlib
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handlers.framing.decoders import Framing, make_decoder
from handlers.framing.frames import Frame
from handlers.framing.oversize import HEAD_BYTES, Oversize, SkippedFrame
from handlers.framing.websocket import TEXT, encoded_frame
from tests.handlers.connection.wires import cut, decode_all, one_by_one
from tests.handlers.framing.test_decoders import ALL, CUT_ANYWHERE, PLACES


def remains_of(data: bytes, *, is_whole: bool = True) -> Oversize:
    """Return what is left of a frame with this body."""
    return Oversize(len(data), hashlib.sha256(data).hexdigest(), data[:HEAD_BYTES], is_whole)


def framed(framing: Framing, body: bytes) -> bytes:
    """Return a body without line ends as this framing sends it."""
    if framing == "sse":
        return b"data: " + body + b"\n\n"
    if framing == "length":
        return b"%d\n%b" % (len(body), body)
    if framing == "websocket":
        return encoded_frame(TEXT, body)
    return {"ndjson": body + b"\r\n", "json-seq": b"\x1e" + body + b"\n"}[framing]


@given(st.sampled_from(CUT_ANYWHERE), st.lists(st.integers(1, 40), max_size=8), PLACES, st.integers(1, 30))
def test_frames_that_are_too_long_are_hashed_and_the_others_come(
    framing: Framing, sizes: list[int], places: list[int], most: int
) -> None:
    """Every frame is in its place, however the wire is cut; size and SHA-256 are those of the body alone."""
    bodies = [b"%d" % (number % 10) * size for number, size in enumerate(sizes)]
    # The other bytes of a block of server-sent events count: the field's name, a colon, a space and a line end.
    most_body = most - 6 if framing == "sse" else most
    expected = [Frame(body.decode() if len(body) <= most_body else remains_of(body)) for body in bodies]
    wire = b"".join(framed(framing, body) for body in bodies)
    end = b"\x1e" if framing == "json-seq" else b""
    said = decode_all(framing, cut(wire + end, places), most=most, skips=True)
    assert (said.frames, said.failed, said.unfinished) == (expected, "", None)


def test_a_large_chunk_of_a_raw_stream_is_skipped() -> None:
    """In `raw` each chunk is a frame by itself, so only the large one is skipped."""
    said = decode_all("raw", [b"a", b"abcde", b"b"], most=4, skips=True)
    assert said.frames == [Frame("a"), Frame(remains_of(b"abcde")), Frame("b")]


ID_AND_NAME = [
    b"id: 7\nevent: x\ndata: 12345678\ndata:9\n",
    b"data: 12345678\ndata:9\nid: 7\n: 8\nevent: x\n",
    b"data: 12345678\r\nid: 7\revent: x\ndata:9\n",
]


@pytest.mark.parametrize("block", ID_AND_NAME)
def test_a_skipped_event_keeps_its_id_wherever_the_line_stands(block: bytes) -> None:
    """The id may come before, after or within the data of a skipped block; it is the last event ID as usual."""
    for chunks in ([block + b"\ndata: a\n\n"], one_by_one(block + b"\ndata: a\n\n")):
        said = decode_all("sse", chunks, most=12, skips=True)
        assert said.frames == [Frame(remains_of(b"12345678\n9"), "7", "x", "7"), Frame("a", None, None, "7")]
        assert (said.last_event_id, said.dropped_bytes) == ("7", 0)


def test_a_block_without_data_is_no_event_however_long_it_is() -> None:
    """By WHATWG a block without data dispatches nothing, but its id counts."""
    said = decode_all("sse", [b"foo: 12345678\nid: 7\n\ndata: a\n\n"], most=10, skips=True)
    assert (said.frames, said.last_event_id) == ([Frame("a", last_id="7")], "7")


def test_a_long_comment_makes_no_block_too_long() -> None:
    """A comment is no part of a block; with `comments` it comes as far as it was kept."""
    said = decode_all("sse", [b"id: 1\n: dropped 12345678\ndata: a\n\n"], most=16, comments=True, skips=True)
    assert said.frames == [Frame("dropped ", is_comment=True), Frame("a", "1", None, "1")]


def test_an_id_that_is_too_long_is_left_out() -> None:
    """No request could resume from so long an id, so the event is identified by its data."""
    said = decode_all("sse", [b"data: 1\nid: " + b"9" * (HEAD_BYTES + 1) + b"\n\n"], most=100, skips=True)
    assert said.frames == [Frame(remains_of(b"1"))]


@pytest.mark.parametrize("framing", CUT_ANYWHERE)
def test_an_unfinished_oversize_frame_is_reported_as_not_whole(framing: Framing) -> None:
    """Size, hash and head of an unfinished oversize frame describe the bytes that have come so far."""
    made = make_decoder(framing, 4, skips=True)
    begins = {"sse": b"data: 12", "length": b"900\n12", "json-seq": b"\x1e12", "websocket": b"\x81\x7e\x03\x8412"}
    made.feed(begins.get(framing, b"12") + b"3456")
    assert [made.feed(drip) for drip in (b"78", b"9")] == [[], []]
    assert made.unfinished_oversize() == Frame(remains_of(b"123456789", is_whole=False))
    assert made.close() in (9, 13, 15)


@pytest.mark.parametrize("framing", ALL)
def test_memory_does_not_grow_with_the_frame(framing: Framing) -> None:
    """4 MB of an endless frame take less memory than a chunk and its pieces, even if it is all blanks."""
    for body in (b"{ x\t" * 16384, b" " * 65536):
        made = make_decoder(framing, 1000, skips=True)
        endless = b"\x81\x7f%bx" % (10**11).to_bytes(8, "big")
        begins = {"sse": b"data: x", "length": b"%d\nx" % 10**11, "json-seq": b"\x1ex", "websocket": endless}
        made.feed(begins.get(framing, b"x"))
        tracemalloc.start()
        for _ in range(64):
            made.feed(body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 500_000


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 90_000)), max_size=4), PLACES)
@example([(False, 70_010)], [40])  # more than can be held, and ten that come after
def test_trailing_blanks_belong_to_a_skipped_frame_only_beyond_64_kb(
    runs: list[tuple[bool, int]], places: list[int]
) -> None:
    """Up to 64 KB of blanks are held back until something else follows; cuts change nothing."""
    data = b"x" + b"".join((b"x" if is_visible else b" ") * size for is_visible, size in runs)
    skipping = SkippedFrame(b" ")
    for piece in cut(data, [place * HEAD_BYTES // 40 for place in places]):
        skipping.add(piece)
    body = data.rstrip(b" ")
    expected = body if len(data) - len(body) <= HEAD_BYTES else data
    assert skipping.result(is_whole=True) == remains_of(expected)
    assert skipping.seen_bytes == len(data)


@pytest.mark.parametrize(
    ("wire", "frames"),
    [
        (b"      \r\n{}\n", [Frame("{}")]),
        (b"12345\r\r\n1\n", [Frame(remains_of(b"12345")), Frame("1")]),
        (b"1234\r\n", [Frame("1234")]),
        (b"\xef\xbb\xbf1234\n12345\n", [Frame("1234"), Frame(remains_of(b"12345"))]),
    ],
)
def test_a_line_of_blanks_is_a_heartbeat_however_long_it_is(wire: bytes, frames: list[Any]) -> None:
    """A line of blanks is a heartbeat at any length; a line end is no part of a line."""
    assert decode_all("ndjson", one_by_one(wire), most=4, skips=True).frames == frames
