"""Server-sent events as WHATWG defines them, at every split point."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.stream.framing import Frame, FrameTooLong
from handlers.stream.sse import MAX_RECONNECTION_MS, SseDecoder

MAX = 1024


def decode(*chunks: bytes, most: int = MAX) -> tuple[list[Frame], bool, int, str | None, int | None]:
    """All that a decoder says of the chunks: frames, whether one was too long, the tail, last event ID, retry."""
    decoder = SseDecoder(most)
    frames: list[Frame] = []
    too_long = False
    for chunk in chunks:
        try:
            frames += decoder.feed(chunk)
        except FrameTooLong as error:
            frames += error.frames
            too_long = True
    return frames, too_long, decoder.close(), decoder.last_event_id, decoder.reconnection_ms


def frames_of(*chunks: bytes) -> list[Frame]:
    return decode(*chunks)[0]


def data_of(*chunks: bytes) -> list[str | bytes]:
    return [frame.data for frame in frames_of(*chunks)]


# What the wire holds and the data that it dispatches; after the specification's own examples and its edges.
EXAMPLES = [
    (b"data: YHOO\ndata: +2\ndata: 10\n\n", ["YHOO\n+2\n10"]),
    (b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
     ["first event", "second event", " third event"]),
    (b"data\n\ndata\ndata\n\ndata:\n\n", ["", "\n", ""]),
    (b"data:test\n\ndata: test\n\n", ["test", "test"]),
    (b"data: a\r\ndata: b\r\n\r\n", ["a\nb"]),
    (b"data: a\rdata: b\r\r", ["a\nb"]),
    (b"data: a\r\n\rdata: b\n\r", ["a", "b"]),
    (b"data: a\r\n\n\r\ndata: b\n\n", ["a", "b"]),
    (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
    (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", ["b"]),
    (b"data: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n", ["a", "c"]),
    (b"data: \xff\xe4\xb8\n\n", ["\ufffd\ufffd"]),
    (b"data: \xe4\xb8\xad\xf0\x9f\x98\x80\n\n", ["中😀"]),
    (b"data: a\x00b\n\n", ["a\x00b"]),
    (b"data: a\x0bb\x0cc\x85d\xe2\x80\xa8e\n\n", ["a\x0bb\x0cc\ufffdd\u2028e"]),
    (b"Data: a\n data: b\ndata : c\n:data: d\ndata: e\n\n", ["e"]),
    (b"data: a", []),
    (b"data: a\n", []),
    (b"event: x\n\nid: 4\n\nretry: 5\n\n", []),
    (b"\n\n\r\r\n\n", []),
    (b"", []),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "expected"), EXAMPLES)
def test_dispatches_what_the_specification_dispatches(wire: bytes, expected: list[str]) -> None:
    """The data of every event is the specification's."""
    assert data_of(wire) == expected


@pytest.mark.parametrize(("wire", "expected"), EXAMPLES)
def test_every_split_of_an_example_gives_the_same(wire: bytes, expected: list[str]) -> None:
    """One, two and three chunks, and one byte a chunk, decode to the same frames, tail, id and time."""
    whole = decode(wire)
    assert [frame.data for frame in whole[0]] == expected
    assert decode(*(wire[n : n + 1] for n in range(len(wire)))) == whole
    for a, b in itertools.combinations_with_replacement(range(len(wire) + 1), 2):
        assert decode(wire[:a], wire[a:b], wire[b:]) == whole


def test_a_name_lasts_for_its_block_and_an_id_for_ever() -> None:
    """`event` belongs to one event; the last event ID goes on, while `id` is the event's own."""
    wire = b"event: add\nid: 1\ndata: a\n\ndata: b\n\nevent:\nid: 2\ndata: c\n\n"
    assert frames_of(wire) == [Frame("a", "1", "add", "1"), Frame("b", None, None, "1"), Frame("c", "2", None, "2")]


def test_a_block_of_only_an_id_dispatches_nothing_and_is_remembered() -> None:
    """The id of a block without data becomes the last event ID, also of the events after it."""
    frames, _, _, last_event_id, _ = decode(b"id: 7\n\ndata: a\n\nid: 8\n\n")
    assert frames == [Frame("a", None, None, "7")]
    assert last_event_id == "8"


def test_an_id_counts_only_once_its_block_is_complete() -> None:
    """The id of an unterminated block is no last event ID: the event it belongs to was not dispatched."""
    assert decode(b"id: 7\ndata: a\n\nid: 8\ndata: b\n")[3] == "7"


def test_an_id_with_a_null_is_ignored_and_an_empty_one_resets() -> None:
    """`id: a<NUL>b` changes nothing, `id` alone sets the last event ID to the empty string."""
    wire = b"id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\nid\ndata: c\n\n"
    assert [(frame.id, frame.last_id) for frame in frames_of(wire)] == [("1", "1"), (None, "1"), ("", "")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"1000", 1000),
        (b"0", 0),
        (b"007", 7),
        (b"", None),
        (b"+5", None),
        (b"-3", None),
        (b"1_0", None),
        (b"5 ", None),
        (b" 5", None),
        (b"1.5", None),
        ("٣".encode(), None),
        (b"9" * 900, MAX_RECONNECTION_MS),
        (b"0" * 900 + b"5", 5),
    ],
)
def test_a_reconnection_time_is_ascii_digits(value: bytes, expected: int | None) -> None:
    """Only ASCII digits set the reconnection time; a number of any length does no harm."""
    assert decode(b"retry: " + value + b"\n\n")[4] == expected


def test_a_line_end_is_acted_upon_when_it_is_seen() -> None:
    """A blank line that ends with CR dispatches at once; a LF that comes later belongs to it."""
    decoder = SseDecoder(MAX)
    assert decoder.feed(b"data: a\r\r") == [Frame("a")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: b\n") == []
    assert decoder.feed(b"\n") == [Frame("b")]


def test_the_tail_is_dropped_and_counted() -> None:
    """The bytes of an unfinished block are counted, with one byte a line end and without comments."""
    assert decode(b"data: a\n\ndata: b\r\n: comment\r\nid: 1")[2] == len(b"data: b\nid: 1")
    assert decode(b"data: a\n\n: comment\n")[2] == 0
    assert decode(b"\xef\xbb")[2] == 2


def test_a_frame_may_be_as_long_as_the_limit_and_no_longer() -> None:
    """The limit is on the block's lines with one byte between them, whatever the line ends are."""
    assert decode(b"data: abcd\r\nid: 1\r\n\r\n", most=16)[:2] == ([Frame("abcd", "1", None, "1")], False)
    assert decode(b"data: abcd\nid: 1\n\n", most=15)[:2] == ([], True)
    assert decode(b"data: a\n\n" * 9, most=7)[:2] == ([Frame("a")] * 9, False)
    assert decode(b": comment\n" * 9 + b"data: a\n\n", most=9)[:2] == ([Frame("a")], False)


def test_what_was_complete_before_a_frame_that_is_too_long_is_kept() -> None:
    """The error hands over the frames before it, and every later call raises it again."""
    decoder = SseDecoder(10)
    with pytest.raises(FrameTooLong, match=r"longer than max_frame_bytes \(10\)") as caught:
        decoder.feed(b"data: a\n\ndata: 12345\n\ndata: b\n\n")
    assert caught.value.frames == [Frame("a")]
    with pytest.raises(FrameTooLong):
        decoder.feed(b"data: c\n\n")


FIELDS = [b"data", b"data:", b"data: ", b"id", b"id: ", b"event:x", b"retry: 7", b":", b" ", b"1", b"abcdefgh"]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n"]
BYTES = [b"\0", b"\xef\xbb\xbf", b"\xef\xbb", b"\xff", "é".encode(), b"\xc3"]
WIRES = st.lists(st.sampled_from([*FIELDS, *ENDS, *BYTES]), max_size=30).map(b"".join)


@given(WIRES, st.lists(st.integers(0, 120), max_size=12), st.sampled_from([8, 16, MAX]))
def test_any_wire_cut_anywhere_gives_the_same(wire: bytes, cuts: list[int], most: int) -> None:
    """Frames, the error, the tail, the last event ID and the reconnection time do not depend on chunk boundaries."""
    edges = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    chunks = [wire[a:b] for a, b in itertools.pairwise(edges)]
    assert decode(*chunks, most=most) == decode(wire, most=most)


@given(WIRES)
def test_any_wire_decodes_as_the_plain_reading_of_the_specification(wire: bytes) -> None:
    """A second decoder, which reads the whole text at once as the specification is written, finds the same events."""
    assert [(f.data, f.name, f.last_id or "") for f in frames_of(wire)] == plain_reading(wire)


def plain_reading(wire: bytes) -> list[tuple[str, str | None, str]]:
    """The specification's parser on a whole text: the byte order mark, then lines, then fields."""
    text = wire.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    found: list[tuple[str, str | None, str]] = []
    data = name = last_id = ""
    for line in lines:
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if line == "":
            if data:
                found.append((data[:-1], name or None, last_id))
            data = name = ""
        elif field == "data":
            data += value + "\n"
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id = value
    return found


def test_bytes_that_come_one_by_one_cost_linear_time() -> None:
    """Four times the bytes of one line, a byte a chunk, take far less than sixteen times the time."""

    def cost_s(size: int) -> float:
        decoder = SseDecoder(1 << 20)
        since = time.process_time()
        for _ in range(size):
            decoder.feed(b"x")
        return time.process_time() - since

    assert min(cost_s(200_000) for _ in range(3)) < 10 * min(cost_s(50_000) for _ in range(3))
