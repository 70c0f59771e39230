"""JSON text sequences of RFC 7464, at every split point."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.handlers.connection.wires import says

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(JSON, st.sampled_from([None, 0, 2]), st.booleans()), max_size=6))
def test_what_an_encoder_writes_is_read_back(texts: list[tuple[object, int | None, bool]]) -> None:
    """Values come back equal, laid out over lines or not, escaped or not."""
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
    """A writer that died and began again (section 2.3) loses the text that it was writing and no other."""
    texts = [json.dumps(value).encode() for value in values]
    cut_at = data.draw(st.integers(0, len(texts[-1]) - 1))
    wire = b"".join(b"\x1e" + text + b"\n" for text in texts[:-1]) + b"\x1e" + texts[-1][:cut_at] + b"\x1e7\n"
    assert says("json-seq", [wire], most=100_000).data == [text.decode() for text in texts[:-1]] + ["7"]
