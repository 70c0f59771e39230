"""JSON lines at every split point, and the byte order mark."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.frames import Frame, text_or_bytes
from tests.handlers.connection.wires import MAX, cut, says


def decode(*chunks: bytes, most: int = MAX) -> tuple[list[Frame], str, int]:
    return says("ndjson", chunks, most=most)[:3]


PIECES = [b"{}", b"12", b"\n", b"\r", b"\r\n", b" ", b"\t", b"\xff", "é".encode(), "\u2028".encode()]
LONG_PIECES = [b"x" * 700, b" " * 700, "é".encode() * 300, b"\n", b"\r\n", b"\r", b"\xff", b"12\n" * 40]


def plain_reading(wire: bytes) -> list[bytes]:
    """Return the whole lines, without their ends, that are not blank."""
    lines = [line.removesuffix(b"\r") for line in wire.split(b"\n")[:-1]]
    return [line for line in lines if line.translate(None, b" \t\r")]


@given(
    (st.lists(st.sampled_from(PIECES), max_size=30) | st.lists(st.sampled_from(LONG_PIECES), max_size=12)).map(
        b"".join
    ),
    st.lists(st.integers(0, 90) | st.integers(0, 9000), max_size=8),
)
def test_any_wire_decodes_as_a_plain_reading(wire: bytes, places: list[int]) -> None:
    """The search depends on the lines' length; the lines, and whether they are text, do not."""
    lines = decode(b"1\n", *cut(wire, places), most=1 << 16)[0]
    assert [frame.data for frame in lines] == ["1", *map(text_or_bytes, plain_reading(wire))]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(lambda pieces: b"".join([*pieces, b"\n"])))
def test_reads_that_are_lines_decode_as_the_whole(wire: bytes) -> None:
    """A read that is exactly one line takes its own path, with the same result."""
    assert decode(b"1\n", *wire.splitlines(keepends=True)) == decode(b"1\n" + wire)
