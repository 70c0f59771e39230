"""Server-sent events as WHATWG defines them, at every split point."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handlers.framing.frames import Frame
from handlers.framing.sse import MAX_RECONNECTION_MS, SseDecoder
from tests.handlers.connection.wires import MAX, Decoded, cut, decode_all


def decode(*chunks: bytes, most: int = MAX, comments: bool = False) -> Decoded:
    return decode_all("sse", chunks, most=most, comments=comments)


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


def test_a_line_end_takes_effect_as_soon_as_it_is_seen() -> None:
    """A blank line that ends with CR dispatches at once; a later LF belongs to it."""
    decoder = SseDecoder(MAX)
    assert decoder.feed(b"data: a\r\r") == [Frame("a")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: b\n") == []
    assert decoder.feed(b"\n") == [Frame("b")]


def test_a_comment_becomes_a_frame_as_soon_as_its_line_ends() -> None:
    """With `comments`, a comment is a frame before its block's event, without the colon and one space after it."""
    wire = b": one\ndata: a\n:two\n\n:  three\n:\n"
    expected = [Frame("one", is_comment=True), Frame("two", is_comment=True), Frame("a")]
    expected += [Frame(" three", is_comment=True), Frame("", is_comment=True)]
    assert decode(wire, comments=True).frames == expected
    decoder = SseDecoder(MAX, comments=True)
    assert decoder.feed(b"data: a\n: you are too slow\n") == [Frame("you are too slow", is_comment=True)]


FIELDS = [b"data", b"data:", b"data: ", b"id", b"id: ", b"event:x", b"retry: 7", b":", b" ", b"1", b"abcdefgh"]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n"]
BYTES = [b"\0", b"\xef\xbb\xbf", b"\xef\xbb", b"\xff", "é".encode(), b"\xc3"]
WIRES = st.lists(st.sampled_from([*FIELDS, *ENDS, *BYTES]), max_size=30).map(b"".join)


# A name lasts for its block and an id for ever. An id counts once its block is complete, with or without an event;
# an id with a null is ignored, and an empty one resets it.
@example(b"event: add\nid: 1\ndata: a\n\ndata: b\n\nevent:\nid: 2\ndata: c\n\n", [])
@example(b"id: 7\n\ndata: a\n\nid: 8\n\n", [])
@example(b"id: 7\ndata: a\n\nid: 8\ndata: b\n", [])
@example(b"id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\nid\ndata: c\n\n", [])
@given(WIRES, st.lists(st.integers(0, 120), max_size=6))
def test_any_wire_decodes_as_the_plain_reading_of_the_specification(wire: bytes, places: list[int]) -> None:
    """The decoder agrees with a second one that reads the whole text as the specification is written."""
    frames, failed, _, last_event_id, reconnection_ms, *_ = decode(*cut(wire, places))
    assert ([frame[:4] for frame in frames], failed) == (plain_reading(wire)[0], "")
    assert (last_event_id, reconnection_ms) == plain_reading(wire)[1:]


@given(WIRES, st.lists(st.integers(0, 120), max_size=6))
def test_comments_stand_among_the_events_and_change_none(wire: bytes, places: list[int]) -> None:
    """The events are the same with and without `comments`; comments are the lines that begin with a colon."""
    frames = decode(*cut(wire, places), comments=True).frames
    assert [frame for frame in frames if not frame.is_comment] == decode(wire).frames
    lines = wire.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    comments = [line[1:].removeprefix(b" ").decode("utf-8", "replace") for line in lines if line.startswith(b":")]
    assert [frame.data for frame in frames if frame.is_comment] == comments


def plain_reading(wire: bytes) -> tuple[list[tuple[str | None, ...]], str | None, int | None]:
    """Read a whole text as the specification does: the byte order mark, then lines, then fields.

    Return each event's data, own id, name and last event ID, and at the end the last event ID and the reconnection
    time. An id counts from the end of its block on, with or without an event; without any it is None.
    """
    text = wire.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    events: list[tuple[str | None, ...]] = []
    data = name = ""
    own_id = buffer = last_id = None
    reconnection_ms = None
    for line in lines:
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if line == "":
            last_id = buffer
            if data:
                events.append((data[:-1], own_id, name or None, last_id))
            data, own_id, name = "", None, ""
        elif field == "data":
            data += value + "\n"
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            own_id = buffer = value
        elif field == "retry" and value and all(digit in "0123456789" for digit in value):
            reconnection_ms = min(int(value), MAX_RECONNECTION_MS)
    return events, last_id, reconnection_ms
