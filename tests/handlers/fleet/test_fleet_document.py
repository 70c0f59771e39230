"""A document defines for each stream whether it should be connected; an error is a sentence with its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.fleet.fleet_document import JSON, LINES, TOML, DocumentError, read, read_saved

TEXT = """
connected = ["prices:eur-usd", "sensors:{08..11}", "orders:*", "a:{x,08..09}-{1..2}"]
stopped = ["orders:test-*", "orders:test-?", "*", "prices:old"]
"""
UP, MANY = "must go from a number up to a greater one, 200,000 at most", "more than 5,000,000 bytes: apply it in parts"
# The same words as for a POST.
NO_NAME = (
    "the stream id '!b' is malformed: it must begin with a profile's name, 1 to 64 of the characters A-Z a-z 0-9 . _ -"
)


def test_ids_ranges_and_patterns() -> None:
    """A range lists ids, padded like its first number; an id goes before a pattern, a longer pattern first."""
    wanted = read(TEXT)
    assert [one for one, is_connected in wanted.ids.items() if is_connected] == [
        *("a:08-1", "a:08-2", "a:09-1", "a:09-2", "a:x-1", "a:x-2", "prices:eur-usd"),
        *("sensors:08", "sensors:09", "sensors:10", "sensors:11"),
    ]
    said = {
        "prices:eur-usd": True, "prices:old": False, "orders:1": True, "orders:test-1": False, "prices:new": False,
        "orders:": True, "xorders:1": False,
    }  # fmt: skip
    assert {one: wanted.should_connect(one) for one in said} == said
    assert wanted.counts() == (11, 1, 4)
    assert read('connected = ["a.b:*"]').should_connect("axb:1") is None


def test_many_stars_take_no_longer_than_one() -> None:
    """A pattern with many stars matches quickly: going back after each `*` would take years; `[` is literal."""
    wanted = read("a:" + "*a" * 60 + "*b\n!a:[c]*", LINES)
    assert [wanted.should_connect("a:" + one) for one in ("a" * 250, "a" * 249 + "b", "[c]d", "c")] == [
        None,
        True,
        False,
        None,
    ]


def test_lines_are_a_document_too() -> None:
    """In a document of lines `!` stops a stream; comments, empty lines and a byte order mark are ignored."""
    wanted = read("\ufeffprices:a#1\t# mine\r\n  # b:{1\n\n! prices:b\u2028c # !\n!orders:* #x\n", LINES)
    assert dict(wanted.ids) == {"prices:a#1": True, "prices:b\u2028c": False}
    assert [wanted.should_connect(one) for one in ("orders:1", "x:1")] == [False, None]


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,3}(:[a-z0-9é]{0,3})?\Z"), st.booleans(), min_size=1, max_size=30))
def test_a_document_is_written_as_it_reads(ids: dict[str, bool]) -> None:
    """The shortest form of a document has the same meaning, in the order of the ids' bytes."""
    lines = "\n".join(one if is_connected else f"!{one}" for one, is_connected in ids.items())
    wanted = read(lines, LINES)
    assert read(wanted.text(), JSON) == wanted == read_saved(wanted.text())
    assert dict(wanted.ids) == ids
    assert list(wanted.ids) == sorted(ids, key=str.encode)


@pytest.mark.parametrize(
    ("text", "kind", "words", "place"),
    [
        ("", TOML, "the document names no stream: write connected = [...] or stopped = [...]", ""),
        ("a = []\nx\n", TOML, "the document is not valid TOML at line 2", ""),
        ("{\n]", JSON, "the document is not valid JSON at line 2", ""),
        ("[" * 100_000, JSON, "the document is not valid JSON", ""),
        ('{"stopped": ["a"], "stopped": ["b"]}', JSON, "the document has a field twice: give each list once", ""),
        ("[]", JSON, "the document must be a table with connected and stopped", ""),
        ('connect = ["a"]', TOML, "there is no field 'connect'; the fields are connected and stopped", "connect"),
        ('connected = "a"', TOML, "connected must be a list of stream ids, ranges and patterns", "connected"),
        ('connected = ["a", "!b"]', TOML, NO_NAME, "connected"),
        ("\n a b:*", LINES, NO_NAME.replace("stream id '!b'", "pattern 'a b:*'"), "line 2"),
        ("a\n!a", LINES, "'a' is listed as connected and as stopped", "line 2"),
        ("a:*\n!a:*", LINES, "'a:*' is listed as connected and as stopped", "line 2"),
        ("a:{3..1}", LINES, f"{{3..1}} {UP}", "line 1"),
        ("a:{" + "1..150000," * 50_000 + "}", LINES, f"{{1..150000}} {UP}", "line 1"),
        ("a:{1..500}{1..500}", LINES, "'a:{1..500}{1..500}' stands for more than 200,000 streams", "line 1"),
        ("a:{1..2000}*", LINES, "the document has more than 1,000 patterns: apply it in parts", "line 1"),
        (f"a:{'x' * 200}{{1..99999}}", LINES, f"the document's ranges stand for {MANY}", "line 1"),
        ("a:{a..z}", LINES, f"{{a..z}} {UP}", "line 1"),
        ("a:{1..3", LINES, "'a:{1..3' has a brace that is not closed, or braces within braces", "line 1"),
        ("a:{1,{2,3}}", LINES, "'a:{1,{2,3}}' has a brace that is not closed, or braces within braces", "line 1"),
    ],
)
def test_an_invalid_document_is_refused_with_the_place(text: str, kind: str, words: str, place: str) -> None:
    """One sentence describes the first error of a document, with its field or line."""
    with pytest.raises(DocumentError) as refusal:
        read(text, kind)
    assert (str(refusal.value), refusal.value.place) == (words, place)
