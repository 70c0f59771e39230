"""JSON lines at every split point, and the byte order mark."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.stream.framing import Frame, FrameTooLong, NdjsonDecoder

MAX = 1024


def decode(*chunks: bytes, most: int = MAX) -> tuple[list[Frame], bool, int]:
    """All that a decoder says of the chunks: frames, whether one was too long, the tail."""
    decoder = NdjsonDecoder(most)
    frames: list[Frame] = []
    too_long = False
    for chunk in chunks:
        try:
            frames += decoder.feed(chunk)
        except FrameTooLong as error:
            frames += error.frames
            too_long = True
    return frames, too_long, decoder.close()


EXAMPLES = [
    (b'{"a":1}\n{"a":2}\n', ['{"a":1}', '{"a":2}']),
    (b'{"a":1}\r\n{"a":2}\r\n', ['{"a":1}', '{"a":2}']),
    (b'\n\n\r\n \t\r\n{"a":1}\n\n', ['{"a":1}']),
    (b'{"a":1}\n{"a":', ['{"a":1}']),
    (b'a\rb\n\rc\r\r\n', ["a\rb", "\rc\r"]),
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
    assert decode(*(wire[n : n + 1] for n in range(len(wire)))) == whole
    for a, b in itertools.combinations_with_replacement(range(len(wire) + 1), 2):
        assert decode(wire[:a], wire[a:b], wire[b:]) == whole


def test_a_line_that_is_no_text_is_kept_as_bytes() -> None:
    """Bytes that are no UTF-8 come as they are: nothing is replaced."""
    assert decode(b"\xff\xfe\n")[0] == [Frame(b"\xff\xfe")]


def test_the_tail_is_dropped_and_counted() -> None:
    """A last line without its end is no frame; its bytes are counted, those of half a heartbeat are not."""
    assert decode(b"1\n23")[2] == 2
    assert decode(b"1\n \r")[2] == 0
    assert decode(b"\xef")[2] == 1


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    """The limit is on the line without its end, CRLF or LF, wherever it is cut."""
    wire = b"abcd\r\nabcd\nabcde\n"
    assert decode(wire, most=4) == ([Frame("abcd"), Frame("abcd")], True, 0)
    assert decode(*(wire[n : n + 1] for n in range(len(wire))), most=4) == ([Frame("abcd"), Frame("abcd")], True, 0)
    assert decode(b"abcd\r", b"\n", most=4) == ([Frame("abcd")], False, 0)
    assert decode(b"abcd\r", b"x", most=4) == ([], True, 0)


def test_a_line_without_an_end_is_not_kept_beyond_the_limit() -> None:
    """The error comes with the byte that exceeds the limit, before any line end."""
    decoder = NdjsonDecoder(4)
    assert decoder.feed(b"abcd") == []
    with pytest.raises(FrameTooLong):
        decoder.feed(b"e")
    with pytest.raises(FrameTooLong):
        decoder.feed(b"\nf\n")


PIECES = [b"{}", b"12", b"\n", b"\r", b"\r\n", b" ", b"\t", b"\xef\xbb\xbf", b"\xef", b"\xff", "é".encode(), b"abcd"]


@given(
    st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join),
    st.lists(st.integers(0, 90), max_size=12),
    st.sampled_from([4, 8, MAX]),
)
def test_any_wire_cut_anywhere_gives_the_same(wire: bytes, cuts: list[int], most: int) -> None:
    """Frames, the error and the tail do not depend on chunk boundaries."""
    edges = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    chunks = [wire[a:b] for a, b in itertools.pairwise(edges)]
    assert decode(*chunks, most=most) == decode(wire, most=most)


def test_bytes_that_come_one_by_one_cost_linear_time() -> None:
    """Four times the bytes of one line, a byte a chunk, take far less than sixteen times the time."""

    def cost_s(size: int) -> float:
        decoder = NdjsonDecoder(1 << 20)
        since = time.process_time()
        for _ in range(size):
            decoder.feed(b"x")
        return time.process_time() - since

    assert min(cost_s(200_000) for _ in range(3)) < 10 * min(cost_s(50_000) for _ in range(3))
