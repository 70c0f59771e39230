"""How a group's function repeats refused writes, and which connections its heartbeats cover, on tables in memory."""

from contextlib import nullcontext
from itertools import product

import pytest

from handlers.connection.inputs import LOG
from handlers.errors import StoreUnavailable
from handlers.group.group_lease import GroupHeartbeat, GroupLease
from handlers.store import typed_values
from handlers.store.control_record import cursor_attributes
from handlers.store.control_writes import Change
from handlers.store.grouped_store import NEWER
from tests.handlers.aws import Client, carry_out, drop_request, lose_answer
from tests.handlers.store.grouped import (
    CONTROL,
    EXECUTION,
    NOW_MS,
    REQUEST,
    STREAM,
    claim,
    client,
    connected_store,
    heartbeat_attributes,
    overdue_store,
    record,
    store_of,
    unanswered,
)

__all__ = ["client"]


@pytest.mark.parametrize("was_connected", [True, False])
def test_a_lost_claim_is_not_taken_for_the_functions_earlier_claim(client: Client, was_connected: bool) -> None:
    """Both claims have one name: if the second's answer is lost, the recorded claim may be the first."""
    store = connected_store(client) if was_connected else store_of(client)
    if not was_connected:
        claim(store)
    with unanswered(client, drop_request):
        claim(store)
    assert claim(store) == 2


def test_each_claim_turn_and_mark_is_counted(client: Client) -> None:
    """Each claim, turn and mark raises the heartbeats' count; another function then reads the records again."""
    store = store_of(client)
    turns, fence = [store.turns], claim(store)
    turns.append(store.turns)
    assert store.take_turn(STREAM, fence, NOW_MS + 60_000, NOW_MS, request_id=REQUEST).is_done
    turns.append(store.turns)
    assert store.mark_connected(
        STREAM, fence, NOW_MS + 60_000, request_id=REQUEST, shown=heartbeat_attributes()
    ).is_done
    assert [*turns, store.turns] == [0, 1, 2, 3]


def test_a_refused_release_is_repeated_with_a_later_heartbeat(client: Client) -> None:
    """A refused release is repeated, or the function's heartbeats would show the stream as connected while it lives."""
    store = connected_store(client)
    client.way = drop_request
    with pytest.raises(StoreUnavailable):
        store.release(STREAM, 1, heartbeat_attributes())
    store.retry_releases()
    client.way = carry_out
    assert "released" not in record(client)
    store.retry_releases()
    assert record(client).get("released") == {"N": "1"}


def test_a_connection_that_the_store_ended_is_released_with_a_later_heartbeat(client: Client) -> None:
    """A connection that the store ended is released later, with an open record, and no heartbeat covers it any more."""
    store = connected_store(client)
    store.record_connection_end(STREAM)
    store.retry_releases()
    assert record(client).get("released") == {"N": "1"}
    assert set(record(client)["live"]["M"]) == {"fence", "request_id", "seen_ms"}


def test_no_heartbeat_covers_a_relieved_stream_whose_release_is_owed(client: Client) -> None:
    """No heartbeat covers a relieved stream until its owed release is made, because its record has no end yet."""
    now = [NOW_MS]
    store = store_of(client, clock_ms=lambda: now[0])
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=heartbeat_attributes())
    with unanswered(client, drop_request):
        store.release(STREAM, 1, heartbeat_attributes())
    store.forget(STREAM)
    now[0] += 50_000
    assert store.heartbeat_at_ms() == NOW_MS + 8_000
    store.retry_releases()
    assert store.heartbeat_at_ms() == now[0]


def test_a_connection_that_was_never_connected_releases_no_older_one(client: Client) -> None:
    """A connection that was never connected releases no older one, or a refusal beside that one would be final."""
    store = connected_store(client)
    assert claim(store) == 2
    store.record_connection_end(STREAM)
    store.retry_releases()
    assert "released" not in record(client)


def test_no_heartbeat_covers_a_connection_whose_mark_had_no_answer(client: Client) -> None:
    """A connection whose mark had no answer ends, and its release removes the mark, so that no heartbeat covers it."""
    store = store_of(client)
    fence = claim(store)
    with unanswered(client, lose_answer):
        store.mark_connected(STREAM, fence, NOW_MS + 60_000, request_id=REQUEST, shown=heartbeat_attributes())
    assert record(client)["live"]["M"]["lag_ms"] == {"N": "8000"}
    store.record_connection_end(STREAM)
    store.retry_releases()
    assert (record(client)["released"], record(client)["live"]) == ({"N": "1"}, heartbeat_attributes()["live"])


@pytest.mark.parametrize("way", ["mark", "second mark", "behind", "caught up"])
def test_no_heartbeat_covers_more_than_a_write_without_an_answer_may_show(client: Client, way: str) -> None:
    """A write may have been made or not: no heartbeat covers more than the lag and the instant of either record."""
    now_ms = NOW_MS
    store = store_of(client, clock_ms=lambda: now_ms)

    def shown(seen_ms: int) -> typed_values.Item:
        live = heartbeat_attributes()["live"]["M"] | {"seen_ms": typed_values.number_value(seen_ms)}
        return {"live": {"M": live}}

    with unanswered(client, lose_answer) if way == "mark" else nullcontext():
        store.mark_connected(STREAM, claim(store), NOW_MS, request_id=REQUEST, shown=shown(NOW_MS))
    if way == "second mark":
        fence = claim(store)
        with unanswered(client, drop_request):
            store.mark_connected(STREAM, fence, NOW_MS, request_id=REQUEST, shown=shown(NOW_MS + 5_000))
    now_ms, covered_ms = NOW_MS + 20_000, NOW_MS + 8_000
    with unanswered(client, drop_request) if way == "behind" else nullcontext():
        if way in ("behind", "caught up"):
            store.heartbeat(STREAM, 1, NOW_MS, shown(NOW_MS))
    if way == "caught up":
        assert store.heartbeat_at_ms() == now_ms
        with unanswered(client, lose_answer):
            store.heartbeat(STREAM, 1, NOW_MS, shown(now_ms))
        now_ms, covered_ms = NOW_MS + 40_000, NOW_MS + 28_000
    assert store.heartbeat_at_ms() == covered_ms


def test_each_connection_of_a_stream_owes_its_own_release(client: Client) -> None:
    """A turn without an answer is released beside an older owed release, or no connection would get it again."""
    store = connected_store(client)
    with unanswered(client, drop_request):
        store.release(STREAM, 1, heartbeat_attributes())
    assert claim(store) == 2
    client.way = lose_answer
    with pytest.raises(StoreUnavailable):
        store.take_turn(STREAM, 2, NOW_MS + 60_000, NOW_MS, request_id=REQUEST, over=1)
    store.record_connection_end(STREAM)
    client.way = carry_out
    store.retry_releases()
    taken = record(client)
    assert (taken["connected"], taken["released"]) == ({"N": "2"}, {"N": "2"})


def test_a_late_release_of_an_older_connection_leaves_the_newer_one_its_lag(client: Client) -> None:
    """A late release of an older connection keeps the newer one's lag, which bounds how long heartbeats cover it."""
    now_ms = NOW_MS
    store = store_of(client, clock_ms=lambda: now_ms)
    for is_older in (True, False):
        store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=heartbeat_attributes())
        if is_older:
            with unanswered(client, drop_request):
                store.release(STREAM, 1, heartbeat_attributes())
    store.retry_releases()
    assert record(client).get("released") == {"N": "1"}
    now_ms = NOW_MS + 20_000
    assert store.heartbeat_at_ms() == NOW_MS + 8_000


def test_a_connection_writes_at_once_that_it_has_caught_up(client: Client) -> None:
    """Each connection writes once, at once, that it has caught up, because heartbeats do not prove a gap closed."""
    store, times = store_of(client), {"opened_ms": NOW_MS - 500, "since_ms": 0, "live_ms": NOW_MS}
    behind = {
        "live": {
            "M": heartbeat_attributes()["live"]["M"]
            | {name: typed_values.number_value(at) for name, at in times.items()}
        }
    }
    for fence, seen_ms in product((1, 2), (-500, -400, 0, 100)):
        behind["live"]["M"] |= {
            "fence": typed_values.number_value(fence),
            "seen_ms": typed_values.number_value(NOW_MS + seen_ms),
        }
        if seen_ms == -500:
            store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=behind)
        else:
            store.heartbeat(STREAM, fence, NOW_MS + 60_000, behind)
        written_ms = -500 if seen_ms < 0 else 0
        assert record(client)["live"]["M"]["seen_ms"] == typed_values.number_value(NOW_MS + written_ms)


def test_the_cursor_of_an_evicted_stream_is_saved_by_each_heartbeat(client: Client) -> None:
    """Each heartbeat saves the cursor of an evicted stream: its upstream may have forgotten the newer cursor."""
    store = connected_store(client)
    store.evicting.add(STREAM)
    for number in ("1", "2", "3"):
        store.heartbeat(STREAM, 1, NOW_MS + 60_000, heartbeat_attributes() | cursor_attributes(number, 1, NOW_MS))
        assert record(client)["cursor"] == {"S": number}
    store.evicting.clear()
    store.heartbeat(STREAM, 1, NOW_MS + 60_000, heartbeat_attributes() | cursor_attributes("4", 1, NOW_MS))
    assert record(client)["cursor"] == {"S": "3"}


def test_the_count_of_a_budget_is_saved_at_each_hundredth(client: Client) -> None:
    """The count of a budget is saved at each hundredth; smaller steps, and events beyond the budget, wait."""
    store, saved = connected_store(client), []
    for events in (0, 3, 4, 7, 8, 399, 400, 500):
        live = heartbeat_attributes()["live"]["M"] | {"spending": {"S": f"20000/{events}/0/0/400/0/pause/0/"}}
        store.heartbeat(STREAM, 1, NOW_MS + 60_000, {"live": {"M": live}} | cursor_attributes(str(events), 1, NOW_MS))
        saved.append(int(record(client)["cursor"]["S"]))
    assert saved == [0, 0, 4, 4, 8, 399, 399, 399]


def test_a_logs_cursor_is_saved_if_another_connection_brings_every_event_first(client: Client) -> None:
    """A log's cursor is saved if another connection is first; without a segment it could be up to 15 min old."""
    now_ms, saved = NOW_MS, []
    store = store_of(client, clock_ms=lambda: now_ms)
    client.put_item(TableName=CONTROL, Item=record(client) | {"partitions": {"N": str(LOG)}})
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=heartbeat_attributes())
    # The first cursor is saved at once. For 20 s the connection stores an event a second; then another connection is
    # first.
    for second in range(40):
        now_ms, stored = NOW_MS + 1_000 * second, min(second, 20)
        heartbeat = GroupHeartbeat(1, now_ms, now_ms + 8_000)
        store.lease = GroupLease(1, EXECUTION, heartbeats={REQUEST: heartbeat})
        live = heartbeat_attributes()["live"]["M"] | {
            "stored": typed_values.number_value(stored),
            "seen_ms": typed_values.number_value(now_ms),
        }
        store.heartbeat(STREAM, 1, NOW_MS + 60_000, {"live": {"M": live}} | cursor_attributes(str(now_ms), 1, now_ms))
        saved.append(int(record(client)["saved_at_ms"]["N"]) - NOW_MS)
    assert sorted(set(saved)) == [0, 21_000, 36_000]


def test_a_released_connection_is_not_released_again(client: Client) -> None:
    """A connection that was released is not released again."""
    store = connected_store(client)
    store.release(STREAM, 1, heartbeat_attributes())
    store.record_connection_end(STREAM)
    client.way = drop_request
    store.retry_releases()
    assert record(client).get("released") == {"N": "1"}


def test_a_function_writes_facts_for_other_functions_at_once(client: Client) -> None:
    """A first cursor, a stream that falls behind or catches up, and a back-off that others obey are written at once."""
    store = connected_store(client)
    store.heartbeat(STREAM, 1, NOW_MS + 60_000, heartbeat_attributes() | cursor_attributes("7", 1, NOW_MS))
    assert record(client).get("cursor") == {"S": "7"}
    behind = {
        "live": {"M": heartbeat_attributes()["live"]["M"] | {"seen_ms": typed_values.number_value(NOW_MS - 5_000)}}
    }
    store.heartbeat(STREAM, 1, NOW_MS + 60_000, behind)
    assert "lag_ms" not in record(client)["live"]["M"]
    store.heartbeat(STREAM, 1, NOW_MS + 60_000, heartbeat_attributes())
    assert "lag_ms" in record(client)["live"]["M"]
    store = connected_store(client)
    rest = Change("attribute_not_exists(#retry_at)", {"retry_at": {"S": "later"}}, {})
    store.heartbeat(STREAM, 2, NOW_MS + 60_000, heartbeat_attributes(), rest)
    assert record(client).get("retry_at") == {"S": "later"}


def test_a_functions_knowledge_of_a_lease_lasts_as_long_as_its_heartbeats(client: Client) -> None:
    """A lease that a function has read is good until a quarter of the heartbeats' time before they run out."""
    now_ms = NOW_MS
    store = store_of(client, clock_ms=lambda: now_ms)
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=heartbeat_attributes())
    client.put_item(TableName=CONTROL, Item=record(client) | {"stop": {"BOOL": True}})
    stops, heartbeats = [], []
    for now_ms in (NOW_MS + 5_999, NOW_MS + 6_000, NOW_MS + 8_001):  # noqa: B007  # the clock reads it
        stops.append(store.read_lease(STREAM).stop)
        heartbeats.append(store.heartbeat_at_ms() - NOW_MS)
    assert (stops, heartbeats) == ([False, True, True], [5_999, 6_000, 8_000])


def test_a_stream_that_a_newer_function_claimed_belongs_to_that_function(client: Client) -> None:
    """A stream that a newer function claimed is superseded here, unless both lanes of an execution stay connected.

    A function whose heartbeat has run out makes no second connection: no heartbeat would show it to the newer function.
    """
    store, newer = store_of(client), {"group_fence": {"N": "2"}, "execution": {"S": EXECUTION}}
    client.put_item(TableName=CONTROL, Item=record(client) | newer)
    late = overdue_store(client)
    late.hot.add(STREAM)
    for refused in (store, late):
        reply = refused.claim(STREAM, execution=EXECUTION, holder=f"B/{REQUEST}")
        assert (reply.is_done, reply.record.lease.execution) == (False, NEWER)
    store.hot.add(STREAM)
    assert claim(store) == 1
    client.put_item(TableName=CONTROL, Item=record(client) | newer | {"execution": {"S": "another"}})
    assert not store.claim(STREAM, execution=EXECUTION, holder=f"B/{REQUEST}").is_done


def test_a_turn_that_outlasts_the_function_is_stored(client: Client) -> None:
    """A turn that outlasts the function is written; a heartbeat covers a shorter one until the function's limit."""
    store = connected_store(client)
    for expires_at_ms, written in ((NOW_MS + 60_000, NOW_MS + 60_000), (NOW_MS + 60_001, NOW_MS + 60_001)):
        assert store.renew(STREAM, 1, expires_at_ms).is_done
        assert typed_values.read_int(record(client), "expires_at_ms") == written


def test_the_waiting_time_of_a_log_adds_to_the_lag_of_the_heartbeats(client: Client) -> None:
    """If a log's events may wait, the record's lag is longer than that of the heartbeats by that time."""
    store = store_of(client)
    store.lags[STREAM] = 500
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=heartbeat_attributes())
    assert record(client)["live"]["M"]["lag_ms"] == {"N": "8500"}


def test_a_waiting_cursor_is_written_only_for_its_own_connection(client: Client) -> None:
    """A waiting cursor is written by its connection's release, and never in the name of the next connection."""
    store = connected_store(client)
    for number in ("7", "8"):
        store.heartbeat(STREAM, 1, NOW_MS + 60_000, heartbeat_attributes() | cursor_attributes(number, 1, NOW_MS))
    assert record(client)["cursor"] == {"S": "7"}
    store.release(STREAM, claim(store), heartbeat_attributes())
    assert record(client)["cursor"] == {"S": "7"}
    store = connected_store(client)
    store.heartbeat(STREAM, 3, NOW_MS + 60_000, heartbeat_attributes() | cursor_attributes("9", 3, NOW_MS))
    store.release(STREAM, 3, heartbeat_attributes())
    assert record(client)["cursor"] == {"S": "9"}


def test_a_record_that_was_read_earlier_changes_nothing(client: Client) -> None:
    """A record that was read earlier takes back no counter and no stop, unless the stream has joined again."""
    before = record(client)
    store = connected_store(client)
    after = record(client)
    assert (store.refresh([before]), store.known_lease(STREAM).connected_token) == ([], 1)
    stops = []
    for item in (after | {"stop": {"BOOL": True}}, after, after | {"joined": {"S": "2"}}):
        store.refresh([item])
        stops.append(store.is_stopping(STREAM))
    assert stops == [True, True, False]
