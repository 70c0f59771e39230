"""A function's requests for its whole group: each heartbeat is in time, whatever a check in between finds."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.group.group_lease import GroupHeartbeat, GroupLease
from handlers.group.group_tasks import CHECK_LEAST_MS, GroupTask, GroupTasks
from handlers.group.roster import Roster

HEARTBEAT, CHECK, RECORDS = GroupTask("heartbeat"), GroupTask("check"), GroupTask("records")
EVERY_MS, OFTEN_MS, DEADLINE_MS = 4_000, 3_000, 900_000
CHECK_MS = EVERY_MS // 2
MINE = GroupHeartbeat(1, 0, DEADLINE_MS)
OTHERS = GroupHeartbeat(2, 0, DEADLINE_MS)
ALONE = {"r1": MINE}
BESIDE = {"r1": MINE, "r2": OTHERS}


def begun(every_ms: int = EVERY_MS, lease: GroupLease | None = None) -> GroupTasks:
    """Return the tasks of a function that sent a heartbeat at 0 and has read its members and its records."""
    lease = lease or GroupLease(1, "E", version=3, heartbeats=ALONE)
    group_tasks = GroupTasks(Roster(1, "E", DEADLINE_MS), 1, every_ms, OFTEN_MS)
    group_tasks.record_claim(lease, 0)
    assert group_tasks.next_task(0) == HEARTBEAT
    group_tasks.record_answer(0, lease)
    assert group_tasks.next_task(0) == GroupTask("members", 3)
    group_tasks.record_answer(0, {"a": "joined"})
    assert group_tasks.next_task(0) == RECORDS
    group_tasks.record_answer(0, [])
    assert group_tasks.next_task(0) is None
    return group_tasks


def task_at(group_tasks: GroupTasks, now_ms: int) -> object:
    """Return the request at that instant; a millisecond before there is none."""
    assert group_tasks.due_ms == now_ms
    assert group_tasks.next_task(now_ms - 1) is None
    return group_tasks.next_task(now_ms)


def test_a_later_version_brings_the_heartbeat_forward() -> None:
    """A check that finds a later version brings the heartbeat forward; the next check comes as long after it."""
    group_tasks, lease = begun(), GroupLease(1, "E", version=4, heartbeats=ALONE)
    assert task_at(group_tasks, CHECK_MS) == CHECK
    group_tasks.record_answer(CHECK_MS + 5, 4)
    assert task_at(group_tasks, CHECK_MS + 5) == HEARTBEAT
    group_tasks.record_answer(CHECK_MS + 9, lease)
    assert group_tasks.next_task(CHECK_MS + 9) == GroupTask("members", 4)
    group_tasks.record_answer(CHECK_MS + 9, {"a": "joined", "b": "joined"})
    assert group_tasks.next_task(CHECK_MS + 9) == RECORDS
    group_tasks.record_answer(0, [])
    assert task_at(group_tasks, 2 * CHECK_MS + 9) == CHECK


@given(st.lists(st.sampled_from([0, 3, 4, None]), max_size=12), st.integers(0, 900))
def test_a_heartbeat_is_never_late(checks: Sequence[int | None], late_ms: int) -> None:
    """Whatever checks return and however long they take, heartbeats keep their distance, with a check between."""
    group_tasks, lease, beaten_ms = begun(), GroupLease(1, "E", version=3, heartbeats=ALONE), 0
    for seen in checks:
        now_ms = group_tasks.due_ms
        assert (now_ms, group_tasks.next_task(now_ms)) == (beaten_ms + CHECK_MS, CHECK)
        group_tasks.record_answer(now_ms + late_ms, seen)
        now_ms = group_tasks.due_ms
        assert group_tasks.next_task(now_ms) == HEARTBEAT
        assert now_ms == (beaten_ms + CHECK_MS + late_ms if seen == 4 else beaten_ms + EVERY_MS)
        beaten_ms = now_ms
        group_tasks.record_answer(now_ms, lease)


@pytest.mark.parametrize(
    ("every_ms", "heartbeats"), [(2 * CHECK_LEAST_MS - 1, ALONE), (EVERY_MS, BESIDE)], ids=["soon", "beside"]
)
def test_a_function_makes_no_check_close_to_a_heartbeat(every_ms: int, heartbeats: dict[str, GroupHeartbeat]) -> None:
    """Without a distance of a second on both sides there is no check, nor in a function beside a newer one."""
    group_tasks = begun(every_ms, GroupLease(2, "E", version=3, heartbeats=heartbeats))
    assert task_at(group_tasks, min(every_ms, OFTEN_MS)) == HEARTBEAT


def test_a_request_that_the_store_refuses_is_repeated_after_a_pause() -> None:
    """A request that the store refused is repeated after a pause, even a heartbeat."""
    group_tasks = begun()
    assert group_tasks.next_task(EVERY_MS) == HEARTBEAT
    group_tasks.record_answer(EVERY_MS + 5, None)
    assert task_at(group_tasks, EVERY_MS + 5 + OFTEN_MS) == HEARTBEAT


def test_a_heartbeat_comes_before_the_removal_of_a_stream() -> None:
    """A heartbeat comes before the removal of a stream, because a late heartbeat counts as death."""
    group_tasks = begun()
    group_tasks.add_over("a")
    assert group_tasks.next_task(EVERY_MS) == HEARTBEAT
