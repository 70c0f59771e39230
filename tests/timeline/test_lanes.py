"""Finds the lanes of any machine."""

from hypothesis import given
from hypothesis import strategies as st

from tests.timeline.histories import history
from timeline.spans import rows, with_lanes


def test_iterations_of_a_map_share_lanes() -> None:
    """An iteration takes the first free lane, so three iterations of which two run at once have two lanes."""
    found = history(
        (1, 0, "ExecutionStarted", 0),
        (2, 1, "MapStateEntered", 0),
        (3, 2, "MapStateStarted", 0),
        (4, 3, "MapIterationStarted", 0),
        (5, 4, "TaskStateEntered", 0),
        (6, 3, "MapIterationStarted", 0),
        (7, 6, "TaskStateEntered", 0),
        (8, 7, "TaskStateExited", 1),
        (9, 8, "MapIterationSucceeded", 1),
        (10, 9, "MapIterationStarted", 1),
        (11, 10, "TaskStateEntered", 1),
    )
    lanes = {event["id"]: lane for event, lane in with_lanes(found)}
    assert [lanes[number] for number in (5, 7, 11)] == ["A", "B", "B"]
    assert [lanes[number] for number in (1, 2, 3)] == ["", "", ""]


@given(st.lists(st.booleans(), min_size=1, max_size=800))
def test_each_branch_has_a_lane_of_its_own(waits: list[bool]) -> None:
    """However many branches a Parallel has, no two share a lane, and A is the first that waits."""
    events = [(1, 0, "ExecutionStarted", 0), (2, 1, "ParallelStateEntered", 0), (3, 2, "ParallelStateStarted", 0)]
    for number, wait in enumerate(waits, 4):
        events.append((number, 3, "WaitStateEntered" if wait else "TaskStateEntered", 0))
    lanes = [lane for event, lane in with_lanes(history(*events)) if event["id"] > 3]
    assert len(set(lanes)) == len(waits)
    assert ("A" in lanes) == any(waits)
    if any(waits):
        assert lanes[waits.index(True)] == "A"


def test_a_task_of_another_service_counts_if_no_function_is_called() -> None:
    """A machine whose Tasks are jobs or activities has spans too; if functions are called, only these count."""
    job = history((1, 0, "ExecutionStarted", 0), (2, 1, "TaskStateEntered", 0), (3, 2, "TaskStarted", 1))
    job[2]["taskStartedEventDetails"] = {"resourceType": "ecs", "resource": "runTask.sync"}
    assert [row.what for row in rows(job)] == ["task_started"]
    worked = history((4, 3, "ActivityStarted", 5), (5, 4, "ActivityTimedOut", 9))
    assert [row.at_ms for row in rows([*job[:2], *worked])] == [5, 9]
    called = history((4, 3, "LambdaFunctionStarted", 7))
    assert [row.at_ms for row in rows([*job, *called])] == [7]
