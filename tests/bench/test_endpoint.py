"""The benchmark of the local Step Functions: what it counts is right; how long it takes is not tested."""

from bench import endpoint, stall


def test_all_events_of_a_history_are_paged() -> None:
    """A loop of fifty rounds has 204 events, which are more than a page."""
    (row,) = endpoint.rows(rounds=50, starts=3, alone=True)
    assert (row.server, row.events) == (endpoint.OURS, 204)
    assert row.start_ms > 0
    assert row.history_ms > 0


def test_each_goal_is_judged_by_its_own_figure() -> None:
    """A tenth of what was measured first, that included."""
    assert [goal.met for goal in endpoint.goals(5.4, 1300.1)] == [True, False]
    assert [goal.met for goal in endpoint.goals(5.5, 1300)] == [False, True]
    assert endpoint.goals(1.0, 200.0)[0].line == "ok      endpoint: the median StartExecution: 1 ms, at most 5.4 ms"


def test_no_answer_may_take_as_long_as_the_goal() -> None:
    """Under an attack the slowest counts."""
    assert [stall.goal("sort", 4, slowest_ms).met for slowest_ms in (99.9, 100)] == [True, False]
    assert stall.goal("sort", 4, 120.5).line == (
        "missed  sort: the slowest other answer, attacked by 4: 120.5 ms, at most 100 ms"
    )
