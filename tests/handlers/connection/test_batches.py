"""The manager's effects for batches, for heartbeats with cursors, and for cursors that expire."""

import json
import re
from collections.abc import Sequence
from typing import Any

from handlers.connection.effects import Effect, RecordLoss, Release, Write
from handlers.connection.frame_reading import split_frame
from handlers.connection.inputs import Chunk, Closed, LeaseRead, Opened, Resumption, Written
from handlers.connection.intake import MOST_EVENTS
from handlers.connection.lease import Lease
from handlers.connection.manager import Manager
from handlers.framing.frames import Frame
from handlers.framing.marks import Kind
from tests.handlers.connection.managers import FENCE, SAVES, chunk, claimed, keys, outcome, profile

FIELDS: dict[str, Any] = {
    "framing": "ndjson",
    "split": {"path": "$.items"},
    "key": "$.items[*].n",
    "cursor": "$.items[*].r",
    "heartbeat": [{"json": {"$.made": True}, "first_cursor": "$.at"}, {"json": {"$.at": "*"}, "cursor": "$.at"}],
    "end": {"json": {"$.end": True}},
    "loss": {"json": {"$.loss": True}},
    "disconnect": {"json": {"$.bye": True}, "cursor": "$.at"},
    "resume": {"query": "since", "add": 1, "expired": {"json": {"$.old": True}}, "oldest": "$.from"},
}


def reading(cursor: str | None = None, saved_ms: int | None = None, **fields: Any) -> Manager:
    manager = claimed(at=Resumption(cursor, saved_ms), **FIELDS | fields)
    manager.handle(30, Opened(200))
    return manager


def saved_cursor(manager: Manager, now_ms: int, effects: Sequence[Effect]) -> str | None:
    """Return the cursor that is saved once all writes among `effects` are answered."""
    cursors = []
    for effect in effects:
        if isinstance(effect, Write):
            after = manager.handle(now_ms, Written(len(effect.events), 0))
            cursors += [one.cursor for one in after if isinstance(one, SAVES)]
    return next((cursor for cursor in reversed(cursors) if cursor is not None), None)


def end(manager: Manager, effects: list[Effect]) -> list[Effect]:
    """Return what follows once the writes among `effects` are answered and the upstream is closed."""
    for effect in effects:
        if isinstance(effect, Write):
            assert manager.handle(1100, Written(len(effect.events), 0)) == []
    return manager.handle(1200, Closed("closed"))


def last_save(manager: Manager, effects: list[Effect]) -> Release:
    return [effect for effect in end(manager, effects) if isinstance(effect, Release)][-1]


def batch(*revisions: int, **more: Any) -> dict[str, Any]:
    return {"items": [{"n": f"{revision}/{at}", "r": revision} for at, revision in enumerate(revisions)]} | more


def test_a_frame_that_is_not_split_is_not_taken_for_its_first_element() -> None:
    """A frame that cannot be split is stored under its hash: its first element's key may be stored already."""
    manager = reading()
    effects = manager.handle(40, Chunk(b'{"items":[{"n":1}]}\n{"items":[{"n":2}],"items":[{"n":1},{"n":3}]}\n'))
    (first, whole) = keys(effects)
    assert (first, re.fullmatch("[0-9a-f]{64}", whole) is not None) == ("1", True)


def test_elements_are_stored_in_order_and_the_cursor_passes_whole_revisions() -> None:
    """If two writes divide a revision, the cursor saved between them is that of the revision before."""
    manager = reading("1")
    revisions = [2] * (MOST_EVENTS - 5) + [3] * 10
    effects = chunk(manager, 1000, batch(*revisions))
    writes = [effect for effect in effects if isinstance(effect, Write)]
    assert keys(effects) == [f"{revision}/{at}" for at, revision in enumerate(revisions)]
    assert [(write.first, len(write.events)) for write in writes] == [(0, MOST_EVENTS), (MOST_EVENTS, 5)]
    assert saved_cursor(manager, 20_000, writes[:1]) == "2"
    assert saved_cursor(manager, 40_000, writes[1:]) == "3"


def test_only_a_batch_without_elements_is_a_heartbeat() -> None:
    """A batch with elements is stored, without its frame's cursor, even if a heartbeat mark fits the frame."""
    manager = reading("1")
    effects = chunk(manager, 1000, batch(2, at=9))
    assert (keys(effects), saved_cursor(manager, 20_000, effects)) == (["2/0"], "2")
    assert chunk(manager, 21_000, {"items": []}) == []
    effects = chunk(manager, 22_000, {"items": [], "at": 9}, batch(10))
    assert (keys(effects), saved_cursor(manager, 40_000, effects)) == (["10/0"], "10")


def test_a_batch_that_a_heartbeat_mark_names_by_a_value_is_not_stored() -> None:
    """A heartbeat mark that names a value makes the whole batch a heartbeat; an answer is no event either."""
    manager = reading("1", heartbeat={"json": {"$.channel": "status"}})
    assert chunk(manager, 1000, {"channel": "status", "items": [{"version": 2}]}) == []
    talks: dict[str, Any] = {"address": "wss://a", "framing": "websocket", "split": {"path": "$.a"}, "key": "$.a[*].n"}
    parsed = profile(**talks, subscribe=[{"send": "hi", "expect": {"$.msg": "in"}}])
    kinds = [split_frame(parsed, Frame(text), 0) for text in ('{"msg": "in", "a": [1, 2]}', '{"a": [{"n": 1}]}')]
    assert [(kind, len(events)) for kind, events in kinds] == [(Kind.ANSWER, 0), (Kind.EVENT, 1)]


def test_an_answer_or_heartbeat_in_a_batch_does_not_drop_the_events_beside_it() -> None:
    """Events that come in one frame with an answer or a heartbeat, at any place in it, are stored."""
    talks: dict[str, Any] = {"address": "wss://a", "framing": "websocket", "split": {"path": "$"}, "key": "$[*].n"}
    talks |= {"subscribe": [{"send": "hi", "expect": {"$[0].msg": "in"}}], "heartbeat": {"$[0].hb": 1}}
    parsed = profile(**talks)
    for elements, kind, stored in (
        (({"msg": "in"}, {"n": 1}, {"n": 2}), Kind.EVENT, ["1", "2"]),
        (({"n": 1}, {"hb": 1}, {"n": 2}, {"msg": "in"}), Kind.EVENT, ["1", "2"]),
        (({"msg": "in"}, {"hb": 1}), Kind.ANSWER, []),
        (({"hb": 1}, {"hb": 1}), Kind.HEARTBEAT, []),
        (({"n": 1}, {"n": 2}), Kind.EVENT, ["1", "2"]),
    ):
        found, events = split_frame(parsed, Frame(json.dumps(elements)), 0)
        assert (found, [event.key for event in events]) == (kind, stored)


def test_a_frame_that_is_an_answer_or_refusal_has_no_events_whatever_its_elements() -> None:
    """A frame that a mark names as answer or refusal has no events, although another mark judges its elements."""
    talks: dict[str, Any] = {"address": "wss://a", "framing": "websocket", "split": {"path": "$.a"}, "key": "$.a[*].n"}
    asked = [{"send": "hi", "expect": {"$.msg": "in"}, "refuse": {"$.msg": "no"}}]
    parsed = profile(**talks, subscribe=asked, heartbeat={"$.a[0].hb": 1})
    for text, kind in (
        ('{"msg": "in", "a": [{"n": 1}]}', Kind.ANSWER),
        ('{"msg": "no", "a": [{"n": 1}]}', Kind.REFUSAL),
    ):
        assert split_frame(parsed, Frame(text), 0) == (kind, ())


def test_a_heartbeats_cursor_waits_for_the_events_before_it() -> None:
    """A heartbeat's cursor, at the path of its mark, counts once the earlier events are stored."""
    manager = reading("1")
    assert saved_cursor(manager, 20_000, chunk(manager, 1000, batch(2), {"at": 7})) == "7"


def test_the_first_answers_cursor_counts_only_if_the_connection_did_not_resume() -> None:
    """If the connection resumed, the first answer's cursor proves nothing: missed events are still on their way."""
    for cursor, expected in ((None, "5"), ("1", None)):
        manager = reading(cursor)
        assert chunk(manager, 100, {"made": True, "at": 5}) == []
        lease = Lease(fence=FENCE, connected_token=FENCE)
        saves = [one for one in manager.handle(20_000, LeaseRead(lease)) if isinstance(one, SAVES)]
        assert [save.cursor for save in saves] == [expected]


def test_a_frame_without_the_list_is_stored_whole() -> None:
    """A frame without the list that the profile splits is stored whole, without a cursor."""
    manager = reading("1")
    (write,) = (effect for effect in chunk(manager, 1000, {"new": "thing"}) if isinstance(effect, Write))
    assert [(event.data, event.cursor) for event in write.events] == [('{"new": "thing"}', None)]


def test_elements_are_stored_whatever_else_their_frame_reports() -> None:
    """The elements of an end, a loss, a disconnect or an expired cursor are stored. An end without any is an event."""
    for more, error in (({"end": True}, ""), ({"bye": True}, "StreamDropped"), ({"old": True}, "StreamDropped")):
        manager = reading("1")
        effects = chunk(manager, 1000, batch(2, 3, **more), batch(4))
        assert keys(effects) == ["2/0", "3/1"]
        lease = Lease(fence=FENCE, connected_token=FENCE)
        after = [*end(manager, effects), *manager.handle(1300, LeaseRead(lease))]
        assert outcome(after).error == error
    effects = chunk(reading("1"), 1000, batch(2, loss=True))
    assert [type(effect) for effect in effects] == [RecordLoss, Write]
    assert len(keys(chunk(reading("1"), 1000, {"items": [], "end": True}))) == 1


def test_a_disconnect_may_carry_the_cursor() -> None:
    """The cursor at the path of the disconnect mark is saved when the connection ends."""
    manager = reading("1")
    assert last_save(manager, chunk(manager, 1000, {"bye": True, "at": 8})).cursor == "8"


def test_equal_elements_are_different_events_with_the_key_each() -> None:
    """With the key "each" equal elements are different events, numbered across frames."""
    effects = chunk(reading(key="each", cursor="$.at", heartbeat=[]), 1000, {"items": ["ha", "ha"]}, {"items": ["ha"]})
    assert keys(effects) == [f"{FENCE:012d}-{number:09d}" for number in range(3)]


def test_an_expired_cursor_moves_to_the_oldest_place_and_events_before_it_are_lost() -> None:
    """If a cursor expires, the one before the oldest place is saved; the record has when the loss was reported."""
    manager = reading("5", saved_ms=-60_000)
    save = last_save(manager, chunk(manager, 1000, {"old": True, "from": 12}))
    assert save.cursor == "11"
    assert (save.progress.resumed, save.progress.ended_by, save.progress.forgot_ms) == (False, "cursor_expired", 1000)


def test_nothing_is_lost_if_the_oldest_place_follows_the_cursor() -> None:
    """If the oldest place follows the cursor, the cursor stays, and the connection ends as by a disconnect."""
    manager = reading("5")
    save = last_save(manager, chunk(manager, 1000, batch(8), {"old": True, "from": 9}))
    assert save.cursor == "8"
    assert (save.progress.resumed, save.progress.ended_by, save.progress.forgot_ms) == (
        True,
        "disconnected_by_upstream",
        None,
    )


def test_a_loss_begins_where_the_connection_last_moved_the_cursor() -> None:
    """A loss begins at the last heartbeat with a cursor, which proves that nothing was missing until then."""
    manager = reading("5", saved_ms=-60_000)
    chunk(manager, 500, {"at": 7})
    save = last_save(manager, chunk(manager, 1000, {"old": True, "from": 12}))
    assert (save.progress.resumed, save.progress.closed_ms, save.progress.forgot_ms) == (True, 500, 1000)
