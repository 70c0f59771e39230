"""Reads lanes and rows from histories of any origin, and finds the lanes of any machine."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timeline.histories import TWO_LANES, history
from timeline.spans import Row, Span, rows, spans, timestamp_ms, transitions, with_lanes

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "written", [START, "2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00.000+01:00", 1767225600.0, 1767225600000]
)
def test_every_spelling_of_a_time(written: Any) -> None:
    """boto3's datetime, the command line's text and seconds, and our milliseconds give the same instant."""
    assert timestamp_ms({"timestamp": written}) == 1767225600000


def test_lane_a_is_the_branch_that_begins_with_its_wait() -> None:
    """In any order of the branches, the one that waits first is lane A; a retry is another start of the same lane."""
    assert rows(TWO_LANES) == [
        Row(5, "A", "wait_started"),
        Row(5, "B", "task_started"),
        Row(35, "A", "wait_ended"),
        Row(36, "A", "task_started"),
        Row(40, "B", "task_ended"),
        Row(41, "B", "task_started"),
        Row(50, "B", "task_ended"),
        Row(50, "A", "task_ended"),
    ]


def test_spans_pair_starts_with_ends() -> None:
    """Each attempt is a span of its own."""
    assert spans(rows(TWO_LANES)) == [
        Span("A", "wait", 5, 35),
        Span("B", "task", 5, 40),
        Span("A", "task", 36, 50),
        Span("B", "task", 41, 50),
    ]


def test_transitions_count_states_and_retries() -> None:
    """One Parallel, one Wait, two Tasks and one retry are five transitions."""
    assert transitions(TWO_LANES) == 5


def test_a_machine_without_a_parallel_is_lane_b() -> None:
    """A lone Task is lane B, and a Task that failed uncaught has ended once, though it is aborted afterwards."""
    lone = history(
        (1, 0, "ExecutionStarted", 0),
        (2, 0, "TaskStateEntered", 1),
        (3, 2, "TaskScheduled", 1),
        (4, 3, "TaskStarted", 1),
        (5, 4, "TaskFailed", 9),
        (6, 5, "TaskStateAborted", 9),
        (7, 5, "ExecutionFailed", 9),
    )
    assert rows(lone) == [Row(1, "B", "task_started"), Row(9, "B", "task_ended")]


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
