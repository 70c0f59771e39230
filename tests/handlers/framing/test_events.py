"""Dedup keys and cursors: the same event always has the same key, and every event has one."""

import hashlib
import json
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.events import MAX_KEY_BYTES, MOST_MARKS, JsonPath, Rule, canonical_bytes, parse_path, to_event
from handlers.framing.frames import Frame


def path(text: str) -> JsonPath:
    parsed = parse_path(text)
    assert parsed is not None
    return parsed


def key_of(frame: Frame, rule: Rule) -> str:
    return to_event(frame, 0, key=rule, cursor=None).key


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("$.seq", ("seq",)),
        ("$.meta.id", ("meta", "id")),
        ("$.a.b[0]", ("a", "b", 0)),
        ("$.a[-1]", ("a", -1)),
        ("$[3][10].x-y_z", (3, 10, "x-y_z")),
        ("""$["@id"]['é.]:!'][0]""", ("@id", "é.]:!", 0)),
    ],
)
def test_a_path_is_names_and_indices(text: str, steps: tuple[str | int, ...]) -> None:
    """A path is a dollar sign, then names after a full stop, any names quoted in brackets, and indices in brackets."""
    assert parse_path(text) == JsonPath(text, steps)


@pytest.mark.parametrize(
    "text", ["", "$", "seq", "$.", "$..a", "$.a b", "$[01]", "$[-0]", "$[*]", "$['a\"]", "$['']", "$.a[", " $.a"]
)
def test_a_text_that_is_no_path_is_refused(text: str) -> None:
    """Wildcards and filters are not supported, nor is a name without an end."""
    assert parse_path(text) is None


@pytest.mark.parametrize(
    ("data", "rule", "expected"),
    [
        ('{"seq": "12-abc"}', "$.seq", "12-abc"),
        ('{"seq": 12}', "$.seq", "12"),
        ('{"a": {"b": [{"c": 1.5}]}}', "$.a.b[0].c", "1.5"),
        ('{"a": 0.10000000000000000}', "$.a", "0.1"),
        ('{"a": 1732950000.123456789}', "$.a", "1732950000.123456789"),
        ('{"a": [[1.00000000000000001]]}', "$.a[0][0]", "1.00000000000000001"),
        ('{"a": true}', "$.a", "true"),
        ('{"a": {"y": [1, 2], "x": "é"}}', "$.a", '{"x":"\\u00e9","y":[1,2]}'),
        ("[1, [2, 3]]", "$[1][0]", "2"),
        ('{"0": "name"}', "$.a", None),
        ('{"a": null}', "$.a", None),
        ('{"a": ""}', "$.a", None),
        ('{"a": {"b": 1}}', "$.a[0]", None),
        ('{"a": [1]}', "$.a.b", None),
        ('{"a": [1]}', "$.a[1]", None),
        ('{"a": "text"}', "$.a[0]", None),
        ('{"a": "\\ud800"}', "$.a", None),
        (' \n{"a": "b"} \r', "$.a", "b"),
        ('{"a": "b"} c', "$.a", None),
        ("no json", "$.a", None),
        ("[" * 100_000, "$.a", None),
        ('{"a": ' + "1" * 5000 + "}", "$.a", None),
    ],
)
def test_a_json_path_finds_the_key_or_the_hash_stands_in(data: str, rule: str, expected: str | None) -> None:
    """The value at the path is the key; if it is not usable, the frame's hash is."""
    assert key_of(Frame(data), path(rule)) == (sha(canonical_bytes(Frame(data))) if expected is None else expected)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(-3, 3))
def test_two_numbers_never_give_one_key(number: Decimal, ulps: int) -> None:
    """Instants may differ in their last digits alone, which a double would drop."""
    other = number + ulps * Decimal((0, (1,), int(number.as_tuple().exponent)))
    keys = [key_of(Frame(f'{{"a": {one:e}}}'), path("$.a")) for one in (number, other)]
    assert (keys[0] == keys[1]) is (number == other)


def test_an_id_that_an_event_inherited_is_no_key() -> None:
    """Two events under one last event ID are two events: only an event's own id names it."""
    first, second = Frame("a", "7", None, "7"), Frame("b", None, None, "7")
    assert [key_of(first, "id"), key_of(second, "id")] == ["7", sha(b"b")]
    assert key_of(Frame("c", "", None, ""), "id") == key_of(Frame("c", ""), "hash")


def test_the_key_of_a_bare_line_is_the_hash_of_its_canonical_bytes() -> None:
    """The key is the SHA-256 of a JSON line's canonical form, or else of the line's bytes: anyone can compute it."""
    assert key_of(Frame('{"b": 1, "a": "é"}'), "hash") == sha('{"a":"é","b":1}'.encode())
    assert key_of(Frame("12.0"), "hash") == sha(b"12.0")
    assert key_of(Frame(b"\xff"), "hash") == sha(b"\xff")
    assert key_of(Frame("a\nb", "1", "add"), "hash") == sha(b"event: add\nid: 1\ndata: a\ndata: b\n")


def test_a_key_longer_than_dynamodb_allows_is_hashed() -> None:
    """1024 bytes of UTF-8 are a key, 1025 become their hash; characters do not count."""
    longest = "é" * (MAX_KEY_BYTES // 2)
    assert key_of(Frame("x", longest), "id") == longest
    assert key_of(Frame("x", longest + "a"), "id") == sha((longest + "a").encode())


@pytest.mark.parametrize(
    ("frame", "rule", "expected"),
    [
        (Frame("a", None, None, "7"), "id", "7"),
        (Frame("a", "", None, ""), "id", ""),
        (Frame("a"), "id", None),
        (Frame('{"seq": 4}'), path("$.seq"), "4"),
        (Frame('{"seq": null}'), path("$.seq"), None),
        (Frame('{"seq": 4}', "1", None, "1"), None, None),
    ],
)
def test_the_cursor_is_the_last_event_id_or_the_value_at_the_path(
    frame: Frame, rule: Rule | None, expected: str | None
) -> None:
    """A cursor of None means that there is none; "" is the upstream's request to start afresh."""
    assert to_event(frame, 0, key="hash", cursor=rule).cursor == expected


TEXTS = st.text(st.sampled_from("a:\n \0é"), max_size=6)
LINES = st.text(st.sampled_from("a: é"), min_size=1, max_size=4)
FRAMES = st.builds(
    Frame,
    TEXTS | st.just("event: a\ndata: a"),
    st.none() | LINES,
    st.none() | LINES,
    last_id=st.none(),
    is_comment=st.just(False),
)


@given(FRAMES, FRAMES)
def test_two_frames_have_the_same_bytes_only_if_they_are_the_same(one: Frame, other: Frame) -> None:
    """Frames that differ in data, id or name have different canonical bytes."""
    assert (canonical_bytes(one) == canonical_bytes(other)) == (one == other)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
)


@given(JSON | st.text(max_size=20))
def test_any_body_gives_a_key_that_dynamodb_takes(body: object) -> None:
    """A key is 1 to 1024 bytes of UTF-8, whatever the body is."""
    event = to_event(Frame(json.dumps(body)), 0, key=path("$.a"), cursor=path("$.a"))
    assert 1 <= len(event.key.encode()) <= MAX_KEY_BYTES


@pytest.mark.parametrize("value", ["{}", "[]", '{"a":1}', "1.5", "[[]]"])
def test_json_of_too_many_values_is_not_parsed(value: str) -> None:
    """16 MB of the most wasteful JSON take no Python memory but copies of the text; its hash is that of its bytes."""
    text = f'{{"id":"x","list":[{",".join([value] * (16_000_000 // (len(value) + 1)))}]}}'
    tracemalloc.start()
    try:
        event = to_event(Frame(text), 0, key=path("$.id"), cursor=path("$.id"))
        assert tracemalloc.get_traced_memory()[1] < 3 * len(text)
    finally:
        tracemalloc.stop()
    assert (event.key, event.cursor) == (hashlib.sha256(text.encode()).hexdigest(), None)


def test_json_of_many_values_is_parsed_up_to_the_bound() -> None:
    """The bound is how many brackets and commas fit into the smallest function; those in texts count too."""
    for count, key in ((MOST_MARKS - 3, "x"), (MOST_MARKS - 2, None)):
        text = f'{{"id":"x","list":[{",".join("1" * (count + 1))}]}}'
        assert to_event(Frame(text), 0, key="hash", cursor=path("$.id")).cursor == key
