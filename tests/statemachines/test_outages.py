"""Outages of hours and days at the deployed settings: none ends an execution, and the stream is kept afterwards.

How many executions start is in docs/decisions/0034-let-the-function-say-a-renewal-is-due.md.
"""

from collections.abc import Coroutine, Set
from typing import Any

import pytest

from tests.statemachines.bounds import ALLOWED
from tests.statemachines.outages import World

DAYS = 1
CLEAN = {"superseded", "handed_on", "AlreadyRunning"}


def live(world: World, story: Coroutine[Any, Any, None]) -> None:
    """Runs the story to its end; every execution that has ended by then is a success that names its status."""
    world.clock.run(story)
    assert [one.error for one in world.executions if one.status == "FAILED"] == []
    assert max(len(one.history) for one in world.executions) <= ALLOWED


async def kept(world: World) -> None:
    """Posts before the outage. An hour after it one execution runs, and has the stream."""
    world.post()
    await world.clock.sleep_until(world.over_ms + 3_600_000)
    assert world.alive == [world.holder]


@pytest.mark.parametrize(
    ("away", "hours", "most"),
    [
        pytest.param({"upstream"}, 2, 4, marks=pytest.mark.long),
        pytest.param({"upstream"}, 6, 9, marks=pytest.mark.long),
        pytest.param({"table"}, 2, 2, marks=pytest.mark.long),
        pytest.param({"table"}, 6, 3, marks=pytest.mark.long),
        pytest.param({"table", "lambda"}, 24 * DAYS, 2 + 3 * DAYS + 1, marks=pytest.mark.long),
        ({"table", "lambda", "upstream"}, 24 * DAYS, 2 + 3 * DAYS + 1),
        pytest.param({"table"}, 72, 12, marks=pytest.mark.long),
    ],
)
def test_an_outage_ends_no_execution(away: Set[str], hours: int, most: int) -> None:
    """However long it lasts, few executions start and at most two run at a time. An hour later one holds the stream."""
    world = World(away, 1, 1 + hours)
    live(world, kept(world))
    assert set(world.ends()) <= CLEAN
    assert world.most_alive <= 2
    assert len(world.executions) <= most


@pytest.mark.parametrize("days", [1 / 6, pytest.param(3, marks=[pytest.mark.long, pytest.mark.cpu(8)])])
def test_an_outage_of_lambda_starts_a_successor_every_48_minutes(days: float) -> None:
    """A superseded execution reads that in the lease, and is not refused. At most two run at a time."""
    world = World({"lambda"}, 1, int(1 + 24 * days))
    live(world, kept(world))
    assert 29 * days <= len(world.executions) <= 31 * days
    assert world.ends() == {"superseded": len(world.executions) - 1}
    assert world.most_alive == 2


def test_an_outage_of_the_table_starts_an_execution_every_nine_hours() -> None:
    """Each tries for nine hours, then ends as renewed, with a dead-letter message."""
    world = World({"table"}, 1, 1 + 24 * DAYS)
    live(world, kept(world))
    assert world.ends() == {"handed_on": len(world.executions) - 1}
    assert (world.most_alive, len(world.executions) <= 2 + 3 * DAYS + 1) == (2, True)
    assert world.dead_letters == len(world.executions) - 2  # the first had the stream when its history was full
    assert 24 / 9.5 * DAYS - 1 <= world.dead_letters <= 24 / 8.5 * DAYS


@pytest.mark.parametrize("posts", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_post_while_the_table_is_away_runs_once_it_is_back(posts: int) -> None:
    """One of the executions takes the stream; the others read that and end."""
    world = World({"table"}, 0, 11)

    async def story() -> None:
        await world.hour(1)
        for _ in range(posts):
            world.post()
        await world.hour(12)
        assert world.alive == [world.holder]

    live(world, story())
    assert world.ends()["AlreadyRunning"] == posts - 1
    assert world.most_alive <= 2 * posts


# In hour 54 an execution is renewed.
@pytest.mark.parametrize("at_h", [1, *(pytest.param(at_h, marks=pytest.mark.long) for at_h in (2, 56))])
def test_a_claim_whose_answer_is_lost_as_the_outage_begins_is_kept(at_h: int) -> None:
    """A POST or a renewal claims the stream just as the table goes away. Its successors find the claim days later."""
    world = World({"table"}, at_h, at_h + 24 * DAYS)

    async def story() -> None:
        if at_h > 1:
            world.post()
        await world.hour(at_h)
        if at_h == 1:
            world.post()
        else:
            # A renewal that comes by in just this minute.
            world.start({"Name": "renewal", "Input": renewal(world)})
        await world.hour(at_h + 0.5)
        assert world.holder == world.executions[-1].arn
        await world.hour(at_h + 24 * DAYS + 1)
        assert world.alive == [world.holder]

    live(world, story())


def renewal(world: World) -> dict[str, Any]:
    """The input that a lane gives the successor of the execution that has the stream."""
    return {"pathParameters": {"streamId": "demo"}, "renews": world.holder}


@pytest.mark.parametrize(
    ("away", "at_h"),
    [
        pytest.param({"lambda"}, 3, marks=pytest.mark.long),
        pytest.param({"lambda"}, 10, marks=pytest.mark.long),
        pytest.param({"table"}, 15, marks=pytest.mark.long),
        pytest.param({"table"}, 24 * DAYS + 1, marks=pytest.mark.long),
        pytest.param({"table", "lambda"}, 24 * DAYS + 1, marks=pytest.mark.long),
    ],
)
def test_a_stop_request_wins(away: Set[str], at_h: int) -> None:
    """It is written during the outage, or at its end. Soon nothing runs, and a POST starts the stream again."""
    world = World(away, 1, 1 + 24 * DAYS)

    async def story() -> None:
        world.post()
        await world.hour(at_h)
        world.stop()
        await world.hour(at_h + 1 if away == {"lambda"} else 24 * DAYS + 2)
        assert world.alive == []
        await world.hour(24 * DAYS + 3)
        world.post()
        await world.hour(24 * DAYS + 4)
        assert world.alive == [world.holder] == [world.executions[-1].arn]

    live(world, story())
    assert world.ends()["stopped"] >= 1
