"""Frames with a length before them, at every split point; and frames that are the reads."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.decoders import decoder
from handlers.framing.frames import Frame
from tests.handlers.connection.wires import cut, says


@given(st.lists(st.binary(max_size=20) | st.just(b""), max_size=6), st.lists(st.integers(0, 150), max_size=8))
def test_what_a_sender_wrote_is_read_back(messages: list[bytes], places: list[int]) -> None:
    """Any bytes come back whole, texts without the line end that the sender added."""
    wire = b"".join(b"%d\r\n%s\r\n\r\n" % (len(message) + 2, message) for message in messages)
    bodies = says("length", cut(wire, places)).data
    assert [data if isinstance(data, bytes) else data.encode() + b"\r\n" for data in bodies] == [
        message + b"\r\n" for message in messages
    ]


def test_a_raw_frame_is_a_chunk() -> None:
    """Each chunk comes unchanged, as text if it is UTF-8; an empty one is no frame; one too long is an error."""
    made = decoder("raw", 4)
    assert [made.feed(chunk) for chunk in (b"ab\n", b"", b"\xff", b"<a>")] == [
        ["ab\n"],
        [],
        [b"\xff"],
        ["<a>"],
    ]
    assert says("raw", [b"a", b"abcde", b"b"], most=4)[:3] == ([Frame("a")], "frame_too_long", 0)
