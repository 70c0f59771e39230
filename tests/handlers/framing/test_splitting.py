"""Frames that are batches: their events and keys, and when the cursor may pass which of them."""

import hashlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.events import JsonPath, StreamEvent, parse_json
from handlers.framing.frames import Frame
from handlers.framing.marks import Mark
from handlers.framing.splitting import MOST_ELEMENTS, Split
from tests.handlers.framing.test_events import path

ITEMS = JsonPath("$.items", ("items",))
REVISION = JsonPath("$.items[0].r", ("items", 0, "r"))
WHOLE = Split(JsonPath("$", ()))
SPLIT = Split(ITEMS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
BLANKS = st.sampled_from(["", " ", "\n", "\t\r "])


def events(split: Split, frame: Frame | str, **rules: Any) -> list[StreamEvent] | None:
    whole = frame if isinstance(frame, Frame) else Frame(frame)
    batch = split.elements_of(whole)
    return None if batch is None else split.events(whole, batch, 7, **({"key": "hash", "cursor": None} | rules))


def data(split: Split, text: str) -> list[Any]:
    return [event.data for event in events(split, text) or []]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@given(st.lists(st.tuples(BLANKS, VALUES, BLANKS)), BLANKS, BLANKS)
def test_elements_keep_the_spelling_of_the_upstream(
    elements: list[tuple[str, Any, str]], before: str, after: str
) -> None:
    """The text of an element is the upstream's own, whatever surrounds it in the frame."""
    texts = [json.dumps(value) for _, value, _ in elements]
    inner = ",".join(f"{left}{text}{right}" for (left, _, right), text in zip(elements, texts, strict=True))
    frame = f'{before}{{"a": [1, {{}}],{after}"items"{before}:{after}[{inner}]{before}, "z": null}}{after}'
    assert data(SPLIT, frame) == texts
    assert data(WHOLE, f"{before}[{inner}]{after}") == texts


@pytest.mark.parametrize("spelled", ["1.0", "1e400", "-0", "12345678901234567890.5", r'"\ud800"', '{"b":1,"a":2}'])
def test_a_number_or_a_character_keeps_its_spelling(spelled: str) -> None:
    """A spelling that Python would change, or cannot hold, is stored byte for byte."""
    assert data(SPLIT, f'{{"items": [{spelled}]}}') == [spelled]


@given(st.text() | VALUES.map(json.dumps) | VALUES.map(lambda value: json.dumps({"items": value})))
def test_no_text_raises_and_a_batch_has_the_values_of_its_json(text: str) -> None:
    """A frame with a list is split, any other stays whole; the marks see JSON's own value."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    batch = SPLIT.elements_of(Frame(text))
    is_batch = isinstance(body, dict) and isinstance(body.get("items"), list)
    assert (batch is not None) is is_batch
    if batch is not None:
        assert (batch.body, len(batch.texts)) == (body, len(body["items"]))
        assert parse_json(text) == body


@pytest.mark.parametrize(
    "text",
    [
        '{"items": [1], "items": [2]}', '{"items": [1,]}', '{"items": [1 2]}', '{"items": [1]', '{"items": [1]} x',
        '{"items": [1],}', '{"items" [1]}', '{items: [1]}', '{"items": {"0": 1}}', '{"items": null}',
        '{"items": "[1]"}',
        '{"a": {"items": [1]}}', "[1]", "", "{", '{"items": [' + "[" * 100_000 + "]}", '{"items": [1], 2: 3}',
        '{"items": [' + "0," * MOST_ELEMENTS + "0]}", '{"a": "' + "," * 400_001 + '", "items": [1]}',
    ],
)  # fmt: skip
def test_a_frame_without_exactly_one_list_stays_whole(text: str) -> None:
    """A frame without exactly one list, with invalid JSON or with too many elements for a function stays whole."""
    assert events(SPLIT, text) is None


def test_bytes_and_comments_are_no_batches() -> None:
    """A frame that is not UTF-8, and a comment of an event stream, have no elements."""
    assert events(SPLIT, Frame(b'{"items": [1]}')) is None
    assert events(SPLIT, Frame('{"items": [1]}', is_comment=True)) is None


def test_an_empty_list_is_a_batch_without_events() -> None:
    """An empty list gives no events, while a frame without a list stays whole."""
    assert events(SPLIT, '{"items": [ ]}') == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1), st.data())
def test_an_element_is_the_same_event_however_it_is_batched(
    changes: list[tuple[int, int]], draw: st.DataObject
) -> None:
    """The keys and texts of the elements do not depend on the frames that they came in."""
    texts = [json.dumps({"k": key, "r": revision}) for key, revision in changes]
    cuts = sorted(draw.draw(st.sets(st.integers(0, len(texts)))) | {0, len(texts)})
    key = (path("$.items[0].k"), path("$.items[0].r"))
    for rule in (key, "hash"):
        once = events(SPLIT, f'{{"items": [{", ".join(texts)}]}}', key=rule) or []
        parts = [
            event
            for begin, end in itertools.pairwise(cuts)
            for event in events(SPLIT, f'{{"n": {begin}, "items": [{",".join(texts[begin:end])}]}}', key=rule) or []
        ]
        assert [(event.key, event.data) for event in parts] == [(event.key, event.data) for event in once]


@given(
    st.lists(st.integers(0, 5) | st.none(), min_size=1, max_size=12).map(
        lambda revisions: sorted(revisions, key=lambda one: -1 if one is None else one)
    ),
    st.booleans(),
)
def test_a_cursor_passes_a_revision_only_once_all_its_elements_are_stored(
    revisions: list[int | None], is_unfinished: bool
) -> None:
    """However many events are stored before a kill, no later element has the cursor's revision."""
    split = Split(ITEMS, unfinished=(Mark(json=((path("$.more"), True),)),))
    text = json.dumps({"more": is_unfinished, "items": [{"r": revision} for revision in revisions]})
    cursors = [event.cursor for event in events(split, text, cursor=REVISION) or []]
    following = [*revisions, revisions[-1] if is_unfinished else None]
    for stored in range(len(revisions) + 1):
        cursor = next((one for one in reversed(cursors[:stored]) if one is not None), None)
        assert cursor is None or int(cursor) not in following[stored:]
    passed = [one for one in cursors if one is not None]
    named = [str(one) for one in dict.fromkeys(revisions) if one is not None]
    assert passed == (named[:-1] if is_unfinished else named)


def test_a_cursor_of_the_frame_counts_after_its_last_element() -> None:
    """A cursor or id of the frame counts after its last element, unless the next frame continues the batch."""
    frame = Frame('{"at": 9, "items": [1, 2, 3]}', "i", None, "i")
    at = path("$.at")
    assert [event.cursor for event in events(SPLIT, frame, cursor=at) or []] == [None, None, "9"]
    assert [event.cursor for event in events(SPLIT, frame, cursor="id") or []] == [None, None, "i"]
    unfinished = Split(ITEMS, unfinished=(Mark(json=((at, 9),)),))
    assert [event.cursor for event in events(unfinished, frame, cursor=at) or []] == [None, None, None]


def test_keys_names_and_ids_come_from_the_element_or_the_frame() -> None:
    """A key that the rule does not find in element or frame is the hash of the element and its name."""
    frame = Frame('{"of": "f", "items": [{"i": 1, "t": "put"}, {"i": 2}, 5]}', "id-1", "change", "id-1")
    split = Split(ITEMS, name=path("$.items[0].t"))

    def keys(rule: Any, split: Split = split, frame: Frame = frame) -> list[str]:
        return [event.key for event in events(split, frame, key=rule) or []]

    hashed = sha("event: change\ndata: 5\n")
    assert keys(path("$.items[0].i")) == ["1", "2", hashed]
    assert keys((path("$.of"), path("$.items[-1].i"))) == ['["f","1"]', '["f","2"]', hashed]
    assert keys("id") == ['["id-1",0]', '["id-1",1]', '["id-1",2]']
    assert keys("id", SPLIT, Frame('{"items": [5]}')) == [sha("5")]
    assert keys("hash", SPLIT, Frame('{"items": [{"b": 1.0, "a": 2}]}')) == [sha('{"a":2,"b":1}')]
    told = [(event.id, event.name, event.received_at_ms) for event in events(split, frame) or []]
    assert told == [("id-1", "put", 7), ("id-1", "change", 7), ("id-1", "change", 7)]


def test_kept_members_surround_each_element_in_the_frames_own_shape() -> None:
    """Kept members have the upstream's spelling; missing ones are left out, and the element's key does not change."""
    split = Split(
        JsonPath("$.result.events", ("result", "events")),
        keep=(path("$.result.header.revision"), path("$.result.header.u"), path("$.at"), path("$.none")),
    )
    frame = '{"at": 1.50, "result": {"header": {"u": {"a":1}, "revision": "7", "x": 1}, "events": [{"n":1}, 2]}}'
    around = '{{"at":1.50,"result":{{"header":{{"u":{{"a":1}},"revision":"7"}},"events":[{}]}}}}'
    assert data(split, frame) == [around.format('{"n":1}'), around.format("2")]
    assert [event.key for event in events(split, frame) or []] == [sha('{"n":1}'), sha("2")]
    assert data(split, '{"result": {"events": [3]}, "at": null}') == ['{"result":{"events":[3]}}']


def test_a_path_into_an_element_begins_with_the_path_of_the_list() -> None:
    """A path leads into an element if it begins with the list's path and the index 0 or -1."""
    paths = ["$.items[0].r", "$.items[-1]", "$.items[1].r", "$.items", "$.other[0]"]
    assert [SPLIT.is_of_element(path(text)) for text in paths] == [True, True, False, False, False]
    assert WHOLE.is_of_element(path("$[0].r"))
