"""Server-sent events as WHATWG defines them, at every split point."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.frames import Frame, FrameTooLong
from handlers.framing.sse import MAX_RECONNECTION_MS, SseDecoder
from tests.handlers.connection.wires import MAX, Said, cut, says


def decode(*chunks: bytes, most: int = MAX, comments: bool = False) -> Said:
    return says("sse", chunks, most=most, comments=comments)


def frames_of(*chunks: bytes) -> list[Frame]:
    return decode(*chunks).frames


def test_a_name_lasts_for_its_block_and_an_id_for_ever() -> None:
    """`event` belongs to one event; the last event ID goes on, while `id` is the event's own."""
    wire = b"event: add\nid: 1\ndata: a\n\ndata: b\n\nevent:\nid: 2\ndata: c\n\n"
    assert frames_of(wire) == [Frame("a", "1", "add", "1"), Frame("b", None, None, "1"), Frame("c", "2", None, "2")]


def test_a_block_of_only_an_id_dispatches_nothing_and_is_remembered() -> None:
    """The id of a block without data becomes the last event ID of later events too."""
    frames, _, _, last_event_id, *_ = decode(b"id: 7\n\ndata: a\n\nid: 8\n\n")
    assert frames == [Frame("a", None, None, "7")]
    assert last_event_id == "8"


def test_an_id_counts_only_once_its_block_is_complete() -> None:
    """The id of an unterminated block is not a last event ID, because its event was not dispatched."""
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
    """A blank line that ends with CR dispatches at once; a later LF belongs to it."""
    decoder = SseDecoder(MAX)
    assert decoder.feed(b"data: a\r\r") == [Frame("a")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: b\n") == []
    assert decoder.feed(b"\n") == [Frame("b")]


def test_a_comment_is_handed_over_where_it_stands_as_soon_as_its_line_ends() -> None:
    """If asked for, it is a frame before its block's event, without its colon and one space."""
    wire = b": one\ndata: a\n:two\n\n:  three\n:\n"
    expected = [Frame("one", is_comment=True), Frame("two", is_comment=True), Frame("a")]
    expected += [Frame(" three", is_comment=True), Frame("", is_comment=True)]
    assert decode(wire, comments=True).frames == expected
    decoder = SseDecoder(MAX, comments=True)
    assert decoder.feed(b"data: a\n: you are too slow\n") == [Frame("you are too slow", is_comment=True)]


def test_comments_without_a_blank_line_are_no_frame_that_grows() -> None:
    """Heartbeats that no blank line follows add nothing to the frame, asked for or not."""
    for comments in (False, True):
        said = decode(*[b": beat\n"] * 100, b"data: a\n\n", most=10, comments=comments)
        assert ([frame for frame in said.frames if not frame.is_comment], said.failed) == ([Frame("a")], "")


def test_the_tail_is_dropped_and_counted() -> None:
    """The bytes of an unfinished block are counted, with one byte a line end and without comments."""
    assert decode(b"data: a\n\ndata: b\r\n: comment\r\nid: 1")[2] == len(b"data: b\nid: 1")
    assert decode(b"data: a\n\n: comment\n")[2] == 0
    assert decode(b"\xef\xbb")[2] == 2


def test_what_was_complete_before_a_frame_that_is_too_long_is_kept() -> None:
    """The error carries the frames before it, and every later call raises it again."""
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


@given(WIRES, st.lists(st.integers(0, 120), max_size=6))
def test_any_wire_decodes_as_the_plain_reading_of_the_specification(wire: bytes, places: list[int]) -> None:
    """A second decoder, which reads the whole text as the specification is written, agrees."""
    frames, failed, _, last_event_id, reconnection_ms, *_ = decode(*cut(wire, places))
    assert ([(f.data, f.name, f.last_id or "") for f in frames], failed) == (plain_reading(wire)[0], "")
    assert (last_event_id or "", reconnection_ms) == plain_reading(wire)[1:]


@given(WIRES, st.lists(st.integers(0, 120), max_size=6))
def test_comments_stand_among_the_events_and_change_none(wire: bytes, places: list[int]) -> None:
    """The events are the same, asked for or not; the comments are the lines that begin with a colon."""
    frames = decode(*cut(wire, places), comments=True).frames
    assert [frame for frame in frames if not frame.is_comment] == frames_of(wire)
    lines = wire.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    comments = [line[1:].removeprefix(b" ").decode("utf-8", "replace") for line in lines if line.startswith(b":")]
    assert [frame.data for frame in frames if frame.is_comment] == comments


def plain_reading(wire: bytes) -> tuple[list[tuple[str, str | None, str]], str, int | None]:
    """Read a whole text as the specification does: the byte order mark, then lines, then fields.

    Return the events, the last event ID string and the reconnection time.
    """
    text = wire.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    events: list[tuple[str, str | None, str]] = []
    data = name = buffer = last_id = ""
    reconnection_ms = None
    for line in lines:
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if line == "":
            last_id = buffer
            if data:
                events.append((data[:-1], name or None, last_id))
            data = name = ""
        elif field == "data":
            data += value + "\n"
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            buffer = value
        elif field == "retry" and value and all(digit in "0123456789" for digit in value):
            reconnection_ms = min(int(value), MAX_RECONNECTION_MS)
    return events, last_id, reconnection_ms
