"""For every framing: no bytes crash a decoder, memory is bounded, and no split changes the result."""

import math
import time
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.decoders import FRAMINGS, Framing, content_type_problem, make_decoder
from handlers.framing.frames import BadFrame, Frame, FrameTooLong, as_frames
from tests.handlers.connection.wires import MAX, cut, decode_all, one_by_one

ALL: list[Framing] = list(FRAMINGS)
CUT_ANYWHERE: list[Framing] = [framing for framing in ALL if framing != "raw"]
PIECES = [
    *(b"data", b"data: ", b"id: 1", b"event:x", b"retry: 7", b":", b" ", b"\t", b"abcdefgh", b"5", b"12", b"0", b"<a"),
    *(b"{", b"}", b"[1]", b'"', b"\\", b"true", b'{"a":1}', b"\n", b"\r", b"\r\n", b"\n\n", b"\x1e"),
    *(b"\x81\x05", b"\x01\x02", b"\x80\x01", b"\x82\x00", b"\x89\x01", b"\x88\x02\x03\xe8", b"\x81\x7e\x00\x80"),
    *(b"\0", b"\xef\xbb\xbf", b"\xef\xbb", b"\xff", "é".encode(), b"\xc3"),
]
PLACES = st.lists(st.integers(0, 160), max_size=12)
WIRES = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join) | st.binary(max_size=80)


def test_every_framing_of_the_type_is_made() -> None:
    """The type names exactly the framings that can be made."""
    assert tuple(ALL) == get_args(Framing)


@pytest.mark.parametrize("skips", [False, True])
@given(st.sampled_from(CUT_ANYWHERE), WIRES, PLACES, st.sampled_from([1, 4, 8, 16, MAX]))
def test_any_wire_gives_the_same_result_wherever_it_is_cut(
    skips: bool, framing: Framing, wire: bytes, places: list[int], most: int
) -> None:
    """Frames, rests of skipped ones, error, dropped bytes, ids and reconnection times do not depend on chunks.

    Neither does whether the wire ends inside a frame; if it does, bytes are dropped. With `skips` none is too long.
    """
    whole = decode_all(framing, [wire], most=most, comments=True, skips=skips)
    assert whole.dropped_bytes > 0 or not whole.is_inside
    assert decode_all(framing, cut(wire, places), most=most, comments=True, skips=skips) == whole
    assert decode_all(framing, one_by_one(wire), most=most, comments=True, skips=skips) == whole
    assert not skips or whole.failed in ("", "bad_frame")


@pytest.mark.parametrize(
    ("framing", "wires"),
    [
        ("sse", (b"data: a\n\n", b": hi\n", b": hi", b"retry: 9\n", b"id: 1\ndata: a\r\n\r\n", b"\n", b"\xef\xbb\xbf")),
        ("ndjson", (b"{}\n", b"{}\n \r", b"\n", b" ")),
        ("json-seq", (b"\x1e{}\n", b"\x1e", b"\x1e1\n \n")),
        ("length", (b"2\n{}", b"\r\n", b"0\n", b"2\n{}\r")),
        ("websocket", (b"\x81\x00", b"\x89", b"\x89\x05", b"\x89\x05123", b"\x8a\x00", b"\x88\x02\x03\xe8")),
        ("raw", (b"{", b"")),
    ],
)
def test_no_frame_has_begun_between_two_frames(framing: Framing, wires: tuple[bytes, ...]) -> None:
    """A decoder is inside no frame between two frames, nor after a comment, a heartbeat or a reconnection time."""
    assert [decode_all(framing, [wire]).is_inside for wire in wires] == [False] * len(wires)


@pytest.mark.parametrize(
    ("framing", "wires"),
    [
        ("sse", (b"d", b"data: a\n", b"id: 1\n", b"event: x\n", b"data: a\n\ndata: b")),
        ("ndjson", (b"{", b"{}", b"{}\n{")),
        ("json-seq", (b"\x1e{", b"\x1e{}", b"\x1e{\n")),
        ("length", (b"2", b"2\n", b"2\n{", b"0\n1")),
        ("websocket", (b"\x81", b"\x81\x02", b"\x81\x02{", b"\x01\x02{}", b"\x01\x00\x89\x00", b"\x81\x00\x82")),
    ],
)
def test_a_decoder_is_inside_a_frame_until_its_end(framing: Framing, wires: tuple[bytes, ...]) -> None:
    """A decoder is inside a frame from its first byte on; a skipped one does not count, because it is reported."""
    assert [decode_all(framing, [wire]).is_inside for wire in wires] == [True] * len(wires)
    # In most framings the digits alone do not begin a frame that is skipped.
    begins = {"sse": b"data: 123456789", "length": b"12\n1", "websocket": b"\x81\x0c123456789"}
    assert not decode_all(framing, [begins.get(framing, b"\x1e123456789")], most=8, skips=True).is_inside


@given(st.sampled_from(ALL), st.lists(st.binary(max_size=50), max_size=20), st.sampled_from([1, 16, MAX]))
def test_no_bytes_crash_a_decoder(framing: Framing, chunks: list[bytes], most: int) -> None:
    """Any chunks give frames no longer than the limit and at most one kind of error."""
    said = decode_all(framing, chunks, most=most, comments=True)
    assert said.failed in ("", "bad_frame", "frame_too_long")
    # Replacing a byte that is not UTF-8 by U+FFFD makes three of one.
    assert all(len(data if isinstance(data, bytes) else data.encode()) <= 3 * most for data in said.data)


@pytest.mark.parametrize("framing", ALL)
def test_an_error_comes_back_at_every_later_call(framing: Framing) -> None:
    """A stream that cannot be framed does not begin anew with the next chunk."""
    made = make_decoder(framing, 4)
    long = {"json-seq": b"\x1e12345678\n\n", "websocket": b"\x81\x0512345"}.get(framing, b"5\n345678\n\n")
    for data in (long, b"\x1e1\n\n"):
        with pytest.raises(FrameTooLong, match=r"^a frame is longer than max_frame_bytes \(4\)$") as caught:
            made.feed(data)
        assert as_frames(caught.value.frames) in ([], [Frame("5")])


@pytest.mark.parametrize("framing", ["ndjson", "json-seq"])
def test_a_page_is_no_stream_whatever_its_content_type(framing: Framing) -> None:
    """A body that begins with markup is an error at its first visible byte, and stays one."""
    for page in (b"<!DOCTYPE html>\n", b"\r\n  \n<html>", b"\xef\xbb\xbf<"):
        made = make_decoder(framing, MAX)
        assert [made.feed(byte) for byte in one_by_one(page.partition(b"<")[0])] == [[]] * page.index(b"<")
        for data in (b"<", b'{"a":1}\n'):
            with pytest.raises(BadFrame, match=r"^the body begins with markup: it is a page, not a stream$"):
                made.feed(data)
    assert decode_all(framing, [b"\n"]).failed == ""


SSE, SEQ = "text/event-stream", "application/json-seq"
CANNOT = 'which framing = "{}" cannot read'
OTHER = "a content type other than text/event-stream"
WRITE = 'write framing = "{}" in the profile'


@pytest.mark.parametrize(
    ("framing", "content_type", "phrase"),
    [
        ("sse", "text/event-stream", ""),
        ("sse", "Text/Event-Stream; charset=utf-8", ""),
        ("sse", None, ""),
        ("sse", "text/plain", OTHER),
        ("sse", "text/html", OTHER),
        ("sse", "", OTHER),
        ("ndjson", "text/plain", ""),
        ("ndjson", None, ""),
        ("ndjson", "TEXT/HTML;charset=x", "an HTML page instead of a stream"),
        ("raw", "application/xhtml+xml", "an HTML page instead of a stream"),
        ("sse", "application/json", f"{OTHER}: for JSON lines {WRITE.format('ndjson')}"),
        ("sse", "application/x-ndjson", f"application/x-ndjson, {CANNOT.format('sse')}: {WRITE.format('ndjson')}"),
        ("ndjson", "text/event-stream", f"{SSE}, {CANNOT.format('ndjson')}: {WRITE.format('sse')}"),
        ("ndjson", "Text/Event-Stream;charset=utf-8", f"{SSE}, {CANNOT.format('ndjson')}: {WRITE.format('sse')}"),
        ("json-seq", "text/event-stream", f"{SSE}, {CANNOT.format('json-seq')}: {WRITE.format('sse')}"),
        ("length", "text/event-stream", f"{SSE}, {CANNOT.format('length')}: {WRITE.format('sse')}"),
        ("ndjson", "application/json-seq", f"{SEQ}, {CANNOT.format('ndjson')}: {WRITE.format('json-seq')}"),
        ("json-seq", "application/jsonl", f"application/jsonl, {CANNOT.format('json-seq')}: {WRITE.format('ndjson')}"),
        ("length", "application/x-ndjson", ""),
        ("raw", "text/event-stream", ""),
        ("json-seq", "application/json", ""),
        ("ndjson", "application/stream+json", ""),
    ],
)
def test_a_content_type_that_is_no_stream_is_named(framing: Framing, content_type: str | None, phrase: str) -> None:
    """An event stream needs its own Content-Type; that of another framing is refused with that framing's name."""
    assert content_type_problem(framing, content_type) == phrase


def is_linear(cost_s: Callable[[int], float], size: int) -> bool:
    """Return whether four times the size costs less than ten times the time; quadratic would be sixteen.

    The least of up to ten measurements counts, to leave out what a busy machine adds.
    """
    small = large = math.inf
    for _ in range(10):
        small, large = min(small, cost_s(size)), min(large, cost_s(4 * size))
        if large < 10 * small:
            return True
    return False


@pytest.mark.parametrize("framing", CUT_ANYWHERE)
def test_decoding_takes_a_time_that_is_linear_in_the_bytes(framing: Framing) -> None:
    """The inputs are a line in chunks of a byte, and a text at which a careless pattern tries again at every quote.

    Four times the bytes take far less than sixteen times the time.
    """

    def cost_of_bytes_s(size: int) -> float:
        made = make_decoder(framing, 1 << 20)
        begins = {"json-seq": b"\x1e", "length": b"999999\n", "websocket": b"\x81\x7f" + (999_999).to_bytes(8, "big")}
        made.feed(begins.get(framing, b""))
        since = time.process_time()
        for _ in range(size):
            made.feed(b"x")
        return time.process_time() - since

    def cost_of_quotes_s(size: int) -> float:
        wire = b"\x1e[" + b'\\"' * size + b'"' + b'\\"' * size + b"\n\x1e"
        since = time.process_time()
        if framing not in ("length", "websocket"):
            decode_all(framing, [wire] if framing == "json-seq" else [wire[1:]], most=1 << 22)
        return time.process_time() - since

    assert is_linear(cost_of_bytes_s, 25_000)
    assert is_linear(cost_of_quotes_s, 50_000)
