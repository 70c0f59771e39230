"""Activities: work that waits for a worker."""

import asyncio
import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest

from endpoint import stepfunctions
from states_language import Pending, TaskCall, TaskFailure
from states_language.server import application
from states_language.server.activities import Activities, Activity

DIG = Activity("arn:aws:states:us-east-1:000000000000:activity:dig", "dig", 5, {"a": "b"})


def work(number: int) -> TaskCall:
    """Return a call that waits for a worker's answer."""
    target: dict[str, Any] = {"resource": DIG.arn, "service": "activity", "action": "", "sdk": False, "function": None}
    more: dict[str, Any] = {"payload": None, "execution_arn": "arn", "state": "S", "entered_ms": 0, "timeout_ms": None}
    return TaskCall(**target, **more, parameters=number, pending=Pending(f"token {number}"))


def test_an_activity_exists_after_a_restart(tmp_path: Path) -> None:
    """An activity keeps its name, date and tags over a restart; a deleted one stays deleted."""
    activities = Activities(tmp_path / "activities.json")
    activities.put(DIG)
    activities.put(Activity(DIG.arn + "2", "dig2", 6))
    activities.remove(DIG.arn + "2")
    assert Activities(tmp_path / "activities.json").all() == [DIG]


def test_work_is_given_out_once_and_in_its_order(tmp_path: Path) -> None:
    """Work is given out once, in order. Work whose Task no longer waits is skipped; an early worker waits."""

    async def main() -> None:
        activities = Activities(tmp_path / "a")
        activities.put(DIG)
        calls = [work(number) for number in range(3)]
        for call in calls:
            activities.offer(call)
        assert calls[0].pending is not None
        calls[0].pending.close()
        over = weakref.ref(calls.pop(0).pending)
        await asyncio.sleep(0)
        gc.collect()
        assert over() is None  # even before somebody polls
        assert [await activities.take(DIG.arn, 5), await activities.take(DIG.arn, 5)] == calls
        workers = [asyncio.create_task(activities.take(DIG.arn, 5)) for _ in range(2)]
        await asyncio.sleep(0)
        later = [work(3), work(4)]
        for call in later:
            activities.offer(call)
        assert await asyncio.gather(*workers) == later
        assert await activities.take(DIG.arn, 0.01) is None

    asyncio.run(main())


@pytest.mark.parametrize("end", ["close", "remove"])
def test_a_waiting_worker_is_answered_when_no_more_work_can_come(tmp_path: Path, end: str) -> None:
    """If the service ends or the activity is deleted, a polling worker gets nothing and new work is refused."""

    async def main() -> None:
        activities = Activities(tmp_path / "a")
        activities.put(DIG)
        workers = [asyncio.create_task(activities.take(DIG.arn, 60)) for _ in range(2)]
        await asyncio.sleep(0)
        activities.close() if end == "close" else activities.remove(DIG.arn)
        assert await asyncio.wait_for(asyncio.gather(*workers), 5) == [None, None]
        with pytest.raises(TaskFailure, match="does not exist"):
            activities.offer(work(0))

    asyncio.run(main())


def test_a_worker_that_is_gone_gets_no_work(tmp_path: Path) -> None:
    """If a worker disconnects while it polls, the next worker gets the work."""
    poll = {"type": "http.request", "body": json.dumps({"activityArn": DIG.arn}).encode()}
    received = [poll, {"type": "http.disconnect"}]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"x-amz-target", b"GetActivityTask")]}

    async def receive() -> Any:
        return received.pop(0)

    async def send(_: Any) -> None:
        """Drop the answer."""

    async def main() -> None:
        async with stepfunctions(tmp_path) as states:
            states.activities.put(DIG)
            await asyncio.wait_for(application(states)(scope, receive, send), 5)
            call = work(0)
            states.activities.offer(call)
            assert await states.activities.take(DIG.arn, 5) is call

    asyncio.run(main())
