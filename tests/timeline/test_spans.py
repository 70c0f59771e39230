"""Reads lanes and rows from histories of any origin."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.timeline.histories import TWO_LANES, history
from timeline.spans import Row, Span, rows, spans, timestamp_ms, transitions

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
