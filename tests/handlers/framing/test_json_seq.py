"""JSON text sequences as RFC 7464 has them, at every split point."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.decoders import Frame
from tests.handlers.connection.wires import one_by_one, says, splits

# What the wire holds, the texts in it, and how many bytes are dropped.
EXAMPLES = [
    (b'\x1e{"a":1}\n\x1e{"a":2}\n', ['{"a":1}', '{"a":2}'], 0),
    (b'\x1e{\n  "a": [\n    1\n  ]\n}\n', ['{\n  "a": [\n    1\n  ]\n}'], 0),
    (b'\x1e\x1e \x1e\n\x1e"x"\r\n', ['"x"'], 0),
    # Section 2.4: top-level numbers, true, false and null that no blank ends may have been cut off.
    (b"\x1e12\x1e34\n\x1etrue\x1enull\n\x1e5 \x1e", ["34", "null", "5"], 6),
    # Objects, arrays and strings delimit themselves.
    (b'\x1e{"a":1}\x1e[1]\x1e"x"\x1e', ['{"a":1}', "[1]", '"x"'], 0),
    # Section 2.3: a text that was cut off does not stop the decoder.
    (b'\x1e{"a":\x1e{"b":1}\n', ['{"b":1}'], 5),
    (b'\x1e{"a":\n\x1e[1,\n\n\x1e"abc\n\x1e{"b":1}\n', ['{"b":1}'], 12),
    (b'\x1e{"a":"}\\"]"}\n\x1e["\\\\"]\n', ['{"a":"}\\"]"}', '["\\\\"]'], 0),
    # What follows a text and no RS went before belongs to nothing.
    (b'\x1e{"a":1}\n a b\n{}\n\x1e2\n', ['{"a":1}', "2"], 4),
    (b'\x1e{"a":1}', [], 7),
    (b"\xef\xbb\xbf\x1e1\n", ["1"], 0),
    (b"\x1e\xff\n\x1e\"\xc3\xa9\"\n", [b"\xff", '"é"'], 0),
    (b"\n \n", [], 0),
    (b"", [], 0),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "texts", "dropped_bytes"), EXAMPLES)
def test_every_split_of_an_example_gives_its_texts(wire: bytes, texts: list[str | bytes], dropped_bytes: int) -> None:
    """RS begins a text and LF ends it; what was cut off is dropped and counted; no split changes that."""
    whole = says("json-seq", [wire])
    assert (whole.data, whole.failed, whole.dropped_bytes) == (texts, "", dropped_bytes)
    assert says("json-seq", one_by_one(wire)) == whole
    for chunks in splits(wire):
        assert says("json-seq", chunks) == whole


def test_a_text_is_handed_over_at_its_line_end() -> None:
    """An event does not wait for the next one's RS."""
    assert says("json-seq", [b'\x1e{"a":1}\n']).frames == [Frame('{"a":1}')]


def test_a_body_without_a_record_separator_is_an_error() -> None:
    """What stands before the first RS is not a sequence; blanks may stand there."""
    assert says("json-seq", [b'{"a":1}\n\x1e1\n']).failed == "bad_frame"
    assert says("json-seq", [b"\r\n\x1e1\n"]).data == ["1"]


def test_a_text_may_be_as_long_as_the_limit_and_no_longer() -> None:
    """The limit is on the text without the LF that ends it, laid out or not."""
    for wire, texts, failed in (
        (b"\x1e12345\n", ["12345"], ""),
        (b"\x1e1\n\x1e123456\n", ["1"], "frame_too_long"),
        (b"\x1e[\n1\n]\n", ["[\n1\n]"], ""),
        (b"\x1e[\n12\n]\n", [], "frame_too_long"),
        (b"\x1e[     ", [], "frame_too_long"),
    ):
        for chunks in ([wire], one_by_one(wire)):
            said = says("json-seq", chunks, most=5)
            assert (said.data, said.failed) == (texts, failed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(JSON, st.sampled_from([None, 0, 2]), st.booleans()), max_size=6))
def test_what_an_encoder_writes_is_read_back(texts: list[tuple[object, int | None, bool]]) -> None:
    """Values laid out over lines or not, escaped or not, come back as the same values."""
    wire = b"".join(
        b"\x1e" + json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") + b"\n"
        for value, indent, ascii_only in texts
    )
    said = says("json-seq", [wire], most=100_000)
    assert [json.loads(data) for data in said.data] == [value for value, _, _ in texts]
    assert said.dropped_bytes == 0


@given(st.lists(JSON, min_size=1, max_size=4), st.data())
def test_a_sequence_cut_off_in_the_middle_and_gone_on_gives_only_whole_texts(
    values: list[object], data: st.DataObject
) -> None:
    """A writer that died and began again (section 2.3) costs the text that it was writing and no other."""
    texts = [json.dumps(value).encode() for value in values]
    cut_at = data.draw(st.integers(0, len(texts[-1]) - 1))
    wire = b"".join(b"\x1e" + text + b"\n" for text in texts[:-1]) + b"\x1e" + texts[-1][:cut_at] + b"\x1e7\n"
    assert says("json-seq", [wire], most=100_000).data == [text.decode() for text in texts[:-1]] + ["7"]
