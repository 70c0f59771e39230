"""JSON lines at every split point, and the byte order mark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.decoders import Frame, FrameTooLong
from handlers.framing.frames import text_or_bytes
from handlers.framing.ndjson import NdjsonDecoder
from tests.handlers.connection.wires import MAX, cut, one_by_one, says, splits


def decode(*chunks: bytes, most: int = MAX) -> tuple[list[Frame], str, int]:
    return says("ndjson", chunks, most=most)[:3]


EXAMPLES = [
    (b'{"a":1}\n{"a":2}\n', ['{"a":1}', '{"a":2}']),
    (b'{"a":1}\r\n{"a":2}\r\n', ['{"a":1}', '{"a":2}']),
    (b'\n\n\r\n \t\r\n{"a":1}\n\n', ['{"a":1}']),
    (b'{"a":1}\n{"a":', ['{"a":1}']),
    (b'a\rb\n\rc\r\r\n', ["a\rb", "\rc\r"]),
    (b'\r\r\n \r\r\n1\n\r\r\n', ["1"]),
    (b"\xef\xbb\xbf1\n2\n", ["1", "2"]),
    (b"1\n\xef\xbb\xbf2\n", ["1", "\ufeff2"]),
    (b"\xff\n\xc3\xa9\n", [b"\xff", "é"]),
    ("\u2028 \x85\n".encode(), ["\u2028 \x85"]),
    (b"", []),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "expected"), EXAMPLES)
def test_every_split_of_an_example_gives_its_lines(wire: bytes, expected: list[str | bytes]) -> None:
    """LF and CRLF end a line, blank lines are heartbeats, and no split changes that."""
    whole = decode(wire)
    assert [frame.data for frame in whole[0]] == expected
    assert decode(*one_by_one(wire)) == whole
    for chunks in splits(wire):
        assert decode(*chunks) == whole


def test_a_line_that_is_no_text_is_kept_as_bytes() -> None:
    """Bytes that are not UTF-8 come as they are: nothing is replaced."""
    assert decode(b"\xff\xfe\n")[0] == [Frame(b"\xff\xfe")]


def test_the_tail_is_dropped_and_counted() -> None:
    """A last line without its end is not a frame; its bytes are counted, those of half a heartbeat are not."""
    assert decode(b"1\n23")[2] == 2
    assert decode(b"1\n \r")[2] == 0
    assert decode(b"\xef")[2] == 1


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    """The limit is on the line without its end, CRLF or LF, wherever it is cut."""
    wire = b"abcd\r\nabcd\nabcde\n"
    assert decode(wire, most=4) == ([Frame("abcd"), Frame("abcd")], "frame_too_long", 0)
    assert decode(*one_by_one(wire), most=4) == ([Frame("abcd"), Frame("abcd")], "frame_too_long", 0)
    assert decode(b"abcd\r", b"\n", most=4) == ([Frame("abcd")], "", 0)
    assert decode(b"abcd\r", b"x", most=4) == ([], "frame_too_long", 0)
    assert decode(b"ab\nabcd", b"e\n", most=4) == ([Frame("ab")], "frame_too_long", 0)


def test_a_line_without_an_end_is_not_kept_beyond_the_limit() -> None:
    """The error comes with the byte that exceeds the limit, before any line end."""
    decoder = NdjsonDecoder(4)
    assert decoder.feed(b"abcd") == []
    with pytest.raises(FrameTooLong):
        decoder.feed(b"e")
    with pytest.raises(FrameTooLong):
        decoder.feed(b"\nf\n")


def test_markup_behind_more_blanks_than_a_line_may_have_is_a_long_line_however_it_is_cut() -> None:
    """Which error it is does not hang on whether the markup came with the blanks or after them."""
    for blanks, reason in ((4, "bad_frame"), (5, "frame_too_long")):
        wire = b" " * blanks + b"<html>\n"
        assert {decode(*chunks, most=4)[1] for chunks in ([wire], one_by_one(wire), *splits(wire))} == {reason}


PIECES = [b"{}", b"12", b"\n", b"\r", b"\r\n", b" ", b"\t", b"\xff", "é".encode(), "\u2028".encode()]
LONG_PIECES = [b"x" * 700, b" " * 700, "é".encode() * 300, b"\n", b"\r\n", b"\r", b"\xff", b"12\n" * 40]


def plain_reading(wire: bytes) -> list[bytes]:
    """Whole lines, without their ends, that hold more than blanks."""
    lines = [line.removesuffix(b"\r") for line in wire.split(b"\n")[:-1]]
    return [line for line in lines if line.translate(None, b" \t\r")]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join), st.lists(st.integers(0, 90), max_size=8))
def test_any_wire_decodes_as_a_plain_reading(wire: bytes, places: list[int]) -> None:
    """Whole lines, without their ends, that hold more than blanks."""
    lines = [data if isinstance(data, bytes) else data.encode() for data in says("ndjson", cut(wire, places)).data]
    assert lines == plain_reading(wire)


@given(st.lists(st.sampled_from(LONG_PIECES), max_size=12).map(b"".join), st.lists(st.integers(0, 9000), max_size=5))
def test_long_lines_beside_short_ones_decode_as_a_plain_reading(wire: bytes, places: list[int]) -> None:
    """How lines are looked for depends on how long they are; the lines do not, nor whether they are text."""
    lines = decode(b"1\n", *cut(wire, places), most=1 << 16)[0]
    assert [frame.data for frame in lines] == ["1", *map(text_or_bytes, plain_reading(wire))]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(lambda pieces: b"".join([*pieces, b"\n"])))
def test_reads_that_are_lines_decode_as_the_whole(wire: bytes) -> None:
    """A read that is exactly one line takes a way of its own, and says the same."""
    assert decode(b"1\n", *wire.splitlines(keepends=True)) == decode(b"1\n" + wire)
