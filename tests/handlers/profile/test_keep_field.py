"""The field `keep`: its valid forms, and which frames its rules keep."""

from typing import Any

from handlers.framing.events import LEFT_OUT, MOST_MARKS
from handlers.framing.frames import Body, Frame
from handlers.framing.oversize import Oversize
from tests.handlers.profile.profiles import PATH, profile, refusal

SHAPE = 'keep must be { name = ["trade"] } or { path = "$.type", is = ["trade", "quote"] }, or a list of such'
VALUES = "must be a list of 1 to 1000 texts, numbers, true or false"
LINES: dict[str, Any] = {"framing": "ndjson"}


def test_each_mistake_has_one_sentence() -> None:
    """The sentence names the field and a valid value."""
    table: list[tuple[Any, dict[str, Any], str]] = [
        ("trade", {}, SHAPE),
        ([], {}, SHAPE),
        ({}, {}, SHAPE),
        ([{"name": "a"}, {}], {}, SHAPE),
        ({"name": []}, {}, "keep.name must be a list of 1 to 1000 texts"),
        ({"name": [1]}, {}, "keep.name must be a list of 1 to 1000 texts"),
        ({"name": "a"}, LINES,
         'keep.name works only with framing = "sse", or with split.name: no other event has a name'),
        ({"path": "type"}, {}, f"keep.path must be {PATH}"),
        ({"path": "$.items[*].t"}, {}, '"[*]" stands for an element of the list that split names'),
        ({"is": ["a"]}, {}, "keep.is needs path, which says where the value is"),
        ({"path": "$.t", "is": []}, {}, f"keep.is {VALUES}"),
        ({"path": "$.t", "is": [["a"]]}, {}, f"keep.is {VALUES}"),
        ({"path": "$.t", "is": ["a"] * 1001}, {}, f"keep.is {VALUES}"),
        ({"path": "$.t", "is": ["a", "{name}"]}, {},
         "keep.is must contain no placeholder and no reference to a secret"),
        ({"path": "$.t", "if": "a"}, {}, "keep.if is not a field of keep: name, path, is"),
    ]  # fmt: skip
    wrong = [spelled for spelled, more, sentence in table if sentence not in refusal(keep=spelled, **more)]
    assert wrong == []


def kept(rules: Any, *frames: Frame, **fields: Any) -> list[bool]:
    parsed = profile(keep=rules, **fields)
    return [parsed.should_keep(frame) for frame in frames]


def bodies(rules: Any, *data: Body) -> list[bool]:
    return kept(rules, *map(Frame, data))


def test_a_name_keeps_and_an_event_without_one_is_a_message() -> None:
    """A rule keeps events by name, as a mark does: an event without a name is a "message"; one text is a list."""
    frames = Frame("1", name="trade"), Frame("2", name="quote"), Frame("3"), Frame("4", name="message")
    assert kept({"name": ["trade"]}, *frames) == [True, False, False, False]
    assert kept({"name": "message"}, *frames) == [False, False, True, True]
    assert kept([{"name": "trade"}, {"name": "quote"}], *frames) == [True, True, False, False]


def test_a_place_keeps_by_its_value_or_its_presence() -> None:
    """A rule keeps by a place's value, or by its presence; true is not 1, and null or a list is no value."""
    data = '{"t":"trade"}', '{"t":1}', '{"t":1.0}', '{"t":true}', '{"t":null}', '{"t":["trade"]}', '{"u":1}', "trade"
    assert bodies({"path": "$.t", "is": ["trade", 1]}, *data) == [True, True, True, *[False] * 5]
    assert bodies({"path": "$.t", "is": True}, *data) == [False, False, False, True, *[False] * 4]
    assert bodies({"path": "$.t"}, *data) == [True, True, True, True, False, True, False, False]


def test_both_parts_of_a_rule_must_hold() -> None:
    """Both parts of a rule must hold; of several rules one is enough."""
    both = {"name": "trade", "path": "$.t", "is": 1}
    frames = Frame('{"t":1}', name="trade"), Frame('{"t":1}'), Frame('{"t":2}', name="trade")
    assert kept(both, *frames) == [True, False, False]
    assert kept([both, {"path": "$.t", "is": 2}], *frames) == [True, False, True]


def test_an_unreadable_body_is_kept_unless_its_name_decides() -> None:
    """A body that is too long, too deep or too large to read is kept; a text that is not JSON has no places."""
    unreadable: list[Body] = [
        Oversize(9, "0" * 64, b"{"),
        "[" + "1," * MOST_MARKS + "1]",
        "[" * 100_000,
        f'{{"n":{"9" * 5000},"t":"trade"}}',
    ]
    rule = {"path": "$.t", "is": "trade"}
    assert bodies(rule, *unreadable) == [True] * 4
    assert bodies(rule, "", "{", "null", b"\xff\xfe\x00\x01", "NaN") == [False] * 5
    assert kept({"name": "a", **rule}, *(Frame(one, name=name) for name in "ab" for one in unreadable[:1])) == [
        True,
        False,
    ]


def test_elements_are_kept_by_themselves_or_by_their_frame() -> None:
    """A rule's path leads into the element or beside the list; a rule's name is that of the element."""
    split = {"path": "$.items", "name": "$.items[*].t"}
    fields: dict[str, Any] = {"framing": "ndjson", "split": split, "key": "$.items[*].n", "cursor": "$.items[*].n"}
    frame = Frame('{"c":"x","items":[{"n":1,"t":"a"},{"n":2,"t":"b"},{"n":3,"t":"a"}]}')
    for rule, expected in [
        ({"name": "a"}, ["1", LEFT_OUT, "3"]),
        ({"path": "$.items[*].t", "is": "b"}, [LEFT_OUT, "2", LEFT_OUT]),
        ({"path": "$.c", "is": "x"}, ["1", "2", "3"]),
        ({"path": "$.c", "is": "y"}, [LEFT_OUT] * 3),
    ]:
        events = profile(keep=rule, **fields).batch_events(frame, 0) or []
        assert [event.key for event in events] == expected
        assert [event.cursor for event in events] == ["1", "2", "3"]


def test_a_list_that_is_not_taken_apart_is_not_judged_by_its_first_element() -> None:
    """A list that is not taken apart is kept whole; a frame without a list lacks the place that the rule names."""
    fields: dict[str, Any] = {"framing": "ndjson", "split": {"path": "$.items"}, "key": "$.items[*].n"}
    twice = Frame('{"items":[{"n":1,"t":"b"}],"items":[{"n":2,"t":"b"},{"n":3,"t":"a"}]}')
    rule = {"path": "$.items[*].t", "is": "a"}
    assert kept(rule, twice, Frame('{"hello":1}'), Frame('{"items":{"t":"a"}}'), **fields) == [True, False, False]
