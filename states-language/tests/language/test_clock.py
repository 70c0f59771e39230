"""Virtual time jumps, repeats itself and never hangs; in real time no sleeper wakes early."""

import asyncio
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machines import machine
from states_language.clock import EPOCH_2026_MS, Deadlock, RealClock, VirtualClock, process_cpu_s


@given(st.integers(0, 10**11), st.integers(1, 10**7))
def test_asyncio_sleeps_end_at_the_very_millisecond(before_ms: int, sleep_ms: int) -> None:
    """A sleep ends at its exact millisecond, even after three years: asyncio's seconds lose nothing."""
    clock = VirtualClock()

    async def main() -> int:
        await clock.sleep_until(EPOCH_2026_MS + before_ms)
        await asyncio.sleep(sleep_ms / 1000)
        return clock.now_ms()

    assert clock.run(main()) == EPOCH_2026_MS + before_ms + sleep_ms


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_sleepers_wake_by_time_and_ties_in_the_order_they_began(sleeps_ms: list[int]) -> None:
    """Sleepers wake in order of time. If two have the same time, the one that began first wakes first."""
    clock = VirtualClock()
    woken: list[int] = []

    async def sleeper(index: int, sleep_ms: int) -> None:
        await clock.sleep_until(EPOCH_2026_MS + sleep_ms)
        woken.append(index)

    async def main() -> None:
        await asyncio.gather(*(sleeper(index, sleep_ms) for index, sleep_ms in enumerate(sleeps_ms)))

    clock.run(main())
    assert woken == sorted(range(len(sleeps_ms)), key=lambda index: (sleeps_ms[index], index))


def test_a_cancelled_timer_is_not_called_and_does_not_move_time() -> None:
    clock = VirtualClock()
    called: list[int] = []

    async def main() -> int:
        clock.call_at(EPOCH_2026_MS + 10, lambda: called.append(clock.now_ms()))
        clock.call_at(EPOCH_2026_MS + 20, lambda: called.append(-1)).cancel()
        await clock.sleep_until(EPOCH_2026_MS + 30)
        return clock.now_ms()

    assert (clock.run(main()), called) == (EPOCH_2026_MS + 30, [EPOCH_2026_MS + 10])


def test_timers_of_ended_executions_are_removed() -> None:
    """Each execution sets a timer for its limit of one year. After 2,000 ended ones at most 1,000 are left."""
    clock, ends = VirtualClock(), machine(("S", {"Type": "Succeed"}))
    for _ in range(2000):
        ends.execute(clock=clock)
    assert len(clock._loop._timers) <= 1000


def test_waiting_with_no_timer_set_is_a_deadlock_error_that_names_the_clock() -> None:
    """With nothing ready and no timer, the clock raises Deadlock instead of hanging, with the seed to repeat it."""
    clock = VirtualClock(seed=7)

    async def main() -> None:
        await clock.sleep_until(clock.now_ms() + 5)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match=r"no timer is set at 5 ms of VirtualClock\(start_ms=1767225600000, seed=7\)"):
        clock.run(main())


def test_a_second_run_of_a_clock_continues_where_the_first_stopped() -> None:
    """Other tasks pause between two runs of a clock and then continue."""
    clock = VirtualClock()
    ticks: list[int] = []

    async def ticking() -> None:
        while True:
            ticks.append(clock.now_ms() - EPOCH_2026_MS)
            await asyncio.sleep(1)

    async def begin() -> "asyncio.Task[None]":
        task = asyncio.create_task(ticking())
        await asyncio.sleep(1.5)
        return task

    task = clock.run(begin())
    assert ticks == [0, 1000]
    clock.run(clock.sleep_until(EPOCH_2026_MS + 2500))
    assert ticks == [0, 1000, 2000]
    assert not task.done()


def test_an_exception_in_a_callback_ends_the_run() -> None:
    """The run raises the exception of a timer's callback instead of only logging it."""
    clock = VirtualClock()

    def broken() -> None:
        raise LookupError("broken")

    async def main() -> None:
        clock.call_at(clock.now_ms() + 1, broken)
        await clock.sleep_until(clock.now_ms() + 2)

    with pytest.raises(LookupError, match="broken"):
        clock.run(main())


def test_real_time_wakes_nobody_early() -> None:
    clock = RealClock()

    async def main() -> tuple[int, int]:
        fired = asyncio.Event()
        at_ms = clock.now_ms() + 20
        clock.call_at(at_ms, fired.set)
        await clock.sleep_until(at_ms)
        await fired.wait()
        return at_ms, clock.now_ms()

    at_ms, woken_ms = asyncio.run(main())
    assert woken_ms >= at_ms
    assert 0 <= clock.random() < 1
    before_ms = time.time_ns() // 1_000_000
    assert before_ms - 1 <= clock.now_ms() <= time.time_ns() // 1_000_000 + 1


def test_process_cpu_s_returns_the_cpu_time_of_a_process() -> None:
    """`process_cpu_s` returns a process's own CPU time, and 0 for a process that does not exist."""
    assert time.process_time() <= process_cpu_s(os.getpid()) <= time.process_time()
    assert process_cpu_s(2**22 + 1) == 0
