"""What a group's function owes the store after a refusal, and what its heartbeats answer for, on tables in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from handlers.connection.evidence import Record
from handlers.connection.gap_record import OPEN, Gap
from handlers.connection.inputs import LOG
from handlers.connection.ledger import gaps
from handlers.errors import StoreUnavailable
from handlers.group.group_lease import GroupHeartbeat, GroupLease
from handlers.store import control_record, ledger_records, typed_values
from handlers.store.control_record import cursor, to_record
from handlers.store.control_writes import Change, mark
from handlers.store.group_store import FORGOTTEN_MS, GroupStore, live_of_member, member_lease
from handlers.store.grouped_store import NEWER, GroupedStore
from handlers.store.known_streams import GroupFunction
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.aws import Client, answer_is_lost, never_arrives, passes

CONTROL, GROUP, STREAM, EXECUTION, REQUEST = "control", "#1", "prices", "E1", "r1"
NOW_MS = 1_000_000


@contextmanager
def unanswered(client: Client, way: Callable[..., Any]) -> Iterator[None]:
    """Requests inside are refused, or carried out with a lost answer: the store is unavailable."""
    client.way = way
    with pytest.raises(StoreUnavailable):
        yield
    client.way = passes


@pytest.fixture
def client() -> Client:
    """Return a stream that has joined a group whose lease an execution has."""
    tables = MemoryDynamoDB("events", CONTROL)
    for key, attributes in ((GROUP, {"execution": EXECUTION}), (STREAM, {"group": GROUP, "joined": "1"})):
        texts = {name: {"S": value} for name, value in attributes.items()}
        tables.put_item(TableName=CONTROL, Item=typed_values.key(key, "lease") | texts)
    return Client(tables, "update_item")


def store_of(client: Client, now_ms: int = NOW_MS, clock_ms: Callable[[], int] | None = None) -> GroupedStore:
    """Return the store of a function that heartbeats, at one instant or by a clock."""
    who = GroupFunction(GROUP, 1, REQUEST, EXECUTION, NOW_MS + 60_000, 8_000)
    names = {"events_table": "events", "control_table": CONTROL, "dead_letter_queue_url": ""}
    store = GroupedStore(client, lambda: None, who, clock_ms or (lambda: now_ms), sleep=lambda _s: None, **names)
    store.stalls[STREAM] = 30_000
    store.lease = GroupLease(1, EXECUTION, heartbeats={REQUEST: GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000)})
    return store


def claim(store: GroupedStore) -> int:
    """Return the fencing token of a claim in the function's name."""
    return store.claim(STREAM, execution=EXECUTION, holder=f"B/{REQUEST}").record.lease.fence


def shown() -> typed_values.Item:
    """Return what a heartbeat shows."""
    live = {"fence": {"N": "1"}, "request_id": {"S": REQUEST}, "seen_ms": {"N": str(NOW_MS)}}
    return {"live": {"M": live}}


def record(client: Client) -> typed_values.Item:
    """Return the stream's record."""
    item: typed_values.Item = client.get_item(TableName=CONTROL, Key=typed_values.key(STREAM, "lease"))["Item"]
    return item


def connected(client: Client) -> GroupedStore:
    """Return a store whose function is connected to the stream, and answers for it by its heartbeats."""
    store = store_of(client)
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=shown())
    assert record(client)["live"]["M"]["lag_ms"] == {"N": "8000"}
    return store


@pytest.mark.parametrize("was_connected", [True, False])
def test_a_second_claim_of_a_function_is_not_answered_by_its_first(client: Client, was_connected: bool) -> None:
    """Its name is the same; if the answer was lost, the recorded claim is the older one."""
    store = connected(client) if was_connected else store_of(client)
    if not was_connected:
        claim(store)
    with unanswered(client, never_arrives):
        claim(store)
    assert claim(store) == 2


def test_each_claim_turn_and_mark_is_counted(client: Client) -> None:
    """The heartbeats have the count; if it changes, another function reads its streams' records again."""
    store = store_of(client)
    turns, fence = [store.turns], claim(store)
    turns.append(store.turns)
    assert store.take_turn(STREAM, fence, NOW_MS + 60_000, NOW_MS, request_id=REQUEST).is_done
    turns.append(store.turns)
    assert store.mark_connected(STREAM, fence, NOW_MS + 60_000, request_id=REQUEST, shown=shown()).is_done
    assert [*turns, store.turns] == [0, 1, 2, 3]


def test_a_release_that_was_refused_is_made_with_a_later_heartbeat(client: Client) -> None:
    """Otherwise the function's heartbeats would say, as long as it lives, that the stream is connected."""
    store = connected(client)
    client.way = never_arrives
    with pytest.raises(StoreUnavailable):
        store.release(STREAM, 1, shown())
    store.releases_again()
    client.way = passes
    assert "released" not in record(client)
    store.releases_again()
    assert record(client).get("released") == {"N": "1"}


def test_a_connection_that_the_store_ended_is_released_with_a_later_heartbeat(client: Client) -> None:
    """No request of it could fail: its record stays open, and no heartbeat answers for it any more."""
    store = connected(client)
    store.over(STREAM)
    store.releases_again()
    assert record(client).get("released") == {"N": "1"}
    assert set(record(client)["live"]["M"]) == {"fence", "request_id", "seen_ms"}


def test_no_heartbeat_vouches_for_a_relieved_stream_whose_release_is_owed(client: Client) -> None:
    """Another function keeps the stream, but its record has no end before the release: what came since may be lost."""
    now = [NOW_MS]
    store = store_of(client, clock_ms=lambda: now[0])
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=shown())
    with unanswered(client, never_arrives):
        store.release(STREAM, 1, shown())
    store.forget(STREAM)
    now[0] += 50_000
    assert store.heartbeat_at_ms() == NOW_MS + 8_000
    store.releases_again()
    assert store.heartbeat_at_ms() == now[0]


def test_one_that_was_never_connected_releases_no_older_one(client: Client) -> None:
    """Otherwise the older one would count as closed: a refusal beside it would be final, or a second one opened."""
    store = connected(client)
    assert claim(store) == 2
    store.over(STREAM)
    store.releases_again()
    assert "released" not in record(client)


def test_no_heartbeat_answers_for_a_connection_whose_mark_had_no_answer(client: Client) -> None:
    """It ends by that, though its record may have the mark: later heartbeats would call it good."""
    store = store_of(client)
    fence = claim(store)
    with unanswered(client, answer_is_lost):
        store.mark_connected(STREAM, fence, NOW_MS + 60_000, request_id=REQUEST, shown=shown())
    assert record(client)["live"]["M"]["lag_ms"] == {"N": "8000"}
    store.over(STREAM)
    store.releases_again()
    assert (record(client)["released"], record(client)["live"]) == ({"N": "1"}, shown()["live"])


def test_each_connection_of_a_stream_owes_its_own_release(client: Client) -> None:
    """A turn's answer was lost after a refused release: nobody else would get it while the function lives."""
    store = connected(client)
    with unanswered(client, never_arrives):
        store.release(STREAM, 1, shown())
    assert claim(store) == 2
    client.way = answer_is_lost
    with pytest.raises(StoreUnavailable):
        store.take_turn(STREAM, 2, NOW_MS + 60_000, NOW_MS, request_id=REQUEST, over=1)
    store.over(STREAM)
    client.way = passes
    store.releases_again()
    taken = record(client)
    assert (taken["connected"], taken["released"]) == ({"N": "2"}, {"N": "2"})


def test_a_late_release_of_an_older_connection_leaves_the_newer_one_its_lag(client: Client) -> None:
    """Otherwise the function's heartbeats would answer for the newer one for longer than its manager has said."""
    now_ms = NOW_MS
    store = store_of(client, clock_ms=lambda: now_ms)
    for is_older in (True, False):
        store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=shown())
        if is_older:
            with unanswered(client, never_arrives):
                store.release(STREAM, 1, shown())
    store.releases_again()
    assert record(client).get("released") == {"N": "1"}
    now_ms = NOW_MS + 20_000
    assert store.heartbeat_at_ms() == NOW_MS + 8_000


def test_what_a_connection_has_proved_is_written_at_once(client: Client) -> None:
    """Heartbeats say until when it was good, but not that the gap before it is closed; so each connection does once."""
    store, times = store_of(client), {"opened_ms": NOW_MS - 500, "since_ms": 0, "live_ms": NOW_MS}
    behind = {"live": {"M": shown()["live"]["M"] | {name: typed_values.number(at) for name, at in times.items()}}}
    for fence, seen_ms in product((1, 2), (-500, -400, 0, 100)):
        behind["live"]["M"] |= {"fence": typed_values.number(fence), "seen_ms": typed_values.number(NOW_MS + seen_ms)}
        if seen_ms == -500:
            store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=behind)
        else:
            store.heartbeat(STREAM, fence, NOW_MS + 60_000, behind)
        written_ms = -500 if seen_ms < 0 else 0
        assert record(client)["live"]["M"]["seen_ms"] == typed_values.number(NOW_MS + written_ms)


def test_the_cursor_of_a_stream_that_is_evicted_is_saved_by_each_heartbeat(client: Client) -> None:
    """If the upstream has forgotten the newer cursor, nobody can go back to the older connection."""
    store = connected(client)
    store.evicting.add(STREAM)
    for number in ("1", "2", "3"):
        store.heartbeat(STREAM, 1, NOW_MS + 60_000, shown() | cursor(number, 1, NOW_MS))
        assert record(client)["cursor"] == {"S": number}
    store.evicting.clear()
    store.heartbeat(STREAM, 1, NOW_MS + 60_000, shown() | cursor("4", 1, NOW_MS))
    assert record(client)["cursor"] == {"S": "3"}


def test_the_count_of_a_budget_is_saved_at_each_hundredth(client: Client) -> None:
    """What is less, and what comes beyond the budget, waits for the next write."""
    store, saved = connected(client), []
    for events in (0, 3, 4, 7, 8, 399, 400, 500):
        live = shown()["live"]["M"] | {"spending": {"S": f"20000/{events}/0/0/400/0/pause/0/"}}
        store.heartbeat(STREAM, 1, NOW_MS + 60_000, {"live": {"M": live}} | cursor(str(events), 1, NOW_MS))
        saved.append(int(record(client)["cursor"]["S"]))
    assert saved == [0, 0, 4, 4, 8, 399, 399, 399]


def test_a_log_s_cursor_is_saved_if_another_connection_brings_every_event_first(client: Client) -> None:
    """Such a connection appends no segment, so its successor would resume from where it began, up to 15 min before."""
    now_ms, saved = NOW_MS, []
    store = store_of(client, clock_ms=lambda: now_ms)
    client.put_item(TableName=CONTROL, Item=record(client) | {"partitions": {"N": str(LOG)}})
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=shown())
    # The first cursor is saved at once. For 20 s the connection stores an event a second, then another one is first.
    for second in range(40):
        now_ms, stored = NOW_MS + 1_000 * second, min(second, 20)
        heartbeat = GroupHeartbeat(1, now_ms, now_ms + 8_000)
        store.lease = GroupLease(1, EXECUTION, heartbeats={REQUEST: heartbeat})
        live = shown()["live"]["M"] | {"stored": typed_values.number(stored), "seen_ms": typed_values.number(now_ms)}
        store.heartbeat(STREAM, 1, NOW_MS + 60_000, {"live": {"M": live}} | cursor(str(now_ms), 1, now_ms))
        saved.append(int(record(client)["saved_at_ms"]["N"]) - NOW_MS)
    assert sorted(set(saved)) == [0, 21_000, 36_000]


def test_one_that_was_released_owes_nothing(client: Client) -> None:
    """Its record is written once."""
    store = connected(client)
    store.release(STREAM, 1, shown())
    store.over(STREAM)
    client.way = never_arrives
    store.releases_again()
    assert record(client).get("released") == {"N": "1"}


def test_a_connection_that_a_heartbeat_answers_for_was_heard_not_long_before() -> None:
    """Otherwise its successor would count its whole life as the silence of a dead peer, and never catch up."""
    live = {name: {"N": value} for name, value in (("seen_ms", "0"), ("lag_ms", "8000"), ("silent_ms", "37500"))}
    group = GroupLease(1, EXECUTION, heartbeats={REQUEST: GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000)})
    composed = live_of_member(live | {"request_id": {"S": REQUEST}}, group)
    assert composed is not None
    assert (composed["seen_ms"], composed["heard_ms"]) == ({"N": "992000"}, {"N": "954500"})


@pytest.mark.parametrize("stop", [False, True])
def test_a_stream_that_joins_a_group_that_was_stopped_is_not_asked_to_stop(stop: bool) -> None:
    """A group is stopped when no member is left: until its next execution claims it, its status was "stopping"."""
    item = {"group": {"S": GROUP}, "execution": {"S": GROUP}, "stop": {"BOOL": stop}}
    assert member_lease(item, GroupLease(1, EXECUTION, stop=True)).stop is stop


def test_a_connection_that_a_heartbeat_answers_for_is_not_silent_for_its_lag() -> None:
    """Otherwise one that catches up would count as dead, and the time since as a gap."""
    names = ("fence", "opened_ms", "since_ms", "live_ms", "seen_ms", "lag_ms")
    live = dict(zip(names, map(typed_values.number, (2, 900_000, 800_000, 1_100_000, 900_000, 8_000)), strict=True))
    live |= {"request_id": {"S": REQUEST}, "resumed": {"BOOL": True}}
    shown_live = live_of_member(
        live, GroupLease(1, EXECUTION, heartbeats={REQUEST: GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000)})
    )
    assert shown_live is not None
    before, (now,) = Record(1, 700_000, 800_000, 800_000, "reset", resumed=False), ledger_records.records_of(shown_live)
    assert now.end_ms(NOW_MS + 8_000, 8_000) is None
    assert gaps([before, now], NOW_MS + 8_000, 8_000) == [Gap(2, 800_000, 900_000, "reset", OPEN)]


@pytest.mark.parametrize(
    ("came", "behind_ms"), [([], 45_500), ([(6, NOW_MS)], 45_500), ([(6, NOW_MS), (7, NOW_MS - 500)], 500)]
)
def test_who_asks_from_a_log_is_behind_by_what_the_log_has_not_yet(came: list[tuple[int, int]], behind_ms: int) -> None:
    """No heartbeat is written for such a stream: by its record alone each successor would be further behind."""
    live = {name: typed_values.number(value) for name, value in (("fence", 7), ("seen_ms", 992_000), ("lag_ms", 8_000))}
    live |= {"opened_ms": {"N": "0"}, "live_ms": {"N": "0"}, "heard_ms": {"N": "954500"}}
    record = to_record({"live": {"M": live}})
    for fence, came_ms in came:
        record = record.heard(fence, came_ms)
    assert record.resumption(NOW_MS).behind_ms == behind_ms


@pytest.mark.parametrize(("died_s", "status"), [(2, "stopping"), (8, "stopped")])
def test_who_leaves_while_its_function_is_dead_is_connected_no_more(client: Client, died_s: int, status: str) -> None:
    """Outside the group no heartbeat says that its function is dead, and the function's limit is minutes away."""
    store = connected(client)
    late(client)
    now_ms = NOW_MS + died_s * 1_000
    later = store_of(client, now_ms)
    later.refreshed([record(client)])
    assert later.lets_go(STREAM, "1", "StreamEnded", "stopped") == ""
    lease = control_record.lease(record(client))
    assert ("stopping" if now_ms < lease.expires_at_ms else "stopped") == status
    # Nor does one that lives say so, where the store refuses its release.
    assert lease.expires_at_ms <= store.lease.heartbeats[REQUEST].until_ms


def test_who_reads_on_after_the_end_renews_as_for_a_stream_alone(client: Client) -> None:
    """Otherwise, if its release is refused, the ended stream counts as connected until the function's limit."""
    store = connected(client)
    other = store_of(client)
    other.refreshed([record(client)])
    assert other.lets_go(STREAM, "1", "StreamEnded", "ended") == ""
    seen = [store.heartbeat(STREAM, 1, NOW_MS + 8_000, shown() | cursor(text, 1, NOW_MS)) for text in ("4", "5")]
    assert [reply.is_done for reply in seen] == [True, True]
    assert (record(client)["cursor"], record(client)["expires_at_ms"]) == ({"S": "5"}, {"N": str(NOW_MS + 8_000)})


def late(client: Client) -> GroupedStore:
    """Return the store of the same function when its heartbeat has just run out, and nobody has ended it."""
    GroupStore(client, CONTROL, GROUP).first_heartbeat(REQUEST, EXECUTION, store_of(client).lease.heartbeats[REQUEST])
    store = store_of(client, NOW_MS + 8_000)
    store.refreshed([record(client)])
    return store


def test_a_function_whose_own_heartbeat_has_run_out_takes_no_turn(client: Client) -> None:
    """The next function takes an ended one's turn at once, and would open beside it; so it waits."""
    connected(client).release(STREAM, 1, shown())
    store, limit_ms = late(client), NOW_MS + 60_000
    turn = mark(2, limit_ms, REQUEST)
    claimed = store.claim(STREAM, execution=EXECUTION, holder=f"B/{REQUEST}", after_fence=1, turn=turn)
    taken = store.take_turn(STREAM, 2, limit_ms, NOW_MS + 8_000, request_id=REQUEST)
    assert (claimed.is_done, taken.is_done, record(client)["connected"]) == (True, False, {"N": "1"})


def test_a_function_does_not_end_itself(client: Client) -> None:
    """Its heartbeat has run out, and a finished stream's connection is open because its release was refused."""
    store = connected(client)
    with unanswered(client, never_arrives):
        store.release(STREAM, 1, shown())
    assert late(client).lets_go(STREAM, "1", "StreamEnded", "stopped") == ""
    assert not GroupStore(client, CONTROL, GROUP).read().heartbeats[REQUEST].is_ended


def test_a_heartbeat_that_lands_late_sets_no_later_one_back(client: Client) -> None:
    """Otherwise the function would count as dead while it reads, and its successor would open beside it."""
    groups, known = GroupStore(client, CONTROL, GROUP), GroupLease()
    first, second = GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000, 9, away=1), GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000, 10)
    groups.first_heartbeat(REQUEST, EXECUTION, first)
    assert groups.heartbeat(REQUEST, second, known)[0]
    third = replace(second, at_ms=NOW_MS + 1_000, until_ms=NOW_MS + 9_000)
    assert [groups.heartbeat(REQUEST, one, known)[0] for one in (third, second, third)] == [True, False, True]
    assert groups.read().heartbeats == {REQUEST: third}


@pytest.mark.parametrize(("group", "listed", "anew"), [(GROUP, "1", "2"), (GROUP, "2", "2"), ("#2", "1", "")])
def test_a_stream_that_has_joined_anew_is_not_let_go(client: Client, group: str, listed: str, anew: str) -> None:
    """Neither if it is in another group by now, nor if its connection was still being closed when the function read
    the members with that POST.
    """
    store = connected(client)
    client.put_item(TableName=CONTROL, Item=record(client) | {"group": {"S": group}, "joined": {"S": "2"}})
    assert store.lets_go(STREAM, listed, "StreamEnded", "stopped") == anew
    assert (record(client)["group"], "ending" in record(client)) == ({"S": group}, False)


@pytest.mark.parametrize(("is_stopped", "joined"), [(False, "1"), (True, "")])
def test_what_a_newer_function_has_claimed_is_not_let_go_unless_it_is_stopped(
    client: Client, is_stopped: bool, joined: str
) -> None:
    """Its upstream refused the older function, and may have answered the newer one since."""
    store = connected(client)
    claimed = {"group_fence": {"N": "2"}, "stop": {"BOOL": is_stopped}}
    client.put_item(TableName=CONTROL, Item=record(client) | claimed)
    assert store.lets_go(STREAM, "1", "StreamRejected", "403") == joined
    assert ("group" in record(client), "ending" in record(client)) == (not is_stopped, is_stopped)


def test_a_function_that_is_ended_sends_no_heartbeat_again(client: Client) -> None:
    """Nobody ends a function that has sent another heartbeat since it was read."""
    groups = GroupStore(client, CONTROL, GROUP)
    first, later, last = (GroupHeartbeat(1, NOW_MS + at_ms, NOW_MS + 8_000 + at_ms) for at_ms in (0, 2_000, 4_000))
    groups.first_heartbeat(REQUEST, EXECUTION, first)
    assert groups.heartbeat(REQUEST, later, GroupLease())[0]
    assert not groups.mark_ended(REQUEST, first)[0]
    assert groups.mark_ended(REQUEST, later)[0]
    is_done, lease = groups.heartbeat(REQUEST, last, GroupLease())
    assert (is_done, lease.heartbeats) == (False, {REQUEST: replace(later, is_ended=True)})


def test_what_a_function_may_not_keep_for_later_is_written_at_once(client: Client) -> None:
    """This is a first cursor, a stream that is behind and has no heartbeat any more, or a rest, which others obey."""
    store = connected(client)
    store.heartbeat(STREAM, 1, NOW_MS + 60_000, shown() | cursor("7", 1, NOW_MS))
    assert record(client).get("cursor") == {"S": "7"}
    behind = {"live": {"M": shown()["live"]["M"] | {"seen_ms": typed_values.number(NOW_MS - 5_000)}}}
    store.heartbeat(STREAM, 1, NOW_MS + 60_000, behind)
    assert "lag_ms" not in record(client)["live"]["M"]
    store = connected(client)
    rest = Change("attribute_not_exists(#retry_at)", {"retry_at": {"S": "later"}}, {})
    store.heartbeat(STREAM, 2, NOW_MS + 60_000, shown(), rest)
    assert record(client).get("retry_at") == {"S": "later"}


def test_what_a_function_knows_holds_for_as_long_as_its_heartbeats_do(client: Client) -> None:
    """It reads each lease from a quarter of their time before they run out; none says more than a stream's lag."""
    now_ms = NOW_MS
    store = store_of(client, clock_ms=lambda: now_ms)
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=shown())
    client.put_item(TableName=CONTROL, Item=record(client) | {"stop": {"BOOL": True}})
    stops, heartbeats = [], []
    for now_ms in (NOW_MS + 5_999, NOW_MS + 6_000, NOW_MS + 8_001):  # noqa: B007  # the clock reads it
        stops.append(store.read_lease(STREAM).stop)
        heartbeats.append(store.heartbeat_at_ms() - NOW_MS)
    assert (stops, heartbeats) == ([False, True, True], [5_999, 6_000, 8_000])


def test_a_stream_that_a_newer_function_has_claimed_is_its_own(client: Client) -> None:
    """The older one's connection ends as superseded, unless both lanes of one execution stay connected."""
    store, newer = store_of(client), {"group_fence": {"N": "2"}, "execution": {"S": EXECUTION}}
    client.put_item(TableName=CONTROL, Item=record(client) | newer)
    reply = store.claim(STREAM, execution=EXECUTION, holder=f"B/{REQUEST}")
    assert (reply.is_done, reply.record.lease.execution) == (False, NEWER)
    store.hot.add(STREAM)
    assert claim(store) == 1
    client.put_item(TableName=CONTROL, Item=record(client) | newer | {"execution": {"S": "another"}})
    assert not store.claim(STREAM, execution=EXECUTION, holder=f"B/{REQUEST}").is_done


def test_a_turn_that_outlasts_the_function_is_written(client: Client) -> None:
    """Otherwise a heartbeat answers for it, which lasts until the function's limit at most."""
    store = connected(client)
    for expires_at_ms, written in ((NOW_MS + 60_000, NOW_MS + 60_000), (NOW_MS + 60_001, NOW_MS + 60_001)):
        assert store.renew(STREAM, 1, expires_at_ms).is_done
        assert typed_values.count(record(client), "expires_at_ms") == written


def test_a_log_s_events_may_wait_beside_the_lag_of_the_heartbeats(client: Client) -> None:
    """The record says by how much more the stream may be behind."""
    store = store_of(client)
    store.lags[STREAM] = 500
    store.mark_connected(STREAM, claim(store), NOW_MS + 60_000, request_id=REQUEST, shown=shown())
    assert record(client)["live"]["M"]["lag_ms"] == {"N": "8500"}


def test_a_group_ends_at_the_version_at_which_nobody_is_a_member(client: Client) -> None:
    """If somebody has joined since, it goes on."""
    groups = GroupStore(client, CONTROL, GROUP)
    assert [groups.changed().version for _ in range(2)] == [1, 2]
    assert [groups.ends(EXECUTION, version)[0] for version in (1, 2)] == [False, True]


def test_the_heartbeats_of_functions_long_gone_are_removed(client: Client) -> None:
    """Their limit passed a minute ago, so none of their connections is open; the item would grow for ever."""
    groups, old = GroupStore(client, CONTROL, GROUP), GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000)
    for request_id in ("r0", REQUEST):
        groups.first_heartbeat(request_id, EXECUTION, old)
    left = []
    for after_ms in (FORGOTTEN_MS, FORGOTTEN_MS + 1):
        beat = replace(old, at_ms=NOW_MS + after_ms, until_ms=NOW_MS + after_ms + 8_000)
        left.append(sorted(groups.heartbeat(REQUEST, beat, groups.read())[1].heartbeats))
    assert left == [["r0", REQUEST], [REQUEST]]


def test_all_members_are_read_however_many_pages_they_fill() -> None:
    """DynamoDB answers a megabyte at a time."""
    tables = MemoryDynamoDB("events", CONTROL)
    tables.most_items = 1
    groups = GroupStore(tables, CONTROL, GROUP)
    for stream in "abc":
        groups.joins(stream, "1")
    assert groups.members() == dict.fromkeys("abc", "1")


def test_what_waits_goes_with_its_own_connection(client: Client) -> None:
    """The release writes it; without a release it is not written in the name of the next connection."""
    store = connected(client)
    for number in ("7", "8"):
        store.heartbeat(STREAM, 1, NOW_MS + 60_000, shown() | cursor(number, 1, NOW_MS))
    assert record(client)["cursor"] == {"S": "7"}
    store.release(STREAM, claim(store), shown())
    assert record(client)["cursor"] == {"S": "7"}
    store = connected(client)
    store.heartbeat(STREAM, 3, NOW_MS + 60_000, shown() | cursor("9", 3, NOW_MS))
    store.release(STREAM, 3, shown())
    assert record(client)["cursor"] == {"S": "9"}


def test_what_was_read_before_changes_nothing(client: Client) -> None:
    """No counter goes back and no stop is lost, unless the stream has joined anew."""
    before = record(client)
    store = connected(client)
    after = record(client)
    assert (store.refreshed([before]), store.known(STREAM).connected_token) == ([], 1)
    stops = []
    for item in (after | {"stop": {"BOOL": True}}, after, after | {"joined": {"S": "2"}}):
        store.refreshed([item])
        stops.append(store.stops(STREAM))
    assert stops == [True, True, False]


def test_places_are_counted_and_left_as_they_were_read(client: Client) -> None:
    """If somebody has joined since, a later reading counts; a stream that joined anew keeps its place."""
    groups = GroupStore(client, CONTROL, GROUP)
    version = groups.changed().version
    for at, size in ((version - 1, 9), (version, 3), (version + 1, 7)):
        groups.counted(at, size, frees=False)
    assert groups.read().size == 3
    for joined in ("1", "2"):
        groups.joins("a", joined)
    assert (groups.leaves("a", "1", NOW_MS), groups.members()) == (False, {"a": "2"})
    assert (groups.leaves("a", "2", NOW_MS), groups.members()) == (True, {})
