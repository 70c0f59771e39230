"""How streams join and leave a group, how its functions end, and what heartbeats add to a stream's record."""

from dataclasses import replace

import pytest

from handlers.connection.evidence import Record
from handlers.connection.gap_record import OPEN, Gap
from handlers.connection.ledger import find_gaps
from handlers.group.group_lease import GroupHeartbeat, GroupLease
from handlers.store import control_record, ledger_records, typed_values
from handlers.store.control_record import cursor_attributes, to_record
from handlers.store.control_writes import mark_values
from handlers.store.group_store import FORGOTTEN_MS, GroupStore, live_of_member, member_lease
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.aws import Client, drop_request
from tests.handlers.store.grouped import (
    CONTROL,
    EXECUTION,
    GROUP,
    NOW_MS,
    REQUEST,
    STREAM,
    client,
    connected_store,
    heartbeat_attributes,
    overdue_store,
    record,
    store_of,
    unanswered,
)

__all__ = ["client"]


def test_a_heartbeat_moves_its_connections_last_sign_of_life() -> None:
    """A heartbeat moves its connection's last sign of life too: otherwise its successor would never catch up."""
    live = {name: {"N": value} for name, value in (("seen_ms", "0"), ("lag_ms", "8000"), ("silent_ms", "37500"))}
    group = GroupLease(1, EXECUTION, heartbeats={REQUEST: GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000)})
    composed = live_of_member(live | {"request_id": {"S": REQUEST}}, group)
    assert composed is not None
    assert (composed["seen_ms"], composed["heard_ms"]) == ({"N": "992000"}, {"N": "954500"})


@pytest.mark.parametrize("stop", [False, True])
def test_a_stream_that_joins_a_stopped_group_is_not_asked_to_stop(stop: bool) -> None:
    """A stopped group's stop does not stop a stream that joins, which would be "stopping" until the next execution."""
    item = {"group": {"S": GROUP}, "execution": {"S": GROUP}, "stop": {"BOOL": stop}}
    assert member_lease(item, GroupLease(1, EXECUTION, stop=True)).stop is stop


def test_a_connection_that_catches_up_does_not_count_as_dead_for_its_heartbeats_lag() -> None:
    """The lag of a heartbeat is no silence, or a connection that catches up would count as dead, its time as a gap."""
    names = ("fence", "opened_ms", "since_ms", "live_ms", "seen_ms", "lag_ms")
    live = dict(
        zip(names, map(typed_values.number_value, (2, 900_000, 800_000, 1_100_000, 900_000, 8_000)), strict=True)
    )
    live |= {"request_id": {"S": REQUEST}, "resumed": {"BOOL": True}}
    shown_live = live_of_member(
        live, GroupLease(1, EXECUTION, heartbeats={REQUEST: GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000)})
    )
    assert shown_live is not None
    before, (now,) = Record(1, 700_000, 800_000, 800_000, "reset", resumed=False), ledger_records.records_of(shown_live)
    assert now.end_ms(NOW_MS + 8_000, 8_000) is None
    assert find_gaps([before, now], NOW_MS + 8_000, 8_000) == [Gap(2, 800_000, 900_000, "reset", OPEN)]


@pytest.mark.parametrize(
    ("came", "behind_ms"), [([], 45_500), ([(6, NOW_MS)], 45_500), ([(6, NOW_MS), (7, NOW_MS - 500)], 500)]
)
def test_a_log_stream_is_behind_by_the_events_that_its_log_lacks(came: list[tuple[int, int]], behind_ms: int) -> None:
    """A log's newest event tells how far its stream is behind, because no heartbeat is written for such a stream."""
    live = {
        name: typed_values.number_value(value)
        for name, value in (("fence", 7), ("seen_ms", 992_000), ("lag_ms", 8_000))
    }
    live |= {"opened_ms": {"N": "0"}, "live_ms": {"N": "0"}, "heard_ms": {"N": "954500"}}
    record = to_record({"live": {"M": live}})
    for fence, came_ms in came:
        record = record.with_stored_until(fence, came_ms)
    assert record.resumption(NOW_MS).backlog_from_ms == NOW_MS - behind_ms


@pytest.mark.parametrize(("died_s", "status"), [(2, "stopping"), (8, "stopped")])
def test_a_stream_that_leaves_a_dead_function_counts_as_disconnected(client: Client, died_s: int, status: str) -> None:
    """The stream is connected until its last heartbeat runs out, not until the function's limit, minutes later."""
    store = connected_store(client)
    overdue_store(client)
    now_ms = NOW_MS + died_s * 1_000
    later = store_of(client, now_ms)
    later.refresh([record(client)])
    assert later.record_stream_end(STREAM, "1", "StreamEnded", "stopped") == ""
    lease = control_record.lease_of(record(client))
    assert ("stopping" if now_ms < lease.expires_at_ms else "stopped") == status
    # The same holds for a function that lives, if the store refuses its release.
    assert lease.expires_at_ms <= store.lease.heartbeats[REQUEST].until_ms


def test_a_connection_that_reads_on_after_the_end_renews_without_the_group(client: Client) -> None:
    """The connection saves cursor and lease itself, or the ended stream would count as connected until the limit."""
    store = connected_store(client)
    other = store_of(client)
    other.refresh([record(client)])
    assert other.record_stream_end(STREAM, "1", "StreamEnded", "ended") == ""
    seen = [
        store.heartbeat(STREAM, 1, NOW_MS + 8_000, heartbeat_attributes() | cursor_attributes(text, 1, NOW_MS))
        for text in ("4", "5")
    ]
    assert [reply.is_done for reply in seen] == [True, True]
    assert (record(client)["cursor"], record(client)["expires_at_ms"]) == ({"S": "5"}, {"N": str(NOW_MS + 8_000)})


def test_a_function_whose_own_heartbeat_has_run_out_takes_no_turn(client: Client) -> None:
    """A function whose heartbeat has run out takes no turn: the next function may take it at once and open too."""
    connected_store(client).release(STREAM, 1, heartbeat_attributes())
    store, limit_ms = overdue_store(client), NOW_MS + 60_000
    turn = mark_values(2, limit_ms, REQUEST)
    claimed = store.claim(STREAM, execution=EXECUTION, holder=f"B/{REQUEST}", after_fence=1, turn=turn)
    taken = store.take_turn(STREAM, 2, limit_ms, NOW_MS + 8_000, request_id=REQUEST)
    assert (claimed.is_done, taken.is_done, record(client)["connected"]) == (True, False, {"N": "1"})


def test_a_function_does_not_end_itself(client: Client) -> None:
    """A function whose own heartbeat has run out does not mark itself as ended when it lets a finished stream go."""
    store = connected_store(client)
    with unanswered(client, drop_request):
        store.release(STREAM, 1, heartbeat_attributes())
    assert overdue_store(client).record_stream_end(STREAM, "1", "StreamEnded", "stopped") == ""
    assert not GroupStore(client, CONTROL, GROUP).read().heartbeats[REQUEST].is_ended


def test_a_late_heartbeat_does_not_replace_a_newer_one(client: Client) -> None:
    """A late heartbeat does not replace a newer one. Otherwise the function would count as dead while it reads."""
    groups, known = GroupStore(client, CONTROL, GROUP), GroupLease()
    first, second = GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000, 9, away=1), GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000, 10)
    groups.first_heartbeat(REQUEST, EXECUTION, first)
    assert groups.heartbeat(REQUEST, second, known)[0]
    third = replace(second, at_ms=NOW_MS + 1_000, until_ms=NOW_MS + 9_000)
    assert [groups.heartbeat(REQUEST, one, known)[0] for one in (third, second, third)] == [True, False, True]
    assert groups.read().heartbeats == {REQUEST: third}


@pytest.mark.parametrize(("group", "listed", "anew"), [(GROUP, "1", "2"), (GROUP, "2", "2"), ("#2", "1", "")])
def test_a_stream_that_has_joined_again_is_not_let_go(client: Client, group: str, listed: str, anew: str) -> None:
    """A stream that joined again, or is in another group by now, is not let go by the end of its earlier membership.

    This holds too if the function had read the new POST while the connection was still being closed.
    """
    store = connected_store(client)
    client.put_item(TableName=CONTROL, Item=record(client) | {"group": {"S": group}, "joined": {"S": "2"}})
    assert store.record_stream_end(STREAM, listed, "StreamEnded", "stopped") == anew
    assert (record(client)["group"], "ending" in record(client)) == ({"S": group}, False)


@pytest.mark.parametrize(("is_stopped", "joined"), [(False, "1"), (True, "")])
def test_a_stream_that_a_newer_function_claimed_is_let_go_only_if_it_is_stopped(
    client: Client, is_stopped: bool, joined: str
) -> None:
    """A newer function's stream stays, because that function may be connected; a stopped stream is let go."""
    store = connected_store(client)
    claimed = {"group_fence": {"N": "2"}, "stop": {"BOOL": is_stopped}}
    client.put_item(TableName=CONTROL, Item=record(client) | claimed)
    assert store.record_stream_end(STREAM, "1", "StreamRejected", "403") == joined
    assert ("group" in record(client), "ending" in record(client)) == (not is_stopped, is_stopped)


def test_a_function_marked_as_ended_sends_no_more_heartbeats(client: Client) -> None:
    """A function that was marked as ended sends no heartbeat; the mark fails if it has sent one since it was read."""
    groups = GroupStore(client, CONTROL, GROUP)
    first, later, last = (GroupHeartbeat(1, NOW_MS + at_ms, NOW_MS + 8_000 + at_ms) for at_ms in (0, 2_000, 4_000))
    groups.first_heartbeat(REQUEST, EXECUTION, first)
    assert groups.heartbeat(REQUEST, later, GroupLease())[0]
    assert not groups.mark_ended(REQUEST, first)[0]
    assert groups.mark_ended(REQUEST, later)[0]
    is_done, lease = groups.heartbeat(REQUEST, last, GroupLease())
    assert (is_done, lease.heartbeats) == (False, {REQUEST: replace(later, is_ended=True)})


def test_a_group_ends_only_at_the_version_without_members(client: Client) -> None:
    """A group ends only at the version at which it had no member: if a stream has joined since, the group goes on."""
    groups = GroupStore(client, CONTROL, GROUP)
    assert [groups.raise_version().version for _ in range(2)] == [1, 2]
    assert [groups.end_group(EXECUTION, version)[0] for version in (1, 2)] == [False, True]


def test_the_heartbeats_of_functions_long_gone_are_removed(client: Client) -> None:
    """Heartbeats are removed a minute after their function's limit, so that the item does not grow for ever."""
    groups, old = GroupStore(client, CONTROL, GROUP), GroupHeartbeat(1, NOW_MS, NOW_MS + 8_000)
    for request_id in ("r0", REQUEST):
        groups.first_heartbeat(request_id, EXECUTION, old)
    left = []
    for after_ms in (FORGOTTEN_MS, FORGOTTEN_MS + 1):
        beat = replace(old, at_ms=NOW_MS + after_ms, until_ms=NOW_MS + after_ms + 8_000)
        left.append(sorted(groups.heartbeat(REQUEST, beat, groups.read())[1].heartbeats))
    assert left == [["r0", REQUEST], [REQUEST]]


def test_all_members_are_read_from_any_number_of_pages() -> None:
    """The members are read from all pages, because DynamoDB returns a megabyte at a time."""
    tables = MemoryDynamoDB("events", CONTROL)
    tables.most_items = 1
    groups = GroupStore(tables, CONTROL, GROUP)
    for stream in "abc":
        groups.add_member(stream, "1")
    assert groups.members() == dict.fromkeys("abc", "1")


def test_members_are_counted_and_removed_only_as_they_were_read(client: Client) -> None:
    """A count of members holds if no stream joined since it was read; a stream that joined again stays a member."""
    groups = GroupStore(client, CONTROL, GROUP)
    version = groups.raise_version().version
    for at, size in ((version - 1, 9), (version, 3), (version + 1, 7)):
        groups.record_size(at, size, frees_places=False)
    assert groups.read().size == 3
    for joined in ("1", "2"):
        groups.add_member("a", joined)
    assert (groups.remove_member("a", "1", NOW_MS), groups.members()) == (False, {"a": "2"})
    assert (groups.remove_member("a", "2", NOW_MS), groups.members()) == (True, {})
