"""Frames whose length is known before they come, at every split point; and frames that are the reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.decoders import Frame, decoder
from tests.handlers.connection.wires import cut, one_by_one, says, splits

# What the wire holds, the messages in it, the error, and how many bytes are dropped.
EXAMPLES = [
    (b'7\n{"a":1}7\n{"a":2}', ['{"a":1}', '{"a":2}'], "", 0),
    (b'9\r\n{"a":1}\r\n\r\n\r\n8\r\n{"a":2}\n', ['{"a":1}', '{"a":2}'], "", 0),
    (b"3\n\n\n\n2\n\r\n1\n\r0\n1\na", ["\n\n", "", "\r", "a"], "", 0),
    (b"3\n\xff\r\n2\n\xc3\xa9", [b"\xff\r\n", "é"], "", 0),
    (b"007\n1234567", ["1234567"], "", 0),
    (b"\xef\xbb\xbf1\na", ["a"], "", 0),
    (b"1\na3\nab", ["a"], "", 2),
    (b"1\na3", ["a"], "", 1),
    (b"1\na\r\n\r", ["a"], "", 0),
    (b"1\nax\nb", ["a"], "bad_frame", 0),
    (b"+1\na", [], "bad_frame", 0),
    (b" 1\na", [], "bad_frame", 0),
    ("٣\nabc".encode(), [], "bad_frame", 0),
    (b"1\na0000000000000001\na", ["a"], "bad_frame", 0),
    (b"1\na1025\n", ["a"], "frame_too_long", 0),
    (b"", [], "", 0),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "messages", "failed", "dropped_bytes"), EXAMPLES)
def test_every_split_of_an_example_gives_its_messages(
    wire: bytes, messages: list[str | bytes], failed: str, dropped_bytes: int
) -> None:
    """A number and that many bytes, empty lines between; one line end behind a text is not content."""
    whole = says("length", [wire])
    assert (whole.data, whole.failed, whole.dropped_bytes) == (messages, failed, dropped_bytes)
    assert says("length", one_by_one(wire)) == whole
    for chunks in splits(wire):
        assert says("length", chunks) == whole


def test_a_message_that_is_too_long_is_refused_by_its_length() -> None:
    """Nothing of it is waited for or held."""
    made = decoder("length", 10)
    assert made.feed(b"10\n0123456789") == ["0123456789"]
    assert says("length", [b"11\n"], most=10).failed == "frame_too_long"


@given(st.lists(st.binary(max_size=20) | st.just(b""), max_size=6), st.lists(st.integers(0, 150), max_size=8))
def test_what_a_sender_wrote_is_read_back(messages: list[bytes], places: list[int]) -> None:
    """Any bytes come back whole; texts without the line end that the sender put behind them."""
    wire = b"".join(b"%d\r\n%s\r\n\r\n" % (len(message) + 2, message) for message in messages)
    bodies = says("length", cut(wire, places)).data
    assert [data if isinstance(data, bytes) else data.encode() + b"\r\n" for data in bodies] == [
        message + b"\r\n" for message in messages
    ]


def test_a_raw_frame_is_a_chunk() -> None:
    """Each chunk as it came, as text where it is UTF-8; an empty one is none; one too long is an error."""
    made = decoder("raw", 4)
    assert [made.feed(chunk) for chunk in (b"ab\n", b"", b"\xff", b"<a>")] == [
        ["ab\n"],
        [],
        [b"\xff"],
        ["<a>"],
    ]
    assert says("raw", [b"a", b"abcde", b"b"], most=4)[:3] == ([Frame("a")], "frame_too_long", 0)
