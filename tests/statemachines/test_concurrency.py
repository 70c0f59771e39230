"""Many streams at the limit of their function's concurrency, in virtual time, under the settings of prod.

Without room, an invocation fails as with Lambda: `Lambda.TooManyRequestsException`. The machine keeps every stream: no
execution ends, no stream is orphaned, and each connects once there is room.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from local.simulation.shared_tasks import set_once
from states_language import TaskFailure
from states_language.clock import VirtualClock
from tests.statemachines.bounds import ALLOWED
from tests.statemachines.outages import HOUR_MS, LIFE_MS, World

# How long two are connected at a handover: the older reads the lease and drains.
OVERLAP_MS = 4_000


class Lambda:
    """The concurrency of the function in one account: how many invocations run, and how many may run."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy = self.peak = self.refused = self.busy_ms = 0

    def take(self) -> None:
        """Takes a place; raises what Step Functions makes of Lambda's refusal."""
        if self.busy >= self.most:
            self.refused += 1
            raise TaskFailure("Lambda.TooManyRequestsException", "Rate Exceeded.")
        self.busy += 1
        self.peak = max(self.peak, self.busy)


class Stream(World):
    """One stream, each of whose connections needs a place; `spans` are their intervals, None for an open one."""

    def __init__(self, clock: VirtualClock, account: Lambda) -> None:
        super().__init__(set(), 0, 0)
        self.clock = clock
        self.account = account
        self.spans: list[tuple[int, int | None]] = []
        self.open: list[tuple[str, asyncio.Future[str]]] = []

    async def connect(self, execution: str) -> str:
        """Ends the function soon after another has connected, or at its deadline.

        If its execution is superseded already, the function claims nothing and ends at once.
        """
        self.account.take()
        if self.holder not in (execution, None):
            self.account.busy -= 1
            return "superseded"
        now_ms = self.clock.now_ms()
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        for other, older in self.open:
            why = "StreamTakenOver" if other == execution else "superseded"
            self.clock.call_at(now_ms + OVERLAP_MS, partial(set_once(older), why))
        self.open.append((execution, end))
        deadline = self.clock.call_at(now_ms + LIFE_MS, lambda: set_once(end)("ConnectionExpired"))
        number = len(self.spans)
        self.spans.append((now_ms, None))
        why = await end
        deadline.cancel()
        self.open.remove((execution, end))
        self.spans[number] = (now_ms, self.clock.now_ms())
        self.account.busy -= 1
        self.account.busy_ms += self.clock.now_ms() - now_ms
        if why == "superseded":
            return why
        raise TaskFailure(why, "as usual")

    def gaps_ms(self) -> list[int]:
        """For how long nobody was connected each time, since the first connection."""
        gaps, until_ms = [], self.spans[0][0]
        for began_ms, ended_ms in self.spans:
            if began_ms > until_ms:
                gaps.append(began_ms - until_ms)
            until_ms = max(until_ms, self.clock.now_ms() if ended_ms is None else ended_ms)
        return gaps


class Crowd:
    """So many streams on one clock, each started `apart_s` after the one before, with places for `most` functions."""

    def __init__(self, streams: int, most: int, apart_s: float = 0) -> None:
        self.clock = VirtualClock()
        self.account = Lambda(most)
        self.apart_ms = round(apart_s * 1000)
        self.streams = [Stream(self.clock, self.account) for _ in range(streams)]
        self.begins_ms = self.clock.now_ms()

    def live(self, hours: float, meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Posts all streams, runs the given event meanwhile, and lets so many hours pass."""

        async def story() -> None:
            for number, stream in enumerate(self.streams):
                await self.clock.sleep_until(self.begins_ms + number * self.apart_ms)
                stream.post()
            if meanwhile is not None:
                await meanwhile()
            await self.hours(hours)

        self.clock.run(story())

    async def hours(self, hours: float) -> None:
        """Lets so many hours pass. No execution may end except by a renewal, and one execution holds each stream."""
        await self.clock.sleep_until(self.clock.now_ms() + round(hours * HOUR_MS))
        for stream in self.streams:
            assert [one.error for one in stream.executions if one.status == "FAILED"] == []
            assert set(stream.ends()) <= {"superseded"}
            assert stream.holder in stream.alive
            assert max(len(one.history) for one in stream.executions) <= ALLOWED

    @property
    def connected(self) -> int:
        """Returns how many streams have a connection now."""
        return sum(bool(stream.open) for stream in self.streams)

    @property
    def gaps_ms(self) -> list[int]:
        """The gaps of all streams that were ever connected."""
        return [gap for stream in self.streams if stream.spans for gap in stream.gaps_ms()]


def test_streams_beyond_the_bound_connect_once_there_is_room() -> None:
    """With 50 places, 50 of 65 streams connect. Two minutes after the limit is raised, all 65 are connected."""
    crowd = Crowd(65, 50)

    async def room_comes() -> None:
        await crowd.hours(0.1)
        assert (crowd.connected, crowd.account.busy) == (50, 50)
        crowd.account.most = 1_000

    crowd.live(1 / 30, room_comes)
    assert crowd.connected == 65
    assert crowd.account.refused > 0


def test_two_lanes_at_a_full_bound_do_not_block_each_other() -> None:
    """There is a place for each stream, none for an overlap. Each handover is a gap, but no stream stays away long."""
    crowd = Crowd(20, 20, apart_s=5)
    crowd.live(0.5)
    assert crowd.account.peak == 20
    assert 0 < max(crowd.gaps_ms) <= 120_000
    assert crowd.connected >= 18


@pytest.mark.parametrize("apart_s", [0, 8])
def test_a_tenth_more_places_than_streams_is_enough(apart_s: float) -> None:
    """Even if all hand over at once, a lane without a place tries again before the older function leaves."""
    crowd = Crowd(40, 44, apart_s)
    crowd.live(0.5)
    assert (crowd.connected, crowd.gaps_ms) == (40, [])
