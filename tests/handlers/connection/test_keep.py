"""The manager's effects for events that a profile leaves out: they are counted, passed by the cursor, never stored."""

from typing import Any

import pytest

from handlers.connection.effects import CloseUpstream, RecordLoss, Release, Write
from handlers.connection.inputs import LOG, Closed, Opened, Resumption, Woken, Written
from handlers.connection.manager import Manager
from tests.handlers.connection.managers import FENCE, SAVES, chunk, claimed, keys, kinds

FIELDS: dict[str, Any] = {
    "framing": "ndjson",
    "key": "$.n",
    "cursor": "$.n",
    "resume": {"query": "since"},
    "keep": {"path": "$.t", "is": ["trade"]},
    "heartbeat": {"json": {"$.alive": True}, "cursor": "$.alive_at"},
    "loss": {"json": {"$.missed": "*"}, "count": "$.missed"},
    "end": {"json": {"$.bye": True}},
}


def reading(partitions: int = 1, **fields: Any) -> Manager:
    manager = claimed(at=Resumption("0", 0), partitions=partitions, **FIELDS | fields)
    manager.handle(30, Opened(200))
    return manager


def trade(n: int) -> dict[str, Any]:
    return {"n": n, "t": "trade"}


def quote(n: int) -> dict[str, Any]:
    return {"n": n, "t": "quote"}


def released(manager: Manager) -> Release:
    """Return the effect that releases the connection after the upstream's close."""
    effects = manager.handle(9_000, Closed("closed"))
    return next(effect for effect in effects if isinstance(effect, Release))


def test_events_that_are_left_out_are_counted_and_move_the_cursor() -> None:
    """A chunk without kept events makes no write; the connection's end saves the cursor after it."""
    manager = reading()
    assert chunk(manager, 40, quote(1), quote(2)) == []
    end = released(manager)
    assert (end.cursor, end.progress.left_out, end.progress.stored, end.progress.frames) == ("2", 2, 0, 2)


def test_the_cursor_of_a_left_out_event_waits_for_the_events_before_it() -> None:
    """The cursor of a left-out event is saved only once every event before it is stored."""
    manager = reading()
    effects = chunk(manager, 40, quote(1), trade(2), quote(3), quote(4))
    assert keys(effects) == ["2"]
    chunk(manager, 50, quote(5))
    assert kinds(manager.handle(60, Closed("closed"))) == [CloseUpstream]
    effects = manager.handle(70, Written(1, 0))
    assert [one.cursor for one in effects if isinstance(one, SAVES)] == ["5"]
    assert (manager.progress.left_out, manager.progress.stored) == (4, 1)


def test_an_unstored_kept_event_holds_back_the_cursor_of_a_left_out_one() -> None:
    """While a kept event is unstored, a heartbeat saves no later cursor: the next connection requests it again."""
    manager = reading()
    chunk(manager, 40, trade(1), quote(2))
    assert manager.handle(6_000, Woken()) == []
    effects = manager.ask_lease(6_000)
    assert [one.cursor for one in effects if isinstance(one, SAVES)] == [None]


def test_marks_apply_whatever_the_profile_keeps() -> None:
    """A heartbeat moves the cursor and is not left out, a loss is recorded and stored, an end ends the stream."""
    manager = reading()
    assert chunk(manager, 40, {"alive": True, "alive_at": "7"}) == []
    effects = chunk(manager, 50, {"missed": 3}, quote(8), {"bye": True}, trade(9))
    assert kinds(effects) == [RecordLoss, Write, CloseUpstream]
    assert isinstance(effects[1], Write)
    assert [event.data for event in effects[1].events] == ['{"missed": 3}', '{"bye": true}']
    assert manager.progress.left_out == 1


def test_an_upstream_that_sends_left_out_events_is_not_idle() -> None:
    """A connection 20 s behind catches up by idle heartbeats, not by left-out events: kept ones may follow."""
    live_ms = []
    for frames in ([quote(n) for n in range(1, 5)], [{"alive": True}] * 4):
        manager = claimed(at=Resumption("0", 0, backlog_from_ms=-19_980), **FIELDS)
        manager.handle(30, Opened(200))
        for now_ms, frame in zip((1_000, 4_000, 7_000, 8_000), frames, strict=True):
            chunk(manager, now_ms, frame)
        live_ms.append(released(manager).progress.live_ms)
    assert live_ms == [20_040, 5_030]


@pytest.mark.parametrize("partitions", [1, LOG])
def test_items_and_log_store_the_same_kept_events(partitions: int) -> None:
    """Items and log store the same kept events; the saved cursor is that of the left-out event after them."""
    manager = reading(partitions, store="log" if partitions == LOG else "items")
    effects = chunk(manager, 40, trade(1), quote(2), trade(3), quote(4))
    effects += manager.handle(41, Closed("closed"))
    assert keys(effects) == ["1", "3"]
    ends = manager.handle(50, Written(2, 0))
    assert [one.cursor for one in ends if isinstance(one, Release)] == ["4"]


def test_elements_that_are_left_out_move_the_cursor() -> None:
    """A batch with some kept elements makes one write, a batch with none makes no write; both move the cursor."""
    fields: dict[str, Any] = {
        "split": {"path": "$.items"},
        "key": "$.items[*].n",
        "cursor": "$.items[*].n",
        "keep": {"path": "$.items[*].t", "is": "trade"},
    }
    manager = reading(**fields)
    assert keys(chunk(manager, 40, {"items": [quote(1), trade(2), quote(3)]})) == ["2"]
    manager.handle(50, Written(1, 0))
    assert chunk(manager, 60, {"items": [quote(4), quote(5)]}) == []
    end = released(manager)
    assert (end.cursor, end.progress.left_out, end.progress.stored) == ("5", 4, 1)


def test_each_delivery_that_is_kept_has_a_key_of_its_own() -> None:
    """With the key "each", the numbers in the keys count only kept events."""
    manager = reading(key="each")
    assert keys(chunk(manager, 40, quote(1), trade(1), quote(2), trade(1))) == [
        f"{FENCE:012d}-{number:09d}" for number in (0, 1)
    ]
