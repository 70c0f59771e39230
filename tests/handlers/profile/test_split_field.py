"""The fields `split`, marks with `absent` and cursors, and `resume.oldest`, in a profile."""

from typing import Any

import pytest

from handlers.framing.frames import Frame
from handlers.framing.marks import Kind
from handlers.profile.resume import Resume
from tests.handlers.profile.profiles import PATH, profile, refusal

SPLIT = {"path": "$.items"}
NAMES = 'a JSON path of names alone, such as "$.result.events"'
NOON = "2026-01-01T12:00:00Z"
BACK = Resume("query", "q", back_s=60)
BOTH = {"on_conflict": "both"}
ELEMENT = '"[*]" stands for an element of the list that split names'
KEPT = "must list members outside the list at path, none of them within another"
NO_CURSOR = "must not contain {}: only a heartbeat may, and a disconnect may contain cursor"
LINES: dict[str, Any] = {"framing": "ndjson"}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"split": "$.items"}, 'split must be a table such as { path = "$.items" }'),
    ({"split": {}}, f'split.path is missing: it must be {NAMES}, or "$" if the frame is the list'),
    ({"split": SPLIT, "time": "$.items[*].at"}, "within the stored event, which of a batch is an element"),
    ({"split": {"path": "$.items[*]"}}, f'split.path must be {NAMES}, or "$" if the frame is the list'),
    ({"split": SPLIT | {"keep": "$.a[0]"}}, f"split.keep must be a list of paths, each {NAMES}"),
    ({"split": SPLIT | {"keep": []}}, f"split.keep must be a list of paths, each {NAMES}"),
    ({"split": SPLIT | {"keep": ["$.items.a"]}}, f"split.keep {KEPT}"),
    ({"split": SPLIT | {"keep": ["$.a", "$.a.b"]}}, f"split.keep {KEPT}"),
    ({"split": {"path": "$", "keep": ["$.a"]}}, f"split.keep {KEPT}"),
    ({"split": SPLIT | {"name": "type"}}, 'split.name must be a JSON path such as "$.items[*].type"'),
    ({"split": SPLIT | {"unfinished": {}}}, "split.unfinished must be {"),
    ({"split": SPLIT | {"unfinished": {"json": {"$.a": 1}, "cursor": "$.a"}}}, NO_CURSOR.format("cursor")),
    ({"split": SPLIT | {"unfinished": {"event": "x"}}, **LINES}, 'framing must be "sse", because a mark names'),
    ({"split": SPLIT | {"each": 1}}, "split.each is not a field of split: path, keep, name, unfinished"),
    ({"split": SPLIT, "key": "$.id"}, 'key must have a path into the element, such as "$.items[*].id"'),
    ({"split": SPLIT, "key": ["$.id", "$.items"]}, "key must have a path into the element"),
    ({"split": SPLIT | {"keep": ["$.a"]}, **BOTH}, 'on_conflict can be "both" only without split.keep'),
    ({"split": {"path": "$"}, "key": "$.id"}, 'key must have a path into the element, such as "$[*].id"'),
    ({"key": "$.items[*].id"}, f'key must be "id", "hash", "each" or {PATH}, or a list of such paths; {ELEMENT}'),
    ({"split": SPLIT, "cursor": "$.other[*].id"}, ELEMENT),
    ({"heartbeat": {"absent": "$.a"}}, f"heartbeat must contain absent as a list of paths, each {PATH}"),
    ({"heartbeat": {"absent": []}}, f"heartbeat must contain absent as a list of paths, each {PATH}"),
    ({"heartbeat": {"absent": ["a"]}}, f"heartbeat must contain absent as a list of paths, each {PATH}"),
    ({"heartbeat": {"cursor": "$.a"}}, "heartbeat must be {"),
    ({"heartbeat": {"event": "x", "cursor": "a"}}, f"heartbeat must contain cursor as {PATH}"),
    ({"heartbeat": {"comment": "x", "cursor": "$.a"}}, "a mark with comment must contain nothing else"),
    ({"end": {"event": "x", "cursor": "$.a"}}, f"end {NO_CURSOR.format('cursor')}"),
    ({"end": {"event": "x", "count": "$.a"}}, "end must not contain count: only a loss may"),
    ({"disconnect": {"event": "x", "first_cursor": "$.a"}}, f"disconnect {NO_CURSOR.format('first_cursor')}"),
    ({"resume": {"query": "a", "oldest": "$.a"}}, "resume.oldest needs expired: the marks of the frame"),
    ({"resume": {"query": "a", "oldest": "a", "expired": {"event": "x"}}}, f"resume.oldest must be {PATH}"),
]


def test_a_wrong_field_is_refused_by_name() -> None:
    """The sentence names the field and a valid value."""
    wrong = [fields for fields, sentence in WRONG if sentence not in refusal(**fields)]
    assert wrong == []


def test_a_path_into_the_element_keeps_its_spelling() -> None:
    """A path into the element is shown as the profile has it, and read in a frame of that element alone."""
    parsed = profile(framing="ndjson", split={"path": "$"}, key=["$[*].id"], cursor="$[*].at")
    assert (getattr(parsed.cursor, "text", ""), getattr(parsed.cursor, "steps", ())) == ("$[*].at", (0, "at"))
    (first, second) = parsed.batch_events(Frame('[{"id": 1, "at": 5}, {"id": 2, "at": 6}]'), 0) or []
    assert [(one.key, one.cursor) for one in (first, second)] == [('["1"]', "5"), ('["2"]', "6")]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"r": 1}', Kind.HEARTBEAT),
        ('{"r": 1, "e": null}', Kind.HEARTBEAT),
        ('{"r": 1, "e": []}', Kind.EVENT),
        ('{"r": 1, "e": "absent"}', Kind.EVENT),
        ('{"r": 1, "c": {"d": 0}}', Kind.EVENT),
        ("[]", Kind.HEARTBEAT),
        ("5", Kind.EVENT),
        ("no JSON", Kind.EVENT),
    ],
)
def test_a_mark_may_require_that_a_place_is_absent(text: str, kind: Kind) -> None:
    """A place is absent if it is missing or null; only an object or a list has absent places."""
    parsed = profile(framing="ndjson", heartbeat={"absent": ["$.e", "$.c.d"]})
    assert parsed.marks.kind(Frame(text)) is kind


def test_the_elements_of_a_snapshot_have_its_name() -> None:
    """Elements of a snapshot are named "snapshot", unless they have a name of their own."""
    fields: dict[str, Any] = {"framing": "websocket", "address": "wss://a.example/", "snapshot": {"$.type": "all"}}
    frames = Frame('{"type": "all", "items": [{"t": "a"}, {}]}'), Frame('{"type": "one", "items": [{}]}')
    for split, names in (
        (SPLIT, ["snapshot", "snapshot", None]),
        (SPLIT | {"name": "$.items[*].t"}, ["a", "snapshot", None]),
    ):
        parsed = profile(split=split, **fields)
        assert [event.name for frame in frames for event in parsed.batch_events(frame, 0) or []] == names


def test_members_kept_beside_the_list_cause_no_conflict() -> None:
    """`split.keep` adds members that differ in each frame, so bodies of one key are compared only without it."""
    rules = {"split": {"path": "$.items", "keep": ["$.at"]}, "key": "$.items[*].id"}
    assert profile(**rules).key_conflict is None
    assert profile(**rules | {"split": {"path": "$.items"}}).key_conflict == "first"


def test_heartbeats_alone_may_carry_the_cursor() -> None:
    """A profile whose events have no cursor can resume by its heartbeats' cursor."""
    heartbeat = {"json": {"$.at": "*"}, "cursor": "$.at"}
    assert profile(framing="ndjson", resume={"query": "since"}, heartbeat=heartbeat).cursor is None


@pytest.mark.parametrize(
    ("resume", "cursor", "oldest", "expected"),
    [
        (Resume("query", "q", add=1), "5", "12", ("11", True)),
        (Resume("query", "q", add=1), "5", "7", ("6", True)),
        (Resume("query", "q", add=1), "5", "6", ("5", False)),
        (Resume("query", "q", add=1), "5", "3", ("5", False)),
        (Resume("query", "q", add=1), "", "0", ("-1", True)),
        (Resume("query", "q"), "99", "100", ("100", True)),
        (Resume("query", "q"), "99", "99", ("99", False)),
        (Resume("query", "q"), "a-5", "a-5", ("a-5", False)),
        (Resume("query", "q"), "a-5", "a-4", ("a-4", True)),
        (Resume("query", "q"), "a-5", "4", ("4", True)),
        (Resume("query", "q", add=1), "1" * 5000, "12", ("11", True)),
        (BACK, NOON, "2026-01-01T11:59:00Z", (NOON, False)),
        (BACK, NOON, "2026-01-01T11:59:30Z", ("2026-01-01T12:00:30Z", True)),
        (Resume("query", "q"), "2026-01-01T12:00:00", "2026-01-01T11:59:30Z", ("2026-01-01T11:59:30Z", True)),
        (Resume("query", "q", fallback="now"), "5", None, ("now", True)),
    ],
)
def test_the_place_to_resume_after_an_expired_cursor(
    resume: Resume, cursor: str, oldest: str | None, expected: tuple[str, bool]
) -> None:
    """The upstream's oldest place is requested next; events are lost only if it is after the cursor's own next."""
    assert resume.after_expiry(cursor, oldest) == expected
    following, is_lost = expected
    if is_lost and oldest is not None:
        assert resume.sent_text(following) == oldest
