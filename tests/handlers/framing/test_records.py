"""JSON lines, JSON text sequences (RFC 7464), messages after their length and raw chunks, at every split point."""

import json

from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.decoders import make_decoder
from handlers.framing.frames import Frame, text_or_bytes
from tests.handlers.connection.wires import MAX, cut, decode_all


def decode(*chunks: bytes, most: int = MAX) -> tuple[list[Frame], str, int]:
    return decode_all("ndjson", chunks, most=most)[:3]


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
    """The decoder searches long lines in another way, but their content and type are those of a plain reading."""
    lines = decode(b"1\n", *cut(wire, places), most=1 << 16)[0]
    assert [frame.data for frame in lines] == ["1", *map(text_or_bytes, plain_reading(wire))]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(lambda pieces: b"".join([*pieces, b"\n"])))
def test_reads_that_are_whole_lines_decode_like_the_joined_wire(wire: bytes) -> None:
    """A read that is exactly one line is decoded by a path of its own, with the same result."""
    assert decode(b"1\n", *wire.splitlines(keepends=True)) == decode(b"1\n" + wire)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(JSON, st.sampled_from([None, 0, 2]), st.booleans()), max_size=6))
def test_a_json_sequence_that_an_encoder_wrote_is_read_back(texts: list[tuple[object, int | None, bool]]) -> None:
    """Values of a JSON sequence come back equal, laid out over lines or not, escaped or not."""
    wire = b"".join(
        b"\x1e" + json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") + b"\n"
        for value, indent, ascii_only in texts
    )
    said = decode_all("json-seq", [wire], most=100_000)
    assert [json.loads(data) for data in said.data] == [value for value, _, _ in texts]
    assert said.dropped_bytes == 0


@given(st.lists(JSON, min_size=1, max_size=4), st.data())
def test_a_json_sequence_that_was_cut_off_loses_only_the_cut_text(values: list[object], data: st.DataObject) -> None:
    """A writer that died and began again (section 2.3) loses the text that it was writing and no other."""
    texts = [json.dumps(value).encode() for value in values]
    cut_at = data.draw(st.integers(0, len(texts[-1]) - 1))
    wire = b"".join(b"\x1e" + text + b"\n" for text in texts[:-1]) + b"\x1e" + texts[-1][:cut_at] + b"\x1e7\n"
    assert decode_all("json-seq", [wire], most=100_000).data == [text.decode() for text in texts[:-1]] + ["7"]


@given(st.lists(st.binary(max_size=20) | st.just(b""), max_size=6), st.lists(st.integers(0, 150), max_size=8))
def test_messages_after_their_length_are_read_back(messages: list[bytes], places: list[int]) -> None:
    """Messages after their length come back whole, texts without the line end that the sender added."""
    wire = b"".join(b"%d\r\n%s\r\n\r\n" % (len(message) + 2, message) for message in messages)
    bodies = decode_all("length", cut(wire, places)).data
    assert [data if isinstance(data, bytes) else data.encode() + b"\r\n" for data in bodies] == [
        message + b"\r\n" for message in messages
    ]


def test_a_raw_frame_is_a_chunk() -> None:
    """Each chunk comes unchanged, as text if it is UTF-8; an empty chunk is no frame, one too long an error."""
    made = make_decoder("raw", 4)
    assert [made.feed(chunk) for chunk in (b"ab\n", b"", b"\xff", b"<a>")] == [["ab\n"], [], [b"\xff"], ["<a>"]]
    assert decode_all("raw", [b"a", b"abcde", b"b"], most=4)[:3] == ([Frame("a")], "frame_too_long", 0)
