"""The analysis of executions from their histories."""

from tests.timeline.histories import TWO_LANES, history
from timeline.analysis import Execution, analyse
from timeline.coverage import Gap

LOOP = history(
    (1, 0, "ExecutionStarted", 1000),
    (2, 1, "TaskStateEntered", 1000),
    (3, 2, "LambdaFunctionScheduled", 1000),
    (4, 3, "LambdaFunctionStarted", 1100),
    (5, 4, "LambdaFunctionTimedOut", 2100),
    (6, 5, "LambdaFunctionScheduled", 3100),
    (7, 6, "LambdaFunctionStarted", 3100),
)


def test_a_retried_task_leaves_a_gap_with_its_cause() -> None:
    """Nothing runs between two attempts; the cause of the gap is the attempt before it."""
    timed_out = [{**event} for event in LOOP]
    timed_out[4]["lambdaFunctionTimedOutEventDetails"] = {"error": "States.Timeout"}
    found = analyse([("loop", [*timed_out, *history((8, 7, "LambdaFunctionSucceeded", 4100))])])
    assert found.gaps == [Gap(1100, 2100, "States.Timeout")]
    assert (found.running_ms, found.overlap_ms, found.transitions, found.until_ms) == (2000, 0, 2, 3100)
    assert found.task_percent == 66.6666


def test_a_running_task_covers_until_now() -> None:
    """A running execution is analysed as of now, and the distance to its limit follows from its later half."""
    found = analyse([("loop", LOOP)], now_ms=9000)
    assert (found.until_ms, found.tasks[-1].to_ms, found.tasks[-1].ended_by) == (8000, 8000, "RUNNING")
    # Of the seven events three came in the later half, which is 1,050 ms long.
    assert found.executions == [Execution("loop", "RUNNING", 0, None, 7, 2, (25_000 - 7) * 1050 // 3)]


def test_a_running_task_ends_with_its_execution() -> None:
    """If the execution times out, a Task has no event of its own; after a good end no time counts as missing."""
    over = analyse([("loop", [*LOOP, *history((8, 0, "ExecutionTimedOut", 5000))])])
    assert (over.tasks[-1].to_ms, over.tasks[-1].ended_by, over.until_ms) == (4000, "TIMED_OUT", 4000)
    good = [*LOOP, *history((8, 7, "LambdaFunctionSucceeded", 5000), (9, 8, "ExecutionSucceeded", 6000))]
    assert (analyse([("loop", good)]).until_ms, analyse([("loop", good)]).gaps[1:]) == (4000, [])


def test_executions_after_each_other_are_one_timeline() -> None:
    """Times count from the first execution's start, in whatever order the executions are given."""
    later = [{**event, "timestamp": event["timestamp"] + 100} for event in TWO_LANES]
    found = analyse([("second", later), ("first", TWO_LANES)])
    assert [(one.name, one.from_ms) for one in found.executions] == [("first", 0), ("second", 100)]
    assert [(gap.from_ms, gap.to_ms) for gap in found.gaps] == [(50, 105)]


def test_an_execution_without_a_task_covers_nothing() -> None:
    """An execution that only waits has neither gaps nor a share."""
    found = analyse([("idle", history((1, 0, "ExecutionStarted", 0), (2, 1, "WaitStateEntered", 5)))])
    assert (found.task_percent, found.gaps, found.tasks) == (None, [], [])


def test_a_task_that_calls_no_function_is_billed_as_none() -> None:
    """An execution for which a Task waits counts as connected, but its time is not a function's."""
    nested = history((1, 0, "ExecutionStarted", 0), (2, 0, "TaskStateEntered", 0), (3, 2, "TaskStarted", 0))
    nested[-1]["taskStartedEventDetails"] = {"resource": "startExecution.sync", "resourceType": "states"}
    found = analyse([("nested", [*nested, *history((4, 3, "TaskSucceeded", 9000))])])
    assert (len(found.tasks), found.functions, found.running_ms) == (1, [], 0)
    assert (len(analyse([("loop", LOOP)]).functions), analyse([("loop", LOOP)]).running_ms) == (2, 1000)
