"""Wires with their results, for every framing except `raw`: whole, and at every split point."""

from collections.abc import Sequence
from typing import Any

import pytest

from handlers.framing.decoders import Framing
from tests.handlers.connection.wires import MAX, decode_all, one_by_one, splits

# What the wire holds; the frames in it, the error and how many bytes are dropped, as far as there are any.
Example = tuple[Any, ...]

# After the specification's own examples and its edges.
SSE: list[Example] = [
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
    # The bytes of an unfinished block are counted, with one byte for each line end and without comments.
    (b"data: a\n\ndata: b\r\n: comment\r\nid: 1", ["a"], "", len(b"data: b\nid: 1")),
    (b"data: a\n\n: comment\n", ["a"], "", 0),
    (b"\xef\xbb", [], "", 2),
    (b"", []),
]  # fmt: skip
NDJSON: list[Example] = [
    (b'{"a":1}\n{"a":2}\n', ['{"a":1}', '{"a":2}']),
    (b'{"a":1}\r\n{"a":2}\r\n', ['{"a":1}', '{"a":2}']),
    (b'\n\n\r\n \t\r\n{"a":1}\n\n', ['{"a":1}']),
    (b'{"a":1}\n{"a":', ['{"a":1}']),
    (b"a\rb\n\rc\r\r\n", ["a\rb", "\rc\r"]),
    (b"\r\r\n \r\r\n1\n\r\r\n", ["1"]),
    (b"\xef\xbb\xbf1\n2\n", ["1", "2"]),
    (b"1\n\xef\xbb\xbf2\n", ["1", "\ufeff2"]),
    (b"\xff\n\xc3\xa9\n", [b"\xff", "é"]),
    ("\u2028 \x85\n".encode(), ["\u2028 \x85"]),
    # If the first line begins a JSON text, as of a long poll that indents it, frames are whole texts.
    (b'\n{\r\n "a": [\r\n  "]{"\r\n ]\r\n}\r\n\n[]\n', ['{\r\n "a": [\r\n  "]{"\r\n ]\r\n}', "[]"]),
    (b'[{"a":1}\n,{"b":\n"\xff"}]\n', [b'[{"a":1}\n,{"b":\n"\xff"}]']),
    (b'{"a":[\n1,', [], "", 9),
    # It may be no JSON, or not the first line.
    (b'[INFO] {\n{"a"},\n{"b":1}}\n{\n', ["[INFO] {", '{"a"},', '{"b":1}}', "{"]),
    # A last line without its end is not a frame; its bytes are counted, those of half a heartbeat are not.
    (b"1\n23", ["1"], "", 2),
    (b"1\n \r", ["1"], "", 0),
    (b"\xef", [], "", 1),
    (b"", []),
]
JSON_SEQ: list[Example] = [
    (b'\x1e{"a":1}\n\x1e{"a":2}\n', ['{"a":1}', '{"a":2}'], "", 0),
    (b'\x1e{\n  "a": [\n    1\n  ]\n}\n', ['{\n  "a": [\n    1\n  ]\n}'], "", 0),
    (b'\x1e\x1e \x1e\n\x1e"x"\r\n', ['"x"'], "", 0),
    # Section 2.4: top-level numbers, true, false and null may have been cut off unless a blank follows.
    (b"\x1e12\x1e34\n\x1etrue\x1enull\n\x1e5 \x1e", ["34", "null", "5"], "", 6),
    # Objects, arrays and strings delimit themselves.
    (b'\x1e{"a":1}\x1e[1]\x1e"x"\x1e', ['{"a":1}', "[1]", '"x"'], "", 0),
    # Section 2.3: a text that was cut off does not stop the decoder.
    (b'\x1e{"a":\x1e{"b":1}\n', ['{"b":1}'], "", 5),
    (b'\x1e{"a":\n\x1e[1,\n\n\x1e"abc\n\x1e{"b":1}\n', ['{"b":1}'], "", 12),
    (b'\x1e{"a":"}\\"]"}\n\x1e["\\\\"]\n', ['{"a":"}\\"]"}', '["\\\\"]'], "", 0),
    # Bytes between a text and the next RS belong to no text.
    (b'\x1e{"a":1}\n a b\n{}\n\x1e2\n', ['{"a":1}', "2"], "", 4),
    (b'\x1e{"a":1}', [], "", 7),
    (b"\xef\xbb\xbf\x1e1\n", ["1"], "", 0),
    (b'\x1e\xff\n\x1e"\xc3\xa9"\n', [b"\xff", '"é"'], "", 0),
    (b"\n \n", [], "", 0),
    (b"", [], "", 0),
]
LENGTH: list[Example] = [
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
]
# With at most this many bytes a frame: the limit counts what is delivered, without line ends.
AT_MOST_4: list[Example] = [
    (b"abcd\r\nabcd\nabcde\n", ["abcd", "abcd"], "frame_too_long", 0),
    (b"ab\nabcde\n", ["ab"], "frame_too_long", 0),
    (b"abcd\rx", [], "frame_too_long", 0),
    (b"abcde", [], "frame_too_long", 0),
    (b"[\n1\r\n]", [], "frame_too_long", 0),
    # Which error it is does not depend on whether the markup came with the blanks or after them.
    (b"    <html>\n", [], "bad_frame", 0),
    (b"     <html>\n", [], "frame_too_long", 0),
]
AT_MOST_5: list[Example] = [
    (b"\x1e12345\n", ["12345"], "", 0),
    (b"\x1e1\n\x1e123456\n", ["1"], "frame_too_long", 0),
    (b"\x1e[\n1\n]\n", ["[\n1\n]"], "", 0),
    (b"\x1e[\n12\n]\n", [], "frame_too_long", 0),
    (b"\x1e[     ", [], "frame_too_long", 0),
]
# The limit counts a block's lines with one byte between them, whatever the line ends are, and no comments.
AT_MOST_16: list[Example] = [
    (b"data: abcd\r\nid: 1\r\n\r\n", ["abcd"], "", 0),
    (b"data: abcd\nid: 12\n\n", [], "frame_too_long", 0),
    (b"data: a\n\ndata: 12345678901\n\ndata: b\n\n", ["a"], "frame_too_long", 0),
    (b"data: 1234567890\n\n" * 3, ["1234567890"] * 3, "", 0),
    (b": a long comment\n" * 3 + b"data: a\n\n", ["a"], "", 0),
]
AT_MOST_10: list[Example] = [(b"10\n0123456789", ["0123456789"], "", 0), (b"11\n", [], "frame_too_long", 0)]


@pytest.mark.parametrize(
    ("framing", "most", "examples"),
    [
        *(("sse", MAX, SSE), ("ndjson", MAX, NDJSON), ("json-seq", MAX, JSON_SEQ), ("length", MAX, LENGTH)),
        *(("sse", 16, AT_MOST_16), ("ndjson", 4, AT_MOST_4), ("json-seq", 5, AT_MOST_5), ("length", 10, AT_MOST_10)),
    ],
)
def test_every_split_of_an_example_gives_the_same_result(
    framing: Framing, most: int, examples: Sequence[Example]
) -> None:
    """One, two and three chunks, and one byte a chunk, give the same frames, error, and dropped bytes."""
    for wire, data, *more in examples:
        whole = decode_all(framing, [wire], most=most)
        failed, dropped_bytes = more or ("", whole.dropped_bytes)
        assert (whole.data, whole.failed, whole.dropped_bytes) == (data, failed, dropped_bytes), wire
        for chunks in (one_by_one(wire), *splits(wire)):
            assert decode_all(framing, chunks, most=most) == whole, (wire, chunks)
